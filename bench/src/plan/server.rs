//! The simulated server of Carrera et al., Table IV: requests a minute, and the memory that it takes.
//!
//! Each run is a process of its own, so that nothing but the simulation is in its memory.

use super::{Part, Stage, turns};
use crate::child;
use crate::error::Error;
use crate::number;
use crate::row::Row;
use bywash_model::Architecture;
use bywash_sim::preset::Preset;
use bywash_sim::server::{Options, Stop, simulate};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

const PRESET: &str = "carrera-table-4";
/// Requests of a run, behind a warm-up of a tenth: about a second.
const REQUESTS: u64 = 200_000;
const REQUESTS_QUICK: u64 = 10_000;
/// Requests a minute that are asked for.
const A_MINUTE: f64 = 1e6;
/// Bytes that a simulation may take.
const MEMORY: f64 = 500.0 * 1024.0 * 1024.0;

/// What the process that simulates says.
#[derive(Debug, Deserialize, Serialize)]
struct Run {
    /// The processor's.
    seconds: f64,
    /// Those of the warm-up are not in it, though their time is.
    requests: u64,
    events: u64,
    peak_bytes: u64,
}

/// A part for each structure.
pub fn parts() -> Vec<Part> {
    let part = |structure: Architecture| Part {
        bench: "plan/server",
        case: format!("Table IV, {}", structure.name()),
        measure: Box::new(move |stage| measure(stage, structure)),
    };
    Architecture::ALL.map(part).into()
}

fn measure(stage: &Stage<'_>, structure: Architecture) -> Result<Vec<Row>, Error> {
    let requests = if stage.quick { REQUESTS_QUICK } else { REQUESTS };
    let mut runs = Vec::new();
    for _ in 0..stage.pairs {
        let program =
            std::env::current_exe().map_err(|error| Error::failed("this program", error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["bench", "peer", "plan", structure.name()]).arg(requests.to_string());
        let said = child::run(&mut command)?.stdout;
        let run = serde_json::from_str::<Run>(&said);
        runs.push(run.map_err(|error| Error::failed("the simulation", error.to_string()))?);
    }
    Ok(rows(&runs))
}

fn rows(runs: &[Run]) -> Vec<Row> {
    let each: Vec<f64> = runs.iter().map(|run| run.seconds / run.requests as f64).collect();
    let memory: Vec<f64> = runs.iter().map(|run| run.peak_bytes as f64).collect();
    let events = runs.iter().map(|run| run.events as f64).sum::<f64>();
    let rate = events / runs.iter().map(|run| run.seconds).sum::<f64>();
    let row = |metric: &str, unit: &str, peer: &str| Row {
        metric: metric.into(),
        unit: unit.into(),
        peer: peer.into(),
        note: format!("{} events/s", number::short(rate)),
        ..Row::default()
    };
    let limit = row("requests", "requests/min", "a goal of 1 M requests/min");
    vec![
        turns::row_of_limit(limit, &each, 60.0 / A_MINUTE, |seconds| 60.0 / seconds),
        turns::row_of_limit(row("memory", "B", "a limit of 500 MiB"), &memory, MEMORY, |bytes| bytes),
    ]
}

/// The process that simulates: prints what it took.
///
/// # Errors
/// That there is no such structure, or the description cannot be simulated.
pub fn peer(structure: &str, requests: u64) -> Result<(), Error> {
    let known = Architecture::ALL.into_iter().find(|known| known.name() == structure);
    let known = known.ok_or_else(|| Error::Usage(format!("{structure} is no part of this bench")))?;
    let run = run(known, requests)?;
    let said = serde_json::to_string(&run).map_err(|error| Error::failed("JSON", error.to_string()))?;
    writeln!(io::stdout(), "{said}").map_err(|error| Error::failed("standard output", error.to_string()))
}

fn run(structure: Architecture, requests: u64) -> Result<Run, Error> {
    let failed = |error: String| Error::failed("the simulation", error);
    let preset = Preset::named(PRESET).ok_or_else(|| failed(format!("there is no preset {PRESET}")))?;
    let options = Options { seed: 1, stop: Stop::Requests(requests) };
    let begin = turns::processor_seconds();
    let report = simulate(&preset.description(), structure, &options, &mut |_| true);
    let report = report.map_err(|error| failed(error.to_string()))?;
    Ok(Run {
        seconds: turns::processor_seconds() - begin,
        requests: report.requests,
        events: report.events,
        peak_bytes: peak_bytes()?,
    })
}

/// The most memory that this process has had; that of its parent, which getrusage(2) would count, is not in it.
fn peak_bytes() -> Result<u64, Error> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
    peak.map(|kib| kib * 1024).ok_or_else(|| Error::failed("the kernel", "says nothing of VmHWM".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_requests_and_its_memory() {
        let run = run(Architecture::Direct, 500).unwrap();
        assert_eq!(run.requests, 500);
        assert!(run.events > 500 && run.seconds > 0.0 && run.peak_bytes > 1 << 16, "{run:?}");
        assert!(matches!(peer("sideways", 1), Err(Error::Usage(_))));
    }

    #[test]
    fn requests_and_memory_have_their_limits() {
        let run = |seconds, peak_bytes| Run { seconds, requests: 10_000, events: 1_000_000, peak_bytes };
        let rows = rows(&[run(0.3, 1 << 20), run(0.3, 1 << 20)]);
        assert_eq!((rows[0].ours.map(f64::round), rows[0].met), (Some(2e6), Some(true)));
        assert_eq!((rows[1].ours, rows[1].ratio, rows[1].met), (Some(1048576.0), Some(500.0), Some(true)));
        assert_eq!(rows[0].note, "3.33 M events/s");
        let missed = super::rows(&[run(1.2, 1 << 30)]);
        assert_eq!((missed[0].met, missed[1].met), (Some(false), Some(false)));
    }
}
