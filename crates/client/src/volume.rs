//! A volume that is read and written by calls that wait.

use crate::client::{Attached, Client, Shared};
use crate::error::Error;
use crate::mapped::Mapped;
use crate::options::Path;
use crate::request::{Shape, memory_is_lost, name, outcome};
use crate::session::{Grant, Need, Origin, lock};
use bywash_channel::{Buffer, Completion};
use bywash_protocol::Access;
use bywash_protocol::layout::{Opcode, PIECE_BYTES, PIECES_MAX, Piece};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// Most bytes that go through the channel at a time; longer calls are several requests.
const PART: usize = 1 << 20;
/// And of the arena no more than this part, so that several threads have room.
const PARTS_OF_ARENA: usize = 4;

/// An open volume. Clones are the same volume, and threads may share it; the grant is given back with the last of them.
///
/// Offsets and lengths are bytes, and multiples of [`Volume::block`]: what is not is refused, since to read, change and
/// write whole blocks behind a program's back would undo what others write to them meanwhile.
///
/// A call that is longer than 1 MiB, or than the arena allows, is several requests. No call is one step for those who read or
/// write the same bytes meanwhile: they may find some blocks of each. A block is never torn through the channel; in
/// mapped memory there is nobody to see to that.
///
/// # When the server goes
///
/// Where the client connects again ([`crate::Reconnect`]), what was not completed is asked again. That is right, since
/// what is under way has no order: whatever somebody else has written since may come before it or behind. Compare-and-write
/// is not like that, and ends with [`Error::Unknown`]. A volume of memory is empty after its server has gone. Who has it
/// mapped asks nobody, so that the end of the server is seen by [`Volume::flush`] and, elsewhere, by every 1024th access.
#[derive(Clone, Debug)]
pub struct Volume(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    client: Arc<Shared>,
    origin: Origin,
    /// The grant of the connection that there is now, once somebody asks for it.
    grant: RwLock<Arc<Grant>>,
    /// Held by who opens it again.
    opening: Mutex<()>,
}

/// A part of a volume that is read.
#[derive(Debug)]
pub struct ReadPiece<'a> {
    /// Of which volume.
    pub volume: &'a Volume,
    /// From which byte on.
    pub offset: u64,
    /// Where it goes; its length is how much is read.
    pub to: &'a mut [u8],
}

/// A part of a volume that is written.
#[derive(Clone, Copy, Debug)]
pub struct WritePiece<'a> {
    /// Of which volume.
    pub volume: &'a Volume,
    /// From which byte on.
    pub offset: u64,
    /// What is written.
    pub from: &'a [u8],
}

/// A volume's memory, where it is mapped.
///
/// Others write it as well, the processor does not keep the two apart, and the server may take the grant back at any
/// time. Then this memory still is what it was, and nobody else's any more: what matters is what
/// [`Lent::confirm`] says *behind* the accesses.
#[derive(Clone, Debug)]
pub struct Lent(Arc<Grant>);

impl Volume {
    pub(crate) fn open(client: &Client, origin: Origin) -> Result<Volume, Error> {
        let client = client.0.clone();
        let grant = client.again(|attached, end| client.open(attached, &origin, end))?;
        Ok(Volume(Arc::new(Opened { client, origin, grant: RwLock::new(grant), opening: Mutex::default() })))
    }

