//! A command in flight, and the sequence of kernel requests that carries it out.
//!
//! ```text
//!   read, write     read or write what is left, from or to the command's memory, or a bounce piece at a time
//!   compare-write   take what is given into a piece, read the block behind it, compare, write
//!   write zeroes    fallocate or ioctl; where the medium has neither, write zeros a piece at a time
//!   flush, discard  one request
//! ```
//!
//! Invariant: nothing that a request refers to changes between [`Slot::next`] and [`Slot::completed`]. Called
//! by [`super::File`], which starts the requests.

use super::bounce::BounceBuffers;
use super::job::{IoRequest, Transfer};
use super::medium::{Medium, Zeroes};
use super::ring::BOUNCE;
use crate::command::{Command, CommandError, Operation};
use crate::region::RegionId;
use crate::segment::{MemoryOwner, SEGMENTS_MAX, Segment, gather, scatter};
use rustix::fs::FallocateFlags;
use std::ops::Range;

/// Greatest number of consecutive attempts that may end with EAGAIN, EINTR or less than a block, before the
/// command fails.
const RETRIES_MAX: u16 = 1000;

/// A command in flight, or an unused slot.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) token: u64,
    pub(super) owner: Option<MemoryOwner>,
    operation: Operation,
    offset: u64,
    bytes: u64,
    /// Bytes of `bytes` that have been transferred.
    done: u64,
    region: Option<RegionId>,
    /// Segments of memory: the command's own, or the device's zero pages for a write of zeros. The first
    /// `first` of `count` segments are done.
    segments: [Segment; SEGMENTS_MAX],
    first: usize,
    count: usize,
    /// True if the medium does not accept the command's memory, so that its data passes through a bounce
    /// piece.
    bounces: bool,
    bounce: Option<u16>,
    /// Segment that the request in flight uses, if the request does not use `segments`.
    piece: Segment,
    /// True if a compare-and-write has read its block and is to write.
    compared: bool,
    /// Method of writing zeros in the request in flight. `Medium::zeroes` may change meanwhile, when a
    /// request of another slot finds a method unsupported.
    zeroes: Zeroes,
    /// True if the command needs no further request.
    complete: bool,
    retries: u16,
    /// True if the command's range is claimed, for devices of several queues.
    pub(super) has_claim: bool,
}

/// Next step of a command.
#[derive(Debug)]
pub(super) enum Next {
    /// Start this request.
    Job(IoRequest),
    /// Wait for a free bounce piece.
    Wait,
    /// Complete the command with this result.
    Done(Result<(), CommandError>),
}

impl Slot {
    pub(super) fn empty() -> Slot {
        Slot {
            token: 0,
            owner: None,
            operation: Operation::Flush,
            offset: 0,
            bytes: 0,
            done: 0,
            region: None,
            segments: [Segment::EMPTY; SEGMENTS_MAX],
            first: 0,
            count: 0,
            bounces: false,
            bounce: None,
            piece: Segment::EMPTY,
            compared: false,
            zeroes: Zeroes::Written,
            complete: false,
            retries: 0,
            has_claim: false,
        }
    }

    /// Sets up the slot for a checked command that affects `bytes` bytes of the device.
    pub(super) fn fill(&mut self, command: Command<'_>, bytes: u64, medium: &Medium) {
        let Command { token, operation, offset, length: _, segments, region, owner } = command;
        (self.token, self.owner, self.operation) = (token, owner, operation);
        (self.offset, self.bytes, self.done, self.region) = (offset, bytes, 0, region);
        (self.first, self.count) = (0, 0);
        // Empty segments are dropped, since they would only cost segments.
        for segment in segments.iter().filter(|segment| segment.bytes() > 0) {
            self.segments[self.count] = *segment;
            self.count += 1;
        }
        self.bounces = !medium.takes(&self.segments[..self.count]);
        (self.compared, self.retries) = (false, 0);
        self.complete = bytes == 0 && operation != Operation::Flush;
        debug_assert!(self.bounce.is_none());
    }

    /// Returns the range that the command claims, in bytes, and whether the command changes it.
    pub(super) fn claimed(&self) -> (Range<u64>, bool) {
        let bytes = if self.operation == Operation::Discard { 0 } else { self.bytes };
        (self.offset..self.offset + bytes, self.operation.is_write())
    }

    /// Takes the slot's bounce piece, so that the caller can free it.
    pub(super) fn release(&mut self) -> Option<u16> {
        self.bounce.take()
    }

