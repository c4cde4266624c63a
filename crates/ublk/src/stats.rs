//! Counters of an export's work.
//!
//! Written by the export's thread alone, read through [`crate::Export::stats`].

use bywash_link::Counter;

/// Counters of a disk, since it has been served by this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that the device failed, or that were none.
    pub failed: u64,
    /// Number of bytes that were read.
    pub bytes_read: u64,
    /// Number of bytes that were written.
    pub bytes_written: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: Counter,
    pub(crate) failed: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        Stats {
            requests: self.requests.get(),
            failed: self.failed.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
        }
    }
}
