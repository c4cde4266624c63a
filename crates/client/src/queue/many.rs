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

/// Path of a request of several ranges: that of all its volumes, or the channel where only some are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManyPath {
    Mapped,
    Direct,
    Channel,
}

impl Queue {
    /// Reads several ranges by one request into `room`, one after the other. The size of `room` must be the
    /// ranges' sum.
    ///
    /// # Errors
    /// Same as [`Queue::read`]; [`Error::LengthMismatch`] if `room` has another size; [`Error::PieceCount`]
    /// unless there are 1 to 32 ranges; [`Error::NotSupported`] if some volumes are direct, and others not.
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
        let path = match checked {
            Err(error) => return Err(SubmitError::new(error, Some(room.into()))),
            Ok(ManyPath::Mapped) => {
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
            Ok(path) => path,
        };
        let buffer = match self.alloc_many(ranges.iter().copied(), sum) {
            Ok(buffer) => buffer,
            Err(error) => return Err(SubmitError::new(error, Some(room.into()))),
        };
        let shape = RequestHeader::new(Opcode::ReadRanges, false, 0, ranges.len() as u64);
        self.note_pieces(ranges.iter().copied());
        self.send_many(path, shape, buffer, KeptMemory::Own(room), user_data)
    }

    /// Writes copies of several slices to several volumes by one request; each piece is volume, offset and
    /// bytes.
    ///
    /// # Errors
    /// Same as [`Queue::read`]; [`Error::PieceCount`] unless there are 1 to 32 pieces; [`Error::NotSupported`] if some volumes
    /// are direct, and others not.
    pub fn write_many(
        &mut self,
        pieces: &[(VolumeId, u64, &[u8])],
        durable: bool,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let ranges =
            pieces.iter().map(|piece| Range { volume: piece.0, offset: piece.1, length: piece.2.len() });
        let path = self.begin_many(ranges.clone(), Right::Write)?;
        if path == ManyPath::Mapped {
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
        self.send_many(path, shape, buffer, KeptMemory::Nothing, user_data)
    }

    /// Submits a request whose pieces were stored in the slot that it takes.
    fn send_many(
        &mut self,
        path: ManyPath,
        shape: RequestHeader,
        buffer: bywash_channel::Buffer,
        keep: KeptMemory,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        match path {
            ManyPath::Direct => self.send_many_direct(shape, buffer, keep, user_data),
            ManyPath::Channel | ManyPath::Mapped => self.send(0, shape, Some(buffer), keep, user_data),
        }
    }

    /// Checks that a request of several ranges can be submitted, and returns its path.
    fn begin_many(
        &self,
        ranges: impl ExactSizeIterator<Item = Range>,
        need: Right,
    ) -> Result<ManyPath, Error> {
        if !(1..=GRANT_RANGES_MAX).contains(&ranges.len()) {
            return Err(Error::PieceCount { asked: ranges.len(), most: GRANT_RANGES_MAX });
        }
        let opcode = if need == Right::Read { Opcode::ReadRanges } else { Opcode::WriteRanges };
        let (mut all, mut mapped, mut direct) = (0, 0, 0);
        for Range { volume, offset, length } in ranges {
            let shape = RequestHeader::new(opcode, false, offset, length as u64);
            let grant = self.check(volume, need, &shape)?;
            all += 1;
            mapped += usize::from(grant.memory.is_some());
            direct += usize::from(self.hardware[volume.index as usize].is_some());
            if direct > 0 && direct < all {
                let volume = grant.name.clone();
                return Err(Error::NotSupported { what: "access, beside one on another path,", volume });
            }
        }
        Ok(match (mapped == all, direct == all) {
            (true, _) => ManyPath::Mapped,
            (_, true) => ManyPath::Direct,
            _ => ManyPath::Channel,
        })
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
