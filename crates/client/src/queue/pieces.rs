//! Requests between a mapped volume and pieces of memory that others may write, such as a guest's.

use super::memory::NotSubmitted;
use super::ready::Outcome;
use super::{Queue, VolumeId};
use crate::mapped::Mapped;
use crate::request::Shape;
use crate::session::Need;
use bywash_protocol::layout::Opcode;

/// Where a piece of memory begins, and how many bytes it has.
type Piece = (*mut u8, usize);

impl Queue {
    /// Reads bytes of a mapped volume into pieces of memory, one after the other. They are there when this returns; whether
    /// they count is what the completion says.
    ///
    /// # Safety
    /// The pieces are mapped for writing until this returns, and no reference leads there. Others may read and write them
    /// meanwhile, and get what they get.
    ///
    /// # Errors
    /// As [`Queue::read`]; [`crate::Error::NotMapped`].
    #[inline]
    pub unsafe fn read_to_pieces(
        &mut self,
        volume: VolumeId,
        offset: u64,
        pieces: impl Iterator<Item = Piece> + Clone,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let shape = Shape::new(Opcode::Read, false, offset, bytes(pieces.clone()));
        let memory = self.memory(volume, Need::Read, &shape)?;
        let mut at = offset;
        for (to, length) in pieces {
            // SAFETY: the caller's promise; what the caller can name is in no mapped grant.
            unsafe { memory.read(at, to, length) };
            at += length as u64;
        }
        self.is_done(user_data, Outcome::Read(volume.index), None);
        Ok(())
    }

    /// Writes what is in pieces of memory, one after the other, to a mapped volume. It was copied when this returns; whether
    /// it counts is what the completion says. It is durable as far as the medium is.
    ///
    /// # Safety
    /// The pieces are mapped for reading until this returns. Others may write them meanwhile, and what is written then is
    /// what comes of it.
    ///
    /// # Errors
    /// As [`Queue::read_to_pieces`].
    #[inline]
    pub unsafe fn write_from_pieces(
        &mut self,
        volume: VolumeId,
        offset: u64,
        pieces: impl Iterator<Item = Piece> + Clone,
        user_data: u64,
    ) -> Result<(), NotSubmitted> {
        let shape = Shape::new(Opcode::Write, false, offset, bytes(pieces.clone()));
        let memory = self.memory(volume, Need::Write, &shape)?;
        let mut at = offset;
        for (from, length) in pieces {
            // SAFETY: the caller's promise; what the caller can name is in no mapped grant.
            unsafe { memory.write_from(at, from.cast_const(), length) };
            at += length as u64;
        }
        self.is_done(user_data, Outcome::Written(volume.index), None);
        Ok(())
    }

    /// The memory of a volume, if a request of it can be submitted.
    #[inline(always)]
    fn memory(&self, volume: VolumeId, need: Need, shape: &Shape) -> Result<&Mapped, NotSubmitted> {
        match self.begin(volume, need, shape).and_then(|grant| grant.memory.as_ref()) {
            Some(memory) => Ok(memory),
            None => Err(self.no_memory(volume, need, shape)),
        }
    }

    #[cold]
    fn no_memory(&self, volume: VolumeId, need: Need, shape: &Shape) -> NotSubmitted {
        let error = self.check(volume, need, shape).and_then(|_| self.mapped(volume)).err();
        NotSubmitted::new(error.expect("what it did not let through has a reason"), None)
    }
}

/// How many bytes pieces have; as many as cannot be if that is no number.
#[inline(always)]
fn bytes(pieces: impl Iterator<Item = Piece>) -> u64 {
    pieces.fold(0, |sum: u64, (_, length)| sum.saturating_add(length as u64))
}
