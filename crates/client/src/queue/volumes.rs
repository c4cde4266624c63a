//! The open volumes of a queue: opening, closing, and their properties.
//!
//! Invariant: a volume stays open while a request to it is in flight.

use super::direct::take_hardware;
use super::{Queue, Slot};
use crate::error::Error;
use crate::options::VolumePath;
use crate::session::{Grant, VolumeSource};
use bywash_protocol::Access;
use bywash_protocol::layout::Opcode;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Identifies an open volume of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VolumeId {
    pub(super) index: u32,
    /// Number of the volume among all that this process has opened, so that the id fits neither another queue
    /// nor a volume that was opened later at the same index.
    tag: u32,
}

impl VolumeId {
    /// Returns the id as a number, for programs in other languages.
    pub fn to_word(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.index)
    }

    /// Makes an id of a number from [`VolumeId::to_word`]. An invalid number is detected when the id is used.
    pub fn from_word(word: u64) -> VolumeId {
        VolumeId { index: word as u32, tag: (word >> 32) as u32 }
    }
}

#[derive(Debug)]
pub(super) struct OpenVolume {
    tag: u32,
    pub(super) origin: VolumeSource,
    /// The grant, or the reason why the volume could not be opened after the queue had connected again.
    pub(super) grant: Result<Grant, Error>,
}

impl Queue {
    /// Opens a volume by its name.
    ///
    /// # Errors
    /// Same as [`crate::Client::open`].
    pub fn open(&mut self, volume: &str, access: Access) -> Result<VolumeId, Error> {
        self.open_origin(VolumeSource::Name(volume.into(), access))
    }

    /// Opens a volume over a regular file or a block device that the program has opened.
    ///
    /// # Errors
    /// Same as [`crate::Client::open_descriptor`].
    pub fn open_descriptor(&mut self, file: impl Into<OwnedFd>) -> Result<VolumeId, Error> {
        self.open_origin(VolumeSource::Descriptor(file.into()))
    }

    fn open_origin(&mut self, origin: VolumeSource) -> Result<VolumeId, Error> {
        // Tags begin at 1, so that no id is the number 0.
        static TAGS: AtomicU32 = AtomicU32::new(1);
        self.check_end()?;
        let end = Instant::now() + self.options.timeout;
        let (choice, driver) = (self.options.choice, self.driver());
        let mut grant = match self.session.open(&origin, choice, driver, end) {
            Err(error) if error.is_end() => {
                self.connection_ended(error);
                self.check_end()?;
                self.session.open(&origin, choice, driver, Instant::now() + self.options.timeout)?
            }
            grant => grant?,
        };
        let hardware = take_hardware(&mut grant, &self.channel);
        let tag = TAGS.fetch_add(1, Ordering::Relaxed);
        let opened = Some(OpenVolume { tag, origin, grant: Ok(grant) });
        let index = match self.volumes.iter().position(Option::is_none) {
            Some(free) => {
                self.volumes[free] = opened;
                free
            }
            None => {
                self.volumes.push(opened);
                self.hardware.push(None);
                self.volumes.len() - 1
            }
        };
        self.hardware[index] = hardware;
        if self.hardware[index].is_some()
            && let Err(error) = self.join_descriptors()
        {
            self.forget_hardware(index as u32);
            self.volumes[index] = None;
            return Err(error);
        }
        Ok(VolumeId { index: index as u32, tag })
    }

    /// Closes a volume.
    ///
    /// # Errors
    /// [`Error::Busy`] while requests to it are in flight or were not reaped; [`Error::Foreign`] if the queue
    /// has no such volume; the error of opening it again if that failed.
    pub fn close(&mut self, volume: VolumeId) -> Result<(), Error> {
        self.grant(volume)?;
        let is_free = |slot: u32| self.free.contains(&slot);
        let of_slot = |slot: &Slot| {
            let many = matches!(slot.shape.opcode, Opcode::ReadRanges | Opcode::WriteRanges);
            match many {
                true => slot.pieces.iter().any(|piece| piece.0 == volume.index),
                false => slot.volume == volume.index,
            }
        };
        let in_slots =
            (0..self.slots.len() as u32).any(|at| of_slot(&self.slots[at as usize]) && !is_free(at));
        let in_ready = self.ready.outcomes().any(|outcome| outcome.volume() == Some(volume.index));
        if in_slots || in_ready || self.has_busy_transfer(volume) {
            return Err(Error::Busy);
        }
        self.forget_hardware(volume.index);
        self.volumes[volume.index as usize] = None;
        Ok(())
    }

    /// Returns true if a volume is mapped now. The answer may change when [`Queue::reconnects`] does.
    #[inline]
    pub fn is_mapped(&self, volume: VolumeId) -> bool {
        self.granted(volume).is_some_and(|grant| grant.memory.is_some())
    }

    /// Returns the size of a volume, in bytes.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the queue has no such volume; the error of opening it again, if that failed
    /// after the queue had connected again.
    pub fn len(&self, volume: VolumeId) -> Result<u64, Error> {
        self.grant(volume).map(|grant| grant.bytes)
    }

    /// Returns the size of a volume's block, in bytes.
    ///
    /// # Errors
    /// Same as [`Queue::len`].
    pub fn block(&self, volume: VolumeId) -> Result<u32, Error> {
        self.grant(volume).map(|grant| grant.block)
    }

    /// Returns the path that a volume's bytes take, with the reason if it is the channel.
    ///
    /// # Errors
    /// Same as [`Queue::len`].
    pub fn path(&self, volume: VolumeId) -> Result<VolumePath, Error> {
        let grant = self.grant(volume)?;
        match &self.hardware[volume.index as usize] {
            Some(direct) => Ok(direct.path()),
            None => Ok(grant.path()),
        }
    }

    #[inline(always)]
    fn opened(&self, volume: VolumeId) -> Option<&OpenVolume> {
        self.volumes.get(volume.index as usize)?.as_ref().filter(|opened| opened.tag == volume.tag)
    }

    /// Returns a volume's grant, if it has one now.
    #[inline(always)]
    pub(super) fn granted(&self, volume: VolumeId) -> Option<&Grant> {
        self.opened(volume)?.grant.as_ref().ok()
    }

    /// Like [`Queue::granted`], but with the reason if there is no grant.
    pub(super) fn grant(&self, volume: VolumeId) -> Result<&Grant, Error> {
        let opened = self.opened(volume).ok_or(Error::Foreign { what: "volume", of: "queue" })?;
        opened.grant.as_ref().map_err(Error::clone)
    }
}
