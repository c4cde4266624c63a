//! The side that ships.
//!
//! What is free is known here alone; what is out has a ticket, and comes back by it. So the worst that a peer
//! can do is to keep what it got, or to return what it has not got, which is found out and ends the path.

use super::{Control, End, Meeting};
use crate::container::{Container, Inline, MESSAGE_PIECES_MAX, OTHER_PATH, Place, Received, Span};
use crate::layout::{
    self, ARENAS_MAX, Entry, GRANULE, INLINE_BYTES, Note, PIECES_PER_ENTRY, Piece, RETURNED_WORDS,
    SHIPPED_WORDS,
};
use crate::path::{Cargo, Class, Options};
use bywash_link::{
    Arena, ArenaUse, Block, Blocks, DESCRIPTORS_MAX, Elsewhere, Error, Exclusive, File, Holder, Link, Waiter,
};
use bywash_ring::{Closing, Consumer, Producer};
use bywash_sync::{AtomicBool, Ordering::Relaxed};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The shipping side of a lane.
#[derive(Debug)]
pub(crate) struct Shipping {
    pub(crate) meeting: Meeting,
    /// Everything that is shipped is sealed.
    sealed: bool,
    arena: Option<Arena>,
    largest: usize,
    /// There is nobody to ship to any more.
    over: AtomicBool,
    /// The peer broke the protocol in this way.
    accusation: OnceLock<String>,
    /// Whether the peer has closed its end, which a peer that dies has not.
    closing: Closing,
    /// What was to go through the socket (a foreign arena, a sealed container) did not fit at the last try.
    socket_full: AtomicBool,
    state: Exclusive<State>,
}

#[derive(Debug)]
struct State {
    blocks: Blocks,
    ring: Producer<SHIPPED_WORDS>,
    returned: Consumer<RETURNED_WORDS>,
    /// By ticket.
    out: Vec<Option<Out>>,
    tickets: Vec<u32>,
    /// Foreign arenas that the peer was told of, by number; 0 is its name for ours.
    introduced: Vec<Arc<Arena>>,
}

/// What the peer has.
#[derive(Debug)]
enum Out {
    /// A part of our arena.
    Own(Block),
    /// What another peer gave us; it goes back there with this value.
    Foreign(Received),
}

impl Shipping {
    /// `closing`: of the peer's ring, which it closes before it leaves.
    pub(crate) fn new(
        control: &Control,
        arena: Option<Arena>,
        options: &Options,
        end: &End,
        closing: Closing,
    ) -> Shipping {
        let (depth, tickets) = (options.depth, options.tickets);
        let bytes = arena.as_ref().map_or(0, |arena| arena.file.bytes());
        let state = State {
            blocks: Blocks::new(bytes),
            ring: Producer::new(control.shipped.clone(), depth as usize),
            returned: Consumer::new(control.returned.clone(), tickets as usize),
            out: (0..tickets).map(|_| None).collect(),
            tickets: (0..tickets).rev().collect(),
            introduced: Vec::new(),
        };
        let largest = if bytes == 0 { 0 } else { Blocks::largest(bytes) };
        let sealed = options.class == Class::Sealed;
        Shipping {
            meeting: control.meeting(end, true),
            sealed,
            arena,
            largest,
            over: AtomicBool::new(false),
            accusation: OnceLock::new(),
            closing,
            socket_full: AtomicBool::new(false),
            state: Exclusive::new(state),
        }
    }

