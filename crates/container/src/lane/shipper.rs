//! Shipping side of a lane.
//!
//! This process alone knows which blocks of its arena are free. A container that was shipped is known by its
//! ticket, which the peer returns. So a malicious peer can only keep what it received, or return a ticket
//! that it does not own, which is detected and ends the path.

use super::{Control, LaneEnd, Meeting};
use crate::container::{
    Container, Inline, MESSAGE_PIECES_MAX, OTHER_PATH, Received, Span, Storage, WRITABLE,
};
use crate::layout::{
    self, ARENAS_MAX, Entry, GRANULE, INLINE_BYTES, PIECES_PER_ENTRY, Piece, RETURNED_WORDS, SHIPPED_WORDS,
    SocketMessage,
};
use crate::path::{Class, Options, Shipment};
use crate::pool::MemoryRange;
use bywash_link::ring::{ClosedFlag, Consumer, Producer};
use bywash_link::{
    Arena, ArenaUse, Block, BlockAllocator, DESCRIPTORS_MAX, Error, Holder, Link, MemoryFile,
    OtherConnection, SpinLock, Waiter,
};
use bywash_sync::{AtomicBool, Ordering::Relaxed};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Shipping side of a lane.
#[derive(Debug)]
pub(crate) struct Shipper {
    pub(crate) meeting: Meeting,
    /// True if every container is sealed before it is shipped.
    sealed: bool,
    arena: Option<Arena>,
    largest: usize,
    /// True once nothing more can be shipped, since the path was closed, the peer died or it broke the
    /// protocol.
    over: AtomicBool,
    /// First violation of the protocol by the peer.
    accusation: OnceLock<String>,
    /// Flag by which the peer closes its own ring; a peer that died has not set it.
    closing: ClosedFlag,
    /// True if the last message for the socket (a foreign arena, sealed containers) found the socket full.
    socket_full: AtomicBool,
    state: SpinLock<State>,
}

#[derive(Debug)]
struct State {
    blocks: BlockAllocator,
    ring: Producer<SHIPPED_WORDS>,
    returned: Consumer<RETURNED_WORDS>,
    /// Containers that the peer owns, by ticket.
    out: Vec<Option<Shipped>>,
    tickets: Vec<u32>,
    /// Foreign arenas that were passed to the peer: the one at index `i` has number `i + 1`; 0 is this end's
    /// own.
    introduced: Vec<Arc<Arena>>,
}

/// A container that was shipped and not returned.
#[derive(Debug)]
enum Shipped {
    /// A block of this end's arena.
    Own(Block),
    /// A container of another peer that was shipped on. Dropping this value returns it to its shipper.
    Foreign(Received),
}

impl Shipper {
    /// Makes the shipping side. `closing` is the flag by which the peer closes its ring before it closes the
    /// socket.
    pub(crate) fn new(
        control: &Control,
        arena: Option<Arena>,
        options: &Options,
        end: &LaneEnd,
        closing: ClosedFlag,
    ) -> Shipper {
        let (depth, tickets) = (options.depth, options.tickets);
        let bytes = arena.as_ref().map_or(0, |arena| arena.file.bytes());
        let state = State {
            blocks: BlockAllocator::new(bytes),
            ring: Producer::new(control.shipped.clone(), depth as usize),
            returned: Consumer::new(control.returned.clone(), tickets as usize),
            out: (0..tickets).map(|_| None).collect(),
            tickets: (0..tickets).rev().collect(),
            introduced: Vec::new(),
        };
        let largest = if bytes == 0 { 0 } else { BlockAllocator::largest(bytes) };
        let sealed = options.class == Class::Sealed;
        Shipper {
            meeting: control.meeting(end, true),
            sealed,
            arena,
            largest,
            over: AtomicBool::new(false),
            accusation: OnceLock::new(),
            closing,
            socket_full: AtomicBool::new(false),
            state: SpinLock::new(state),
        }
    }

