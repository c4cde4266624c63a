//! Receiving side of a lane.
//!
//! The peer is not trusted: an entry is copied out of shared memory first, then each piece is checked against
//! the arena that it names. After a violation of the protocol nothing more is accepted from the peer.

use super::{Control, LaneEnd, Meeting, Shipper};
use crate::container::{Inline, MESSAGE_PIECES_MAX, Message, Received, Storage};
use crate::layout::{
    self, ARENAS_MAX, Entry, EntryKind, GRANULE, Piece, RETURNED_WORDS, SHIPPED_WORDS, SocketMessage,
};
use crate::path::{Class, Options};
use bywash_link::ring::{ClosedFlag, Consumer, Producer};
use bywash_link::{
    Arena, Error, Hello, MemoryFile, OtherConnection, SEALS_FIXED, SEALS_FROZEN, SpinLock, Wait, Waiter,
};
use bywash_sync::{AtomicBool, Ordering::Relaxed};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Receiving side of a lane.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) meeting: Meeting,
    class: Class,
    tickets: u32,
    bytes_max: usize,
    closing: ClosedFlag,
    state: SpinLock<State>,
    returned: SpinLock<Producer<RETURNED_WORDS>>,
    /// Lanes on which containers of this lane were shipped on. Tickets returned there are relayed to this
    /// lane's peer.
    relays: SpinLock<Vec<Weak<Shipper>>>,
    has_relays: AtomicBool,
}

#[derive(Debug)]
struct State {
    ring: Consumer<SHIPPED_WORDS>,
    /// Arenas by the peer's numbers; number 0 is the peer's own.
    arenas: Vec<Option<Arc<Arena>>>,
    /// Pieces of a message whose last entry has not arrived, with their arenas. They are no [`Received`] yet,
    /// since that holds an `Arc` of this lane, which would be a cycle.
    begun: Vec<(Piece, Arc<Arena>)>,
    /// First violation of the protocol by the peer.
    accusation: Option<String>,
}

impl Receiver {
    pub(crate) fn new(
        control: &Control,
        arena: Option<Arena>,
        options: &Options,
        hello: &Hello,
        end: &LaneEnd,
    ) -> Receiver {
        let state = State {
            ring: Consumer::new(control.shipped.clone(), hello.rings[0] as usize),
            arenas: vec![arena.map(Arc::new)],
            begun: Vec::new(),
            accusation: None,
        };
        Receiver {
            meeting: control.meeting(end, false),
            class: options.class,
            tickets: hello.rings[1],
            bytes_max: options.peer_arena_bytes_max,
            closing: state.ring.closing(),
            state: SpinLock::new(state),
            returned: SpinLock::new(Producer::new(control.returned.clone(), hello.rings[1] as usize)),
            relays: SpinLock::default(),
            has_relays: AtomicBool::new(false),
        }
    }

    /// Registers a lane on which containers of this lane are shipped on.
    pub(crate) fn forward_to(&self, lane: &Arc<Shipper>) {
        let mut relays = self.relays.lock();
        if !relays.iter().any(|known| known.as_ptr() == Arc::as_ptr(lane)) {
            relays.retain(|known| known.strong_count() > 0);
            relays.push(Arc::downgrade(lane));
            self.has_relays.store(true, Relaxed);
        }
    }

    /// Returns the registered lanes that have not ended.
    fn relays(&self) -> Vec<Arc<Shipper>> {
        if !self.has_relays.load(Relaxed) {
            return Vec::new();
        }
        self.relays.lock().iter().filter_map(Weak::upgrade).filter(|lane| !lane.is_over()).collect()
    }

    /// Like [`Receiving::relays`], in the type that a [`Waiter`] needs.
    fn elsewhere(&self) -> Vec<Arc<dyn OtherConnection>> {
        self.relays().into_iter().map(|lane| lane as _).collect()
    }

    /// Returns to this lane's peer the containers that were shipped on and have been returned on the other
    /// lanes.
    fn relay_returns(&self) {
        if self.has_relays.load(Relaxed) {
            self.relays().iter().for_each(|lane| lane.reclaim_for_others());
        }
    }