    /// A container of `bytes`; none: the arena is used up for now.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Option<Container>, Error> {
        self.meeting.link.check_process()?;
        self.check_open()?;
        if self.sealed {
            return Container::sealed(bytes).map(Some);
        }
        if bytes <= INLINE_BYTES {
            return Ok(Some(Container::here(bytes)));
        }
        self.take_block(bytes)
    }

    /// Whether containers of so many bytes travel in an entry.
    #[inline]
    pub(crate) fn is_inline(&self, bytes: usize) -> bool {
        bytes <= INLINE_BYTES && !self.sealed
    }

    /// A container in the arena.
    fn take_block(self: &Arc<Self>, bytes: usize) -> Result<Option<Container>, Error> {
        let Some(arena) = self.arena.as_ref().filter(|_| bytes <= self.largest && bytes <= u32::MAX as usize)
        else {
            return Err(Error::TooLarge { asked: bytes, most: self.largest });
        };
        let mut state = self.state.lock();
        // First what has come back, so that no more blocks are in turn than need be.
        state.reclaim(&self.meeting)?;
        let block = state.blocks.take(bytes);
        Ok(block.and_then(|block| {
            let (offset, capacity) = (state.blocks.offset(block), state.blocks.bytes(block));
            arena
                .at(offset)
                .map(|base| Container::of_block(self.clone(), block, Span { base, capacity }, bytes))
        }))
    }

    /// As [`Shipping::take`], but waits.
    pub(crate) fn take_within(
        self: &Arc<Self>,
        bytes: usize,
        limit: Option<Duration>,
    ) -> Result<Container, Error> {
        if let Some(container) = self.take(bytes)? {
            return Ok(container);
        }
        self.meeting.counters.no_room.add(1);
        let waiter = self.meeting.waiter();
        waiter.wait(limit, |looks| self.look(looks, || self.take(bytes))).map_err(|error| match error {
            Error::TimedOut => Error::AllocTimedOut { asked: bytes, arena: Box::new(self.usage()) },
            error => error,
        })
    }

    /// Holders of the arena's bytes, after what the peer has returned was taken back. They are all 0 in a child that was
    /// forked off, where another thread may have had the lock.
    pub(crate) fn usage(&self) -> ArenaUse {
        if !self.meeting.link.is_here() {
            return ArenaUse::default();
        }
        self.reclaim_for_others();
        let state = self.state.lock();
        let mut usage = state.blocks.usage();
        usage.hand(
            Holder::Peer,
            state.out.iter().flatten().filter_map(|out| match out {
                Out::Own(block) => Some(state.blocks.bytes(*block)),
                Out::Foreign(_) => None,
            }),
        );
        usage
    }

    /// As [`Shipping::take_within`], as a task.
    #[cfg(feature = "async")]
    pub(crate) async fn take_async(self: &Arc<Self>, bytes: usize) -> Result<Container, Error> {
        let waiter = self.meeting.waiter();
        waiter.wait_async(|looks| self.look(looks, || self.take(bytes))).await
    }

    /// Calls `attempt` when something has come back.
    fn look<T>(
        &self,
        looks: u32,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        for _ in 0..looks.div_ceil(8) {
            if let Some(found) = attempt()? {
                return Ok(Some(found));
            }
            self.check_open()?;
            (0..8).for_each(|_| bywash_sync::pause());
        }
        Ok(None)
    }

    /// A container was dropped without being shipped.
    pub(crate) fn give(&self, block: Block) {
        if self.meeting.link.is_here() {
            self.state.lock().blocks.give(block);
        }
    }

    /// Ships all of `cargo` as one message, or nothing of it (false: there is no room for now).
    pub(crate) fn ship(self: &Arc<Self>, cargo: &mut [Option<Cargo>]) -> Result<bool, Error> {
        self.meeting.link.check_process()?;
        self.check_open()?;
        if cargo.is_empty() || cargo.len() > MESSAGE_PIECES_MAX {
            return Err(Error::Pieces { asked: cargo.len(), most: MESSAGE_PIECES_MAX });
        }
        let bytes: usize = cargo.iter().flatten().map(Cargo::len).sum();
        if let [Some(single)] = cargo
            && !self.sealed
            && let Some(contents) = single.inline()
        {
            return self.ship_inline(contents, bytes);
        }
        self.socket_full.store(false, Relaxed);
        let shipped = if self.sealed { self.ship_sealed(cargo)? } else { self.ship_pieces(cargo)? };
        if shipped {
            let counters = &self.meeting.counters;
            counters.shipped.add(1);
            counters.shipped_bytes.add(bytes as u64);
            self.meeting.wake_to_answer();
        }
        Ok(shipped)
    }

    /// As [`Shipping::ship`], but waits.
    pub(crate) fn ship_within(
        self: &Arc<Self>,
        cargo: &mut [Option<Cargo>],
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        if self.ship(cargo)? {
            return Ok(());
        }
        self.meeting.counters.no_room.add(1);
        let waiter = Waiter { socket_full: Some(&self.socket_full), ..self.meeting.waiter() };
        waiter.wait(limit, |looks| self.look(looks, || Ok(self.ship(cargo)?.then_some(()))))
    }

    /// As [`Shipping::ship_within`], as a task.
    #[cfg(feature = "async")]
    pub(crate) async fn ship_async(self: &Arc<Self>, cargo: &mut [Option<Cargo>]) -> Result<(), Error> {
        let waiter = Waiter { socket_full: Some(&self.socket_full), ..self.meeting.waiter() };
        waiter.wait_async(|looks| self.look(looks, || Ok(self.ship(cargo)?.then_some(())))).await
    }

    /// Takes back what the peer has returned, so that what came from elsewhere goes on to there. What is wrong
    /// with this peer shows when this path is used.
    pub(crate) fn reclaim_for_others(&self) {
        let reclaimed = self.state.lock().reclaim(&self.meeting);
        if let Err(Error::Peer { what, .. }) = reclaimed {
            self.accuse(&what);
        }
    }

    /// Nothing more is shipped to a peer that broke the protocol.
    pub(crate) fn accuse(&self, what: &str) {
        self.accusation.get_or_init(|| what.to_owned());
        self.end();
    }

    /// Whether there is somebody to ship to; else how that ended.
    #[inline]
    fn check_open(&self) -> Result<(), Error> {
        if self.is_over() { Err(self.ended()) } else { Ok(()) }
    }

    /// How the path ended. A peer that closes its end says so in shared memory before it leaves the socket, so that
    /// one that has left without a word has died.
    #[cold]
    fn ended(&self) -> Error {
        if let Some(what) = self.accusation.get() {
            return self.meeting.link.accuse(what.clone());
        }
        if self.closing.is_closed() { Error::Closed } else { self.meeting.link.ended() }
    }

    /// There is nobody to ship to any more: what the peer had goes back to where it came from.
    pub(crate) fn end(&self) {
        self.over.store(true, Relaxed);
        let mut state = self.state.lock();
        for ticket in 0..state.out.len() {
            match state.out[ticket].take() {
                Some(Out::Foreign(received)) => drop(received),
                // Ours stay where they are: a peer that still lives may look at them.
                own => state.out[ticket] = own,
            }
        }
    }

    /// The peer will get nothing more; what it has stays its own until it is dropped there.
    pub(crate) fn close(&self) {
        self.state.lock().ring.close();
        self.meeting.wake();
    }

    /// Ships contents in the entry itself; false: there is no room for now.
    #[inline]
    pub(crate) fn ship_inline(&self, contents: &Inline, bytes: usize) -> Result<bool, Error> {
        let mut state = self.state.lock();
        if !state.has_room(1, &self.meeting)? {
            return Ok(false);
        }
        state.push(&layout::inline_entry(contents, bytes), &self.meeting)?;
        drop(state);
        let counters = &self.meeting.counters;
        counters.inline.add(1);
        counters.shipped.add(1);
        counters.shipped_bytes.add(bytes as u64);
        self.meeting.wake_to_answer();
        Ok(true)
    }

    fn ship_pieces(self: &Arc<Self>, cargo: &mut [Option<Cargo>]) -> Result<bool, Error> {
        self.take_memory(cargo)?;
        let mut state = self.state.lock();
        if !cargo.iter().flatten().all(|cargo| self.is_piece(cargo, &state)) {
            drop(state);
            for place in cargo.iter_mut() {
                if !self.make_piece(place)? {
                    return Ok(false);
                }
            }
            state = self.state.lock();
        }
        let entries = cargo.len().div_ceil(PIECES_PER_ENTRY);
        if !state.has_room(entries, &self.meeting)? {
            return Ok(false);
        }
        if state.tickets.len() < cargo.len() {
            state.reclaim(&self.meeting)?;
            if state.tickets.len() < cargo.len() {
                return Ok(false);
            }
        }
        // From here on nothing fails but the peer.
        let mut left = cargo.chunks_mut(PIECES_PER_ENTRY).peekable();
        while let Some(places) = left.next() {
            let mut pieces = [Piece { ticket: 0, arena: 0, offset: 0, length: 0 }; PIECES_PER_ENTRY];
            for (piece, place) in pieces.iter_mut().zip(places.iter_mut()) {
                if let (Some(given), Some(ticket)) = (place.take(), state.tickets.pop()) {
                    *piece = state.send_out(given, ticket, &self.meeting);
                }
            }
            let entry = layout::pieces_entry(&pieces[..places.len()], left.peek().is_some());
            state.push(&entry, &self.meeting)?;
        }
        Ok(true)
    }

    /// Takes the memory of what is shipped, so that the peer takes none when it looks: once a page of the arena.
    #[inline]
    fn take_memory(self: &Arc<Self>, cargo: &[Option<Cargo>]) -> Result<(), Error> {
        let Some(arena) = &self.arena else { return Ok(()) };
        let Some(start) = arena.at(0) else { return Ok(()) };
        for own in cargo.iter().flatten() {
            if let Cargo::Own(container) = own
                && container.is_of(self)
                && let Some(base) = container.base_in_arena()
            {
                arena.take_memory(base.addr() - start.addr(), container.len())?;
            }
        }
        Ok(())
    }

    /// Whether it can be shipped as it is.
    #[inline]
    fn is_piece(self: &Arc<Self>, cargo: &Cargo, state: &State) -> bool {
        match cargo {
            Cargo::Own(container) => container.is_of(self),
            Cargo::Received(Received { place: Place::Arena { arena, .. }, .. }) => {
                state.knows(arena).is_some()
            }
            Cargo::Received(_) => false,
        }
    }

    /// Makes something that can be a piece of what was given. False: there is no room for now.
    fn make_piece(self: &Arc<Self>, place: &mut Option<Cargo>) -> Result<bool, Error> {
        let Some(cargo) = place else { return Ok(true) };
        if cargo.inline().is_some() {
            let Some(mut copy) = self.take_block(cargo.len())? else { return Ok(false) };
            cargo.copy_to(&mut copy)?;
            *place = Some(Cargo::Own(copy));
            return Ok(true);
        }
        match cargo {
            Cargo::Own(container) if container.is_of(self) => Ok(true),
            Cargo::Own(_) => Err(Error::Unfit(OTHER_PATH)),
            Cargo::Received(Received { place: Place::Arena { arena, lane, .. }, .. }) => {
                // Before anything goes out that must come back there.
                lane.relay_through(self);
                self.introduce(arena)
            }
            Cargo::Received(_) => {
                Err(Error::Unfit("it is sealed and this path has an arena; ship it on a sealed path"))
            }
        }
    }

    /// Tells the peer of a foreign arena, once.
    fn introduce(&self, arena: &Arc<Arena>) -> Result<bool, Error> {
        let mut state = self.state.lock();
        if state.knows(arena).is_some() {
            return Ok(true);
        }
        let number = state.introduced.len() + 1;
        if number >= ARENAS_MAX {
            return Err(Error::Unfit(
                "containers of too many other paths were shipped on this one; make a new path",
            ));
        }
        let note = Note::Arena(number as u16, arena.file.bytes() as u64);
        let passed = self.pass(&note, &[arena.file.descriptor()])?;
        if passed {
            state.introduced.push(arena.clone());
        }
        Ok(passed)
    }

    /// Passes something on through the socket; false: there is no room for now.
    fn pass(&self, note: &Note, descriptors: &[BorrowedFd<'_>]) -> Result<bool, Error> {
        let passed = self.meeting.link.pass(&note.to_bytes(), descriptors)?;
        self.socket_full.store(!passed, Relaxed);
        Ok(passed)
    }

    fn ship_sealed(&self, cargo: &mut [Option<Cargo>]) -> Result<bool, Error> {
        if cargo.len() > DESCRIPTORS_MAX {
            return Err(Error::Pieces { asked: cargo.len(), most: DESCRIPTORS_MAX });
        }
        // Sealed first: if the socket is full then, what was sealed waits in its new shape.
        for place in cargo.iter_mut() {
            match place.take() {
                Some(Cargo::Own(container)) => match container.freeze() {
                    Ok(sealed) => *place = Some(Cargo::Received(sealed)),
                    Err(failed) => {
                        let (container, error) = *failed;
                        *place = container.map(Cargo::Own);
                        return Err(error);
                    }
                },
                other => *place = other,
            }
        }
        let files = cargo.iter().map(|place| match place {
            Some(Cargo::Received(Received { place: Place::Sealed { file }, .. })) => Ok(file.clone()),
            _ => {
                Err(Error::Unfit("it is not sealed and this path is; copy it into a container of this path"))
            }
        });
        let files: Vec<Arc<File>> = files.collect::<Result<_, _>>()?;
        let note = Note::Sealed(files.iter().map(|file| file.bytes() as u64).collect());
        let descriptors: Vec<_> = files.iter().map(|file| file.descriptor()).collect();
        let passed = self.pass(&note, &descriptors)?;
        if passed {
            cargo.iter_mut().for_each(|place| *place = None);
        }
        Ok(passed)
    }
}

