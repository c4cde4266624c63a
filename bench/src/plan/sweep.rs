//! The model over a million points of a sweep, and the same formula in NumPy.

use super::{Stage, Turn};
use crate::clock::thread_seconds;
use crate::engine::Metric;
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use bywash_model::sweep::{Axis, sweep};
use bywash_model::{Architecture, Description, Machine, Resource, Workload};
use serde_json::json;

const NUMPY: (&str, &str) = ("NumPy", include_str!("../../programs/sweep.py"));
/// Axes of the sweep, a thousand values each.
const AXES: [&str; 2] =
    ["request.web.miss=0 %:99.9 %:0.1 %", "machine.processors.speed=1 GHz:10.99 GHz:10 MHz"];
const POINTS: usize = 1_000_000;
/// Limit of a sweep, in milliseconds.
const LIMIT_MS: f64 = 200.0;
/// Sweeps in a turn, after one that is not timed.
const REPEATS: u32 = 5;
/// Greatest relative difference of the sums over all points, which are added in different orders. Numbers of points are
/// equal if they differ by no more.
const DIFFERENCE: f64 = 1e-9;

pub(super) fn measure(stage: &Stage, head: &Row, structure: Architecture) -> Result<Vec<Row>, Error> {
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
    let ours = || evaluate(&description, &axes, structure, repeats);
    let (head, runs) = stage.against_python(head, ours, NUMPY, |_| order.clone(), DIFFERENCE)?;
    let time = Metric::cost("time", "ms", |turn: &Turn| turn.seconds * 1e3);
    Ok(vec![
        time.row_of_limit(&head, &runs[0], "a goal of 200 ms", LIMIT_MS, 1.0),
        time.row(&head, &runs[0], &runs[1], None),
    ])
}

fn axes() -> Result<Vec<Axis>, Error> {
    AXES.iter().map(|axis| axis.parse().map_err(failed)).collect()
}

fn failed(error: impl ToString) -> Error {
    Error::failed("a sweep", error.to_string())
}

/// Sweeps; the results are the sum over all points, in bytes a second, and the number of points that each resource binds.
fn evaluate(
    description: &Description,
    axes: &[Axis],
    structure: Architecture,
    repeats: u32,
) -> Result<Turn, Error> {
    interrupt::check()?;
    let mut table = sweep(description, axes, structure).map_err(failed)?;
    let begin = thread_seconds();
    for _ in 0..repeats {
        table = sweep(description, axes, structure).map_err(failed)?;
    }
    let seconds = (thread_seconds() - begin) / f64::from(repeats);
    if table.binding.len() != POINTS {
        return Err(failed(format!("has {} points", table.binding.len())));
    }
    let points = |resource: &Resource| table.binding.iter().filter(|bound| *bound == resource).count() as f64;
    let mut results = vec![table.throughput.iter().sum()];
    results.extend(Resource::ALL.iter().map(points));
    Ok(Turn { seconds, results, ..Turn::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_all_points_and_more_than_one_resource_binds() {
        let description = Description::new(Machine::carrera_2003(), Workload::web(0.0));
        let turn = evaluate(&description, &axes().unwrap(), Architecture::Active, 1).unwrap();
        assert_eq!(turn.results[1..].iter().sum::<f64>(), POINTS as f64);
        assert!(turn.seconds > 0.0 && turn.results[0] > 0.0);
        assert!(turn.results[1..].iter().filter(|points| **points > 0.0).count() >= 2, "{turn:?}");
    }
}
