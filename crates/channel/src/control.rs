//! Rings of a channel with the checks of the peer that both ends need.

use crate::layout;
use crate::stats::Counters;
use bywash_link::ring::layout::CONSUMER_BELL;
use bywash_link::ring::{Bell, ClosedFlag, Consumer, Producer, Shared};
use bywash_link::{Error, Link, RingWaiter, Wait};
use std::sync::Arc;

/// The two rings of a channel, in the control memory that the client allocated.
pub(crate) struct Rings {
    pub(crate) requests: Shared,
    pub(crate) completions: Shared,
}

impl Rings {
    pub(crate) fn split(all: &Shared, depth: u32) -> Rings {
        let (words, completions_at) = layout::control_words(depth);
        Rings {
            requests: all.part(0, completions_at),
            completions: all.part(completions_at, words - completions_at),
        }
    }

    /// Makes the state by which this end waits on `own`, the ring that it consumes, and wakes the consumer of
    /// `theirs`. Nobody waits for room, since each ring has as many entries as requests can be in flight.
    pub(crate) fn meeting(
        own: &Shared,
        theirs: &Shared,
        link: Link,
        wait: Wait,
        fences: bool,
    ) -> RingWaiter<Counters> {
        let bell = |memory: &Shared| Bell::new(memory.clone(), CONSUMER_BELL, fences);
        RingWaiter::new(Arc::new(link), Arc::default(), wait, bell(own), bell(theirs))
    }
}

/// The peer's first violation of the protocol, if there was one. Every later operation reports it again.
#[derive(Debug, Default)]
struct PeerViolation(Option<String>);

impl PeerViolation {
    /// Returns an error if the peer broke the protocol, and in a forked child.
    #[inline]
    fn check(&self, link: &Link) -> Result<(), Error> {
        match &self.0 {
            None => link.check_process(),
            Some(what) => Err(link.accuse(what.clone())),
        }
    }

    /// Records a violation of the protocol by the peer, and returns the error for it.
    #[cold]
    fn lose(&mut self, link: &Link, what: String) -> Error {
        link.accuse(self.0.insert(what).clone())
    }
}

/// The ring from which an end takes entries.
#[derive(Debug)]
pub(crate) struct IncomingRing<const WORDS: usize> {
    ring: Consumer<WORDS>,
    closing: ClosedFlag,
    trust: PeerViolation,
}

impl<const WORDS: usize> IncomingRing<WORDS> {
    pub(crate) fn new(memory: Shared, depth: u32) -> IncomingRing<WORDS> {
        let ring = Consumer::new(memory, depth as usize);
        IncomingRing { closing: ring.closing(), ring, trust: PeerViolation::default() }
    }

    /// Takes the next entry if one arrives within `looks` looks. [`Error::Closed`] if the ring is closed and
    /// empty.
    #[inline]
    pub(crate) fn take(
        &mut self,
        meeting: &RingWaiter<Counters>,
        looks: u32,
    ) -> Result<Option<[u64; WORDS]>, Error> {
        let mut entry = [0; WORDS];
        Ok(self.take_into(meeting, looks, &mut entry)?.then_some(entry))
    }

    /// Like [`IncomingRing::take`], but copies the entry into `entry`. Returns false if none has arrived.
    #[inline(always)]
    pub(crate) fn take_into(
        &mut self,
        meeting: &RingWaiter<Counters>,
        looks: u32,
        entry: &mut [u64; WORDS],
    ) -> Result<bool, Error> {
        self.trust.check(&meeting.link)?;
        self.ring.look(looks);
        Ok(self.ring.pop_into(entry) || (self.closing.is_closed() && self.take_last(entry)?))
    }

    /// Takes the next entry of a closed ring. The flag was read before the ring is: everything that was sent is in the ring.
    #[cold]
    fn take_last(&mut self, entry: &mut [u64; WORDS]) -> Result<bool, Error> {
        if self.ring.pop_into(entry) { Ok(true) } else { Err(Error::Closed) }
    }