/// For lanes on which something of another peer's was shipped on: it may come back here.
impl Elsewhere for Shipping {
    fn set_bell(&self) {
        self.meeting.set_bell();
    }

    fn unset_bell(&self) {
        self.meeting.unset_bell();
    }

    /// Looks whether the peer is gone, or speaks nonsense.
    fn end_if_over(&self) {
        if self.is_over() {
            return;
        }
        match self.meeting.link.is_over() {
            Ok(false) => {}
            Err(Error::Peer { what, .. }) => self.accuse(&what),
            Ok(true) | Err(_) => self.end(),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn link(&self) -> &Link {
        &self.meeting.link
    }
}

impl State {
    /// The peer's number of a foreign arena, if it was told of it.
    #[inline]
    fn knows(&self, arena: &Arc<Arena>) -> Option<usize> {
        self.introduced.iter().position(|known| Arc::ptr_eq(known, arena)).map(|at| at + 1)
    }

    /// Whether there is room for so many entries.
    #[inline]
    fn has_room(&mut self, entries: usize, meeting: &Meeting) -> Result<bool, Error> {
        let room = self.ring.room(entries).map_err(|rubbish| meeting.link.accuse(rubbish.to_string()))?;
        Ok(room >= entries)
    }

    #[inline]
    fn push(&mut self, entry: &Entry, meeting: &Meeting) -> Result<(), Error> {
        match self.ring.push(entry) {
            Ok(true) => Ok(()),
            // The room was there a moment ago, and only this side uses it up.
            Ok(false) => Err(meeting.link.accuse("took room away that it had given")),
            Err(rubbish) => Err(meeting.link.accuse(rubbish.to_string())),
        }
    }

    /// Takes back what the peer has returned.
    fn reclaim(&mut self, meeting: &Meeting) -> Result<(), Error> {
        while let Some([entry]) = self.returned.pop() {
            let ticket = (entry >> 32) as u32;
            match self.out.get_mut(ticket as usize).and_then(Option::take) {
                Some(Out::Own(block)) => self.blocks.give(block),
                Some(Out::Foreign(received)) => drop(received),
                None => {
                    return Err(meeting
                        .link
                        .accuse(format!("returned ticket {ticket}, which it does not have")));
                }
            }
            self.tickets.push(ticket);
        }
        Ok(())
    }

    /// Notes what goes out under a ticket, and how the peer finds it.
    fn send_out(&mut self, cargo: Cargo, ticket: u32, meeting: &Meeting) -> Piece {
        let length = cargo.len() as u32;
        let (out, arena, offset) = match cargo {
            Cargo::Own(container) => {
                // Every piece was made one that has a block.
                let block = container.into_block();
                (block.map(Out::Own), 0, block.map_or(0, |block| self.blocks.offset(block)))
            }
            Cargo::Received(received) => {
                let (arena, offset) = match &received.place {
                    // Every piece was made one of a known arena.
                    Place::Arena { arena, offset, .. } => (self.knows(arena).unwrap_or(0), *offset),
                    _ => (0, 0),
                };
                meeting.counters.forwarded.add(1);
                (Some(Out::Foreign(received)), arena, offset)
            }
        };
        self.out[ticket as usize] = out;
        Piece { ticket, arena: arena as u16, offset: (offset / GRANULE) as u32, length }
    }
}