    /// Returns the next step. `buffer_of` returns the registered buffer that contains a segment.
    pub(super) fn next(
        &mut self,
        number: u16,
        medium: &Medium,
        bounce: &mut BounceBuffers,
        buffer_of: impl FnOnce(RegionId, &Segment) -> Option<u16>,
    ) -> Next {
        let (offset, bytes) = (self.offset, self.bytes);
        match self.operation {
            _ if self.complete => Next::Done(Ok(())),
            Operation::Flush => Next::Job(IoRequest::Sync),
            Operation::Discard if !medium.discards => Next::Done(Ok(())),
            Operation::Discard if medium.is_block => Next::Job(IoRequest::Discard { offset, bytes }),
            Operation::Discard => Next::Job(IoRequest::Allocate { how: HOLE, offset, bytes }),
            Operation::WriteZeroes => Next::Job(self.write_zeroes(medium)),
            Operation::CompareAndWrite => self.compare_and_write(number, medium, bounce),
            Operation::Read | Operation::Write | Operation::WriteDurable if self.bounces => {
                self.go_by_bounce(number, bounce)
            }
            Operation::Read | Operation::Write | Operation::WriteDurable => {
                let segments = &self.segments[self.first..self.count];
                let buffer = match (segments, self.region) {
                    ([segment], Some(region)) => buffer_of(region, segment),
                    _ => None,
                };
                Next::Job(self.transfer(segments, self.offset + self.done, buffer))
            }
        }
    }

    /// Takes the result of the request in flight: the number of bytes, or a negative errno(3).
    ///
    /// # Errors
    /// The command's failure, if the request failed and there is no other way to carry it out.
    pub(super) fn completed(
        &mut self,
        result: i32,
        medium: &mut Medium,
        bounce: &BounceBuffers,
    ) -> Result<(), CommandError> {
        match u64::try_from(result) {
            Ok(bytes) => self.succeeded(bytes, medium, bounce),
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => self.retry(-result),
            Err(_) => self.failed(-result, medium),
        }
    }

    fn succeeded(&mut self, bytes: u64, medium: &Medium, bounce: &BounceBuffers) -> Result<(), CommandError> {
        match self.operation {
            Operation::Flush | Operation::Discard => self.complete = true,
            Operation::WriteZeroes if self.zeroes != Zeroes::Written => self.complete = true,
            // End of file: the file has been truncated.
            Operation::Read if bytes == 0 => return Err(CommandError::Io(libc::EIO)),
            _ => {
                // A block that was transferred partly is transferred again.
                let whole = bytes - bytes % u64::from(medium.geometry.block);
                if whole == 0 {
                    return self.retry(libc::EIO);
                }
                self.moved(whole as usize, bounce)?;
            }
        }
        self.retries = 0;
        Ok(())
    }

    /// Accounts for `bytes` bytes that the last request has transferred.
    fn moved(&mut self, bytes: usize, bounce: &BounceBuffers) -> Result<(), CommandError> {
        match self.operation {
            Operation::CompareAndWrite if !self.compared => {
                self.compared = true;
                return self.compare(bounce);
            }
            Operation::Read if self.bounces => {
                let from = self.piece.base().cast_const();
                // SAFETY: the request has read `bytes` bytes into the piece, which are no more than the segments
                // have left.
                unsafe { scatter(&self.segments[..self.count], self.done as usize, from, bytes) };
            }
            Operation::Read | Operation::Write | Operation::WriteDurable if !self.bounces => {
                self.advance(bytes);
            }
            _ => {}
        }
        self.done += bytes as u64;
        self.complete = self.done == self.bytes;
        Ok(())
    }

    fn failed(&mut self, error: i32, medium: &mut Medium) -> Result<(), CommandError> {
        let is_unsupported = matches!(error, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY);
        match self.operation {
            // The medium does not discard. A discard is a hint, so the command succeeds all the same.
            Operation::Discard if is_unsupported => medium.discards = false,
            Operation::WriteZeroes if is_unsupported && self.zeroes != Zeroes::Written => {
                if medium.zeroes == self.zeroes {
                    medium.zeroes = self.zeroes.next(medium.holes);
                }
            }
            // The region may have been unregistered after the request started: try again without it.
            _ if error == libc::EFAULT && self.region.is_some() => self.region = None,
            _ => return Err(CommandError::Io(error)),
        }
        Ok(())
    }

    fn retry(&mut self, error: i32) -> Result<(), CommandError> {
        self.retries += 1;
        if self.retries > RETRIES_MAX { Err(CommandError::Io(error)) } else { Ok(()) }
    }

