//! What a datagram end or a relay did: the numbers that the user sees at the end.
//!
//! Invariant: what is not known is absent or zero, never guessed; a list is bounded and says when it was cut. Written
//! by the ends and the relay, read by who started them.

use super::engine::Engine;
use super::missing::Range;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared with who started the flow. Taken once a batch at most.
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

/// What was done, as far as this end can know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Accounting {
    /// By which calls.
    pub engine: Option<Engine>,
    /// Why not by the engine that was begun with.
    pub fell_back: Option<String>,
    /// Datagrams of data that went, or that the sender says to have sent.
    pub packets_sent: u64,
    /// Their payload.
    pub bytes_sent: u64,
    /// Datagrams of data that came in time, each once.
    pub packets_received: u64,
    /// Their payload.
    pub bytes_received: u64,
    /// Packets that did not come, or too late.
    pub lost: u64,
    /// Packets that came once more.
    pub duplicated: u64,
    /// Packets that came behind one with a higher number, but in time.
    pub reordered: u64,
    /// Packets that came when their place had been given up.
    pub late: u64,
    /// Packets of others, or of no known kind.
    pub foreign: u64,
    /// Datagrams that the kernel dropped because they were not fetched in time.
    pub kernel_drops: u64,
    /// Bytes of the receive buffer, as the kernel counts.
    pub receive_buffer: u64,
    /// Bytes of the stream that did not come.
    pub missing_bytes: u64,
    /// Where the stream was filled with zeros.
    pub missing_ranges: Vec<Range>,
    /// There were more ranges than are kept: the last covers bytes that came, too.
    pub missing_ranges_merged: bool,
    /// Whether everything arrived; absent when nobody said.
    pub whole: Option<bool>,
    /// How `--rate auto` found its rate.
    pub probing: Option<Probing>,
    /// What a relay passed on.
    pub relayed: Option<Relayed>,
}

/// The search for the highest rate without loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Probing {
    /// One after the other.
    pub steps: Vec<Step>,
    /// Payload bytes a second at which the data began.
    pub rate_chosen: u64,
    /// At which it ended.
    pub rate_last: u64,
    /// How often reports of loss lowered it.
    pub lowered: u64,
}

/// One step of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Step {
    /// Payload bytes a second that were asked for.
    pub rate: u64,
    /// That were reached.
    pub rate_sent: u64,
    /// Probes that were sent.
    pub packets_sent: u64,
    /// Of those, the ones that did not come.
    pub packets_lost: u64,
    /// From the first to the last packet, where they were sent and where they were received.
    pub sent_us: u64,
    /// As `sent_us`, at the receiver.
    pub received_us: u64,
    /// Nothing was lost, and the receiver kept up.
    pub passed: bool,
}

/// What went through a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Relayed {
    /// Datagrams passed on.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Calls or rows that these came in: how many datagrams stayed joined.
    pub runs: u64,
    /// Answers that were passed back.
    pub packets_back: u64,
    /// Packets that could not be sent onwards.
    pub refused: u64,
    /// Packets that could not be changed as the other side needs it.
    pub unfit: u64,
}
