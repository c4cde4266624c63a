//! `bywash plan predict`: a program's time under `bywash run`, from recordings of it by the kernel alone.
//!
//! - [`runs`]: runs of the program, with the recorder and without, in turns
//! - [`calls`]: its calls on files, made again with the library and without
//! - [`timeline`]: the time of the whole program when its calls take other times
//! - [`gain`]: the prediction, and its uncertainty
//! - [`fastest`]: the runs that count
//! - [`tell`]: the report in words and as JSON
//!
//! Invariant: nothing that is predicted comes from a run of the program under `bywash run`; with `--verify`
//! those runs are only compared. A busy machine, or runs that differ too much, are refused.

mod calls;
mod fastest;
mod gain;
mod runs;
mod tell;
mod timeline;

use super::measure::failed;
use super::measure::others::Others;
use super::record::{cost, open, steps::Steps};
use super::words::{json, print};
use crate::cli::plan::PredictArgs;
use crate::error::Failure;
use crate::run::{find_library, find_recorder};
use bywash_bench::statistics::Summary;
use fastest::Requested;
use gain::Prediction;
use runs::{Launch, Program, Turn};
use std::time::Duration;

/// Time over which an idle machine is watched before the first run.
const WATCH: Duration = Duration::from_millis(1000);
/// Greatest share of the processors that other programs may use.
const OTHERS_MAX: f64 = 0.1;

/// Predicts, measures if requested, and prints the report.
///
/// # Errors
/// [`Failure::Busy`] if the machine or the program's times do not allow a prediction, [`Failure::Program`] if
/// the program fails, [`Failure::LibraryMissing`] or [`Failure::Recording`] if it cannot be recorded,
/// [`Failure::Measure`] if a measurement fails, and [`Failure::Output`] if standard output cannot be written.
pub fn main(arguments: &PredictArgs) -> Result<i32, Failure> {
    let (launch, recorder) = (Launch::new(find_library()?, arguments)?, find_recorder()?);
    launch.try_once()?;
    let idle = Others::watch_besides_children();
    std::thread::sleep(WATCH);
    refuse_others(&idle, "before the first run")?;
    let watched = Others::watch_besides_children();
    let cost = cost::measure(&recorder)?;
    let program = Program::new(&arguments.program, arguments.before.as_deref());
    // The first run warms the page cache and does not count.
    program.run(&Turn::Plain)?;
    let requested = Requested(arguments.runs);
    let (mut plain, mut recorded, mut verified) = (Vec::new(), Vec::new(), Vec::new());
    let mut recordings = Vec::new();
    while requested.goes_on(plain.len(), &[&plain, &recorded, &verified]) {
        let (recording, tick) = open()?;
        // Each kind follows each other one, since a run may leave work behind, such as pages to be written back.
        let round = plain.len();
        for kind in (0..3).map(|turn| (round + turn) % 3) {
            match kind {
                0 => plain.push(program.run(&Turn::Plain)?),
                1 => recorded.push(program.run(&Turn::Recorded(&recorder, &recording))?),
                _ if arguments.verify => verified.push(program.run(&Turn::UnderRun(&launch))?),
                _ => {}
            }
        }
        recordings.push(Some(Steps::new(&recording.read(), tick, cost)));
        recording.discard();
        // A recording can be large: those of runs that do not count are dropped.
        let fastest = requested.fastest(&recorded);
        let dropped = (0..recordings.len()).filter(|index| !fastest.contains(index));
        dropped.for_each(|index| recordings[index] = None);
    }
    let kinds =
        [("the program", &plain), ("the program with its recorder", &recorded), ("bywash run", &verified)];
    for (name, times) in kinds {
        requested.refuse_disagreement(name, times)?;
    }
    let fastest = requested.fastest(&recorded);
    let middle = fastest[fastest.len() / 2];
    let recorded_seconds = recorded[middle];
    let steps = recordings.swap_remove(middle).expect("the runs that count have their recordings");
    drop(recordings);
    let plain = summary(&requested.counted(&plain))?;
    let repeated = calls::repeat(&steps, &launch, requested)?;
    let starts = runs::starts(&launch).map_err(failed("the start of a program"))?;
    refuse_others(&watched, "meanwhile")?;
    let prediction = Prediction::new(&steps, &repeated, starts, plain);
    let verified = (!verified.is_empty()).then(|| summary(&requested.counted(&verified))).transpose()?;
    let report = tell::Report::new(&prediction, launch.has_log(), recorded_seconds, verified);
    print(&if arguments.json { json(&report) } else { report.in_words() })
}

fn refuse_others(watched: &Others, when: &str) -> Result<(), Failure> {
    match watched.share() {
        Some(share) if share > OTHERS_MAX => {
            let percent = share * 100.0;
            Err(Failure::Busy(format!("other programs used {percent:.0} % of the processors {when}")))
        }
        _ => Ok(()),
    }
}

fn summary(seconds: &[f64]) -> Result<Summary, Failure> {
    super::measure::rounds::summary(seconds).map_err(failed("the program's time"))
}