    /// Allocates a container of `bytes` bytes; `None` if the arena has no block for it now.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Option<Container>, Error> {
        self.meeting.link.check_process()?;
        self.check_open()?;
        if self.sealed {
            return Container::sealed(bytes).map(Some);
        }
        if bytes <= INLINE_BYTES {
            return Ok(Some(Container::inline_of(bytes)));
        }
        self.take_block(bytes)
    }

    /// Returns true if containers of so many bytes are shipped within an entry.
    #[inline]
    pub(crate) fn is_inline(&self, bytes: usize) -> bool {
        bytes <= INLINE_BYTES && !self.sealed
    }

    /// Allocates a container in the arena; `None` if there is no free block for it now.
    fn take_block(self: &Arc<Self>, bytes: usize) -> Result<Option<Container>, Error> {
        let Some(arena) = self.arena.as_ref().filter(|_| bytes <= self.largest && bytes <= u32::MAX as usize)
        else {
            return Err(Error::TooLarge { asked: bytes, most: self.largest });
        };
        let mut state = self.state.lock();
        // Reclaims returned blocks first, so that fewer different blocks are in use, which suits the caches.
        state.reclaim(&self.meeting)?;
        let block = state.blocks.allocate(bytes);
        Ok(block.and_then(|block| {
            let (offset, capacity) = (state.blocks.offset(block), state.blocks.bytes(block));
            arena
                .at(offset)
                .map(|base| Container::in_block(self.clone(), block, Span { base, capacity }, bytes))
        }))
    }

    /// Like [`Shipper::take`], but waits up to `limit`, or without a timeout if `None`.
    pub(crate) fn allocate_within(
        self: &Arc<Self>,
        bytes: usize,
        limit: Option<Duration>,
    ) -> Result<Container, Error> {
        if let Some(container) = self.allocate(bytes)? {
            return Ok(container);
        }
        self.meeting.counters.no_room.add(1);
        let waiter = self.meeting.waiter();
        waiter.wait(limit, |looks| self.look(looks, || self.allocate(bytes))).map_err(|error| match error {
            Error::TimedOut => Error::AllocTimedOut { asked: bytes, arena: Box::new(self.usage()) },
            error => error,
        })
    }

    /// Returns the use of the arena, after reclaiming what the peer has returned. All figures are 0 in a
    /// forked child, where another thread of the parent may have held the lock during the fork.
    pub(crate) fn usage(&self) -> ArenaUse {
        if !self.meeting.link.is_here() {
            return ArenaUse::default();
        }
        self.reclaim_for_others();
        let state = self.state.lock();
        let mut usage = state.blocks.usage();
        usage.attribute(
            Holder::Peer,
            state.out.iter().flatten().filter_map(|out| match out {
                Shipped::Own(block) => Some(state.blocks.bytes(*block)),
                Shipped::Foreign(_) => None,
            }),
        );
        usage
    }

    /// Like [`Shipper::take_within`], as a future.
    #[cfg(feature = "async")]
    pub(crate) async fn take_async(self: &Arc<Self>, bytes: usize) -> Result<Container, Error> {
        let waiter = self.meeting.waiter();
        waiter.wait_async(|looks| self.look(looks, || self.allocate(bytes))).await
    }

    /// Calls `attempt` repeatedly, for about `looks` looks, until it returns something.
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

    /// Returns the memory of a container that lies at address `base` of the arena.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if others may write to the arena.
    pub(crate) fn memory(&self, base: *const u8, length: usize) -> Result<MemoryRange<'_>, Error> {
        match self.arena.as_ref().filter(|arena| arena.file.stays_backed()) {
            Some(arena) => {
                let start = arena.at(0).map_or(0, |start| start as usize);
                let offset = base as usize - start;
                Ok(MemoryRange { descriptor: arena.file.descriptor(), offset, length })
            }
            None => Err(Error::NotMapped(WRITABLE)),
        }
    }

    /// Frees the block of a container that was dropped without being shipped.
    pub(crate) fn free(&self, block: Block) {
        if self.meeting.link.is_here() {
            self.state.lock().blocks.free(block);
        }
    }

    /// Ships all of `shipment` as one message, or nothing of it (false: no room now).
    pub(crate) fn ship(self: &Arc<Self>, shipment: &mut [Option<Shipment>]) -> Result<bool, Error> {
        self.meeting.link.check_process()?;
        self.check_open()?;
        if shipment.is_empty() || shipment.len() > MESSAGE_PIECES_MAX {
            return Err(Error::MessageSize { asked: shipment.len(), most: MESSAGE_PIECES_MAX });
        }
        let bytes: usize = shipment.iter().flatten().map(Shipment::len).sum();
        if let [Some(single)] = shipment
            && !self.sealed
            && let Some(contents) = single.inline()
        {
            return self.ship_inline(contents, bytes);
        }
        self.socket_full.store(false, Relaxed);
        let shipped = if self.sealed { self.ship_sealed(shipment)? } else { self.ship_pieces(shipment)? };
        if shipped {
            let counters = &self.meeting.counters;
            counters.shipped.add(1);
            counters.shipped_bytes.add(bytes as u64);
            self.meeting.wake_for_entry();
        }
        Ok(shipped)
    }

    /// Like [`Shipper::ship`], but waits up to `limit`, or without a timeout if `None`.
    pub(crate) fn ship_within(
        self: &Arc<Self>,
        shipment: &mut [Option<Shipment>],
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        if self.ship(shipment)? {
            return Ok(());
        }
        self.meeting.counters.no_room.add(1);
        let waiter = Waiter { socket_full: Some(&self.socket_full), ..self.meeting.waiter() };
        waiter.wait(limit, |looks| self.look(looks, || Ok(self.ship(shipment)?.then_some(()))))
    }

    /// Like [`Shipper::ship_within`], as a future.
    #[cfg(feature = "async")]
    pub(crate) async fn ship_async(self: &Arc<Self>, shipment: &mut [Option<Shipment>]) -> Result<(), Error> {
        let waiter = Waiter { socket_full: Some(&self.socket_full), ..self.meeting.waiter() };
        waiter.wait_async(|looks| self.look(looks, || Ok(self.ship(shipment)?.then_some(())))).await
    }

    /// Reclaims what the peer has returned, so that foreign containers among it are returned to their own
    /// shippers. A violation of the protocol by this peer is recorded, and reported when this path is used
    /// next.
    pub(crate) fn reclaim_for_others(&self) {
        let reclaimed = self.state.lock().reclaim(&self.meeting);
        if let Err(Error::Protocol { what, .. }) = reclaimed {
            self.accuse(&what);
        }
    }

    /// Records a violation of the protocol by the peer, and ends the lane.
    pub(crate) fn accuse(&self, what: &str) {
        self.accusation.get_or_init(|| what.to_owned());
        self.end();
    }

    /// Returns the reason for the end of the lane as an error, if the lane has ended.
    #[inline]
    fn check_open(&self) -> Result<(), Error> {
        if self.is_over() { Err(self.ended()) } else { Ok(()) }
    }

    /// Returns the error that says how the path ended. A peer that closes its end sets the flag in shared
    /// memory before it closes the socket; so a peer whose socket ended without the flag has died.
    #[cold]
    fn ended(&self) -> Error {
        if let Some(what) = self.accusation.get() {
            return self.meeting.link.accuse(what.clone());
        }
        if self.closing.is_closed() { Error::Closed } else { self.meeting.link.ended() }
    }

    /// Ends the lane: nothing more is shipped, and foreign containers that the peer owned are returned to
    /// their shippers.
    pub(crate) fn end(&self) {
        self.over.store(true, Relaxed);
        let mut state = self.state.lock();
        for ticket in 0..state.out.len() {
            match state.out[ticket].take() {
                Some(Shipped::Foreign(received)) => drop(received),
                // Own blocks are not freed: a peer that still lives may read them.
                own => state.out[ticket] = own,
            }
        }
    }

    /// Closes the ring: the peer receives what was shipped before and nothing more. The peer still owns what
    /// it received.
    pub(crate) fn close(&self) {
        self.state.lock().ring.close();
        self.meeting.wake();
    }

    /// Ships contents within an entry; false: no room now.
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
        self.meeting.wake_for_entry();
        Ok(true)
    }

    fn ship_pieces(self: &Arc<Self>, shipment: &mut [Option<Shipment>]) -> Result<bool, Error> {
        self.take_memory(shipment)?;
        let mut state = self.state.lock();
        if !shipment.iter().flatten().all(|shipment| self.is_piece(shipment, &state)) {
            drop(state);
            for place in shipment.iter_mut() {
                if !self.make_piece(place)? {
                    return Ok(false);
                }
            }
            state = self.state.lock();
        }
        let entries = shipment.len().div_ceil(PIECES_PER_ENTRY);
        if !state.has_room(entries, &self.meeting)? {
            return Ok(false);
        }
        if state.tickets.len() < shipment.len() {
            state.reclaim(&self.meeting)?;
            if state.tickets.len() < shipment.len() {
                return Ok(false);
            }
        }
        // Everything that can fail was checked; from here on only a violation by the peer is an error.
        let mut left = shipment.chunks_mut(PIECES_PER_ENTRY).peekable();
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

    /// Populates the pages of own containers before they are shipped, so that the peer is not charged when it
    /// reads them. Each page of the arena is populated once.
    #[inline]
    fn take_memory(self: &Arc<Self>, shipment: &[Option<Shipment>]) -> Result<(), Error> {
        let Some(arena) = &self.arena else { return Ok(()) };
        let Some(start) = arena.at(0) else { return Ok(()) };
        for own in shipment.iter().flatten() {
            if let Shipment::Own(container) = own
                && container.is_of(self)
                && let Some(base) = container.base_in_arena()
            {
                arena.populate(base.addr() - start.addr(), container.len())?;
            }
        }
        Ok(())
    }

    /// Returns true if a container can be shipped by reference: it is in this end's arena or in one that the
    /// peer knows.
    #[inline]
    fn is_piece(self: &Arc<Self>, shipment: &Shipment, state: &State) -> bool {
        match shipment {
            Shipment::Own(container) => container.is_of(self),
            Shipment::Received(Received { place: Storage::Arena { arena, .. }, .. }) => {
                state.knows(arena).is_some()
            }
            Shipment::Received(_) => false,
        }
    }

    /// Makes `place` shippable by reference, by copying inline contents into the arena or by passing the
    /// foreign arena to the peer. False: no room now.
    fn make_piece(self: &Arc<Self>, place: &mut Option<Shipment>) -> Result<bool, Error> {
        let Some(shipment) = place else { return Ok(true) };
        if shipment.inline().is_some() {
            let Some(mut copy) = self.take_block(shipment.len())? else { return Ok(false) };
            shipment.copy_to(&mut copy)?;
            *place = Some(Shipment::Own(copy));
            return Ok(true);
        }
        match shipment {
            Shipment::Own(container) if container.is_of(self) => Ok(true),
            Shipment::Own(_) => Err(Error::WrongPath(OTHER_PATH)),
            Shipment::Received(Received { place: Storage::Arena { arena, lane, .. }, .. }) => {
                // Registers the lane before anything is shipped whose return must be relayed.
                lane.forward_to(self);
                self.introduce(arena)
            }
            Shipment::Received(_) => {
                Err(Error::WrongPath("it is sealed and this path has an arena; ship it on a sealed path"))
            }
        }
    }

    /// Passes a foreign arena to the peer, unless the peer knows it. False: the socket is full.
    fn introduce(&self, arena: &Arc<Arena>) -> Result<bool, Error> {
        let mut state = self.state.lock();
        if state.knows(arena).is_some() {
            return Ok(true);
        }
        let number = state.introduced.len() + 1;
        if number >= ARENAS_MAX {
            return Err(Error::WrongPath(
                "containers of too many other paths were shipped on this one; make a new path",
            ));
        }
        let note = SocketMessage::Arena(number as u16, arena.file.bytes() as u64);
        let passed = self.pass(&note, &[arena.file.descriptor()])?;
        if passed {
            state.introduced.push(arena.clone());
        }
        Ok(passed)
    }

    /// Sends a message with descriptors through the socket; false: the socket is full.
    fn pass(&self, note: &SocketMessage, descriptors: &[BorrowedFd<'_>]) -> Result<bool, Error> {
        let passed = self.meeting.link.pass(&note.to_bytes(), descriptors)?;
        self.socket_full.store(!passed, Relaxed);
        Ok(passed)
    }

    fn ship_sealed(&self, shipment: &mut [Option<Shipment>]) -> Result<bool, Error> {
        if shipment.len() > DESCRIPTORS_MAX {
            return Err(Error::MessageSize { asked: shipment.len(), most: DESCRIPTORS_MAX });
        }
        // Seals everything before sending. If the socket is full then, `shipment` keeps the sealed containers
        // for the next try.
        for place in shipment.iter_mut() {
            match place.take() {
                Some(Shipment::Own(container)) => match container.freeze() {
                    Ok(sealed) => *place = Some(Shipment::Received(sealed)),
                    Err(failed) => {
                        let (container, error) = *failed;
                        *place = container.map(Shipment::Own);
                        return Err(error);
                    }
                },
                other => *place = other,
            }
        }
        let files = shipment.iter().map(|place| match place {
            Some(Shipment::Received(Received { place: Storage::Sealed { file }, .. })) => Ok(file.clone()),
            _ => Err(Error::WrongPath(
                "it is not sealed and this path is; copy it into a container of this path",
            )),
        });
        let files: Vec<Arc<MemoryFile>> = files.collect::<Result<_, _>>()?;
        let note = SocketMessage::Sealed(files.iter().map(|file| file.bytes() as u64).collect());
        let descriptors: Vec<_> = files.iter().map(|file| file.descriptor()).collect();
        let passed = self.pass(&note, &descriptors)?;
        if passed {
            shipment.iter_mut().for_each(|place| *place = None);
        }
        Ok(passed)
    }
}

/// For lanes on which containers of another peer were shipped on: their tickets may be returned here.
impl OtherConnection for Shipper {
    fn set_bell(&self) {
        self.meeting.set_bell();
    }

    fn unset_bell(&self) {
        self.meeting.unset_bell();
    }

    /// Ends the lane if the peer is gone or broke the protocol.
    fn end_if_over(&self) {
        if self.is_over() {
            return;
        }
        match self.meeting.link.is_over() {
            Ok(false) => {}
            Err(Error::Protocol { what, .. }) => self.accuse(&what),
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
    /// Returns the peer's number of a foreign arena, if the arena was passed to the peer.
    #[inline]
    fn knows(&self, arena: &Arc<Arena>) -> Option<usize> {
        self.introduced.iter().position(|known| Arc::ptr_eq(known, arena)).map(|at| at + 1)
    }

    /// Returns true if the ring has room for so many entries.
    #[inline]
    fn has_room(&mut self, entries: usize, meeting: &Meeting) -> Result<bool, Error> {
        let room = self.ring.room(entries).map_err(|rubbish| meeting.link.accuse(rubbish.to_string()))?;
        Ok(room >= entries)
    }

    #[inline]
    fn push(&mut self, entry: &Entry, meeting: &Meeting) -> Result<(), Error> {
        match self.ring.push(entry) {
            Ok(true) => Ok(()),
            // A full ring here is the peer's doing: there was room a moment ago, and only this side fills the
            // ring.
            Ok(false) => Err(meeting.link.accuse("took room away that it had given")),
            Err(rubbish) => Err(meeting.link.accuse(rubbish.to_string())),
        }
    }

    /// Reads the tickets that the peer has returned, and frees their blocks or drops their foreign
    /// containers.
    fn reclaim(&mut self, meeting: &Meeting) -> Result<(), Error> {
        while let Some([entry]) = self.returned.pop() {
            let ticket = (entry >> 32) as u32;
            match self.out.get_mut(ticket as usize).and_then(Option::take) {
                Some(Shipped::Own(block)) => self.blocks.free(block),
                Some(Shipped::Foreign(received)) => drop(received),
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

    /// Records a container under its ticket, and returns the piece that tells the peer its position.
    fn send_out(&mut self, shipment: Shipment, ticket: u32, meeting: &Meeting) -> Piece {
        let length = shipment.len() as u32;
        let (out, arena, offset) = match shipment {
            Shipment::Own(container) => {
                // `make_piece` and `is_piece` left only containers with a block.
                let block = container.into_block();
                (block.map(Shipped::Own), 0, block.map_or(0, |block| self.blocks.offset(block)))
            }
            Shipment::Received(received) => {
                let (arena, offset) = match &received.place {
                    // `make_piece` and `is_piece` left only containers of arenas that the peer knows.
                    Storage::Arena { arena, offset, .. } => (self.knows(arena).unwrap_or(0), *offset),
                    _ => (0, 0),
                };
                meeting.counters.forwarded.add(1);
                (Some(Shipped::Foreign(received)), arena, offset)
            }
        };
        self.out[ticket as usize] = out;
        Piece { ticket, arena: arena as u16, offset: (offset / GRANULE) as u32, length }
    }
}