    /// Removes the next `bytes` bytes from the segments that are left.
    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let segment = &mut self.segments[self.first];
            if bytes < segment.bytes() {
                *segment = segment.without(bytes);
                return;
            }
            bytes -= segment.bytes();
            self.first += 1;
        }
    }

    fn transfer(&self, segments: &[Segment], offset: u64, buffer: Option<u16>) -> IoRequest {
        let transfer = Transfer { segments: segments.as_ptr(), count: segments.len() as u32, offset, buffer };
        match self.operation {
            Operation::Read => IoRequest::Read(transfer),
            Operation::CompareAndWrite if !self.compared => IoRequest::Read(transfer),
            operation => IoRequest::Write { transfer, durable: operation == Operation::WriteDurable },
        }
    }

    /// Returns the slot's bounce piece, taking one if necessary. `None` if the slot has to wait for one.
    fn bounce_piece(&mut self, number: u16, bounce: &mut BounceBuffers) -> Option<u16> {
        if self.bounce.is_none() {
            self.bounce = bounce.numbers.take(number);
        }
        self.bounce
    }

    fn go_by_bounce(&mut self, number: u16, bounce: &mut BounceBuffers) -> Next {
        let Some(piece) = self.bounce_piece(number, bounce) else { return Next::Wait };
        let bytes = (self.bytes - self.done).min(bounce.piece_bytes() as u64) as usize;
        self.piece = bounce.segment(piece, 0, bytes);
        if self.operation != Operation::Read {
            let segments = &self.segments[..self.count];
            // SAFETY: the segments have `bytes` bytes left, and only this slot uses the piece.
            unsafe { gather(segments, self.done as usize, self.piece.base(), bytes) };
        }
        Next::Job(self.transfer(std::slice::from_ref(&self.piece), self.offset + self.done, Some(BOUNCE)))
    }

    fn compare_and_write(&mut self, number: u16, medium: &Medium, bounce: &mut BounceBuffers) -> Next {
        let Some(piece) = self.bounce_piece(number, bounce) else { return Next::Wait };
        let block = medium.geometry.block as usize;
        // The piece holds three blocks: the expected contents, the new contents, and the contents read.
        if self.compared {
            self.piece = bounce.segment(piece, block, block);
        } else {
            // SAFETY: `check` found two blocks in the segments, and only this slot uses the piece.
            unsafe { gather(&self.segments[..self.count], 0, bounce.at(piece), 2 * block) };
            self.piece = bounce.segment(piece, 2 * block, block);
        }
        Next::Job(self.transfer(std::slice::from_ref(&self.piece), self.offset, Some(BOUNCE)))
    }

    fn compare(&self, bounce: &BounceBuffers) -> Result<(), CommandError> {
        let Some(piece) = self.bounce else { return Err(CommandError::Io(libc::EIO)) };
        let block = self.piece.bytes();
        // SAFETY: only this slot uses the piece, and no request on it is in flight, so nobody writes to it.
        let (expected, there) = unsafe {
            let base = bounce.at(piece).cast_const();
            let there = std::slice::from_raw_parts(base.add(2 * block), block);
            (std::slice::from_raw_parts(base, block), there)
        };
        if expected == there { Ok(()) } else { Err(CommandError::Mismatch) }
    }

    fn write_zeroes(&mut self, medium: &Medium) -> IoRequest {
        let (offset, bytes) = (self.offset, self.bytes);
        self.zeroes = medium.zeroes;
        match self.zeroes {
            Zeroes::Ioctl => IoRequest::ZeroOut { offset, bytes },
            Zeroes::Range => IoRequest::Allocate { how: ZERO_RANGE, offset, bytes },
            Zeroes::Hole => IoRequest::Allocate { how: HOLE, offset, bytes },
            Zeroes::Written => self.write_zero_pages(medium),
        }
    }

    fn write_zero_pages(&mut self, medium: &Medium) -> IoRequest {
        let mut left = self.bytes - self.done;
        self.count = 0;
        while left > 0 && self.count < SEGMENTS_MAX {
            self.segments[self.count] = medium.zeroes_segment(left);
            left -= self.segments[self.count].bytes() as u64;
            self.count += 1;
        }
        self.transfer(&self.segments[..self.count], self.offset + self.done, None)
    }
}

const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
/// Without `KEEP_SIZE`, so that zeros beyond the end of a truncated file extend it again, as a write does.
const ZERO_RANGE: FallocateFlags = FallocateFlags::ZERO_RANGE;
