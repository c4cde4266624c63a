//! The model over a million points of a sweep, and the same formula in NumPy.

use super::python::Script;
use super::{Stage, compare};
use crate::campaign::Declared;
use crate::clock::thread_seconds;
use crate::engine::{Metric, Runs, Side};
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use bywash_model::sweep::{Axis, sweep};
use bywash_model::{Architecture, Description, Machine, Resource, Workload};
use serde::Deserialize;
use serde_json::json;

const SWEEP: Script = Script { name: "sweep", source: include_str!("../../programs/sweep.py") };
/// Axes of the sweep, a thousand values each.
const AXES: [&str; 2] =
    ["request.web.miss=0 %:99.9 %:0.1 %", "machine.processors.speed=1 GHz:10.99 GHz:10 MHz"];
const POINTS: u64 = 1_000_000;
/// Limit of a sweep, in milliseconds.
const LIMIT_MS: f64 = 200.0;
/// Sweeps in a turn, after one that is not timed.
const REPEATS: u32 = 5;
/// Greatest relative difference of the sums over all points, which are added in different orders.
const AGREEMENT: f64 = 1e-9;

/// One turn of a side: the time of a sweep, and its result.
#[derive(Debug, Deserialize)]
struct Turn {
    /// CPU time of one sweep.
    seconds: f64,
    /// Sum over all points, in bytes a second.
    throughput: f64,
    /// Number of points that each resource binds.
    binding: Vec<u64>,
    #[serde(default)]
    versions: String,
}

pub(super) fn cases() -> Vec<Declared<Stage>> {
    let case = |structure: Architecture| {
        let head = Row::head("plan/model", &format!("1,000,000 points, {}", structure.name()), "");
        Declared::new(head, move |stage, head| measure(stage, head, structure))
    };
    Architecture::ALL.map(case).into()
}

fn axes() -> Result<Vec<Axis>, Error> {
    let axes = AXES.map(str::parse::<Axis>).into_iter().collect::<Result<Vec<Axis>, _>>();
    axes.map_err(|error| Error::failed("a sweep", error.to_string()))
}

fn measure(stage: &Stage, head: &Row, structure: Architecture) -> Result<Vec<Row>, Error> {
    let description = Description::new(Machine::carrera_2003(), Workload::web(0.0));
    let axes = axes()?;
    let repeats = if stage.quick { 1 } else { REPEATS };
    let (machine, costs) = (&description.machine, &description.costs);
    let (interfaces, disks) = (&machine.interfaces, &machine.disks);
    // In base units.
    let order = json!({
        "structure": structure,
        "processors": machine.processors.count,
        "interconnect": machine.interconnect.rate.0,
        "interfaces": {
            "count": interfaces.count, "rate": interfaces.rate.0, "processor": interfaces.processor.0
        },
        "disks": { "count": disks.count, "rate": disks.rate.0, "processor": disks.processor.0 },
        "server": costs.server.0,
        "tcp": costs.tcp.0,
        "file-system": costs.file_system.0,
        "system": costs.system.0,
        "miss": axes[0].values,
        "speed": axes[1].values,
        "repeats": repeats,
    });
    let sides = vec![
        Side::new("bywash", || evaluate(&description, &axes, structure, repeats)),
        Side::new("NumPy", || stage.python()?.run(SWEEP, &order)),
    ];
    Ok(rows(head, stage.rounds.run(sides)?))
}

fn evaluate(
    description: &Description,
    axes: &[Axis],
    structure: Architecture,
    repeats: u32,
) -> Result<Turn, Error> {
    interrupt::check()?;
    let once =
        || sweep(description, axes, structure).map_err(|error| Error::failed("a sweep", error.to_string()));
    let mut table = once()?;
    let begin = thread_seconds();
    for _ in 0..repeats {
        table = once()?;
    }
    let seconds = (thread_seconds() - begin) / f64::from(repeats);
    let points = |resource: &Resource| table.binding.iter().filter(|bound| *bound == resource).count() as u64;
    Ok(Turn {
        seconds,
        throughput: table.throughput.iter().sum(),
        binding: Resource::ALL.iter().map(points).collect(),
        versions: String::new(),
    })
}

fn rows(head: &Row, mut runs: Vec<Runs<Turn>>) -> Vec<Row> {
    compare(&mut runs, agree);
    let (ours, numpy) = (&runs[0], &runs[1]);
    let versions = numpy.samples.as_ref().ok().and_then(|turns| Some(turns.first()?.versions.clone()));
    let head = Row { note: versions.unwrap_or_default(), ..head.clone() };
    let time = Metric::cost("time", "ms", |turn: &Turn| turn.seconds * 1e3);
    vec![
        time.row_of_limit(&head, ours, "a goal of 200 ms", LIMIT_MS, 1.0),
        time.row(&head, ours, numpy, None),
    ]
}

/// Checks that both sides have computed the same for all points.
fn agree(ours: &[Turn], theirs: &[Turn]) -> Result<(), Error> {
    for (ours, theirs) in ours.iter().zip(theirs) {
        let is_near = (ours.throughput / theirs.throughput - 1.0).abs() < AGREEMENT;
        if !is_near || ours.binding != theirs.binding || ours.binding.iter().sum::<u64>() != POINTS {
            let of = |turn: &Turn| format!("{:e} B/s in all, bound by {:?}", turn.throughput, turn.binding);
            return Err(Error::failed(
                "the formula",
                format!("gives {} here, {} in NumPy", of(ours), of(theirs)),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_all_points_and_more_than_one_resource_binds() {
        let description = Description::new(Machine::carrera_2003(), Workload::web(0.0));
        let turn = evaluate(&description, &axes().unwrap(), Architecture::Active, 1).unwrap();
        assert_eq!(turn.binding.iter().sum::<u64>(), POINTS);
        assert!(turn.seconds > 0.0 && turn.throughput > 0.0);
        assert!(turn.binding.iter().filter(|points| **points > 0).count() >= 2, "{turn:?}");
    }

    #[test]
    fn both_sides_have_to_agree_on_all_points() {
        let turn = |throughput, disks| Turn {
            seconds: 0.1,
            throughput,
            binding: vec![POINTS - disks, 0, 0, 0, disks, 0],
            versions: "NumPy 2".into(),
        };
        let rows_of = |other: Turn| {
            let runs = |name: &str, turn| Runs { name: name.into(), samples: Ok(vec![turn]) };
            rows(&Row::default(), vec![runs("bywash", turn(1.0, 7)), runs("NumPy", other)])
        };
        let same = rows_of(turn(1.0 + 1e-12, 7));
        assert_eq!((same[0].met, same[1].ratio, same[1].note.as_str()), (Some(true), Some(1.0), "NumPy 2"));
        for other in [turn(1.1, 7), turn(1.0, 8)] {
            let rows = rows_of(other);
            assert!(rows[1].failed && !rows[0].failed, "{rows:?}");
        }
    }
}
