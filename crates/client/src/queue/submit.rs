//! Requests of one range: carried out at once where the volume is mapped, else submitted over the channel.

use super::memory::{Buffer, KeptMemory, LentAddress, RequestMemory, SubmitError};
use super::ready::ReadyKind;
use super::{Queue, VolumeId};
use crate::error::Error;
use crate::request::{RequestHeader, name};
use crate::session::{Grant, Right};
use bywash_protocol::layout::Opcode;
use std::ptr::NonNull;

impl Queue {
    /// Reads from `offset` on as many bytes as `room` has.
    ///
    /// # Errors
    /// Each error comes with the memory that was given. [`Error::Full`] if as many requests are in flight as
    /// the depth allows; [`Error::Foreign`] if the volume or the buffer is not this queue's;
    /// [`Error::Denied`], [`Error::Misaligned`] or [`Error::OutOfBounds`] if the grant does not allow the
    /// range; [`Error::TooLarge`] or [`Error::ArenaFull`] if the arena has no room; [`Error::Forked`] in a
    /// forked child; [`Error::Io`] if a system call fails; [`Error::Gone`] or another error that has ended
    /// the connection.
    #[inline]
    pub fn read(
        &mut self,
        volume: VolumeId,
        offset: u64,
        room: impl Into<RequestMemory>,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let room = room.into();
        let shape = RequestHeader::new(Opcode::Read, false, offset, room.len() as u64);
        let Some(grant) = self.begin(volume, Right::Read, &shape) else {
            return Err(self.refuse(volume, Right::Read, &shape, Some(room)));
        };
        if let Some(memory) = &grant.memory {
            let mut room = room;
            let (to, length) = room.place();
            // SAFETY: `to` has `length` bytes, of the arena or of the program's own memory; neither overlaps
            // a mapped grant.
            unsafe { memory.read(offset, to, length) };
            self.push_ready(user_data, ReadyKind::Read(volume.index), Some(room));
            return Ok(());
        }
        match room {
            RequestMemory::Arena(buffer) => self.send_buffer(volume, shape, buffer, user_data),
            RequestMemory::Own(bytes) => match self.alloc_inner(bytes.len()) {
                Ok(buffer) => self.send(volume.index, shape, Some(buffer), KeptMemory::Own(bytes), user_data),
                Err(error) => Err(SubmitError::new(error, Some(RequestMemory::Own(bytes)))),
            },
        }
    }

    /// Reads `length` bytes into memory that the program lends until the completion is reaped.
    ///
    /// # Safety
    /// The `length` bytes at `to` must be valid for writing, nobody else may access them, and they must not
    /// overlap the mapped memory of a volume, until the request was reaped or the queue was dropped.
    ///
    /// # Errors
    /// Same as [`Queue::read`].
    pub unsafe fn read_to(
        &mut self,
        volume: VolumeId,
        offset: u64,
        to: NonNull<u8>,
        length: usize,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let shape = RequestHeader::new(Opcode::Read, false, offset, length as u64);
        let Some(grant) = self.begin(volume, Right::Read, &shape) else {
            return Err(self.refuse(volume, Right::Read, &shape, None));
        };
        if let Some(memory) = &grant.memory {
            // SAFETY: the caller guarantees `length` writable bytes at `to`, which do not overlap a mapped
            // grant.
            unsafe { memory.read(offset, to.as_ptr(), length) };
            self.push_ready(user_data, ReadyKind::Read(volume.index), None);
            return Ok(());
        }
        let buffer = self.alloc_inner(length)?;
        self.send(volume.index, shape, Some(buffer), KeptMemory::Lent(LentAddress(to)), user_data)
    }

    /// Writes the bytes of a buffer of the arena, which the completion returns. They are copied only if the
    /// volume is mapped. With `durable` they are durable when the request completes.
    ///
    /// # Errors
    /// Same as [`Queue::read`].
    #[inline]
    pub fn write(
        &mut self,
        volume: VolumeId,
        offset: u64,
        buffer: Buffer,
        durable: bool,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let shape = RequestHeader::new(Opcode::Write, durable, offset, buffer.len() as u64);
        let Some(grant) = self.begin(volume, Right::Write, &shape) else {
            return Err(self.refuse(volume, Right::Write, &shape, Some(buffer.into())));
        };
        if let Some(memory) = &grant.memory {
            // SAFETY: the buffer has `buffer.len()` bytes of the arena, which does not overlap a mapped
            // grant.
            unsafe { memory.write_from(offset, buffer.as_ptr(), buffer.len()) };
            self.push_ready(user_data, ReadyKind::Written(volume.index), Some(buffer.into()));
            return Ok(());
        }
        self.send_buffer(volume, shape, buffer, user_data)
    }

    /// Writes a copy of `from`. With `durable` the bytes are durable when the request completes.
    ///
    /// # Errors
    /// Same as [`Queue::read`].
    #[inline]
    pub fn write_from(
        &mut self,
        volume: VolumeId,
        offset: u64,
        from: &[u8],
        durable: bool,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let shape = RequestHeader::new(Opcode::Write, durable, offset, from.len() as u64);
        let Some(grant) = self.begin(volume, Right::Write, &shape) else {
            return Err(self.refuse(volume, Right::Write, &shape, None));
        };
        if let Some(memory) = &grant.memory {
            memory.write(offset, from);
            self.push_ready(user_data, ReadyKind::Written(volume.index), None);
            return Ok(());
        }
        let mut buffer = self.alloc_inner(from.len())?;
        buffer.write(0, from);
        self.send(volume.index, shape, Some(buffer), KeptMemory::Nothing, user_data)
    }

