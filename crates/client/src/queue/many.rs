//! Requests of several ranges, which may belong to several volumes.

use super::memory::{Completion, KeptMemory, SubmitError};
use super::{Queue, VolumeId};
use crate::error::Error;
use crate::mapped::Mapped;
use crate::request::RequestHeader;
use crate::session::{Grant, Right};
use bywash_protocol::layout::{GRANT_RANGE_BYTES, GRANT_RANGES_MAX, GrantRange, Opcode};

/// A range of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Volume that the range belongs to.
    pub volume: VolumeId,
    /// Offset of the first byte, in bytes.
    pub offset: u64,
    /// Number of bytes.
    pub length: usize,
}

impl Queue {
    /// Reads several ranges by one request into `room`, one after the other. The size of `room` must be the
    /// ranges' sum.
    ///
    /// # Errors
    /// Same as [`Queue::read`]; [`Error::LengthMismatch`] if `room` has another size; [`Error::PieceCount`]
    /// unless there are 1 to 32 ranges; [`Error::NotSupported`] if a volume is direct.
    pub fn read_many(
        &mut self,
        ranges: &[Range],
        mut room: Vec<u8>,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let sum: usize = ranges.iter().map(|range| range.length).sum();
        let checked = match sum == room.len() {
            true => self.begin_many(ranges.iter().copied(), Right::Read),
            false => Err(Error::LengthMismatch { expected: sum, written: room.len() }),
        };
        match checked {
            Err(error) => return Err(SubmitError::new(error, Some(room.into()))),
            Ok(true) => {
                let mut at = 0;
                let outcome = ranges.iter().try_for_each(|range| {
                    let (grant, memory) = self.mapped(range.volume)?;
                    // SAFETY: the ranges' lengths sum up to the size of `room`, so `room[at..]` has at least
                    // `range.length` bytes; the program's own memory does not overlap a mapped grant.
                    unsafe { memory.read(range.offset, room[at..].as_mut_ptr(), range.length) };
                    at += range.length;
                    grant.confirm_read()
                });
                self.ready.push_known(Completion { user_data, outcome, memory: Some(room.into()) });
                return Ok(());
            }
            Ok(false) => {}
        }
        let buffer = match self.alloc_many(ranges.iter().copied(), sum) {
            Ok(buffer) => buffer,
            Err(error) => return Err(SubmitError::new(error, Some(room.into()))),
        };
        let shape = RequestHeader::new(Opcode::ReadRanges, false, 0, ranges.len() as u64);
        self.note_pieces(ranges.iter().copied());
        self.send(0, shape, Some(buffer), KeptMemory::Own(room), user_data)
    }

    /// Writes copies of several slices to several volumes by one request; each piece is volume, offset and
    /// bytes.
    ///
    /// # Errors
    /// Same as [`Queue::read`]; [`Error::PieceCount`] unless there are 1 to 32 pieces; [`Error::NotSupported`] if a volume
    /// is direct.
    pub fn write_many(
        &mut self,
        pieces: &[(VolumeId, u64, &[u8])],
        durable: bool,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let ranges =
            pieces.iter().map(|piece| Range { volume: piece.0, offset: piece.1, length: piece.2.len() });
        if self.begin_many(ranges.clone(), Right::Write)? {
            let outcome = pieces.iter().try_for_each(|(volume, offset, from)| {
                let (grant, memory) = self.mapped(*volume)?;
                memory.write(*offset, from);
                grant.confirm_write()
            });
            self.ready.push_known(Completion { user_data, outcome, memory: None });
            return Ok(());
        }
        let sum = ranges.clone().map(|range| range.length).sum();
        let mut buffer = self.alloc_many(ranges.clone(), sum)?;
        let mut at = pieces.len() * GRANT_RANGE_BYTES;
        for (_, _, from) in pieces {
            at += buffer.write(at, from);
        }
        let shape = RequestHeader::new(Opcode::WriteRanges, durable, 0, pieces.len() as u64);
        self.note_pieces(ranges);
        self.send(0, shape, Some(buffer), KeptMemory::Nothing, user_data)
    }

    /// Checks that a request of several ranges can be submitted. Returns true if all their volumes are
    /// mapped.
    fn begin_many(&self, ranges: impl ExactSizeIterator<Item = Range>, need: Right) -> Result<bool, Error> {
        if !(1..=GRANT_RANGES_MAX).contains(&ranges.len()) {
            return Err(Error::PieceCount { asked: ranges.len(), most: GRANT_RANGES_MAX });
        }
        let opcode = if need == Right::Read { Opcode::ReadRanges } else { Opcode::WriteRanges };
        let mut all_mapped = true;
        for Range { volume, offset, length } in ranges {
            let shape = RequestHeader::new(opcode, false, offset, length as u64);
            let grant = self.check(volume, need, &shape)?;
            if self.hardware[volume.index as usize].is_some() {
                return Err(Error::NotSupported {
                    what: "access several ranges of",
                    volume: grant.name.clone(),
                });
            }
            all_mapped &= grant.memory.is_some();
        }
        Ok(all_mapped)
    }

    /// Allocates a buffer with room for the descriptors of all pieces and `bytes` bytes behind them, and
    /// fills in the descriptors.
    fn alloc_many(
        &self,
        ranges: impl ExactSizeIterator<Item = Range>,
        bytes: usize,
    ) -> Result<bywash_channel::Buffer, Error> {
        let mut buffer = self.alloc_inner(ranges.len() * GRANT_RANGE_BYTES + bytes)?;
        for (number, Range { volume, offset, length }) in ranges.enumerate() {
            let grant = self.grant(volume)?.number;
            buffer.write(
                number * GRANT_RANGE_BYTES,
                &GrantRange { grant, offset, length: length as u64 }.to_bytes(),
            );
        }
        Ok(buffer)
    }

    /// Stores the pieces in the slot that the next request takes.
    fn note_pieces(&mut self, ranges: impl Iterator<Item = Range>) {
        if let Some(slot) = self.free.last() {
            let pieces = &mut self.slots[*slot as usize].pieces;
            pieces.clear();
            pieces.extend(ranges.map(|range| (range.volume.index, range.offset, range.length)));
        }
    }

    pub(super) fn mapped(&self, volume: VolumeId) -> Result<(&Grant, &Mapped), Error> {
        let grant = self.grant(volume)?;
        let memory = grant.memory.as_ref();
        let no =
            || Error::NotMapped { volume: grant.name.clone(), why: "it goes through the channel".into() };
        Ok((grant, memory.ok_or_else(no)?))
    }
}
