//! A volume that is read and written by calls that block until they are done.

use crate::calls::Calls;
use crate::client::{Client, Connection, Shared};
use crate::direct::{Direct, failed};
use crate::error::Error;
use crate::mapped::Mapped;
use crate::options::VolumePath;
use crate::request::{RequestHeader, memory_is_lost, name, outcome};
use crate::session::{Grant, Right, VolumeSource, lock};
use bywash_channel::{Buffer, Completion};
use bywash_protocol::Access;
use bywash_protocol::layout::{GRANT_RANGE_BYTES, GRANT_RANGES_MAX, GrantRange, Opcode};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// Greatest number of bytes of one request over the channel; a longer call is several requests.
const PART: usize = 1 << 20;
/// Divisor of the size of the arena: one request takes at most one such part, so that several threads have
/// room.
const PARTS_OF_ARENA: usize = 4;

/// An open volume. Clones are the same volume, and threads may share it; dropping the last clone gives the
/// grant back.
///
/// Offsets and lengths are in bytes, and must be multiples of [`Volume::block`]; others are refused. If the
/// library read, changed and wrote back whole blocks behind the program's back, it would undo writes that
/// others make meanwhile.
///
/// A call that is longer than 1 MiB, or than the arena allows, is several requests. No call is atomic with
/// respect to others that access the same bytes at the same time: they may find some old and some new blocks.
/// A single block is never torn through the channel. In mapped memory nothing prevents that.
///
/// # When the server dies
///
/// Where the client connects again ([`crate::Reconnect`]), requests that were not completed are submitted
/// again. This is correct, since requests in flight have no order: a write by another client since then may
/// count as earlier or as later. Compare-and-write is different, and ends with [`Error::OutcomeUnknown`]. A
/// volume in the server's memory is empty after its server has died. Accesses to a mapped volume do not
/// involve the server, so only [`Volume::flush`], and one in 1024 other accesses, detects its death.
#[derive(Clone, Debug)]
pub struct Volume(Arc<OpenVolume>);

#[derive(Debug)]
struct OpenVolume {
    client: Arc<Shared>,
    origin: VolumeSource,
    /// The grant over the connection that an access has used last.
    grant: RwLock<Arc<Grant>>,
    /// Held by the thread that opens the volume again over a new connection.
    opening: Mutex<()>,
}

/// One part of a [`Client::read_many`]: a range of a volume, and the memory that the bytes are read into.
#[derive(Debug)]
pub struct ReadPiece<'a> {
    /// Volume to read.
    pub volume: &'a Volume,
    /// Offset of the first byte in the volume, in bytes.
    pub offset: u64,
    /// Destination, whose length is the number of bytes to read.
    pub to: &'a mut [u8],
}

/// One part of a [`Client::write_many`]: the bytes to write, and their place in a volume.
#[derive(Clone, Copy, Debug)]
pub struct WritePiece<'a> {
    /// Volume to write.
    pub volume: &'a Volume,
    /// Offset of the first byte in the volume, in bytes.
    pub offset: u64,
    /// Bytes to write.
    pub from: &'a [u8],
}

/// The mapped memory of a volume, for a program that accesses it by pointer.
///
/// Other processes write this memory too. Nothing keeps concurrent accesses apart, and the server may revoke
/// the grant at any time. The memory then stays mapped and keeps its bytes, but is no longer the volume's: an
/// access has counted only if [`MappedMemory::confirm`] succeeds *after* it.
#[derive(Clone, Debug)]
pub struct MappedMemory(Arc<Grant>);

