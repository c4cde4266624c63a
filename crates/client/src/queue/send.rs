//! Submission over the channel: a request takes a slot, whose number its completion carries as user data.
//!
//! Invariant: a slot is either free or holds one request that the channel carries. Called by `submit` and
//! `many`; `reap` uses the helper functions.

use super::memory::{Buffer, KeptMemory, RequestMemory, SubmitError};
use super::ready::ReadyKind;
use super::volumes::OpenVolume;
use super::{Queue, VolumeId};
use crate::error::Error;
use crate::request::RequestHeader;
use bywash_device::CommandError;
use bywash_protocol::layout::Opcode;

/// A request over the channel.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) user_data: u64,
    pub(super) shape: RequestHeader,
    pub(super) volume: u32,
    pub(super) keep: KeptMemory,
    /// In a request of several ranges: index of the volume, offset and length in bytes of each.
    pub(super) pieces: Vec<(u32, u64, usize)>,
    /// Number of commands that hardware has for the request.
    pub(super) commands: usize,
    /// First failure of a command that hardware has carried out for the request.
    pub(super) failure: Option<CommandError>,
    /// Memory of a request that hardware has.
    pub(super) buffer: Option<bywash_channel::Buffer>,
}

impl Queue {
    #[inline(always)]
    pub(super) fn in_flight_over_channel(&self) -> usize {
        self.slots.len() - self.free.len() - self.direct_slots
    }

    #[cold]
    pub(super) fn link_error(&self, error: bywash_link::Error) -> Error {
        Error::from_link(error, "a request", self.options.timeout)
    }

    #[inline]
    pub(super) fn alloc_inner(&self, bytes: usize) -> Result<bywash_channel::Buffer, Error> {
        self.channel.alloc(bytes).map_err(|error| self.link_error(error))
    }

    /// Submits a request with a buffer of the program, copying it first if it belongs to an arena before the
    /// current one.
    #[inline]
    pub(super) fn send_buffer(
        &mut self,
        volume: VolumeId,
        shape: RequestHeader,
        buffer: Buffer,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let buffer = match buffer.generation == self.session.generation {
            true => buffer,
            false => match self.copied(&buffer) {
                Ok(copy) => copy,
                Err(error) => return Err(SubmitError::new(error, Some(buffer.into()))),
            },
        };
        self.send(volume.index, shape, Some(buffer.inner), KeptMemory::Buffer, user_data)
    }

    /// Returns the memory of a request that belongs to the program.
    #[cold]
    pub(super) fn room_of(
        &self,
        keep: KeptMemory,
        buffer: Option<bywash_channel::Buffer>,
    ) -> Option<RequestMemory> {
        let generation = self.session.generation;
        match (keep, buffer) {
            (KeptMemory::Own(bytes), _) => Some(RequestMemory::Own(bytes)),
            (KeptMemory::Buffer | KeptMemory::Transfer(_), Some(inner)) => {
                Some(RequestMemory::Arena(Buffer { inner, generation }))
            }
            _ => None,
        }
    }

    /// Copies a buffer of an earlier arena into a new buffer of the current one.
    #[cold]
    pub(super) fn copied(&self, old: &Buffer) -> Result<Buffer, Error> {
        let mut new = self.alloc(old.len())?;
        let mut bytes = vec![0; old.len()];
        old.read(0, &mut bytes);
        new.write(0, &bytes);
        Ok(new)
    }

    /// Submits a request over the channel.
    #[inline]
    pub(super) fn send(
        &mut self,
        volume: u32,
        shape: RequestHeader,
        buffer: Option<bywash_channel::Buffer>,
        keep: KeptMemory,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        if shape.length == 0 && shape.opcode != Opcode::Flush {
            let room = self.room_of(keep, buffer);
            self.push_ready(user_data, ReadyKind::Known, room);
            return Ok(());
        }
        let Some(number) = self.free.pop() else {
            return Err(Error::Full { depth: self.depth() as u32 }.into());
        };
        if let Some(Some(_)) = self.hardware.get(volume as usize) {
            return self.send_direct(number, volume, shape, buffer, keep, user_data);
        }
        let grant = match self.volumes.get(volume as usize) {
            Some(Some(OpenVolume { grant: Ok(grant), .. })) => grant.number,
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
                Err(SubmitError::new(self.link_error(refused.error), room))
            }
        }
    }
}