    /// Like [`Receiver::relay_returns`], but also requests doorbells of those lanes.
    pub(crate) fn arm_forwards(&self) {
        for lane in self.relays() {
            lane.set_bell();
            lane.end_if_over();
        }
        self.relay_returns();
    }

    /// Records a violation of the protocol, after which nothing more is accepted from the peer.
    pub(crate) fn reject_peer(&self, what: &str) {
        let mut state = self.state.lock();
        state.accusation.get_or_insert_with(|| what.to_owned());
        state.begun.clear();
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Takes the next message if it arrives within a few looks and consists of one inline entry: the fast
    /// path of [`Receiver::take`].
    #[inline]
    pub(crate) fn take_inline(&self) -> Option<Message> {
        if self.has_relays.load(Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        state.ring.look(self.meeting.first_looks());
        let EntryKind::Inline(bytes) = layout::read_head(state.ring.first_word()?)? else { return None };
        if state.accusation.is_some() || !state.begun.is_empty() || !self.meeting.link.is_here() {
            return None;
        }
        // A malicious peer may have changed the entry since its head was read. The message then has other
        // contents, but the length that was read first.
        let entry = state.ring.pop()?;
        drop(state);
        let counters = &self.meeting.counters;
        counters.inline.add(1);
        counters.received.add(1);
        counters.received_bytes.add(bytes as u64);
        // The entry was freed, so a shipper that waits for room can go on.
        self.meeting.wake();
        Some(Message::new(self.received(Storage::Inline(words_of(&entry)), bytes)))
    }

    /// Takes the next message if one arrives within `looks` looks at the ring.
    pub(crate) fn receive(self: &Arc<Self>, looks: u32) -> Result<Option<Message>, Error> {
        self.meeting.link.check_process()?;
        self.relay_returns();
        let mut state = self.state.lock();
        if let Some(what) = &state.accusation {
            return Err(self.meeting.link.accuse(what.clone()));
        }
        let taken = match self.class {
            Class::Sealed => self.take_sealed(),
            _ => self.take_shipped(&mut state, looks),
        };
        match taken {
            Ok(message) => {
                if let Some(message) = &message {
                    self.meeting.counters.received.add(1);
                    self.meeting.counters.received_bytes.add(message.len() as u64);
                }
                Ok(message)
            }
            Err(Error::Protocol { pid, what }) => {
                state.accusation = Some(what.clone());
                state.begun.clear();
                Err(Error::Protocol { pid, what })
            }
            Err(other) => Err(other),
        }
    }

    /// Like [`Receiving::take`], but waits up to `limit`, or without a timeout if `None`.
    pub(crate) fn take_within(self: &Arc<Self>, limit: Option<Duration>) -> Result<Message, Error> {
        let relays = self.elsewhere();
        let mut waiter = Waiter { elsewhere: &relays, ..self.meeting.waiter() };
        if self.class == Class::Sealed {
            // Sealed containers arrive through the socket, where each look is a system call: so spinning does
            // not pay.
            waiter = Waiter { on_socket: true, how: Wait::Sleep, ..waiter };
        }
        waiter.wait(limit, |looks| self.receive(looks))
    }

    /// Like [`Receiving::take_within`], as a future.
    #[cfg(feature = "async")]
    pub(crate) async fn take_async(self: &Arc<Self>) -> Result<Message, Error> {
        let relays = self.elsewhere();
        let waiter = Waiter { elsewhere: &relays, ..self.meeting.waiter() };
        waiter.wait_async(|looks| self.receive(looks)).await
    }

    /// Returns the flag by which the peer closes its ring, for use by the shipping lane.
    pub(crate) fn closing(&self) -> ClosedFlag {
        self.closing.clone()
    }

    /// Returns true if the peer has closed its ring, after which it ships nothing more.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closing.is_closed()
    }

    /// Returns true if [`Receiver::take`] would return a message or an error at once.
    pub(crate) fn has_something(&self) -> Result<bool, Error> {
        let link = &self.meeting.link;
        let is_over = link.is_over()?;
        let state = self.state.lock();
        if let Some(what) = &state.accusation {
            return Err(link.accuse(what.clone()));
        }
        let sealed = self.class == Class::Sealed && link.has_message();
        match state.ring.is_ready() || self.closing.is_closed() || sealed {
            false if is_over => Err(link.ended()),
            is_there => Ok(is_there),
        }
    }

    /// Returns a ticket to the peer, after the container was dropped.
    pub(crate) fn return_ticket(&self, ticket: u32) {
        if !self.meeting.link.is_here() {
            return;
        }
        // If the ring is full or its position is invalid, the peer has shipped more containers than it has
        // tickets. The ticket is then not returned, and the next receive reports the violation.
        let given = self.returned.lock().push(&[u64::from(ticket) << 32]);
        if given == Ok(true) {
            self.meeting.wake();
        } else {
            let what = "sent more containers than it has tickets for";
            // This thread itself may hold the lock on the state; then the violation goes unrecorded here.
            if let Some(mut state) = self.state.try_lock() {
                state.accusation.get_or_insert_with(|| what.into());
            }
        }
    }

    fn take_shipped(self: &Arc<Self>, state: &mut State, looks: u32) -> Result<Option<Message>, Error> {
        loop {
            let Some(entry) = state.ring.pop_within(looks) else {
                if !self.closing.is_closed() || state.ring.is_ready() {
                    return Ok(None);
                }
                return Err(match state.begun.is_empty() {
                    true => Error::Closed,
                    false => self.meeting.link.accuse("closed the path in the middle of a message"),
                });
            };
            // The entry was freed, so a shipper that waits for room can go on.
            self.meeting.wake();
            let said = layout::read_head(entry[0]).ok_or_else(|| {
                self.meeting.link.accuse(format!("sent an entry that begins with {:#018x}", entry[0]))
            })?;
            match said {
                EntryKind::Inline(bytes) if state.begun.is_empty() => {
                    self.meeting.counters.inline.add(1);
                    return Ok(Some(Message::new(self.received(Storage::Inline(words_of(&entry)), bytes))));
                }
                EntryKind::Inline(_) => {
                    return Err(self.meeting.link.accuse("sent contents in the middle of a message"));
                }
                EntryKind::Pieces(1, false) if state.begun.is_empty() => {
                    let (piece, arena) = self.check(state, layout::read_piece(&entry, 0))?;
                    return Ok(Some(Message::new(self.received_piece(piece, arena))));
                }
                EntryKind::Pieces(count, more) => {
                    for number in 0..count {
                        let piece = self.check(state, layout::read_piece(&entry, number))?;
                        state.begun.push(piece);
                    }
                    if state.begun.len() > MESSAGE_PIECES_MAX {
                        return Err(self.meeting.link.accuse("sent a message of too many containers"));
                    }
                    if !more {
                        let pieces =
                            state.begun.drain(..).map(|(piece, arena)| self.received_piece(piece, arena));
                        return Ok(Message::from_pieces(pieces.collect()));
                    }
                }
            }
        }
    }

    #[inline]
    fn received(&self, place: Storage, length: usize) -> Received {
        Received { place, length, origin: self.meeting.link.peer() }
    }

    fn received_piece(self: &Arc<Self>, piece: Piece, arena: Arc<Arena>) -> Received {
        let offset = piece.offset as usize * GRANULE;
        let place = Storage::Arena { lane: self.clone(), arena, offset, ticket: piece.ticket };
        self.received(place, piece.length as usize)
    }

    /// Checks that a piece has a valid ticket and lies within the arena that it names.
    fn check(&self, state: &mut State, piece: Piece) -> Result<(Piece, Arc<Arena>), Error> {
        let accuse = |what: String| Err(self.meeting.link.accuse(what));
        if piece.ticket >= self.tickets {
            return accuse(format!("sent ticket {}, and has {}", piece.ticket, self.tickets));
        }
        let Some(arena) = self.arena(state, piece.arena)? else {
            return accuse(format!("sent a container of arena {}, which it has not passed on", piece.arena));
        };
        let (offset, length) = (piece.offset as usize * GRANULE, piece.length as usize);
        if !arena.contains(offset, length) {
            return accuse(format!(
                "sent a container of {length} bytes at {offset} of an arena of {} bytes",
                arena.file.bytes()
            ));
        }
        Ok((piece, arena))
    }

    /// Returns the arena with this number, after reading the announcements of new arenas from the socket if
    /// it is unknown.
    fn arena(&self, state: &mut State, number: u16) -> Result<Option<Arc<Arena>>, Error> {
        let number = usize::from(number);
        while number >= state.arenas.len() {
            self.meeting.link.drain()?;
            let Some((SocketMessage::Arena(named, bytes), files)) = self.note() else {
                return Ok(None);
            };
            if usize::from(named) != state.arenas.len() || state.arenas.len() >= ARENAS_MAX {
                return Err(self.meeting.link.accuse(format!("passed on an arena by the number {named}")));
            }
            let known = state.arenas.iter().flatten().map(|arena| arena.file.bytes() as u64);
            self.check_bytes(known.fold(bytes, u64::saturating_add))?;
            let file = self.adopt(files, bytes)?;
            let mapping = if self.class == Class::Forward { None } else { Some(file.map(false)?) };
            state.arenas.push(Some(Arc::new(Arena::adopt(file, mapping, false))));
        }
        Ok(state.arenas[number].clone())
    }

    /// Takes the oldest message that was read from the socket and not used yet.
    fn note(&self) -> Option<(SocketMessage, Vec<OwnedFd>)> {
        let packet = self.meeting.link.take_message()?;
        Some((SocketMessage::from_bytes(&packet.bytes)?, packet.descriptors))
    }

    /// Checks that `bytes` is at most the limit on the peer's memory, `peer_arena_bytes_max`.
    fn check_bytes(&self, bytes: u64) -> Result<(), Error> {
        match bytes <= self.bytes_max as u64 {
            true => Ok(()),
            false => Err(self.meeting.link.accuse(format!(
                "passed on {bytes} bytes of memory, and {} are allowed (peer_arena_bytes_max)",
                self.bytes_max
            ))),
        }
    }

    fn adopt(&self, files: Vec<OwnedFd>, bytes: u64) -> Result<MemoryFile, Error> {
        let adopted = files
            .into_iter()
            .next()
            .ok_or_else(|| "passed no memory on".to_owned())
            .and_then(|file| MemoryFile::from_peer(file, bytes as usize, SEALS_FIXED));
        adopted.map_err(|what| self.meeting.link.accuse(what))
    }

    fn take_sealed(&self) -> Result<Option<Message>, Error> {
        // The flag is read before the socket: once it is set, everything that was shipped is in the socket.
        let closed = self.closing.is_closed();
        let going_on = self.meeting.link.drain()?;
        let Some((SocketMessage::Sealed(lengths), files)) = self.note() else {
            // A peer closes its ring before its socket. So once the socket has ended, the flag is read again.
            return match going_on {
                true if closed => Err(Error::Closed),
                true => Ok(None),
                false if self.closing.is_closed() => Err(Error::Closed),
                false => Err(self.meeting.link.ended()),
            };
        };
        self.check_bytes(lengths.iter().fold(0, |sum, length| sum.saturating_add(*length)))?;
        let pieces: Result<Vec<Received>, String> = lengths
            .into_iter()
            .zip(files)
            .map(|(length, file)| {
                let file = Arc::new(MemoryFile::from_peer(file, length as usize, SEALS_FROZEN)?);
                Ok(self.received(Storage::Sealed { file }, length as usize))
            })
            .collect();
        pieces.map(Message::from_pieces).map_err(|what| self.meeting.link.accuse(what))
    }
}

/// Copies the contents out of an entry, without its head word.
#[inline]
fn words_of(entry: &Entry) -> Inline {
    let mut words = [0; SHIPPED_WORDS - 1];
    words.copy_from_slice(&entry[1..]);
    words
}
