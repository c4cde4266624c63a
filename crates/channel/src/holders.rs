//! Holders of a client's arena, for the error that says that it is used up.
//!
//! Nothing is counted for it while requests are submitted and reaped but the size of a buffer, beside the buffer itself. When
//! somebody asks, the tags in the two rings tell which of the buffers that are under way are on their way.

use crate::client::Kept;
use crate::layout::{COMPLETION_WORDS, CompletionFields, REQUEST_WORDS, RequestFields};
use crate::stats::Counters;
use bywash_link::{ArenaUse, Holder};
use bywash_ring::{UnderWay, View};
use std::mem::take;
use std::sync::Arc;

/// Views of what a client has under way.
#[derive(Debug)]
pub(crate) struct Holders {
    pub(crate) under_way: UnderWay<Kept>,
    pub(crate) requests: View<REQUEST_WORDS>,
    pub(crate) completions: View<COMPLETION_WORDS>,
    pub(crate) counters: Arc<Counters>,
}

impl Holders {
    /// Takes what is under way out of what the program holds.
    pub(crate) fn split(&self, usage: &mut ArenaUse) {
        // What happens meanwhile may be counted as what it was or as what it is, but once.
        let completions = self.completions.ready(self.counters.completions.get());
        let requests = self.requests.untaken(self.counters.requests.get());
        let mut sizes = self.under_way.sizes();
        let done = completions.iter().map(|entry| CompletionFields::from_entry(entry).tag);
        let queued = requests.iter().map(|entry| RequestFields::from_entry(entry).tag);
        // The peer may have written any tag.
        let mut taken = |tag: u16| {
            let size = take(sizes.get_mut(usize::from(tag))?) as usize;
            (size > 0).then_some(size)
        };
        usage.hand(Holder::Returns, done.filter_map(&mut taken));
        usage.hand(Holder::Queue, queued.filter_map(&mut taken));
        usage.hand(Holder::Peer, sizes.iter().filter(|size| **size > 0).map(|size| *size as usize));
    }
}
