//! Schaelicke, *Architectural Support for User-Level Input/Output*: streams of requests through the kernel and past it,
//! and what each of the three mechanisms brings alone and together.

use super::Target;
use crate::engine::Interval;
use crate::many;
use crate::preset::Preset;
use crate::server::{Options, Stop, simulate};
use bywash_model::Architecture;
use bywash_model::work::Mechanisms;
use serde::Serialize;

/// The streams with some of the mechanisms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub mechanisms: Mechanisms,
    /// Bytes a second of all streams, with 95 % confidence.
    pub bandwidth: Interval,
    /// The share of the time that the processor was taken.
    pub occupancy: f64,
    /// Seconds of the processor for a request.
    pub processor_seconds: f64,
}

const REQUESTS: u64 = 20_000;
const SEED: u64 = 2001;

/// All eight combinations: none first, all three last.
pub fn ablation() -> Vec<Row> {
    let base = Preset::named("schaelicke-streams").expect("it comes along").description();
    let all: Vec<Mechanisms> = (0..8u32)
        .map(|bits| Mechanisms {
            initiation: bits & 1 != 0,
            notification: bits & 2 != 0,
            transfer: bits & 4 != 0,
        })
        .collect();
    many::each(&all, |mechanisms| {
        let mut description = base;
        description.mechanisms = *mechanisms;
        let options = Options { seed: SEED, stop: Stop::Requests(REQUESTS) };
        let report = simulate(&description, Architecture::UserLevel, &options, &mut |_| true);
        let report = report.expect("the streams can be simulated");
        Row {
            mechanisms: *mechanisms,
            bandwidth: report.throughput,
            occupancy: report.resources.first().map_or(0.0, |processor| processor.utilisation),
            processor_seconds: report.processor_seconds,
        }
    })
}

/// What the dissertation says, and what comes out.
pub fn targets() -> Vec<Target> {
    let rows = ablation();
    // There are eight.
    let (kernel, user) = (&rows[0], &rows[7]);
    let spared = |row: &Row| {
        (kernel.processor_seconds - row.processor_seconds)
            / (kernel.processor_seconds - user.processor_seconds)
    };
    let alone = |wanted: Mechanisms| rows.iter().find(|row| row.mechanisms == wanted).map_or(0.0, spared);
    let none = Mechanisms::NONE;
    let transfer = alone(Mechanisms { transfer: true, ..none });
    let others = alone(Mechanisms { initiation: true, notification: true, ..none });
    let line = |what, says, simulated, range| Target {
        source: "23 streams",
        what,
        says,
        simulated,
        range,
        note: "",
    };
    vec![
        line(
            "bandwidth, user-level / kernel",
            "about 2",
            user.bandwidth.mean / kernel.bandwidth.mean,
            (1.6, 2.5),
        ),
        line("processor spared", "0.98", 1.0 - user.occupancy / kernel.occupancy, (0.97, 1.0)),
        line("of that by transfer alone", "dominates", transfer, (0.5, 1.0)),
        line("of that by the other two", "-", others, (0.0, 0.5)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_the_dissertation_comes_out() {
        for target in targets() {
            assert!(target.agrees(), "{target:?}");
        }
    }

    #[test]
    fn each_mechanism_helps_whatever_the_others_do() {
        let rows = ablation();
        for (number, row) in rows.iter().enumerate() {
            for bit in [1, 2, 4] {
                if number & bit == 0 {
                    assert!(rows[number | bit].processor_seconds < row.processor_seconds);
                }
            }
        }
    }
}
