//! Counters of a datagram endpoint or relay, as the report shows them.
//!
//! Invariant: a value that is unknown is absent or zero, never estimated; the list of ranges is bounded and
//! says if it was merged. Written by the endpoints and the relay, read by [`crate::transfer`] and
//! [`crate::run`].

use super::engine::Engine;
use super::missing::Range;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counters that are shared with the flow; locked at most once for each batch of datagrams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Accounting>>);

impl Ledger {
    pub(crate) fn open(&self) -> MutexGuard<'_, Accounting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self) -> Accounting {
        self.open().clone()
    }
}

/// Counters of a datagram endpoint or relay, as far as it can know them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Accounting {
    /// Engine that moved the datagrams; `None` if none was opened.
    pub engine: Option<Engine>,
    /// Reason why the engine chosen first was given up; `None` if it was not.
    pub fell_back: Option<String>,
    /// Number of data packets sent, or sent according to the sender.
    pub packets_sent: u64,
    /// Payload of the data packets sent, in bytes.
    pub bytes_sent: u64,
    /// Number of data packets received in time, without duplicates.
    pub packets_received: u64,
    /// Payload of the data packets received, in bytes.
    pub bytes_received: u64,
    /// Number of packets that did not arrive in time.
    pub lost: u64,
    /// Number of packets that arrived again.
    pub duplicated: u64,
    /// Number of packets that arrived in time, but after one with a higher number.
    pub reordered: u64,
    /// Number of packets that arrived after their bytes had been given up.
    pub late: u64,
    /// Number of packets of other transfers or of an unknown kind.
    pub foreign: u64,
    /// Number of datagrams that the kernel dropped because the receive buffer was full.
    pub kernel_drops: u64,
    /// Size of the receive buffer in bytes, as the kernel counts it.
    pub receive_buffer: u64,
    /// Number of bytes of the stream that did not arrive.
    pub missing_bytes: u64,
    /// Ranges of the stream that were filled with zeros.
    pub missing_ranges: Vec<Range>,
    /// True if there were more ranges than are kept, so that the last one also covers bytes that arrived.
    pub missing_ranges_merged: bool,
    /// True if everything arrived; `None` if unknown.
    pub whole: Option<bool>,
    /// Search of `--rate auto` for the rate; `None` without one.
    pub probing: Option<Probing>,
    /// Counters of a relay; `None` for other flows.
    pub relayed: Option<Relayed>,
}

/// Search for the highest rate without loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Probing {
    /// Steps of the search, in order.
    pub steps: Vec<Step>,
    /// Payload rate at which the data started, in bytes a second.
    pub rate_chosen: u64,
    /// Payload rate at which the data ended, in bytes a second.
    pub rate_last: u64,
    /// Number of times that reports of loss lowered the rate.
    pub lowered: u64,
}

/// One step of a search for the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// Intended payload rate, in bytes a second.
    pub rate: u64,
    /// Achieved payload rate of the sender, in bytes a second.
    pub rate_sent: u64,
    /// Number of probe packets sent.
    pub packets_sent: u64,
    /// Number of probe packets that did not arrive.
    pub packets_lost: u64,
    /// Time from the first to the last packet at the sender, in microseconds.
    pub sent_us: u64,
    /// Time from the first to the last packet at the receiver, in microseconds.
    pub received_us: u64,
    /// True if nothing was lost and the receiver kept up.
    pub passed: bool,
}

/// Counters of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Relayed {
    /// Number of datagrams forwarded from the source to the sink.
    pub packets: u64,
    /// Number of bytes of these datagrams.
    pub bytes: u64,
    /// Number of runs that these datagrams were forwarded in; a run is one or many joined datagrams.
    pub runs: u64,
    /// Number of answers forwarded from the sink to the source.
    pub packets_back: u64,
    /// Number of datagrams that the sink refused.
    pub refused: u64,
    /// Number of datagrams whose header could not be translated for the other side.
    pub unfit: u64,
}