    /// Its name.
    pub fn name(&self) -> Arc<str> {
        self.0.origin.name()
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.0.last().bytes
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a block.
    pub fn block(&self) -> u32 {
        self.0.last().block
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.0.last().access
    }

    /// The device it is on, by its name.
    pub fn device(&self) -> Arc<str> {
        self.0.last().device.clone()
    }

    /// Which way its bytes go, and why they are not mapped if they are not.
    pub fn path(&self) -> Path {
        self.0.last().path()
    }

    /// Reads as many bytes as `to` has.
    ///
    /// # Errors
    /// What was wrong; then some of the bytes may have been read.
    #[inline]
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> Result<(), Error> {
        let in_memory = self.0.mapped(Need::Read, "read", offset, to.len() as u64, |grant, memory| {
            // SAFETY: a slice of the program's; no reference leads into the mapped memory.
            unsafe { memory.read(offset, to.as_mut_ptr(), to.len()) };
            grant.confirm_read()
        });
        in_memory.unwrap_or_else(|| {
            self.0.in_parts(Need::Read, "read", to.len(), offset, |at, part, offset| {
                let shape = Shape::new(Opcode::Read, false, offset, part as u64);
                let to = &mut to[at..at + part];
                self.0.call(
                    Need::Read,
                    shape,
                    part,
                    |_| {},
                    |buffer| {
                        buffer.read(0, to);
                    },
                )
            })
        })
    }

    /// Writes all bytes of `from`. They are durable after the next [`Volume::flush`].
    ///
    /// # Errors
    /// What was wrong; then some of the bytes may have been written.
    #[inline]
    pub fn write_at(&self, from: &[u8], offset: u64) -> Result<(), Error> {
        self.write(from, offset, false)
    }

    /// As [`Volume::write_at`], and the bytes are durable when it returns.
    ///
    /// # Errors
    /// As there.
    pub fn write_at_durable(&self, from: &[u8], offset: u64) -> Result<(), Error> {
        self.write(from, offset, true)
    }

    #[inline]
    fn write(&self, from: &[u8], offset: u64, durable: bool) -> Result<(), Error> {
        let in_memory = self.0.mapped(Need::Write, "write", offset, from.len() as u64, |grant, memory| {
            memory.write(offset, from);
            grant.confirm_write()
        });
        in_memory.unwrap_or_else(|| {
            self.0.in_parts(Need::Write, "write", from.len(), offset, |at, part, offset| {
                let shape = Shape::new(Opcode::Write, durable, offset, part as u64);
                let from = &from[at..at + part];
                self.0.call(
                    Need::Write,
                    shape,
                    part,
                    |buffer| {
                        buffer.write(0, from);
                    },
                    |_| {},
                )
            })
        })
    }

    /// Everything whose writing had been completed before is durable, as far as the medium is. Of memory of the server's
    /// that is so already, as long as the server is there: if it went, this says so once, whether the client connects
    /// again or not.
    ///
    /// # Errors
    /// What was wrong.
    pub fn flush(&self) -> Result<(), Error> {
        let last = self.0.last();
        if last.is_volatile {
            last.memory.as_ref().map_or(Ok(()), check_here)?;
            let outcome = last.confirm_write().and_then(|()| last.session.look_now());
            if let Err(error) = &outcome
                && error.is_end()
            {
                // From now on it is another medium, if there is one.
                drop(self.0.current());
            }
            return outcome;
        }
        self.0.again(|attached, grant, end| {
            self.0.call_once(attached, grant, Shape::new(Opcode::Flush, false, 0, 0), 0, |_| {}, |_| {}, end)
        })
    }

    /// What these bytes are is of no matter any more: they may be anything until they are written again.
    ///
    /// # Errors
    /// What was wrong.
    pub fn discard(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.0.call_range(Opcode::Discard, false, offset, length)
    }

    /// Changes bytes to zeros.
    ///
    /// # Errors
    /// What was wrong; then some of the bytes may have been changed.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.zero(offset, length, false)
    }

    /// As [`Volume::write_zeroes`], and the zeros are durable when it returns.
    ///
    /// # Errors
    /// As there.
    pub fn write_zeroes_durable(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.zero(offset, length, true)
    }

    fn zero(&self, offset: u64, length: u64, durable: bool) -> Result<(), Error> {
        let in_memory =
            self.0.mapped(Need::Write, name(Opcode::WriteZeroes), offset, length, |grant, memory| {
                memory.write_zeroes(offset, length);
                grant.confirm_write()
            });
        in_memory.unwrap_or_else(|| self.0.call_range(Opcode::WriteZeroes, durable, offset, length))
    }