    /// Makes all writes to a volume durable that had completed, and were reaped, before this call. Like
    /// [`crate::Volume::flush`].
    ///
    /// # Errors
    /// Same as [`Queue::read`].
    pub fn flush(&mut self, volume: VolumeId, user_data: u64) -> Result<(), SubmitError> {
        let shape = RequestHeader::new(Opcode::Flush, false, 0, 0);
        // A flush needs no particular right, so any that the grant has will pass the check.
        let need = if self.grant(volume)?.access.allows_read() { Right::Read } else { Right::Write };
        if self.check(volume, need, &shape)?.memory.is_some() {
            self.push_ready(user_data, ReadyKind::Flushed(volume.index), None);
            return Ok(());
        }
        self.send(volume.index, shape, None, KeptMemory::Nothing, user_data)
    }

    /// Tells the device that a range's contents are no longer needed, like [`crate::Volume::discard`].
    ///
    /// # Errors
    /// Same as [`Queue::read`].
    pub fn discard(
        &mut self,
        volume: VolumeId,
        offset: u64,
        length: u64,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let shape = RequestHeader::new(Opcode::Discard, false, offset, length);
        self.check(volume, Right::Write, &shape)?;
        self.send(volume.index, shape, None, KeptMemory::Nothing, user_data)
    }

    /// Sets a range to zeros, like [`crate::Volume::write_zeroes`]. With `durable` they are durable on
    /// completion.
    ///
    /// # Errors
    /// Same as [`Queue::read`].
    pub fn write_zeroes(
        &mut self,
        volume: VolumeId,
        offset: u64,
        length: u64,
        durable: bool,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let shape = RequestHeader::new(Opcode::WriteZeroes, durable, offset, length);
        if let Some(memory) = &self.check(volume, Right::Write, &shape)?.memory {
            memory.write_zeroes(offset, length);
            self.push_ready(user_data, ReadyKind::Written(volume.index), None);
            return Ok(());
        }
        self.send(volume.index, shape, None, KeptMemory::Nothing, user_data)
    }

    /// Writes `new` if the bytes at `offset` equal `expected`, like [`crate::Volume::compare_and_write`]. If
    /// they differ the request completes with [`Error::CompareFailed`].
    ///
    /// # Errors
    /// Same as [`Queue::read`]; [`Error::LengthMismatch`] if `expected` and `new` differ in length.
    pub fn compare_and_write(
        &mut self,
        volume: VolumeId,
        offset: u64,
        expected: &[u8],
        new: &[u8],
        user_data: u64,
    ) -> Result<(), SubmitError> {
        if expected.len() != new.len() {
            return Err(Error::LengthMismatch { expected: expected.len(), written: new.len() }.into());
        }
        let shape = RequestHeader::new(Opcode::CompareAndWrite, false, offset, new.len() as u64);
        self.check(volume, Right::Write, &shape)?;
        let mut buffer = self.alloc_inner(2 * new.len())?;
        buffer.write(0, expected);
        buffer.write(new.len(), new);
        self.send(volume.index, shape, Some(buffer), KeptMemory::Nothing, user_data)
    }

    /// Returns the volume's grant, if this request can be submitted.
    #[inline(always)]
    pub(super) fn begin(&self, volume: VolumeId, need: Right, shape: &RequestHeader) -> Option<&Grant> {
        let grant = self.granted(volume)?;
        let can_be = self.end.is_none()
            && grant.allows(need, shape.offset, shape.length)
            && self.in_flight() < self.depth()
            && grant.is_here();
        can_be.then_some(grant)
    }

    /// Like [`Queue::begin`], but with the reason if the request cannot be submitted.
    pub(super) fn check(
        &self,
        volume: VolumeId,
        need: Right,
        shape: &RequestHeader,
    ) -> Result<&Grant, Error> {
        self.check_end()?;
        let grant = self.grant(volume)?;
        grant.check(need, name(shape.opcode), shape.offset, shape.length)?;
        if self.in_flight() >= self.depth() {
            return Err(Error::Full { depth: self.depth() as u32 });
        }
        match grant.is_here() {
            true => Ok(grant),
            false => Err(Error::Forked),
        }
    }

    /// Makes the error for a request that [`Queue::begin`] did not allow, and returns its memory.
    #[cold]
    fn refuse(
        &self,
        volume: VolumeId,
        need: Right,
        shape: &RequestHeader,
        room: Option<RequestMemory>,
    ) -> SubmitError {
        let error = self.check(volume, need, shape).err();
        SubmitError::new(error.expect("what it did not let through has a reason"), room)
    }

    #[inline(always)]
    pub(super) fn push_ready(&mut self, user_data: u64, outcome: ReadyKind, room: Option<RequestMemory>) {
        self.ready.push(user_data, outcome, room);
    }
}
