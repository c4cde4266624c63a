//! The model over a million points of a sweep, and the same formula in NumPy.

use super::python::Script;
use super::turns::{self, Turns};
use super::{Part, Stage};
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use bywash_model::sweep::{Axis, Table, sweep};
use bywash_model::{Architecture, Description, Machine, Resource, Workload};
use serde::{Deserialize, Serialize};

const SWEEP: Script = Script { name: "sweep", source: include_str!("../../programs/sweep.py") };
/// A thousand values of each.
const MISS: &str = "request.web.miss=0 %:99.9 %:0.1 %";
const SPEED: &str = "machine.processors.speed=1 GHz:10.99 GHz:10 MHz";
const POINTS: usize = 1_000_000;
/// Seconds that they may take.
const LIMIT: f64 = 0.2;
/// Times that they are computed in a turn, after once that does not count.
const REPEATS: u32 = 5;
/// How far from each other the sums over all points may be: other orders of adding.
const AGREEMENT: f64 = 1e-9;

/// What NumPy is told, in base units.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Order {
    structure: Architecture,
    processors: f64,
    interconnect: f64,
    interfaces: Devices,
    disks: Devices,
    server: f64,
    tcp: f64,
    file_system: f64,
    system: f64,
    miss: Vec<f64>,
    speed: Vec<f64>,
    repeats: u32,
}

#[derive(Serialize)]
struct Devices {
    count: f64,
    rate: f64,
    processor: f64,
}

/// A turn: what a sweep took, and what came of it.
#[derive(Debug, Default, Deserialize)]
struct Turn {
    seconds: f64,
    /// Sum over all points.
    throughput: f64,
    /// Points that each resource binds.
    binding: Vec<u64>,
    #[serde(default)]
    versions: String,
}

/// A part for each structure.
pub fn parts() -> Vec<Part> {
    let part = |structure: Architecture| Part {
        bench: "plan/model",
        case: format!("1,000,000 points, {}", structure.name()),
        measure: Box::new(move |stage| measure(stage, structure)),
    };
    Architecture::ALL.map(part).into()
}

fn measure(stage: &Stage<'_>, structure: Architecture) -> Result<Vec<Row>, Error> {
    let description = Description::new(Machine::carrera_2003(), Workload::web(0.0));
    let axis = |text: &str| text.parse::<Axis>().map_err(|error| Error::failed("a sweep", error.to_string()));
    let axes = [axis(MISS)?, axis(SPEED)?];
    let repeats = if stage.quick { 1 } else { REPEATS };
    let order = order(&description, &axes, structure, repeats);
    let turns = turns::take(
        stage.pairs,
        || evaluate(&description, &axes, structure, repeats),
        || stage.python()?.run::<Turn>(SWEEP, &order),
    )?;
    Ok(rows(turns))
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
    let mut table: Table = once()?;
    let begin = turns::processor_seconds();
    for _ in 0..repeats {
        table = once()?;
    }
    let seconds = (turns::processor_seconds() - begin) / f64::from(repeats);
    let points =
        |resource: &Resource| table.binding.iter().filter(|binding| *binding == resource).count() as u64;
    Ok(Turn {
        seconds,
        throughput: table.throughput.iter().sum(),
        binding: Resource::ALL.iter().map(points).collect(),
        versions: String::new(),
    })
}

fn order(description: &Description, axes: &[Axis; 2], structure: Architecture, repeats: u32) -> Order {
    let (machine, costs) = (&description.machine, &description.costs);
    let (interfaces, disks) = (&machine.interfaces, &machine.disks);
    Order {
        structure,
        processors: machine.processors.count,
        interconnect: machine.interconnect.rate.0,
        interfaces: Devices {
            count: interfaces.count,
            rate: interfaces.rate.0,
            processor: interfaces.processor.0,
        },
        disks: Devices { count: disks.count, rate: disks.rate.0, processor: disks.processor.0 },
        server: costs.server.0,
        tcp: costs.tcp.0,
        file_system: costs.file_system.0,
        system: costs.system.0,
        miss: axes[0].values.clone(),
        speed: axes[1].values.clone(),
        repeats,
    }
}

fn rows(turns: Turns<Turn, Turn>) -> Vec<Row> {
    let Turns { ours, peer } = turns;
    let peer = peer.and_then(|theirs| agree(&ours, &theirs).map(|()| theirs));
    let versions = peer.as_ref().ok().and_then(|theirs| theirs.first()).map(|turn| turn.versions.clone());
    let row = |peer: &str| Row {
        metric: "time".into(),
        unit: "ms".into(),
        peer: peer.into(),
        note: versions.clone().unwrap_or_default(),
        ..Row::default()
    };
    let seconds = |turns: &[Turn]| turns.iter().map(|turn| turn.seconds).collect::<Vec<f64>>();
    let in_ms = |seconds| seconds * 1e3;
    let theirs = peer.map(|turns| seconds(&turns));
    vec![
        turns::row_of_limit(row("a goal of 200 ms"), &seconds(&ours), LIMIT, in_ms),
        turns::row(row("NumPy"), &seconds(&ours), &theirs, None, in_ms),
    ]
}

/// Whether both sides have computed the same for all points.
fn agree(ours: &[Turn], theirs: &[Turn]) -> Result<(), Error> {
    for (ours, theirs) in ours.iter().zip(theirs) {
        let same = (ours.throughput / theirs.throughput - 1.0).abs() < AGREEMENT;
        if !same || ours.binding != theirs.binding || ours.binding.iter().sum::<u64>() != POINTS as u64 {
            let told = |turn: &Turn| format!("{:e} B/s in all, bound by {:?}", turn.throughput, turn.binding);
            return Err(Error::failed(
                "the formula",
                format!("gives {} here, {} there", told(ours), told(theirs)),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_all_points() {
        let description = Description::new(Machine::carrera_2003(), Workload::web(0.0));
        let axes = [MISS.parse().unwrap(), SPEED.parse().unwrap()];
        let turn = evaluate(&description, &axes, Architecture::Active, 1).unwrap();
        assert_eq!(turn.binding.iter().sum::<u64>(), POINTS as u64);
        assert!(turn.seconds > 0.0 && turn.throughput > 0.0);
        // Somewhere each of the two decides.
        assert!(turn.binding.iter().filter(|points| **points > 0).count() >= 2, "{turn:?}");
    }

    #[test]
    fn another_formula_is_a_failure() {
        let turn = |throughput: f64, disks: u64| Turn {
            seconds: 0.1,
            throughput,
            binding: vec![POINTS as u64 - disks, 0, 0, 0, disks, 0],
            versions: "NumPy 2".into(),
        };
        let same = rows(Turns { ours: vec![turn(1.0, 7)], peer: Ok(vec![turn(1.0 + 1e-12, 7)]) });
        assert_eq!((same[0].met, same[1].ratio, same[1].note.as_str()), (Some(true), Some(1.0), "NumPy 2"));
        for other in [turn(1.1, 7), turn(1.0, 8)] {
            let rows = rows(Turns { ours: vec![turn(1.0, 7)], peer: Ok(vec![other]) });
            assert!(rows[1].failed && !rows[0].failed, "{rows:?}");
        }
    }
}
