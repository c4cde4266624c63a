//! Requests between a mapped volume and scattered memory that others may write too, such as a guest's.

use super::memory::SubmitError;
use super::ready::ReadyKind;
use super::{Queue, VolumeId};
use crate::mapped::Mapped;
use crate::request::RequestHeader;
use crate::session::Right;
use bywash_protocol::layout::Opcode;

/// Address of a piece of memory, and its size in bytes.
type Piece = (*mut u8, usize);

impl Queue {
    /// Reads a range of a mapped volume into pieces of memory, one after the other. The bytes are copied when
    /// this returns; the completion tells whether they count.
    ///
    /// # Safety
    /// Until this returns, every piece must be valid for writing, must not overlap the mapped memory of a
    /// volume, and no reference may point into it. Others may read and write the pieces meanwhile, and may
    /// then see old and new bytes mixed.
    ///
    /// # Errors
    /// Same as [`Queue::read`]; [`crate::Error::NotMapped`] if the volume is not mapped.
    #[inline]
    pub unsafe fn read_to_pieces(
        &mut self,
        volume: VolumeId,
        offset: u64,
        pieces: impl Iterator<Item = Piece> + Clone,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let shape = RequestHeader::new(Opcode::Read, false, offset, bytes(pieces.clone()));
        let memory = self.memory(volume, Right::Read, &shape)?;
        let mut at = offset;
        for (to, length) in pieces {
            // SAFETY: the caller guarantees that the piece is valid for writing and does not overlap a mapped
            // grant.
            unsafe { memory.read(at, to, length) };
            at += length as u64;
        }
        self.push_ready(user_data, ReadyKind::Read(volume.index), None);
        Ok(())
    }

    /// Writes pieces of memory, one after the other, to a range of a mapped volume. The bytes are copied when
    /// this returns; the completion tells whether they count. They are as durable as the medium is.
    ///
    /// # Safety
    /// Until this returns, every piece must be valid for reading, and must not overlap the mapped memory of a
    /// volume. Others may write the pieces meanwhile; the volume then gets old and new bytes mixed.
    ///
    /// # Errors
    /// Same as [`Queue::read_to_pieces`].
    #[inline]
    pub unsafe fn write_from_pieces(
        &mut self,
        volume: VolumeId,
        offset: u64,
        pieces: impl Iterator<Item = Piece> + Clone,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let shape = RequestHeader::new(Opcode::Write, false, offset, bytes(pieces.clone()));
        let memory = self.memory(volume, Right::Write, &shape)?;
        let mut at = offset;
        for (from, length) in pieces {
            // SAFETY: the caller guarantees that the piece is valid for reading and does not overlap a mapped
            // grant.
            unsafe { memory.write_from(at, from.cast_const(), length) };
            at += length as u64;
        }
        self.push_ready(user_data, ReadyKind::Written(volume.index), None);
        Ok(())
    }

    /// Returns the memory of a volume, if a request to it can be submitted and the volume is mapped.
    #[inline(always)]
    fn memory(&self, volume: VolumeId, need: Right, shape: &RequestHeader) -> Result<&Mapped, SubmitError> {
        match self.begin(volume, need, shape).and_then(|grant| grant.memory.as_ref()) {
            Some(memory) => Ok(memory),
            None => Err(self.no_memory(volume, need, shape)),
        }
    }

    #[cold]
    fn no_memory(&self, volume: VolumeId, need: Right, shape: &RequestHeader) -> SubmitError {
        let error = self.check(volume, need, shape).and_then(|_| self.mapped(volume)).err();
        SubmitError::new(error.expect("what it did not let through has a reason"), None)
    }
}

/// Returns the sum of the pieces' sizes, in bytes; `u64::MAX` if the sum is larger, which no volume has.
#[inline(always)]
fn bytes(pieces: impl Iterator<Item = Piece>) -> u64 {
    pieces.fold(0, |sum: u64, (_, length)| sum.saturating_add(length as u64))
}
