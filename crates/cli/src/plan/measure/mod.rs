//! How `bywash plan calibrate` and `bywash plan validate` measure: rounds, a file to measure on, messages over loopback.
//!
//! - [`rounds`]: how much is measured, and the median and quartiles of several rounds
//! - [`scratch`]: a file without a name in the folder that was asked for, read by the page cache or past it
//! - [`readers`]: threads that read blocks of it, anywhere in it
//! - [`loopback`]: two ends of a TCP connection, each with a thread
//! - [`others`]: who else used the processors meanwhile
//!
//! Invariant: nothing is left behind, whatever happens: the file has no name (or loses it at once), everything else is
//! this process's own. Whatever waits for another thread does so for at most [`PATIENCE`].

pub mod loopback;
pub mod others;
pub mod readers;
pub mod rounds;
pub mod scratch;

use crate::doctor::machine::cores;
use crate::error::Failure;
use bywash_flow::size::Bytes;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long a thread waits for another before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(5);

pub const KIB: usize = 1024;
pub const MIB: usize = 1024 * KIB;

/// The failure to measure `what`.
pub fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure::Measure { what, source }
}

/// The failure to measure on files of `bytes` bytes in `folder`.
pub fn failed_in(folder: &Path, bytes: usize) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure::Scratch { folder: folder.into(), needed: Bytes(bytes as u64).to_string(), source }
}

/// Seconds of a processor that the calling thread has used so far.
pub fn processor_time() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Processors that this process may use.
pub fn processors() -> usize {
    cores().len().max(1)
}

/// What a thread answered that cannot have panicked but by a defect of ours.
pub fn joined<T>(answer: std::thread::Result<io::Result<T>>) -> io::Result<T> {
    answer.unwrap_or_else(|_| Err(io::Error::other("a measuring thread panicked")))
}
