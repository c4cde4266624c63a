//! Counters of a server's work.
//!
//! Written by the export's thread alone, read through [`crate::Export::stats`].

use bywash_link::Counter;

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
    pub(crate) clients: Counter,
    pub(crate) connected: Counter,
    pub(crate) cut_off: Counter,
    pub(crate) requests: Counter,
    pub(crate) refused: Counter,
    pub(crate) failed: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) socket_calls: Counter,
    pub(crate) memory_bytes_max: Counter,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        Stats {
            clients: self.clients.get(),
            connected: self.connected.get(),
            cut_off: self.cut_off.get(),
            requests: self.requests.get(),
            refused: self.refused.get(),
            failed: self.failed.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            socket_calls: self.socket_calls.get(),
            memory_bytes_max: self.memory_bytes_max.get(),
        }
    }
}
