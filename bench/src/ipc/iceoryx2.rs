//! iceoryx2 as published, in processes of their own: `bywash-bench-iceoryx2`, which lies beside the command where it could be
//! built. So the command needs nothing of what iceoryx2 needs to be built.

use super::broken;
use super::pair::{Pattern, Spent, WARM_UP, Work};
use super::transport::buffers;
use crate::child;
use crate::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Name of the program.
const PROGRAM: &str = "bywash-bench-iceoryx2";
/// File beside the program that has the reason for which it could not be built.
const REASON: &str = "bywash-bench-iceoryx2.reason";

/// Finds the program.
///
/// # Errors
/// [`Error::Unavailable`] if it is not beside this one, with the reason where the attempt to build it left one.
pub fn program() -> Result<PathBuf, Error> {
    let own = child::this_program()?;
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

/// Does the work of a run; the transport of `work` does not count.
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
    let mut command = Command::new(program()?);
    let output =
        child::run(command.arg(pattern).args(numbers.iter().chain(&cores).map(u64::to_string)))?.stdout;
    let times: Vec<f64> = output.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    match times.as_slice() {
        &[wall, cpu] => Ok(Spent { wall, cpu }),
        _ => Err(broken(format!("{PROGRAM} gave '{}' instead of two times", output.trim()))),
    }
}
