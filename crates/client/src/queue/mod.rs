//! Many requests under way at a time, from one thread, without a system call or an allocation on their way.
//!
//! ```text
//!                   ┌─ mapped:  copied at once ──► ready ──────────────┐
//!     submit ───────┤                                                  ├──► reap: a fence for all, a look at each word
//!                   └─ channel: slot, arena, ring ──► server ──► ring ─┘
//! ```
//!
//! A request of a mapped volume is done where it is submitted; whether it counts is found out when it is reaped, behind
//! one fence for all that were ready by then. One of another volume takes a slot, whose number the channel carries.
//!
//! Invariant: a request that was submitted is either in `ready` or in a slot, until it is reaped; together they are
//! no more than the depth.

mod dispatch;
mod memory;
mod reap;

pub use dispatch::QueueDispatcher;
pub use memory::{Buffer, Completion, NotSubmitted, Room};

use crate::client::make_channel;
use crate::error::Error;
use crate::mapped::Mapped;
use crate::options::{Options, Path};
use crate::request::{Shape, name};
use crate::session::{Grant, Need, Origin, Session};
use bywash_protocol::Access;
use bywash_protocol::layout::{Opcode, PIECE_BYTES, PIECES_MAX, Piece};
use memory::{Keep, Place};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A volume that a queue has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VolumeId {
    index: u32,
    /// Of all that were ever opened in this process: neither of another queue nor of one that was closed.
    tag: u32,
}

impl VolumeId {
    /// As a number, for programs in other languages.
    pub fn to_word(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.index)
    }

    /// Of such a number; one that is none is found out when it is used.
    pub fn of_word(word: u64) -> VolumeId {
        VolumeId { index: word as u32, tag: (word >> 32) as u32 }
    }
}

/// A part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Of which volume.
    pub volume: VolumeId,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes.
    pub length: usize,
}

/// Requests that are submitted without waiting, and reaped when they are done.
///
/// One thread uses it, over a connection to the server of its own: so nothing is locked, and what the server gives to each
/// connection it gives to each such thread. Threads that want queues make one each.
///
/// Requests that are under way are done in any order. When the server goes and the queue connects again, those of the channel
/// that were not completed are submitted again, as [`crate::Volume`] says; those of mapped memory that were not reaped end
/// with [`Error::Gone`], since what they wrote went with the medium.
pub struct Queue {
    socket: PathBuf,
    options: Options,
    session: Arc<Session>,
    channel: bywash_channel::Client,
    volumes: Vec<Option<Opened>>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Requests that are done, but for a look whether they count.
    ready: VecDeque<Ready>,
    /// Of these so many, from the front, have had their fence.
    fenced: usize,
    /// Whose turn it is: what is ready, or the channel.
    is_ready_next: bool,
    /// Memory that a device may still write to; it goes with its channel.
    lost: Vec<bywash_channel::Buffer>,
    /// Why nothing can be submitted any more.
    end: Option<Error>,
}

#[derive(Debug)]
struct Opened {
    tag: u32,
    origin: Origin,
    /// Or why it could not be opened when the queue had connected again.
    grant: Result<Grant, Error>,
}

/// A request that the channel carries.
#[derive(Debug)]
struct Slot {
    user_data: u64,
    shape: Shape,
    volume: u32,
    keep: Keep,
    /// Of a request of several: which volumes, from where on, how many bytes.
    pieces: Vec<(u32, u64, usize)>,
}

/// A request that is done.
#[derive(Debug)]
struct Ready {
    user_data: u64,
    outcome: Outcome,
    room: Option<Room>,
}

#[derive(Debug)]
enum Outcome {
    /// Done in mapped memory; it counts if the grant is valid behind it.
    Read(u32),
    Written(u32),
    /// It counts if the server is still there.
    Flushed(u32),
    Known(Result<(), Error>),
}

