//! Counters of a disk's work.
//!
//! Written by `disk` and `export`, read through [`crate::Export::stats`].

use bywash_sync::{AtomicU64, Ordering};

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
    pub(crate) frontends: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) resumed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) notifications: AtomicU64,
    pub(crate) under_way_max: AtomicU64,
    pub(crate) stuck: AtomicU64,
    /// 1 while a frontend has the disk, else 0.
    pub(crate) is_serving: AtomicU64,
}

/// Ordering of the counters: no other memory access depends on their values.
const ALONE: Ordering = Ordering::Relaxed;

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(ALONE).wrapping_add(more), ALONE);
    }

    pub(crate) fn raise(counter: &AtomicU64, to: u64) {
        counter.store(counter.load(ALONE).max(to), ALONE);
    }

    pub(crate) fn read(&self) -> Stats {
        Stats {
            frontends: self.frontends.load(ALONE),
            requests: self.requests.load(ALONE),
            resumed: self.resumed.load(ALONE),
            refused: self.refused.load(ALONE),
            failed: self.failed.load(ALONE),
            bytes_read: self.bytes_read.load(ALONE),
            bytes_written: self.bytes_written.load(ALONE),
            notifications: self.notifications.load(ALONE),
            under_way_max: self.under_way_max.load(ALONE),
            stuck: self.stuck.load(ALONE),
            leaving: 0,
        }
    }
}
