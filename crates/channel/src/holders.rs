//! Holders of a client's arena, for the error of an allocation that finds it full.
//!
//! The fast path of submitting and reaping records only the size of each buffer in flight. When an allocation
//! fails, the tags in the two rings tell which of these buffers still wait in a ring and which the server
//! has.

use crate::client::InFlight;
use crate::layout::{COMPLETION_WORDS, CompletionFields, REQUEST_WORDS, RequestFields};
use crate::stats::Counters;
use bywash_link::ring::{SlotSizes, View};
use bywash_link::{ArenaUse, Holder};
use std::mem::take;
use std::sync::Arc;

/// Views of the buffers that a client has in flight.
#[derive(Debug)]
pub(crate) struct Holders {
    pub(crate) in_flight: SlotSizes<InFlight>,
    pub(crate) requests: View<REQUEST_WORDS>,
    pub(crate) completions: View<COMPLETION_WORDS>,
    pub(crate) counters: Arc<Counters>,
}

impl Holders {
    /// Moves the buffers in flight from the program's share of `usage` to those of the rings and of the
    /// server.
    pub(crate) fn split(&self, usage: &mut ArenaUse) {
        // A request or completion that moves meanwhile may be counted at its old place or at its new one, but
        // only once.
        let completions = self.completions.completed(self.counters.completions.get());
        let requests = self.requests.pending(self.counters.requests.get());
        let mut sizes = self.in_flight.sizes();
        let done = completions.iter().map(|entry| CompletionFields::from_entry(entry).tag);
        let queued = requests.iter().map(|entry| RequestFields::from_entry(entry).tag);
        // A malicious peer may have written any tag.
        let mut taken = |tag: u16| {
            let size = take(sizes.get_mut(usize::from(tag))?) as usize;
            (size > 0).then_some(size)
        };
        usage.attribute(Holder::CompletionQueue, done.filter_map(&mut taken));
        usage.attribute(Holder::SubmissionQueue, queued.filter_map(&mut taken));
        usage.attribute(Holder::Peer, sizes.iter().filter(|size| **size > 0).map(|size| *size as usize));
    }
}