impl Queue {
    /// Connects to the server that listens at `socket`.
    ///
    /// # Errors
    /// As [`crate::Client::connect`]; an option that the server does not allow.
    pub fn connect(socket: impl Into<PathBuf>, options: Options) -> Result<Queue, Error> {
        // Who reaps says how long; to end it while it connects again would end the queue.
        let options = Options { interrupt: None, ..options };
        let socket = socket.into();
        let end = Instant::now() + options.limit;
        let session = Arc::new(Session::connect(&socket, &options, 0, end)?);
        let channel = make_channel(&session, &options, end)?;
        let depth = channel.depth();
        let slot = |_| Slot {
            user_data: 0,
            shape: Shape::new(Opcode::Flush, false, 0, 0),
            volume: 0,
            keep: Keep::Nothing,
            pieces: Vec::new(),
        };
        Ok(Queue {
            socket,
            options,
            session,
            channel,
            volumes: Vec::new(),
            slots: (0..depth).map(slot).collect(),
            free: (0..depth as u32).rev().collect(),
            ready: VecDeque::with_capacity(depth),
            fenced: 0,
            is_ready_next: false,
            lost: Vec::new(),
            end: None,
        })
    }

    /// Opens a volume by its name.
    ///
    /// # Errors
    /// As [`crate::Client::open`].
    pub fn open(&mut self, volume: &str, access: Access) -> Result<VolumeId, Error> {
        self.open_origin(Origin::Name(volume.into(), access))
    }

    /// Opens a regular file or a block device that the program has opened.
    ///
    /// # Errors
    /// As [`crate::Client::open_descriptor`].
    pub fn open_descriptor(&mut self, file: impl Into<OwnedFd>) -> Result<VolumeId, Error> {
        self.open_origin(Origin::Descriptor(file.into()))
    }

    fn open_origin(&mut self, origin: Origin) -> Result<VolumeId, Error> {
        // From 1 on, so that no number is 0.
        static TAGS: AtomicU32 = AtomicU32::new(1);
        self.check_end()?;
        let end = Instant::now() + self.options.limit;
        let grant = match self.session.open(&origin, self.options.choice, end) {
            Err(error) if error.is_end() => {
                self.over(error);
                self.check_end()?;
                self.session.open(&origin, self.options.choice, Instant::now() + self.options.limit)?
            }
            grant => grant?,
        };
        let tag = TAGS.fetch_add(1, Ordering::Relaxed);
        let opened = Some(Opened { tag, origin, grant: Ok(grant) });
        let index = match self.volumes.iter().position(Option::is_none) {
            Some(free) => {
                self.volumes[free] = opened;
                free
            }
            None => {
                self.volumes.push(opened);
                self.volumes.len() - 1
            }
        };
        Ok(VolumeId { index: index as u32, tag })
    }

    /// Closes a volume.
    ///
    /// # Errors
    /// [`Error::Busy`] while requests of it are under way, or not reaped.
    pub fn close(&mut self, volume: VolumeId) -> Result<(), Error> {
        self.grant(volume)?;
        let is_free = |slot: u32| self.free.contains(&slot);
        let of_slot = |slot: &Slot| {
            let many = matches!(slot.shape.opcode, Opcode::ReadMany | Opcode::WriteMany);
            match many {
                true => slot.pieces.iter().any(|piece| piece.0 == volume.index),
                false => slot.volume == volume.index,
            }
        };
        let in_slots =
            (0..self.slots.len() as u32).any(|at| of_slot(&self.slots[at as usize]) && !is_free(at));
        let in_ready = self.ready.iter().any(|ready| match ready.outcome {
            Outcome::Read(index) | Outcome::Written(index) | Outcome::Flushed(index) => index == volume.index,
            Outcome::Known(_) => false,
        });
        if in_slots || in_ready {
            return Err(Error::Busy);
        }
        self.volumes[volume.index as usize] = None;
        Ok(())
    }

    /// Bytes of a volume.
    ///
    /// # Errors
    /// [`Error::Foreign`]; why it could not be opened again.
    pub fn len(&self, volume: VolumeId) -> Result<u64, Error> {
        self.grant(volume).map(|grant| grant.bytes)
    }

    /// Bytes of a volume's block.
    ///
    /// # Errors
    /// As [`Queue::len`].
    pub fn block(&self, volume: VolumeId) -> Result<u32, Error> {
        self.grant(volume).map(|grant| grant.block)
    }

    /// Which way a volume's bytes go, and why they are not mapped if they are not.
    ///
    /// # Errors
    /// As [`Queue::len`].
    pub fn path(&self, volume: VolumeId) -> Result<Path, Error> {
        self.grant(volume).map(Grant::path)
    }

