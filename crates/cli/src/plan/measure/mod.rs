//! Measurement tools of `bywash plan calibrate` and `bywash plan validate`: rounds, a scratch file, messages
//! over loopback.
//!
//! - [`rounds`]: effort of a measurement, and the median and quartiles of several rounds
//! - [`scratch`]: a file without a name in the requested folder, read through the page cache or past it
//! - [`readers`]: threads that read blocks at random offsets of it
//! - [`loopback`]: the two ends of a TCP connection
//! - [`others`]: use of the processors by other programs meanwhile
//!
//! Invariant: nothing is left behind, whatever happens: the file has no name (or loses it at once), and
//! everything else belongs to this process. Each wait for another thread is bounded by [`TIMEOUT`].

pub mod loopback;
pub mod others;
pub mod readers;
pub mod rounds;
pub mod scratch;

use crate::doctor::machine::cores;
use crate::error::Failure;
use bywash_quantity::Bytes;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Greatest time that a thread waits for another.
pub const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

pub const KIB: usize = 1024;
pub const MIB: usize = 1024 * KIB;

/// Makes a [`Failure::Measure`] for `what`.
pub fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure::Measure { what, source }
}

/// Makes a [`Failure::Scratch`] for files of `bytes` bytes in `folder`.
pub fn failed_in(folder: &Path, bytes: usize) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure::Scratch { folder: folder.into(), needed: Bytes(bytes as u64).to_string(), source }
}

/// Returns the processor time that the calling thread has used so far, in seconds.
pub fn processor_time() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Returns the number of processors that this process may use, at least 1.
pub fn processors() -> usize {
    cores().len().max(1)
}

/// Returns the result of a joined thread; a panic, which would be a defect of this program, becomes an error.
pub fn joined<T>(answer: std::thread::Result<io::Result<T>>) -> io::Result<T> {
    answer.unwrap_or_else(|_| Err(io::Error::other("a measuring thread panicked")))
}