    /// Writes `new` if what is there is `expected`, as one step for all who do so through the server; answers whether it
    /// was. Most devices do that with one block.
    ///
    /// # Errors
    /// What was wrong; [`Error::Unknown`] if the server went meanwhile.
    pub fn compare_and_write(&self, offset: u64, expected: &[u8], new: &[u8]) -> Result<bool, Error> {
        if expected.len() != new.len() {
            return Err(Error::Lengths { expected: expected.len(), written: new.len() });
        }
        let shape = Shape::new(Opcode::CompareAndWrite, false, offset, new.len() as u64);
        let fill = |buffer: &mut Buffer| {
            buffer.write(0, expected);
            buffer.write(expected.len(), new);
        };
        match self.0.call(Need::Write, shape, 2 * new.len(), fill, |_| {}) {
            Ok(()) => Ok(true),
            Err(Error::Differs { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Its memory, if it is mapped: for a program that wants to go there itself.
    ///
    /// # Errors
    /// [`Error::NotMapped`]; what became of the server.
    pub fn map(&self) -> Result<Lent, Error> {
        let grant = self.0.current()?;
        match grant.path() {
            Path::Mapped => Ok(Lent(grant)),
            Path::Channel { why } => Err(Error::NotMapped { volume: grant.name.clone(), why }),
        }
    }
}

impl Lent {
    /// Where its first byte is. To read or write there is not sound where others do so at the same time but by atomics,
    /// and beyond what [`Volume::access`] says it ends the program.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.memory.as_ref().map_or(std::ptr::null_mut(), Mapped::base)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.memory.as_ref().map_or(0, Mapped::filled)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the accesses of this thread before this call count.
    ///
    /// # Errors
    /// [`Error::Revoked`]: those since the last call may not; [`Error::Gone`] if the server is known to be gone.
    pub fn confirm(&self) -> Result<(), Error> {
        self.0.confirm_write()
    }
}

impl Client {
    /// Reads parts of several volumes by one request.
    ///
    /// # Errors
    /// What was wrong with which; then nothing was read, or the device failed and some may have been.
    pub fn read_many(&self, pieces: &mut [ReadPiece<'_>]) -> Result<(), Error> {
        let opened: Vec<&Opened> = pieces.iter().map(|piece| &*piece.volume.0).collect();
        let ranges: Vec<(u64, usize)> = pieces.iter().map(|piece| (piece.offset, piece.to.len())).collect();
        self.many(Opcode::ReadMany, false, &opened, &ranges, |at, how| match how {
            // SAFETY: a slice of the program's; no reference leads into the mapped memory.
            Bytes::Mapped(memory, offset) => unsafe {
                memory.read(offset, pieces[at].to.as_mut_ptr(), pieces[at].to.len());
            },
            Bytes::Filling(..) => {}
            Bytes::Done(buffer, from) => drop(buffer.read(from, pieces[at].to)),
        })
    }

    /// Writes parts of several volumes by one request.
    ///
    /// # Errors
    /// What was wrong with which; then nothing was written, or the device failed and some may have been.
    pub fn write_many(&self, pieces: &[WritePiece<'_>]) -> Result<(), Error> {
        self.write_pieces(pieces, false)
    }

    /// As [`Client::write_many`], and all of it is durable when it returns.
    ///
    /// # Errors
    /// As there.
    pub fn write_many_durable(&self, pieces: &[WritePiece<'_>]) -> Result<(), Error> {
        self.write_pieces(pieces, true)
    }

    fn write_pieces(&self, pieces: &[WritePiece<'_>], durable: bool) -> Result<(), Error> {
        let opened: Vec<&Opened> = pieces.iter().map(|piece| &*piece.volume.0).collect();
        let ranges: Vec<(u64, usize)> = pieces.iter().map(|piece| (piece.offset, piece.from.len())).collect();
        self.many(Opcode::WriteMany, durable, &opened, &ranges, |at, how| match how {
            Bytes::Mapped(memory, offset) => memory.write(offset, pieces[at].from),
            Bytes::Filling(buffer, to) => drop(buffer.write(to, pieces[at].from)),
            Bytes::Done(..) => {}
        })
    }

    /// One request of several pieces. `each` moves the bytes of a piece.
    fn many(
        &self,
        opcode: Opcode,
        durable: bool,
        opened: &[&Opened],
        ranges: &[(u64, usize)],
        mut each: impl FnMut(usize, Bytes<'_>),
    ) -> Result<(), Error> {
        if !(1..=PIECES_MAX).contains(&opened.len()) {
            return Err(Error::Pieces { asked: opened.len(), most: PIECES_MAX });
        }
        if opened.iter().any(|one| !Arc::ptr_eq(&one.client, &self.0)) {
            return Err(Error::Foreign { what: "volume", of: "client" });
        }
        let (need, what) = if opcode.writes() { (Need::Write, "write") } else { (Need::Read, "read") };
        self.0.again(|attached, end| {
            let mut grants = Vec::with_capacity(opened.len());
            for (one, (offset, length)) in opened.iter().zip(ranges) {
                let grant = one.of(attached, end)?;
                grant.check(need, what, *offset, *length as u64)?;
                grants.push(grant);
            }
            if grants.iter().all(|grant| grant.memory.is_some()) {
                for (at, grant) in grants.iter().enumerate() {
                    if let Some(memory) = &grant.memory {
                        check_here(memory)?;
                        each(at, Bytes::Mapped(memory, ranges[at].0));
                    }
                }
                return grants.iter().try_for_each(|grant| grant.confirm_write());
            }
            let shape = Shape::new(opcode, durable, 0, grants.len() as u64);
            let head = grants.len() * PIECE_BYTES;
            let bytes = head + ranges.iter().map(|range| range.1).sum::<usize>();
            let places = || {
                let ends = ranges.iter().scan(head, |end, range| {
                    *end += range.1;
                    Some(*end - range.1)
                });
                ends.enumerate()
            };
            // Filled first, and then read: never both at a time.
            let each = RefCell::new(&mut each);
            let fill = |buffer: &mut Buffer| {
                for (number, (grant, range)) in grants.iter().zip(ranges).enumerate() {
                    let piece = Piece { grant: grant.number, offset: range.0, length: range.1 as u64 };
                    buffer.write(number * PIECE_BYTES, &piece.to_bytes());
                }
                places().for_each(|(number, at)| each.borrow_mut()(number, Bytes::Filling(buffer, at)));
            };
            let calls = attached.calls(&self.0.options, end)?;
            let refused = |number: u64| {
                let number = usize::try_from(number).ok().filter(|number| *number < grants.len())?;
                Some((&*grants[number], ranges[number].0, ranges[number].1 as u64))
            };
            let finish = |mut done: Completion| {
                let outcome = outcome(&shape, done.status, done.value, refused);
                match done.buffer.take() {
                    Some(buffer) if memory_is_lost(done.status) => calls.lose(buffer),
                    Some(buffer) if outcome.is_ok() => {
                        places().for_each(|(number, at)| each.borrow_mut()(number, Bytes::Done(&buffer, at)));
                    }
                    _ => {}
                }
                outcome
            };
            let called = calls.call(shape.submission(0), bytes, fill, end, finish);
            called.unwrap_or_else(|(error, _)| Err(error))
        })
    }
}

/// What is to be done with the bytes of a piece.
enum Bytes<'a> {
    /// They go to or from here, at this offset.
    Mapped(&'a Mapped, u64),
    /// They are asked for, from this place on.
    Filling(&'a mut Buffer, usize),
    /// They have come.
    Done(&'a Buffer, usize),
}

/// Calls `each` with how much of a range is done already and how much comes next, at most `part`; less where the device
/// has that in too many pieces.
fn in_pieces(
    length: u64,
    part: u64,
    block: u32,
    mut each: impl FnMut(u64, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut at, mut next) = (0, part.min(length));
    loop {
        match each(at, next) {
            // Each time it is less.
            Err(Error::Scattered { bytes, .. })
                if bytes > 0 && bytes < next && bytes.is_multiple_of(u64::from(block)) =>
            {
                next = bytes;
            }
            Err(error) => return Err(error),
            Ok(()) => {
                at += next;
                if at >= length {
                    return Ok(());
                }
                next = part.min(length - at);
            }
        }
    }
}

/// In a child that was forked off the memory is there, and is not the child's.
fn check_here(memory: &Mapped) -> Result<(), Error> {
    if memory.is_here() { Ok(()) } else { Err(Error::Forked) }
}

impl Opened {
    /// The last grant that there was.
    fn last(&self) -> Arc<Grant> {
        self.grant.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The grant of a connection that is there.
    fn current(&self) -> Result<Arc<Grant>, Error> {
        self.client.again(|attached, end| {
            attached.session.look_now()?;
            self.of(attached, end)
        })
    }

    /// The grant of a connection.
    fn of(&self, attached: &Arc<Attached>, end: Instant) -> Result<Arc<Grant>, Error> {
        let generation = attached.session.generation;
        let found = || Some(self.last()).filter(|grant| grant.session.generation == generation);
        if let Some(grant) = found() {
            return Ok(grant);
        }
        let _opening = lock(&self.opening);
        if let Some(grant) = found() {
            return Ok(grant);
        }
        let grant = self.client.open(attached, &self.origin, end)?;
        *self.grant.write().unwrap_or_else(PoisonError::into_inner) = grant.clone();
        Ok(grant)
    }

    /// Does something in mapped memory, again if the server went and the client connects again; none if the grant is not
    /// mapped.
    #[inline(always)]
    fn mapped(
        &self,
        need: Need,
        what: &'static str,
        offset: u64,
        length: u64,
        mut access: impl FnMut(&Grant, &Mapped) -> Result<(), Error>,
    ) -> Option<Result<(), Error>> {
        let grant = self.grant.read().unwrap_or_else(PoisonError::into_inner);
        let memory = grant.memory.as_ref()?;
        if grant.session.generation == self.client.generation() {
            if let Err(error) = grant.check(need, what, offset, length).and_then(|()| check_here(memory)) {
                return Some(Err(error));
            }
            match access(&grant, memory) {
                Err(error) if error.is_end() => {}
                outcome => return Some(outcome),
            }
        }
        drop(grant);
        self.mapped_again(need, what, offset, length, access)
    }

    /// As [`Opened::mapped`], where there is another connection, or has to be.
    #[cold]
    fn mapped_again(
        &self,
        need: Need,
        what: &'static str,
        offset: u64,
        length: u64,
        mut access: impl FnMut(&Grant, &Mapped) -> Result<(), Error>,
    ) -> Option<Result<(), Error>> {
        let outcome = self.again(|_, grant, _| {
            let Some(memory) = &grant.memory else { return Ok(None) };
            grant.check(need, what, offset, length)?;
            check_here(memory)?;
            grant.session.look_now()?;
            access(grant, memory).map(Some)
        });
        outcome.transpose()
    }

    /// Calls `attempt` with a connection and its grant, and the time until when it must be done.
    fn again<R>(
        &self,
        mut attempt: impl FnMut(&Arc<Attached>, &Arc<Grant>, Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.client.again(|attached, end| {
            let grant = self.of(attached, end)?;
            attempt(attached, &grant, end)
        })
    }

    /// Cuts a range to what goes through the channel at a time: `each` is called with what is done already, with how much
    /// comes next, and where in the volume.
    fn in_parts(
        &self,
        need: Need,
        what: &'static str,
        bytes: usize,
        offset: u64,
        mut each: impl FnMut(usize, usize, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let grant = self.last();
        // All of it before any of it is done.
        grant.check(need, what, offset, bytes as u64)?;
        let block = grant.block as usize;
        let arena = self.client.options.arena(grant.session.arena_bytes_max) / PARTS_OF_ARENA;
        let part = (PART.min(arena) / block * block).max(block);
        in_pieces(bytes as u64, part as u64, grant.block, |at, part| {
            each(at as usize, part as usize, offset + at)
        })
    }

    /// A request without memory of its own.
    fn call_range(&self, opcode: Opcode, durable: bool, offset: u64, length: u64) -> Result<(), Error> {
        let grant = self.last();
        grant.check(Need::Write, name(opcode), offset, length)?;
        in_pieces(length, length, grant.block, |at, part| {
            let shape = Shape::new(opcode, durable, offset + at, part);
            self.call(Need::Write, shape, 0, |_| {}, |_| {})
        })
    }

    /// One request, again if the server went and the client connects again.
    fn call(
        &self,
        need: Need,
        shape: Shape,
        bytes: usize,
        mut fill: impl FnMut(&mut Buffer),
        mut take: impl FnMut(&Buffer),
    ) -> Result<(), Error> {
        self.again(|attached, grant, end| {
            grant.check(need, name(shape.opcode), shape.offset, shape.length)?;
            if shape.length == 0 {
                return Ok(());
            }
            self.call_once(attached, grant, shape, bytes, &mut fill, &mut take, end)
        })
    }

    #[expect(clippy::too_many_arguments, reason = "two callers, side by side")]
    fn call_once(
        &self,
        attached: &Arc<Attached>,
        grant: &Grant,
        shape: Shape,
        bytes: usize,
        fill: impl FnOnce(&mut Buffer),
        take: impl FnOnce(&Buffer),
        end: Instant,
    ) -> Result<(), Error> {
        let calls = attached.calls(&self.client.options, end)?;
        let finish = |mut done: Completion| {
            let buffer = done.buffer.take();
            let about = |_| Some((grant, shape.offset, shape.length));
            let outcome = outcome(&shape, done.status, done.value, about);
            match buffer {
                Some(buffer) if memory_is_lost(done.status) => calls.lose(buffer),
                Some(buffer) if outcome.is_ok() => take(&buffer),
                _ => {}
            }
            outcome
        };
        let called = calls.call(shape.submission(grant.number), bytes, fill, end, finish);
        called.unwrap_or_else(|(error, was_submitted)| {
            let unknown = was_submitted && error.is_end() && shape.opcode == Opcode::CompareAndWrite;
            Err(if unknown { Error::Unknown } else { error })
        })
    }
}