    /// The client's number, as reports name it.
    pub fn number(&self) -> u64 {
        self.session.client
    }

    /// Memory of the arena, to be submitted without being copied.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::UsedUp`].
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        let inner = self.channel.alloc(bytes).map_err(|error| self.of_link(error))?;
        Ok(Buffer { inner, generation: self.session.generation })
    }

    /// How long calls wait that are told nothing else, as the options say.
    pub fn limit(&self) -> Duration {
        self.options.limit
    }

    /// Most requests that can be under way.
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Requests that were submitted and not reaped.
    #[inline]
    pub fn under_way(&self) -> usize {
        self.in_channel() + self.ready.len()
    }

    /// How often the queue has connected again. Each time its descriptor is another one.
    pub fn reconnects(&self) -> u64 {
        self.session.generation
    }

    /// Bytes of the arena that are not used again, since a device that did not answer in time may still write there.
    pub fn lost_bytes(&self) -> usize {
        self.lost.iter().map(bywash_channel::Buffer::capacity).sum()
    }

    /// Reads as many bytes as there is room for.
    ///
    /// # Errors
    /// Why it was not submitted, with what was given: [`Error::Full`] among others.
    #[inline]
    pub fn read(
        &mut self,
        volume: VolumeId,
        offset: u64,
        room: impl Into<Room>,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let room = room.into();
        let shape = Shape::new(Opcode::Read, false, offset, room.len() as u64);
        let grant = match self.begin(volume, Need::Read, &shape) {
            Ok(grant) => grant,
            Err(error) => return Err(NotSubmitted::new(error, Some(room))),
        };
        if let Some(memory) = &grant.memory {
            let mut room = room;
            let (to, length) = room.place();
            // SAFETY: as many bytes, of the arena or of the program's own, and so in no mapped grant.
            unsafe { memory.read(offset, to, length) };
            self.is_done(user_data, Outcome::Read(volume.index), Some(room));
            return Ok(());
        }
        match room {
            Room::Arena(buffer) => self.send_buffer(volume, shape, buffer, user_data),
            Room::Own(bytes) => match self.alloc_inner(bytes.len()) {
                Ok(buffer) => self.send(volume.index, shape, Some(buffer), Keep::Own(bytes), user_data),
                Err(error) => Err(NotSubmitted::new(error, Some(Room::Own(bytes)))),
            },
        }
    }

    /// Reads bytes into memory that the program lends until the completion is reaped.
    ///
    /// # Safety
    /// There must be room for `length` bytes at `to`, which nobody else touches, until the request was reaped or the queue
    /// is gone.
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub unsafe fn read_to(
        &mut self,
        volume: VolumeId,
        offset: u64,
        to: NonNull<u8>,
        length: usize,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let shape = Shape::new(Opcode::Read, false, offset, length as u64);
        let grant = self.begin(volume, Need::Read, &shape)?;
        if let Some(memory) = &grant.memory {
            // SAFETY: the caller's promise; nothing that can be lent is in a mapped grant.
            unsafe { memory.read(offset, to.as_ptr(), length) };
            self.is_done(user_data, Outcome::Read(volume.index), None);
            return Ok(());
        }
        let buffer = self.alloc_inner(length)?;
        self.send(volume.index, shape, Some(buffer), Keep::Lent(Place(to)), user_data)
    }

    /// Writes what is in a buffer of the arena, which comes back with the completion. Nothing is copied but into mapped
    /// memory. With `durable` it is durable when it is completed.
    ///
    /// # Errors
    /// As [`Queue::read`].
    #[inline]
    pub fn write(
        &mut self,
        volume: VolumeId,
        offset: u64,
        buffer: Buffer,
        durable: bool,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let shape = Shape::new(Opcode::Write, durable, offset, buffer.len() as u64);
        let grant = match self.begin(volume, Need::Write, &shape) {
            Ok(grant) => grant,
            Err(error) => return Err(NotSubmitted::new(error, Some(buffer.into()))),
        };
        if let Some(memory) = &grant.memory {
            // SAFETY: as many bytes of the arena, which is in no mapped grant.
            unsafe { memory.write_from(offset, buffer.as_ptr(), buffer.len()) };
            self.is_done(user_data, Outcome::Written(volume.index), Some(buffer.into()));
            return Ok(());
        }
        self.send_buffer(volume, shape, buffer, user_data)
    }

    /// Writes a copy of `from`.
    ///
    /// # Errors
    /// As [`Queue::read`]; [`Error::UsedUp`] if the arena has no room for the copy now.
    #[inline]
    pub fn write_from(
        &mut self,
        volume: VolumeId,
        offset: u64,
        from: &[u8],
        durable: bool,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let shape = Shape::new(Opcode::Write, durable, offset, from.len() as u64);
        let grant = self.begin(volume, Need::Write, &shape)?;
        if let Some(memory) = &grant.memory {
            memory.write(offset, from);
            self.is_done(user_data, Outcome::Written(volume.index), None);
            return Ok(());
        }
        let mut buffer = self.alloc_inner(from.len())?;
        buffer.write(0, from);
        self.send(volume.index, shape, Some(buffer), Keep::Nothing, user_data)
    }

    /// As [`crate::Volume::flush`]: of what had been completed, and reaped, before.
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub fn flush(&mut self, volume: VolumeId, user_data: u64) -> Result<(), NotSubmitted> {
        let shape = Shape::new(Opcode::Flush, false, 0, 0);
        // Any right will do.
        let need = if self.grant(volume)?.access.reads() { Need::Read } else { Need::Write };
        if self.begin(volume, need, &shape)?.memory.is_some() {
            self.is_done(user_data, Outcome::Flushed(volume.index), None);
            return Ok(());
        }
        self.send(volume.index, shape, None, Keep::Nothing, user_data)
    }

    /// As [`crate::Volume::discard`].
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub fn discard(
        &mut self,
        volume: VolumeId,
        offset: u64,
        length: u64,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let shape = Shape::new(Opcode::Discard, false, offset, length);
        self.begin(volume, Need::Write, &shape)?;
        self.send(volume.index, shape, None, Keep::Nothing, user_data)
    }

    /// As [`crate::Volume::write_zeroes`].
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub fn write_zeroes(
        &mut self,
        volume: VolumeId,
        offset: u64,
        length: u64,
        durable: bool,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let shape = Shape::new(Opcode::WriteZeroes, durable, offset, length);
        if let Some(memory) = &self.begin(volume, Need::Write, &shape)?.memory {
            memory.write_zeroes(offset, length);
            self.is_done(user_data, Outcome::Written(volume.index), None);
            return Ok(());
        }
        self.send(volume.index, shape, None, Keep::Nothing, user_data)
    }

    /// As [`crate::Volume::compare_and_write`]; if something else was there the outcome is [`Error::Differs`].
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub fn compare_and_write(
        &mut self,
        volume: VolumeId,
        offset: u64,
        expected: &[u8],
        new: &[u8],
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        if expected.len() != new.len() {
            return Err(Error::Lengths { expected: expected.len(), written: new.len() }.into());
        }
        let shape = Shape::new(Opcode::CompareAndWrite, false, offset, new.len() as u64);
        self.begin(volume, Need::Write, &shape)?;
        let mut buffer = self.alloc_inner(2 * new.len())?;
        buffer.write(0, expected);
        buffer.write(new.len(), new);
        self.send(volume.index, shape, Some(buffer), Keep::Nothing, user_data)
    }

    /// Reads parts of several volumes by one request, one behind the other into `room`, which has exactly as many bytes.
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub fn read_many(
        &mut self,
        ranges: &[Range],
        mut room: Vec<u8>,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let sum: usize = ranges.iter().map(|range| range.length).sum();
        let checked = match sum == room.len() {
            true => self.begin_many(ranges.iter().copied(), Need::Read),
            false => Err(Error::Lengths { expected: sum, written: room.len() }),
        };
        match checked {
            Err(error) => return Err(NotSubmitted::new(error, Some(room.into()))),
            Ok(true) => {
                let mut at = 0;
                let outcome = ranges.iter().try_for_each(|range| {
                    let (grant, memory) = self.mapped(range.volume)?;
                    // SAFETY: room for as many bytes of the program's own, as the sum says.
                    unsafe { memory.read(range.offset, room[at..].as_mut_ptr(), range.length) };
                    at += range.length;
                    grant.confirm_read()
                });
                self.is_done(user_data, Outcome::Known(outcome), Some(room.into()));
                return Ok(());
            }
            Ok(false) => {}
        }
        let buffer = match self.alloc_many(ranges.iter().copied(), sum) {
            Ok(buffer) => buffer,
            Err(error) => return Err(NotSubmitted::new(error, Some(room.into()))),
        };
        let shape = Shape::new(Opcode::ReadMany, false, 0, ranges.len() as u64);
        self.note_pieces(ranges.iter().copied());
        self.send(0, shape, Some(buffer), Keep::Own(room), user_data)
    }

    /// Writes copies of several slices to several volumes by one request.
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub fn write_many(
        &mut self,
        pieces: &[(VolumeId, u64, &[u8])],
        durable: bool,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let ranges =
            pieces.iter().map(|piece| Range { volume: piece.0, offset: piece.1, length: piece.2.len() });
        if self.begin_many(ranges.clone(), Need::Write)? {
            let outcome = pieces.iter().try_for_each(|(volume, offset, from)| {
                let (grant, memory) = self.mapped(*volume)?;
                memory.write(*offset, from);
                grant.confirm_write()
            });
            self.is_done(user_data, Outcome::Known(outcome), None);
            return Ok(());
        }
        let sum = ranges.clone().map(|range| range.length).sum();
        let mut buffer = self.alloc_many(ranges.clone(), sum)?;
        let mut at = pieces.len() * PIECE_BYTES;
        for (_, _, from) in pieces {
            at += buffer.write(at, from);
        }
        let shape = Shape::new(Opcode::WriteMany, durable, 0, pieces.len() as u64);
        self.note_pieces(ranges);
        self.send(0, shape, Some(buffer), Keep::Nothing, user_data)
    }

    /// Whether a request of several can be submitted; true if all of them are mapped.
    fn begin_many(&self, ranges: impl ExactSizeIterator<Item = Range>, need: Need) -> Result<bool, Error> {
        if !(1..=PIECES_MAX).contains(&ranges.len()) {
            return Err(Error::Pieces { asked: ranges.len(), most: PIECES_MAX });
        }
        let opcode = if need == Need::Read { Opcode::ReadMany } else { Opcode::WriteMany };
        let mut all_mapped = true;
        for Range { volume, offset, length } in ranges {
            let shape = Shape::new(opcode, false, offset, length as u64);
            all_mapped &= self.begin(volume, need, &shape)?.memory.is_some();
        }
        Ok(all_mapped)
    }

    /// A buffer for pieces, and their bytes behind them.
    fn alloc_many(
        &self,
        ranges: impl ExactSizeIterator<Item = Range>,
        bytes: usize,
    ) -> Result<bywash_channel::Buffer, Error> {
        let mut buffer = self.alloc_inner(ranges.len() * PIECE_BYTES + bytes)?;
        for (number, Range { volume, offset, length }) in ranges.enumerate() {
            let grant = self.grant(volume)?.number;
            buffer.write(number * PIECE_BYTES, &Piece { grant, offset, length: length as u64 }.to_bytes());
        }
        Ok(buffer)
    }

    /// Notes the pieces in the slot that the next request takes.
    fn note_pieces(&mut self, ranges: impl Iterator<Item = Range>) {
        if let Some(slot) = self.free.last() {
            let pieces = &mut self.slots[*slot as usize].pieces;
            pieces.clear();
            pieces.extend(ranges.map(|range| (range.volume.index, range.offset, range.length)));
        }
    }

    fn mapped(&self, volume: VolumeId) -> Result<(&Grant, &Mapped), Error> {
        let grant = self.grant(volume)?;
        let memory = grant.memory.as_ref();
        let no =
            || Error::NotMapped { volume: grant.name.clone(), why: "it goes through the channel".into() };
        Ok((grant, memory.ok_or_else(no)?))
    }

    #[inline(always)]
    fn grant(&self, volume: VolumeId) -> Result<&Grant, Error> {
        match self.volumes.get(volume.index as usize) {
            Some(Some(opened)) if opened.tag == volume.tag => match &opened.grant {
                Ok(grant) => Ok(grant),
                Err(error) => Err(error.clone()),
            },
            _ => Err(Error::Foreign { what: "volume", of: "queue" }),
        }
    }

    #[inline(always)]
    fn check_end(&self) -> Result<(), Error> {
        match &self.end {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Whether a request can be submitted.
    #[inline(always)]
    fn begin(&self, volume: VolumeId, need: Need, shape: &Shape) -> Result<&Grant, Error> {
        self.check_end()?;
        let grant = self.grant(volume)?;
        grant.check(need, name(shape.opcode), shape.offset, shape.length)?;
        if self.under_way() >= self.depth() {
            return Err(Error::Full { depth: self.depth() as u32 });
        }
        if grant.memory.as_ref().is_some_and(|memory| !memory.is_here()) {
            return Err(Error::Forked);
        }
        Ok(grant)
    }

    #[inline(always)]
    fn in_channel(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline(always)]
    fn is_done(&mut self, user_data: u64, outcome: Outcome, room: Option<Room>) {
        self.ready.push_back(Ready { user_data, outcome, room });
    }

    #[cold]
    fn of_link(&self, error: bywash_link::Error) -> Error {
        Error::of_link(error, "a request", self.options.limit)
    }

    #[inline]
    fn alloc_inner(&self, bytes: usize) -> Result<bywash_channel::Buffer, Error> {
        self.channel.alloc(bytes).map_err(|error| self.of_link(error))
    }

    /// Submits a request with a buffer of the program's.
    #[inline]
    fn send_buffer(
        &mut self,
        volume: VolumeId,
        shape: Shape,
        buffer: Buffer,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let buffer = match buffer.generation == self.session.generation {
            true => buffer,
            false => match self.copied(&buffer) {
                Ok(copy) => copy,
                Err(error) => return Err(NotSubmitted::new(error, Some(buffer.into()))),
            },
        };
        self.send(volume.index, shape, Some(buffer.inner), Keep::Buffer, user_data)
    }

    /// What goes back to the program.
    #[cold]
    fn room_of(&self, keep: Keep, buffer: Option<bywash_channel::Buffer>) -> Option<Room> {
        let generation = self.session.generation;
        match (keep, buffer) {
            (Keep::Own(bytes), _) => Some(Room::Own(bytes)),
            (Keep::Buffer, Some(inner)) => Some(Room::Arena(Buffer { inner, generation })),
            _ => None,
        }
    }

    /// A buffer of the arena that there is now, with what was in one of an arena before.
    #[cold]
    fn copied(&self, old: &Buffer) -> Result<Buffer, Error> {
        let mut new = self.alloc(old.len())?;
        let mut bytes = vec![0; old.len()];
        old.read(0, &mut bytes);
        new.write(0, &bytes);
        Ok(new)
    }

    /// Submits a request through the channel.
    #[inline]
    fn send(
        &mut self,
        volume: u32,
        shape: Shape,
        buffer: Option<bywash_channel::Buffer>,
        keep: Keep,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        if shape.length == 0 && shape.opcode != Opcode::Flush {
            let room = self.room_of(keep, buffer);
            self.is_done(user_data, Outcome::Known(Ok(())), room);
            return Ok(());
        }
        let Some(number) = self.free.pop() else {
            return Err(Error::Full { depth: self.depth() as u32 }.into());
        };
        let grant = match self.volumes.get(volume as usize) {
            Some(Some(Opened { grant: Ok(grant), .. })) => grant.number,
            _ => 0,
        };
        let mut submission = shape.submission(grant).user_data(u64::from(number));
        submission.buffer = buffer;
        let slot = &mut self.slots[number as usize];
        (slot.user_data, slot.shape, slot.volume, slot.keep) = (user_data, shape, volume, keep);
        match self.channel.submit(submission) {
            Ok(_) => Ok(()),
            Err(refused) => {
                let keep = std::mem::take(&mut slot.keep);
                self.free.push(number);
                let room = self.room_of(keep, refused.submission.buffer);
                Err(NotSubmitted::new(self.of_link(refused.error), room))
            }
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut queue = formatter.debug_struct("Queue");
        queue
            .field("socket", &self.socket)
            .field("client", &self.number())
            .field("under_way", &self.under_way());
        queue.field("end", &self.end).finish_non_exhaustive()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
