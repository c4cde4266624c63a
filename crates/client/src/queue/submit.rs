//! Requests of one range: done at once where the volume is mapped, else sent through the channel.

use super::memory::{Buffer, Keep, NotSubmitted, Place, Room};
use super::ready::Outcome;
use super::{Queue, VolumeId};
use crate::error::Error;
use crate::mapped::Mapped;
use crate::request::{Shape, name};
use crate::session::{Grant, Need};
use bywash_protocol::layout::Opcode;
use std::ptr::NonNull;

impl Queue {
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
        let Some(grant) = self.begin(volume, Need::Read, &shape) else {
            return Err(self.refuse(volume, Need::Read, &shape, Some(room)));
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
        let Some(grant) = self.begin(volume, Need::Read, &shape) else {
            return Err(self.refuse(volume, Need::Read, &shape, None));
        };
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
        let Some(grant) = self.begin(volume, Need::Write, &shape) else {
            return Err(self.refuse(volume, Need::Write, &shape, Some(buffer.into())));
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
        let Some(grant) = self.begin(volume, Need::Write, &shape) else {
            return Err(self.refuse(volume, Need::Write, &shape, None));
        };
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
        if self.check(volume, need, &shape)?.memory.is_some() {
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
        self.check(volume, Need::Write, &shape)?;
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
        if let Some(memory) = &self.check(volume, Need::Write, &shape)?.memory {
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
        self.check(volume, Need::Write, &shape)?;
        let mut buffer = self.alloc_inner(2 * new.len())?;
        buffer.write(0, expected);
        buffer.write(new.len(), new);
        self.send(volume.index, shape, Some(buffer), Keep::Nothing, user_data)
    }

    /// The grant, if a request of it can be submitted.
    #[inline(always)]
    pub(super) fn begin(&self, volume: VolumeId, need: Need, shape: &Shape) -> Option<&Grant> {
        let grant = self.granted(volume)?;
        let can_be = self.end.is_none()
            && grant.allows(need, shape.offset, shape.length)
            && self.under_way() < self.depth()
            && grant.memory.as_ref().is_none_or(Mapped::is_here);
        can_be.then_some(grant)
    }

    /// As [`Queue::begin`], with the reason why not.
    pub(super) fn check(&self, volume: VolumeId, need: Need, shape: &Shape) -> Result<&Grant, Error> {
        self.check_end()?;
        let grant = self.grant(volume)?;
        grant.check(need, name(shape.opcode), shape.offset, shape.length)?;
        if self.under_way() >= self.depth() {
            return Err(Error::Full { depth: self.depth() as u32 });
        }
        match grant.memory.as_ref().is_none_or(Mapped::is_here) {
            true => Ok(grant),
            false => Err(Error::Forked),
        }
    }

    /// Gives back the memory of a request that [`Queue::begin`] did not let through.
    #[cold]
    fn refuse(&self, volume: VolumeId, need: Need, shape: &Shape, room: Option<Room>) -> NotSubmitted {
        let error = self.check(volume, need, shape).err();
        NotSubmitted::new(error.expect("what it did not let through has a reason"), room)
    }

    #[inline(always)]
    pub(super) fn is_done(&mut self, user_data: u64, outcome: Outcome, room: Option<Room>) {
        self.ready.push(user_data, outcome, room);
    }
}