/// Descriptors of a volume's mapped memory, for other processes of the same user that map it themselves.
///
/// Each maps the first [`SharedMapping::chunk_bytes`] of the chunks side by side, and the page for reading. An access counts
/// only if the word is still at most [`SharedMapping::valid_up_to`] behind it, with a full fence between a write and the
/// look ([`bywash_protocol::revocations`]).
#[derive(Debug)]
pub struct SharedMapping {
    /// Files that the memory consists of, each of which cannot shrink.
    pub chunks: Vec<OwnedFd>,
    /// Size of a chunk, in bytes; the last one may be shorter.
    pub chunk_bytes: u64,
    /// Page of words that the server writes.
    pub page: OwnedFd,
    /// Size of the page, in bytes.
    pub page_bytes: u64,
    /// Index of the grant's word, of eight bytes.
    pub index: usize,
    /// Greatest value of the word with which the memory is the volume's.
    pub valid_up_to: u64,
}

impl Volume {
    pub(crate) fn open(client: &Client, origin: VolumeSource) -> Result<Volume, Error> {
        let client = client.0.clone();
        let grant = client.with_reconnect(|attached, end| client.open(attached, &origin, end))?;
        Ok(Volume(Arc::new(OpenVolume {
            client,
            origin,
            grant: RwLock::new(grant),
            opening: Mutex::default(),
        })))
    }

    /// Returns the name of the volume.
    pub fn name(&self) -> Arc<str> {
        self.0.origin.name()
    }

    /// Returns the size of the volume, in bytes.
    pub fn len(&self) -> u64 {
        self.0.last().bytes
    }

    /// Returns true if the volume's size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of a block, in bytes: the unit of offsets and lengths.
    pub fn block(&self) -> u32 {
        self.0.last().block
    }

    /// Returns the rights that the volume was opened with.
    pub fn access(&self) -> Access {
        self.0.last().access
    }

    /// Returns the name of the device that the volume is on.
    pub fn device(&self) -> Arc<str> {
        self.0.last().device.clone()
    }

    /// Returns true if the volume is in the server's memory, mapped or not: its contents are lost when the server ends.
    pub fn is_volatile(&self) -> bool {
        self.0.last().is_volatile
    }

    /// Checks that the server that the volume was last used over has not closed the connection. Makes a system call.
    ///
    /// # Errors
    /// [`Error::Gone`] if it has; [`Error::Revoked`] if the volume's mapped memory or hardware is not the volume's any more.
    pub fn check_server(&self) -> Result<(), Error> {
        let last = self.0.last();
        if last.memory.is_some() || last.direct.is_some() {
            last.check_revoked()?;
        }
        last.session.check_server_now()
    }

    /// Returns the path that the volume's bytes take, with the reason if it is the channel.
    pub fn path(&self) -> VolumePath {
        self.0.last().path()
    }

