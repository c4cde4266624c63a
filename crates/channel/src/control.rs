//! What both ends of a channel have: the rings, the connection, and how each waits for the other.

use crate::layout::{self, CompletionEntry, RequestEntry};
use crate::stats::Counters;
use bywash_link::{Error, FLAG_FENCES, Hello, Link, Meeting, Wait};
use bywash_ring::layout::CONSUMER_BELL;
use bywash_ring::{Bell, Shared};
use std::sync::Arc;

/// The two rings of a channel, in the memory that the client brought.
pub(crate) struct Rings {
    pub(crate) requests: Shared,
    pub(crate) completions: Shared,
}

impl Rings {
    pub(crate) fn of(all: &Shared, depth: u32) -> Rings {
        let (words, completions_at) = layout::control_words(depth);
        Rings {
            requests: all.part(0, completions_at),
            completions: all.part(completions_at, words - completions_at),
        }
    }

    /// How this end waits on `own`, the ring that it consumes, and wakes who consumes `theirs`. Nobody waits for
    /// room: there is some for all that can be under way.
    pub(crate) fn meeting(
        own: &Shared,
        theirs: &Shared,
        link: Link,
        wait: Wait,
        fences: bool,
    ) -> Meeting<Counters> {
        let bell = |memory: &Shared| Bell::new(memory.clone(), CONSUMER_BELL, fences);
        Meeting::new(Arc::new(link), Arc::default(), wait, bell(own), bell(theirs))
    }
}

/// Whether both ends have said that fences reach them.
pub(crate) fn fences(own: bool, theirs: &Hello) -> bool {
    own && theirs.flags & FLAG_FENCES != 0
}

/// What an end remembers of a peer that broke the protocol: every later operation says so again.
#[derive(Debug, Default)]
pub(crate) struct Trust(Option<String>);

impl Trust {
    /// Err: it is lost.
    #[inline]
    pub(crate) fn check(&self, link: &Link) -> Result<(), Error> {
        match &self.0 {
            None => link.check_process(),
            Some(what) => Err(link.accuse(what.clone())),
        }
    }

    /// The peer broke the protocol.
    #[cold]
    pub(crate) fn lose(&mut self, link: &Link, what: String) -> Error {
        link.accuse(self.0.insert(what).clone())
    }
}

/// Puts an entry into a ring that has room for it, if the peer is what it should be.
#[inline]
pub(crate) fn push<const WORDS: usize>(
    ring: &mut bywash_ring::Producer<WORDS>,
    entry: &[u64; WORDS],
) -> Result<(), String> {
    match ring.push(entry) {
        Ok(true) => Ok(()),
        // No more can be under way than there is room for.
        Ok(false) => Err("does not take what it answers".into()),
        Err(rubbish) => Err(rubbish.to_string()),
    }
}

const _: () = assert!(size_of::<RequestEntry>() == 64 && size_of::<CompletionEntry>() == 16);