    /// Returns `Some` if `entries` entries are in the ring within `looks` looks. [`Error::Closed`] if no more
    /// will arrive.
    pub(crate) fn has(
        &mut self,
        meeting: &RingWaiter<Counters>,
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

    /// Returns the number of entries taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.ring.taken()
    }

    /// Records a violation of the protocol that was found while waiting, in the messages of the socket.
    pub(crate) fn mind<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Protocol { what, .. }) = &outcome {
            self.trust.0.get_or_insert_with(|| what.clone());
        }
        outcome
    }

    /// Records a violation of the protocol by the peer, after which nothing more is taken from it.
    pub(crate) fn accuse(&mut self, meeting: &RingWaiter<Counters>, what: String) -> Error {
        self.trust.lose(&meeting.link, what)
    }

    /// Requests a doorbell without reading the socket; true if an entry is ready or the ring is closed.
    pub(crate) fn arm_unread(&mut self, meeting: &RingWaiter<Counters>) -> Result<bool, Error> {
        self.trust.check(&meeting.link)?;
        meeting.set_bell();
        Ok(self.ring.is_ready() || self.closing.is_closed())
    }

    /// Requests a doorbell; true if an entry is ready or the ring is closed.
    pub(crate) fn arm(&mut self, meeting: &RingWaiter<Counters>) -> Result<bool, Error> {
        self.trust.check(&meeting.link)?;
        meeting.set_bell();
        // This reads the socket before the ring is looked at. With old doorbells it may swallow one that rang
        // just now, whose entry the look at the ring then finds.
        let is_over = self.mind(meeting.link.is_over())?;
        match self.ring.is_ready() || self.closing.is_closed() {
            false if is_over => Err(meeting.link.ended()),
            is_there => Ok(is_there),
        }
    }
}

/// The ring into which an end puts entries.
#[derive(Debug)]
pub(crate) struct OutgoingRing<const WORDS: usize> {
    ring: Producer<WORDS>,
    trust: PeerViolation,
}

impl<const WORDS: usize> OutgoingRing<WORDS> {
    pub(crate) fn new(memory: Shared, depth: u32) -> OutgoingRing<WORDS> {
        OutgoingRing { ring: Producer::new(memory, depth as usize), trust: PeerViolation::default() }
    }

    /// Returns an error if the peer broke the protocol, and in a forked child.
    #[inline]
    pub(crate) fn check(&self, meeting: &RingWaiter<Counters>) -> Result<(), Error> {
        self.trust.check(&meeting.link)
    }

    /// Sends an entry. An honest peer's ring always has room, since it has an entry for each request in
    /// flight.
    #[inline]
    pub(crate) fn push(&mut self, meeting: &RingWaiter<Counters>, entry: &[u64; WORDS]) -> Result<(), Error> {
        self.push_unrung(meeting, entry)?;
        self.ring(meeting);
        Ok(())
    }

    /// Like [`OutgoingRing::push`], but does not wake the peer if it sleeps: [`OutgoingRing::ring`] must follow.
    #[inline]
    pub(crate) fn push_unrung(
        &mut self,
        meeting: &RingWaiter<Counters>,
        entry: &[u64; WORDS],
    ) -> Result<(), Error> {
        let refused = match self.ring.push(entry) {
            Ok(true) => return Ok(()),
            Ok(false) => "does not take what it answers".into(),
            Err(rubbish) => rubbish.to_string(),
        };
        Err(self.trust.lose(&meeting.link, refused))
    }

    /// Wakes the peer if it sleeps until what was sent so far.
    #[inline]
    pub(crate) fn ring(&self, meeting: &RingWaiter<Counters>) {
        meeting.wake_for(self.ring.pushed());
    }

    /// Closes the ring: the peer finds the entries sent before and nothing more.
    pub(crate) fn close(&self, meeting: &RingWaiter<Counters>) {
        if meeting.link.is_here() {
            self.ring.close();
            meeting.wake();
        }
    }
}
