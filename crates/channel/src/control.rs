//! What both ends of a channel have: the rings, the connection, and how each waits for the other.

use crate::layout;
use crate::stats::Counters;
use bywash_link::{Error, Link, Meeting, Wait};
use bywash_ring::layout::CONSUMER_BELL;
use bywash_ring::{Bell, Closing, Consumer, Producer, Shared};
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

/// What an end remembers of a peer that broke the protocol: every later operation says so again.
#[derive(Debug, Default)]
struct Trust(Option<String>);

impl Trust {
    /// Err: it is lost.
    #[inline]
    fn check(&self, link: &Link) -> Result<(), Error> {
        match &self.0 {
            None => link.check_process(),
            Some(what) => Err(link.accuse(what.clone())),
        }
    }

    /// The peer broke the protocol.
    #[cold]
    fn lose(&mut self, link: &Link, what: String) -> Error {
        link.accuse(self.0.insert(what).clone())
    }
}

/// The ring that an end takes entries out of.
#[derive(Debug)]
pub(crate) struct Incoming<const WORDS: usize> {
    ring: Consumer<WORDS>,
    closing: Closing,
    trust: Trust,
}

impl<const WORDS: usize> Incoming<WORDS> {
    pub(crate) fn new(memory: Shared, depth: u32) -> Incoming<WORDS> {
        let ring = Consumer::new(memory, depth as usize);
        Incoming { closing: ring.closing(), ring, trust: Trust::default() }
    }

    /// The next entry, if it comes within so many looks.
    #[inline]
    pub(crate) fn take(
        &mut self,
        meeting: &Meeting<Counters>,
        looks: u32,
    ) -> Result<Option<[u64; WORDS]>, Error> {
        self.trust.check(&meeting.link)?;
        // Asked first: what was sent before it is in the ring then.
        let closed = self.closing.is_closed();
        match self.ring.pop_within(looks) {
            None if closed => Err(Error::Closed),
            entry => Ok(entry),
        }
    }

    /// Whether so many entries are there, if they come within so many looks.
    pub(crate) fn has(
        &mut self,
        meeting: &Meeting<Counters>,
        entries: usize,
        looks: u32,
    ) -> Result<Option<()>, Error> {
        self.trust.check(&meeting.link)?;
        let closed = self.closing.is_closed();
        match self.ring.has_within(entries, looks) {
            true => Ok(Some(())),
            false if closed => Err(Error::Closed),
            false => Ok(None),
        }
    }

    /// Entries taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.ring.taken()
    }

    /// Remembers what was found out beside the ring: through the socket, while waiting.
    pub(crate) fn mind<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Peer { what, .. }) = &outcome {
            self.trust.0.get_or_insert_with(|| what.clone());
        }
        outcome
    }

    /// The peer sent what cannot be: nothing more is taken from it.
    pub(crate) fn accuse(&mut self, meeting: &Meeting<Counters>, what: String) -> Error {
        self.trust.lose(&meeting.link, what)
    }

    /// Asks for a doorbell without reading the socket; true: there is something already.
    pub(crate) fn arm_unread(&mut self, meeting: &Meeting<Counters>) -> Result<bool, Error> {
        self.trust.check(&meeting.link)?;
        meeting.set_bell();
        Ok(self.ring.is_ready() || self.closing.is_closed())
    }

    /// Asks for a doorbell; true: there is something already.
    pub(crate) fn arm(&mut self, meeting: &Meeting<Counters>) -> Result<bool, Error> {
        self.trust.check(&meeting.link)?;
        meeting.set_bell();
        // Before the ring: it reads the socket, and with the old doorbells one that rang just now.
        let is_over = self.mind(meeting.link.is_over())?;
        match self.ring.is_ready() || self.closing.is_closed() {
            false if is_over => Err(meeting.link.ended()),
            is_there => Ok(is_there),
        }
    }
}

/// The ring that an end puts entries into.
#[derive(Debug)]
pub(crate) struct Outgoing<const WORDS: usize> {
    ring: Producer<WORDS>,
    trust: Trust,
}

impl<const WORDS: usize> Outgoing<WORDS> {
    pub(crate) fn new(memory: Shared, depth: u32) -> Outgoing<WORDS> {
        Outgoing { ring: Producer::new(memory, depth as usize), trust: Trust::default() }
    }

    /// Err: nothing can be sent any more.
    #[inline]
    pub(crate) fn check(&self, meeting: &Meeting<Counters>) -> Result<(), Error> {
        self.trust.check(&meeting.link)
    }

    /// Sends an entry, for which there is room if the peer is what it should be: no more can be under way.
    #[inline]
    pub(crate) fn push(&mut self, meeting: &Meeting<Counters>, entry: &[u64; WORDS]) -> Result<(), Error> {
        let refused = match self.ring.push(entry) {
            Ok(true) => {
                meeting.wake_for(self.ring.pushed());
                return Ok(());
            }
            Ok(false) => "does not take what it answers".into(),
            Err(rubbish) => rubbish.to_string(),
        };
        Err(self.trust.lose(&meeting.link, refused))
    }

    /// Nothing more will be sent.
    pub(crate) fn close(&self, meeting: &Meeting<Counters>) {
        if meeting.link.is_here() {
            self.ring.close();
            meeting.wake();
        }
    }
}
