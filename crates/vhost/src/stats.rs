//! What a disk has done so far.

use bywash_sync::{AtomicU64, Ordering};

/// Counted from the beginning, over all frontends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frontends that were connected.
    pub frontends: u64,
    /// Requests of guests.
    pub requests: u64,
    /// Of those, requests that another server had left undone.
    pub resumed: u64,
    /// Requests that were not handed to the medium: malformed, out of range, unknown.
    pub refused: u64,
    /// Requests that the medium has failed.
    pub failed: u64,
    /// Bytes that guests have read.
    pub bytes_read: u64,
    /// Bytes that guests have written.
    pub bytes_written: u64,
    /// Times that guests were told that something is done.
    pub notifications: u64,
    /// Most requests that were under way at the same time.
    pub under_way_max: u64,
    /// Frontends from which the disk was taken back because their thread was stuck with something that they had passed.
    pub stuck: u64,
    /// Threads of frontends that have gone or were cut off, and that are still closing what was passed.
    pub leaving: u64,
}

/// Written by one thread each, the frontend's that has the disk or the export's, read by whoever asks.
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
    /// 1 while a frontend has the disk.
    pub(crate) is_serving: AtomicU64,
}

/// Numbers that nothing else depends on.
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
