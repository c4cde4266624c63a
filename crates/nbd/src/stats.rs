//! Counters of a server's work.
//!
//! Written by the export's thread alone, read through [`crate::Export::stats`].

use bywash_sync::{AtomicU64, Ordering};

/// Counters of all exports behind one listener, since they have been served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of clients that have connected.
    pub clients: u64,
    /// Number of clients that are connected.
    pub connected: u64,
    /// Number of clients that were cut off.
    pub cut_off: u64,
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that were not passed to a device: malformed, out of range, or of an unknown type.
    pub refused: u64,
    /// Number of requests that a device failed.
    pub failed: u64,
    /// Number of bytes that clients have read.
    pub bytes_read: u64,
    /// Number of bytes that clients have written.
    pub bytes_written: u64,
    /// Number of calls of sendmsg(2) and recvmsg(2).
    pub socket_calls: u64,
    /// Greatest amount of memory for payloads that was in use at the same time, in bytes.
    pub memory_bytes_max: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) clients: AtomicU64,
    pub(crate) connected: AtomicU64,
    pub(crate) cut_off: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) socket_calls: AtomicU64,
    pub(crate) memory_bytes_max: AtomicU64,
}

/// Ordering of the counters: no other memory access depends on their values.
const ALONE: Ordering = Ordering::Relaxed;

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(ALONE).wrapping_add(more), ALONE);
    }

    pub(crate) fn set(counter: &AtomicU64, to: u64) {
        counter.store(to, ALONE);
    }

    pub(crate) fn raise(counter: &AtomicU64, to: u64) {
        counter.store(counter.load(ALONE).max(to), ALONE);
    }

    /// Returns the number of requests.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(ALONE)
    }

    pub(crate) fn read(&self) -> Stats {
        Stats {
            clients: self.clients.load(ALONE),
            connected: self.connected.load(ALONE),
            cut_off: self.cut_off.load(ALONE),
            requests: self.requests.load(ALONE),
            refused: self.refused.load(ALONE),
            failed: self.failed.load(ALONE),
            bytes_read: self.bytes_read.load(ALONE),
            bytes_written: self.bytes_written.load(ALONE),
            socket_calls: self.socket_calls.load(ALONE),
            memory_bytes_max: self.memory_bytes_max.load(ALONE),
        }
    }
}
