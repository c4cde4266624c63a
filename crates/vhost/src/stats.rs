//! Counters of a disk's work.
//!
//! Written by `disk` and `export`, read through [`crate::Export::stats`].

use bywash_link::Counter;

/// Counters of a disk, over all its frontends since it has been served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of frontends that have connected.
    pub frontends: u64,
    /// Number of requests of guests.
    pub requests: u64,
    /// Number of requests in `requests` that an earlier server had left in flight.
    pub resumed: u64,
    /// Number of requests that were not passed to the device: malformed, out of range, or of an unknown type.
    pub refused: u64,
    /// Number of requests that the device failed.
    pub failed: u64,
    /// Number of bytes that guests have read.
    pub bytes_read: u64,
    /// Number of bytes that guests have written.
    pub bytes_written: u64,
    /// Number of notifications (calls) to guests.
    pub notifications: u64,
    /// Greatest number of requests that were in flight at the same time.
    pub under_way_max: u64,
    /// Number of frontends from whose blocked threads the disk was taken back.
    pub stuck: u64,
    /// Number of threads of disconnected frontends that are still closing what those frontends passed.
    pub leaving: u64,
}

/// The counters behind [`Stats`]. One thread writes each: the thread of the frontend that has the disk, or
/// the export's.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) frontends: Counter,
    pub(crate) requests: Counter,
    pub(crate) resumed: Counter,
    pub(crate) refused: Counter,
    pub(crate) failed: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) notifications: Counter,
    pub(crate) under_way_max: Counter,
    pub(crate) stuck: Counter,
    /// 1 while a frontend has the disk, else 0.
    pub(crate) is_serving: Counter,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        Stats {
            frontends: self.frontends.get(),
            requests: self.requests.get(),
            resumed: self.resumed.get(),
            refused: self.refused.get(),
            failed: self.failed.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            notifications: self.notifications.get(),
            under_way_max: self.under_way_max.get(),
            stuck: self.stuck.get(),
            leaving: 0,
        }
    }
}
