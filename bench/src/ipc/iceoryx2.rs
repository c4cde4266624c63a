//! iceoryx2 as published, in processes of their own: `bywash-bench-iceoryx2`, which lies beside the command where it could be
//! built. So the command needs nothing of what iceoryx2 needs to be built.

use super::run::{Pattern, Spent, WARM_UP, Work};
use super::wire::buffers;
use crate::error::Error;
use crate::interrupt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Name of the program.
const PROGRAM: &str = "bywash-bench-iceoryx2";
/// File beside the program's place that has the reason for which it could not be built.
const REASON: &str = "bywash-bench-iceoryx2.reason";
/// Interval between two looks whether the program has ended.
const LOOK: Duration = Duration::from_millis(2);

/// Finds the program.
///
/// # Errors
/// [`Error::Unavailable`] if it is not beside this one, with the reason where the attempt to build it left one.
pub fn program() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(|error| Error::failed("this program", error.to_string()))?;
    let program = own.with_file_name(PROGRAM);
    if program.is_file() {
        return Ok(program);
    }
    let reason = std::fs::read_to_string(own.with_file_name(REASON)).unwrap_or_default();
    Err(Error::Unavailable(match reason.trim() {
        "" => format!("{} is not there: make bench-peers builds it", program.display()),
        reason => format!("{PROGRAM} could not be built: {reason}"),
    }))
}

/// Does the work of a run; answers what it took. The way of `work` does not count.
///
/// # Errors
/// [`Error::Failed`] if the program fails, and [`Error::Interrupted`].
pub fn run(work: &Work) -> Result<Spent, Error> {
    let pattern = match work.pattern {
        Pattern::PingPong => "ping-pong",
        Pattern::Stream => "stream",
        Pattern::PacedPingPong | Pattern::PacedStream => {
            return Err(Error::failed(PROGRAM, "cannot pace messages".into()));
        }
    };
    let numbers = [work.bytes as u64, work.messages, WARM_UP, buffers(work.bytes) as u64];
    let cores = work.cores.map(|core| core as u64);
    let failed = |error: std::io::Error| Error::failed(PROGRAM, error.to_string());
    let mut child = Command::new(program()?)
        .arg(pattern)
        .args(numbers.iter().chain(&cores).map(u64::to_string))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // What it writes is shorter than what a pipe holds.
    while child.try_wait().map_err(failed)?.is_none() {
        if interrupt::check().is_err() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Interrupted);
        }
        std::thread::sleep(LOOK);
    }
    let output = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let times: Vec<f64> = text.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    match times.as_slice() {
        &[wall, cpu] if output.status.success() => Ok(Spent { wall, cpu }),
        _ => Err(Error::failed(PROGRAM, output.status.to_string())),
    }
}
