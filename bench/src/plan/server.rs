//! The simulated server of Carrera et al., Table IV: requests a minute, and the memory that it takes.
//!
//! Each run is a process of its own, so that nothing but the simulation is in its memory.

use super::Stage;
use crate::campaign::Declared;
use crate::child;
use crate::clock::thread_seconds;
use crate::engine::{Metric, Runs, Side};
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

const PRESET: &str = "carrera-table-4";
/// Requests of a run, after a warm-up of a tenth: about a second.
const REQUESTS: u64 = 200_000;
const REQUESTS_QUICK: u64 = 10_000;
/// Goal, in requests a minute.
const A_MINUTE: f64 = 1e6;
/// Limit of a simulation's memory, in bytes.
const MEMORY: f64 = 500.0 * 1024.0 * 1024.0;

/// Figures of one simulation.
#[derive(Debug, Deserialize, Serialize)]
struct Run {
    /// CPU time, with that of the warm-up.
    seconds: f64,
    /// Number of requests, without those of the warm-up.
    requests: u64,
    events: u64,
    peak_bytes: u64,
}

pub(super) fn cases() -> Vec<Declared<Stage>> {
    let case = |structure: Architecture| {
        let head = Row::head("plan/server", &format!("Table IV, {}", structure.name()), "");
        Declared::new(head, move |stage: &Stage, head: &Row| {
            let requests = if stage.quick { REQUESTS_QUICK } else { REQUESTS };
            let side = Side::new("bywash", move || simulated(structure, requests));
            Ok(rows(head, &stage.rounds.run(vec![side])?[0]))
        })
    };
    Architecture::ALL.map(case).into()
}

/// Runs [`peer`] in a process of its own.
fn simulated(structure: Architecture, requests: u64) -> Result<Run, Error> {
    let mut command = child::peer("plan", [structure.name(), &requests.to_string()])?;
    serde_json::from_str(&child::run(&mut command)?.stdout)
        .map_err(|error| Error::failed("the simulation", error.to_string()))
}

fn rows(head: &Row, ours: &Runs<Run>) -> Vec<Row> {
    let sum = |figure: fn(&Run) -> f64| ours.samples.iter().flatten().map(figure).sum::<f64>();
    let rate = sum(|run| run.events as f64) / sum(|run| run.seconds);
    let head = Row { note: format!("{} events/s", number::short(rate)), ..head.clone() };
    let requests =
        Metric::rate("requests", "requests/min", |run: &Run| 60.0 * run.requests as f64 / run.seconds);
    let memory = Metric::cost("memory", "B", |run: &Run| run.peak_bytes as f64);
    vec![
        requests.row_of_limit(&head, ours, "a goal of 1 M requests/min", A_MINUTE, 1.0),
        memory.row_of_limit(&head, ours, "a limit of 500 MiB", MEMORY, 1.0),
    ]
}

/// Simulates a server of that structure in this process, and prints its figures as JSON.
///
/// # Errors
/// [`Error::Usage`] if there is no such structure, [`Error::Failed`] if the simulation fails.
pub(super) fn peer(structure: &str, requests: u64) -> Result<(), Error> {
    let known = Architecture::ALL.into_iter().find(|known| known.name() == structure);
    let known = known.ok_or_else(|| Error::Usage(format!("there is no structure '{structure}'")))?;
    let run = run(known, requests)?;
    let text = serde_json::to_string(&run).map_err(|error| Error::failed("JSON", error.to_string()))?;
    writeln!(io::stdout(), "{text}").map_err(|error| Error::failed("standard output", error.to_string()))
}

fn run(structure: Architecture, requests: u64) -> Result<Run, Error> {
    let failed = |error: String| Error::failed("the simulation", error);
    let preset = Preset::named(PRESET).ok_or_else(|| failed(format!("there is no preset {PRESET}")))?;
    let options = Options::default().stop(Stop::Requests(requests));
    let begin = thread_seconds();
    let report = simulate(&preset.description(), structure, &options, &mut |_| true);
    let report = report.map_err(|error| failed(error.to_string()))?;
    let (requests, events) = (report.requests, report.events);
    Ok(Run { seconds: thread_seconds() - begin, requests, events, peak_bytes: peak_bytes()? })
}

/// Returns the greatest resident size that this process has had; getrusage(2) would count that of its parent.
fn peak_bytes() -> Result<u64, Error> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
    peak.map(|kib| kib * 1024).ok_or_else(|| Error::failed("the kernel", "does not show VmHWM".into()))
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
        let rows_of = |seconds, peak_bytes| {
            let runs = (0..2).map(|_| Run { seconds, requests: 10_000, events: 1_000_000, peak_bytes });
            rows(&Row::default(), &Runs { name: "bywash".into(), samples: Ok(runs.collect()) })
        };
        let rows = rows_of(0.3, 1 << 20);
        assert_eq!((rows[0].ours.map(f64::round), rows[0].met), (Some(2e6), Some(true)));
        assert_eq!((rows[1].ours, rows[1].ratio, rows[1].met), (Some(1048576.0), Some(500.0), Some(true)));
        assert_eq!(rows[0].note, "3.33 M events/s");
        let missed = rows_of(1.2, 1 << 30);
        assert_eq!((missed[0].met, missed[1].met), (Some(false), Some(false)));
    }
}
