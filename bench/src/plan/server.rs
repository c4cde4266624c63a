//! The simulated server of Carrera et al., Table IV: requests a minute, and the memory that it takes.
//!
//! Each run is a process of its own, so that nothing but the simulation is in its memory.

use super::{Stage, Turn};
use crate::child;
use crate::clock::thread_seconds;
use crate::engine::{Metric, Side};
use crate::error::{Attempt, Error};
use crate::number;
use crate::row::Row;
use bywash_model::Architecture;
use bywash_sim::preset::Preset;
use bywash_sim::server::{Options, Stop, simulate};
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

pub(super) fn measure(stage: &Stage, head: &Row, structure: Architecture) -> Result<Vec<Row>, Error> {
    let requests = if stage.quick { REQUESTS_QUICK } else { REQUESTS };
    let side = Side::new("bywash", move || {
        let mut command = child::peer("plan", [structure.name(), &requests.to_string()])?;
        serde_json::from_str(&child::run(&mut command)?.stdout).map_err(failed)
    });
    let ours = &stage.rounds.run(vec![side])?[0];
    let sum = |figure: fn(&Turn) -> f64| ours.samples.iter().flatten().map(figure).sum::<f64>();
    let rate = sum(|turn| turn.events) / sum(|turn| turn.seconds);
    let head = Row { note: format!("{} events/s", number::short(rate)), ..head.clone() };
    let requests =
        Metric::rate("requests", "requests/min", |turn: &Turn| 60.0 * turn.requests / turn.seconds);
    let memory = Metric::cost("memory", "B", |turn: &Turn| turn.peak_bytes);
    Ok(vec![
        requests.row_of_limit(&head, ours, "a goal of 1 M requests/min", A_MINUTE, 1.0),
        memory.row_of_limit(&head, ours, "a limit of 500 MiB", MEMORY, 1.0),
    ])
}

/// Simulates a server of that structure in this process, and prints its figures as JSON.
pub fn peer(structure: &str, requests: u64) -> Result<(), Error> {
    let known = Architecture::ALL.into_iter().find(|known| known.name() == structure);
    let known = known.ok_or_else(|| Error::Usage(format!("there is no structure '{structure}'")))?;
    let text = serde_json::to_string(&turn(known, requests)?).map_err(failed)?;
    writeln!(io::stdout(), "{text}").map_err(failed)
}

/// Simulates in this process. The seconds include the warm-up, the requests do not.
fn turn(structure: Architecture, requests: u64) -> Result<Turn, Error> {
    let preset = Preset::named(PRESET).ok_or_else(|| failed(format!("has no preset {PRESET}")))?;
    let options = Options::default().stop(Stop::Requests(requests));
    let begin = thread_seconds();
    let report = simulate(&preset.description(), structure, &options, &mut |_| true).map_err(failed)?;
    Ok(Turn {
        seconds: thread_seconds() - begin,
        requests: report.requests as f64,
        events: report.events as f64,
        peak_bytes: peak_bytes()?,
        ..Turn::default()
    })
}

fn failed(error: impl ToString) -> Error {
    Error::failed("the simulation", error.to_string())
}

/// Returns the greatest resident size that this process has had; getrusage(2) would count that of its parent.
fn peak_bytes() -> Result<f64, Error> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).doing("read", path)?;
    let mut peaks = status.lines().filter_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    let kib = peaks.next().and_then(|kib| kib.parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0).ok_or_else(|| Error::failed("the kernel", "does not show VmHWM".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_requests_and_its_memory() {
        let turn = turn(Architecture::Direct, 500).unwrap();
        assert!(turn.requests == 500.0 && turn.events > 500.0 && turn.seconds > 0.0, "{turn:?}");
        assert!(turn.peak_bytes > 65536.0, "{turn:?}");
        assert!(matches!(peer("sideways", 1), Err(Error::Usage(_))));
    }
}