    /// Reads bytes from `offset` on until `to` is full.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Misaligned`] or [`Error::OutOfBounds`] if the grant does not allow this
    /// range; [`Error::Revoked`] or [`Error::NoGrant`] if the grant is not valid any more;
    /// [`Error::DeviceFailed`], [`Error::DeviceTimedOut`], [`Error::NoSpace`], [`Error::NotSupported`],
    /// [`Error::TooManyExtents`] or [`Error::Malformed`] if the device or the server cannot carry out a
    /// request; [`Error::TooLarge`] or [`Error::ArenaFull`] if the arena has no room; and the errors of
    /// [`Client::status`]. After an error some of the bytes may have been read.
    #[inline]
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> Result<(), Error> {
        let in_memory = self.0.mapped(Right::Read, "read", offset, to.len() as u64, |grant, memory| {
            // SAFETY: the slice is valid for writing its length, and cannot overlap mapped memory, to which
            // no reference points.
            unsafe { memory.read(offset, to.as_mut_ptr(), to.len()) };
            grant.confirm_read()
        });
        in_memory.unwrap_or_else(|| {
            self.0.in_parts(Right::Read, "read", to.len(), offset, |at, part, offset| {
                let shape = RequestHeader::new(Opcode::Read, false, offset, part as u64);
                let to = &mut to[at..at + part];
                self.0.call(
                    Right::Read,
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

    /// Writes all bytes of `from` at `offset`. They are durable after the next [`Volume::flush`].
    ///
    /// # Errors
    /// Same as [`Volume::read_at`]. After an error some of the bytes may have been written.
    #[inline]
    pub fn write_at(&self, from: &[u8], offset: u64) -> Result<(), Error> {
        self.write(from, offset, false)
    }

    /// Writes like [`Volume::write_at`], and makes the bytes durable before it returns.
    ///
    /// # Errors
    /// Same as [`Volume::write_at`].
    pub fn write_at_durable(&self, from: &[u8], offset: u64) -> Result<(), Error> {
        self.write(from, offset, true)
    }

    #[inline]
    fn write(&self, from: &[u8], offset: u64, durable: bool) -> Result<(), Error> {
        let in_memory = self.0.mapped(Right::Write, "write", offset, from.len() as u64, |grant, memory| {
            memory.write(offset, from);
            grant.confirm_write()
        });
        in_memory.unwrap_or_else(|| {
            self.0.in_parts(Right::Write, "write", from.len(), offset, |at, part, offset| {
                let shape = RequestHeader::new(Opcode::Write, durable, offset, part as u64);
                let from = &from[at..at + part];
                self.0.call(
                    Right::Write,
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

    /// Makes all writes durable that had completed before this call, as far as the medium is durable. Writes
    /// to the server's memory need no flush as long as the server lives. If the server has died, the next
    /// flush of such a volume reports that once, whether the client connects again or not.
    ///
    /// # Errors
    /// Same as [`Volume::read_at`]; [`Error::Gone`] if the volume was in the memory of a server that has
    /// died.
    pub fn flush(&self) -> Result<(), Error> {
        let last = self.0.last();
        if last.is_volatile {
            last.memory.as_ref().map_or(Ok(()), check_here)?;
            let outcome = last.confirm_write().and_then(|()| last.session.check_server_now());
            if let Err(error) = &outcome
                && error.is_end()
            {
                // From now on the volume is on another server's medium, if the client can connect to one.
                drop(self.0.current());
            }
            return outcome;
        }
        self.0.with_reconnect(|attached, grant, end| {
            self.0.call_once(
                attached,
                grant,
                RequestHeader::new(Opcode::Flush, false, 0, 0),
                0,
                |_| {},
                |_| {},
                end,
            )
        })
    }

    /// Tells the device that a range's contents are no longer needed. The bytes may read as anything until
    /// they are written again.
    ///
    /// # Errors
    /// Same as [`Volume::read_at`].
    pub fn discard(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.0.call_range(Opcode::Discard, false, offset, length)
    }

    /// Sets the bytes of a range to zero.
    ///
    /// # Errors
    /// Same as [`Volume::read_at`]. After an error some of the bytes may have been set.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.zero(offset, length, false)
    }

    /// Writes zeros like [`Volume::write_zeroes`], and makes them durable before it returns.
    ///
    /// # Errors
    /// Same as [`Volume::write_zeroes`].
    pub fn write_zeroes_durable(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.zero(offset, length, true)
    }

    fn zero(&self, offset: u64, length: u64, durable: bool) -> Result<(), Error> {
        let in_memory =
            self.0.mapped(Right::Write, name(Opcode::WriteZeroes), offset, length, |grant, memory| {
                memory.write_zeroes(offset, length);
                grant.confirm_write()
            });
        in_memory.unwrap_or_else(|| self.0.call_range(Opcode::WriteZeroes, durable, offset, length))
    }

    /// Writes `new` at `offset` if the bytes there equal `expected`, and returns whether they did. The
    /// operation is atomic with respect to all others through the server. Most devices support it for one
    /// block.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if `expected` and `new` differ in length; [`Error::OutcomeUnknown`] if the
    /// server dies after the request was submitted; else the same as [`Volume::read_at`].
    pub fn compare_and_write(&self, offset: u64, expected: &[u8], new: &[u8]) -> Result<bool, Error> {
        if expected.len() != new.len() {
            return Err(Error::LengthMismatch { expected: expected.len(), written: new.len() });
        }
        let shape = RequestHeader::new(Opcode::CompareAndWrite, false, offset, new.len() as u64);
        let fill = |buffer: &mut Buffer| {
            buffer.write(0, expected);
            buffer.write(expected.len(), new);
        };
        match self.0.call(Right::Write, shape, 2 * new.len(), fill, |_| {}) {
            Ok(()) => Ok(true),
            Err(Error::CompareFailed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the volume's mapped memory, for a program that accesses it by pointer.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if the volume is not mapped; else the same as [`Client::open`].
    pub fn map(&self) -> Result<MappedMemory, Error> {
        let grant = self.0.current()?;
        match grant.path() {
            VolumePath::Mapped => Ok(MappedMemory(grant)),
            VolumePath::Channel { why } => Err(Error::NotMapped { volume: grant.name.clone(), why }),
            VolumePath::Direct { .. } => {
                let why = "its medium is no memory".into();
                Err(Error::NotMapped { volume: grant.name.clone(), why })
            }
        }
    }
}

impl MappedMemory {
    /// Returns the address of the first byte. While others access the same bytes, only atomic accesses are
    /// sound. An access that [`Volume::access`] does not allow ends the program with a signal.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.memory.as_ref().map_or(std::ptr::null_mut(), Mapped::base)
    }

    /// Returns the size of the memory, in bytes.
    pub fn len(&self) -> usize {
        self.0.memory.as_ref().map_or(0, Mapped::filled)
    }

    /// Returns true if the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns descriptors of the memory, for other processes. They are the volume's memory as long as this client has the
    /// grant.
    ///
    /// # Errors
    /// Same as [`Client::open`].
    pub fn share(&self) -> Result<SharedMapping, Error> {
        let limit = self.0.session.limit();
        self.0.share(Instant::now() + limit)
    }

    /// Checks that all accesses that this thread made before this call count.
    ///
    /// # Errors
    /// [`Error::Revoked`] if the grant was revoked: accesses since the last successful call may not count.
    /// [`Error::Gone`] if the server is known to have died.
    pub fn confirm(&self) -> Result<(), Error> {
        self.0.confirm_all()
    }
}

impl Client {
    /// Reads parts of several volumes by one request.
    ///
    /// # Errors
    /// [`Error::PieceCount`] unless there are 1 to 32 pieces; [`Error::Foreign`] if a volume belongs to
    /// another client; else the same as [`Volume::read_at`], naming the volume where that is known. Nothing
    /// was read then, unless the device failed or a mapped grant was revoked meanwhile.
    pub fn read_many(&self, pieces: &mut [ReadPiece<'_>]) -> Result<(), Error> {
        let opened: Vec<&OpenVolume> = pieces.iter().map(|piece| &*piece.volume.0).collect();
        if self.is_any_direct(&opened)? {
            return pieces.iter_mut().try_for_each(|piece| piece.volume.read_at(piece.to, piece.offset));
        }
        let ranges: Vec<(u64, usize)> = pieces.iter().map(|piece| (piece.offset, piece.to.len())).collect();
        self.many(Opcode::ReadRanges, false, &opened, &ranges, |at, how| match how {
            // SAFETY: the piece's slice is valid for writing its length, and cannot overlap mapped memory, to
            // which no reference points.
            PieceTarget::Mapped(memory, offset) => unsafe {
                memory.read(offset, pieces[at].to.as_mut_ptr(), pieces[at].to.len());
            },
            PieceTarget::Filling(..) => {}
            PieceTarget::Done(buffer, from) => drop(buffer.read(from, pieces[at].to)),
        })
    }

    /// Writes parts of several volumes by one request.
    ///
    /// # Errors
    /// Same as [`Client::read_many`], for writing.
    pub fn write_many(&self, pieces: &[WritePiece<'_>]) -> Result<(), Error> {
        self.write_pieces(pieces, false)
    }

    /// Writes like [`Client::write_many`], and makes all of it durable before it returns.
    ///
    /// # Errors
    /// Same as [`Client::write_many`].
    pub fn write_many_durable(&self, pieces: &[WritePiece<'_>]) -> Result<(), Error> {
        self.write_pieces(pieces, true)
    }

    fn write_pieces(&self, pieces: &[WritePiece<'_>], durable: bool) -> Result<(), Error> {
        let opened: Vec<&OpenVolume> = pieces.iter().map(|piece| &*piece.volume.0).collect();
        if self.is_any_direct(&opened)? {
            return pieces.iter().try_for_each(|piece| piece.volume.write(piece.from, piece.offset, durable));
        }
        let ranges: Vec<(u64, usize)> = pieces.iter().map(|piece| (piece.offset, piece.from.len())).collect();
        self.many(Opcode::WriteRanges, durable, &opened, &ranges, |at, how| match how {
            PieceTarget::Mapped(memory, offset) => memory.write(offset, pieces[at].from),
            PieceTarget::Filling(buffer, to) => drop(buffer.write(to, pieces[at].from)),
            PieceTarget::Done(..) => {}
        })
    }

    /// Checks number and client of pieces. Returns true if one of their volumes is direct, so that the pieces are carried
    /// out one after the other.
    fn is_any_direct(&self, opened: &[&OpenVolume]) -> Result<bool, Error> {
        if !(1..=GRANT_RANGES_MAX).contains(&opened.len()) {
            return Err(Error::PieceCount { asked: opened.len(), most: GRANT_RANGES_MAX });
        }
        if opened.iter().any(|one| !Arc::ptr_eq(&one.client, &self.0)) {
            return Err(Error::Foreign { what: "volume", of: "client" });
        }
        Ok(opened.iter().any(|one| one.last().direct.is_some()))
    }

    /// Carries out one request of several pieces. `each` moves the bytes of the piece with the given number.
    fn many(
        &self,
        opcode: Opcode,
        durable: bool,
        opened: &[&OpenVolume],
        ranges: &[(u64, usize)],
        mut each: impl FnMut(usize, PieceTarget<'_>),
    ) -> Result<(), Error> {
        let (need, what) = if opcode.writes() { (Right::Write, "write") } else { (Right::Read, "read") };
        self.0.with_reconnect(|attached, end| {
            let mut grants = Vec::with_capacity(opened.len());
            for (one, (offset, length)) in opened.iter().zip(ranges) {
                let grant = one.grant_over(attached, end)?;
                grant.check(need, what, *offset, *length as u64)?;
                grants.push(grant);
            }
            if grants.iter().all(|grant| grant.memory.is_some()) {
                for (at, grant) in grants.iter().enumerate() {
                    if let Some(memory) = &grant.memory {
                        check_here(memory)?;
                        each(at, PieceTarget::Mapped(memory, ranges[at].0));
                    }
                }
                return grants.iter().try_for_each(|grant| match need {
                    Right::Write => grant.confirm_write(),
                    _ => grant.confirm_read(),
                });
            }
            let shape = RequestHeader::new(opcode, durable, 0, grants.len() as u64);
            let head = grants.len() * GRANT_RANGE_BYTES;
            let bytes = head + ranges.iter().map(|range| range.1).sum::<usize>();
            let places = || {
                let ends = ranges.iter().scan(head, |end, range| {
                    *end += range.1;
                    Some(*end - range.1)
                });
                ends.enumerate()
            };
            // A write fills the buffer before the request, and a read takes from it afterwards: the two
            // borrows never overlap.
            let each = RefCell::new(&mut each);
            let fill = |buffer: &mut Buffer| {
                for (number, (grant, range)) in grants.iter().zip(ranges).enumerate() {
                    let piece = GrantRange { grant: grant.number, offset: range.0, length: range.1 as u64 };
                    buffer.write(number * GRANT_RANGE_BYTES, &piece.to_bytes());
                }
                places().for_each(|(number, at)| each.borrow_mut()(number, PieceTarget::Filling(buffer, at)));
            };
            let calls = attached.calls(&self.0.options, end)?;
            let refused = |number: u64| {
                let number = usize::try_from(number).ok().filter(|number| *number < grants.len())?;
                Some((&*grants[number], ranges[number].0, ranges[number].1 as u64))
            };
            let finish = |mut done: Completion| {
                let outcome = outcome(&shape, done.status, done.value, refused);
                match done.buffer.take() {
                    Some(buffer) if memory_is_lost(done.status) => calls.quarantine(buffer),
                    Some(buffer) if outcome.is_ok() => {
                        places().for_each(|(number, at)| {
                            each.borrow_mut()(number, PieceTarget::Done(&buffer, at))
                        });
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

/// Memory between which and the program's slice the bytes of a piece are to be moved.
enum PieceTarget<'a> {
    /// The mapped volume, at this offset: read from it or write to it.
    Mapped(&'a Mapped, u64),
    /// The buffer of a request that is not submitted yet, at this offset: a write puts the piece's bytes
    /// there.
    Filling(&'a mut Buffer, usize),
    /// The buffer of a request that has completed, at this offset: a read takes the piece's bytes from there.
    Done(&'a Buffer, usize),
}

/// Calls `each` for consecutive parts of a range, with the offset in the range and the length of the part: at
/// most `part` bytes, and fewer where the device has that range in too many extents
/// ([`Error::TooManyExtents`]).
fn in_pieces(
    length: u64,
    part: u64,
    block: u32,
    mut each: impl FnMut(u64, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut at, mut next) = (0, part.min(length));
    loop {
        match each(at, next) {
            // Each attempt is smaller than the one before, so this ends.
            Err(Error::TooManyExtents { bytes, .. })
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

/// Returns [`Error::Forked`] in a forked child, which inherits the mapping but is not the client.
fn check_here(memory: &Mapped) -> Result<(), Error> {
    if memory.is_here() { Ok(()) } else { Err(Error::Forked) }
}

impl OpenVolume {
    /// Returns the grant over the connection that an access has used last.
    fn last(&self) -> Arc<Grant> {
        self.grant.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a grant over a connection whose server is alive.
    fn current(&self) -> Result<Arc<Grant>, Error> {
        self.client.with_reconnect(|attached, end| {
            attached.session.check_server_now()?;
            self.grant_over(attached, end)
        })
    }

    /// Returns the grant over the connection `attached`, opening it if necessary.
    fn grant_over(&self, attached: &Arc<Connection>, end: Instant) -> Result<Arc<Grant>, Error> {
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

    /// Calls `access` with the mapped memory, and again over a new connection if the server has died and the
    /// client connects again. Returns `None` if the volume is not mapped.
    #[inline(always)]
    fn mapped(
        &self,
        need: Right,
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

    /// Like [`OpenVolume::mapped`], for the case that the connection was replaced or has to be.
    #[cold]
    fn mapped_again(
        &self,
        need: Right,
        what: &'static str,
        offset: u64,
        length: u64,
        mut access: impl FnMut(&Grant, &Mapped) -> Result<(), Error>,
    ) -> Option<Result<(), Error>> {
        let outcome = self.with_reconnect(|_, grant, _| {
            let Some(memory) = &grant.memory else { return Ok(None) };
            grant.check(need, what, offset, length)?;
            check_here(memory)?;
            grant.session.check_server_now()?;
            access(grant, memory).map(Some)
        });
        outcome.transpose()
    }

    /// Calls `attempt` with a connection, its grant and a deadline, and again if the client connects again.
    fn with_reconnect<R>(
        &self,
        mut attempt: impl FnMut(&Arc<Connection>, &Arc<Grant>, Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.client.with_reconnect(|attached, end| {
            let grant = self.grant_over(attached, end)?;
            attempt(attached, &grant, end)
        })
    }

    /// Cuts a range into the parts of single requests over the channel. Calls `each` with the part's offset
    /// in the range, its length, and its offset in the volume.
    fn in_parts(
        &self,
        need: Right,
        what: &'static str,
        bytes: usize,
        offset: u64,
        mut each: impl FnMut(usize, usize, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let grant = self.last();
        // The whole range is checked before any part of it is submitted.
        grant.check(need, what, offset, bytes as u64)?;
        let block = grant.block as usize;
        let arena = self.client.options.arena(grant.session.arena_bytes_max) / PARTS_OF_ARENA;
        let part = (PART.min(arena) / block * block).max(block);
        in_pieces(bytes as u64, part as u64, grant.block, |at, part| {
            each(at as usize, part as usize, offset + at)
        })
    }

    /// Carries out a request that needs no memory: discard or write zeroes.
    fn call_range(&self, opcode: Opcode, durable: bool, offset: u64, length: u64) -> Result<(), Error> {
        let grant = self.last();
        grant.check(Right::Write, name(opcode), offset, length)?;
        in_pieces(length, length, grant.block, |at, part| {
            let shape = RequestHeader::new(opcode, durable, offset + at, part);
            self.call(Right::Write, shape, 0, |_| {}, |_| {})
        })
    }

    /// Carries out one request through the channel, and submits it again if the client connects again.
    fn call(
        &self,
        need: Right,
        shape: RequestHeader,
        bytes: usize,
        mut fill: impl FnMut(&mut Buffer),
        mut take: impl FnMut(&Buffer),
    ) -> Result<(), Error> {
        self.with_reconnect(|attached, grant, end| {
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
        attached: &Arc<Connection>,
        grant: &Grant,
        shape: RequestHeader,
        bytes: usize,
        fill: impl FnOnce(&mut Buffer),
        take: impl FnOnce(&Buffer),
        end: Instant,
    ) -> Result<(), Error> {
        let calls = attached.calls(&self.client.options, end)?;
        if let Some(direct) = &grant.direct {
            return carry_out_directly(grant, &mut lock(direct), &calls, shape, bytes, fill, take);
        }
        let finish = |mut done: Completion| {
            let buffer = done.buffer.take();
            let about = |_| Some((grant, shape.offset, shape.length));
            let outcome = outcome(&shape, done.status, done.value, about);
            match buffer {
                Some(buffer) if memory_is_lost(done.status) => calls.quarantine(buffer),
                Some(buffer) if outcome.is_ok() => take(&buffer),
                _ => {}
            }
            outcome
        };
        let called = calls.call(shape.submission(grant.number), bytes, fill, end, finish);
        called.unwrap_or_else(|(error, was_submitted)| {
            let unknown = was_submitted && error.is_end() && shape.opcode == Opcode::CompareAndWrite;
            Err(if unknown { Error::OutcomeUnknown } else { error })
        })
    }
}

/// Carries out one request by the hardware behind a volume. Its data is in the arena meanwhile, like that of a request
/// over the channel.
fn carry_out_directly(
    grant: &Grant,
    direct: &mut Direct,
    calls: &Calls,
    shape: RequestHeader,
    bytes: usize,
    fill: impl FnOnce(&mut Buffer),
    take: impl FnOnce(&Buffer),
) -> Result<(), Error> {
    if !direct.is_here() {
        return Err(Error::Forked);
    }
    let look = || {
        grant.check_revoked()?;
        grant.session.check_server(1)
    };
    let done = if bytes == 0 {
        // SAFETY: the request takes no memory, and the caller has locked the hardware, so that nothing else is in flight.
        unsafe { direct.carry_out(&shape, std::ptr::null_mut(), 0, look) }?
    } else {
        direct.map_arena(calls.buffers());
        let buffer = calls.buffers().alloc(bytes);
        let mut buffer =
            buffer.map_err(|error| Error::from_link(error, "a request", grant.session.limit()))?;
        fill(&mut buffer);
        // SAFETY: the buffer has as many bytes, and lives longer than the request; nothing else is in flight, as above.
        let done = unsafe { direct.carry_out(&shape, buffer.as_ptr(), bytes, look) }?;
        if done.is_ok() {
            take(&buffer);
        }
        done
    };
    done.map_err(|error| failed(grant, &shape, error))
}
