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

use super::bounce::Bounce;
use super::job::{Job, Transfer};
use super::medium::{Medium, Zeroes};
use super::ring::BOUNCE;
use crate::command::{Command, Failure, Operation};
use crate::region::RegionId;
use crate::span::{Owner, SPANS_MAX, Span, gather, scatter};
use rustix::fs::FallocateFlags;

/// Greatest number of consecutive attempts that may end with EAGAIN, EINTR or less than a block, before the
/// command fails.
const RETRIES_MAX: u16 = 1000;

/// A command in flight, or an unused slot.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) token: u64,
    pub(super) owner: Option<Owner>,
    operation: Operation,
    offset: u64,
    bytes: u64,
    /// Bytes of `bytes` that have been transferred.
    done: u64,
    region: Option<RegionId>,
    /// Segments of memory: the command's own, or the device's zero pages for a write of zeros. The first
    /// `first` of `count` segments are done.
    spans: [Span; SPANS_MAX],
    first: usize,
    count: usize,
    /// True if the medium does not accept the command's memory, so that its data passes through a bounce
    /// piece.
    bounces: bool,
    bounce: Option<u16>,
    /// Segment that the request in flight uses, if the request does not use `spans`.
    piece: Span,
    /// True if a compare-and-write has read its block and is to write.
    compared: bool,
    /// Method of writing zeros in the request in flight. `Medium::zeroes` may change meanwhile, when a
    /// request of another slot finds a method unsupported.
    zeroes: Zeroes,
    /// True if the command needs no further request.
    complete: bool,
    retries: u16,
}

/// Next step of a command.
#[derive(Debug)]
pub(super) enum Next {
    /// Start this request.
    Job(Job),
    /// Wait for a free bounce piece.
    Wait,
    /// Complete the command with this result.
    Done(Result<(), Failure>),
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
            spans: [Span::EMPTY; SPANS_MAX],
            first: 0,
            count: 0,
            bounces: false,
            bounce: None,
            piece: Span::EMPTY,
            compared: false,
            zeroes: Zeroes::Written,
            complete: false,
            retries: 0,
        }
    }

    /// Sets up the slot for a checked command that affects `bytes` bytes of the device.
    pub(super) fn fill(&mut self, command: Command<'_>, bytes: u64, medium: &Medium) {
        let Command { token, operation, offset, length: _, spans, region, owner } = command;
        (self.token, self.owner, self.operation) = (token, owner, operation);
        (self.offset, self.bytes, self.done, self.region) = (offset, bytes, 0, region);
        (self.first, self.count) = (0, 0);
        // Empty spans are dropped, since they would only cost segments.
        for span in spans.iter().filter(|span| span.bytes() > 0) {
            self.spans[self.count] = *span;
            self.count += 1;
        }
        self.bounces = !medium.takes(&self.spans[..self.count]);
        (self.compared, self.retries) = (false, 0);
        self.complete = bytes == 0 && operation != Operation::Flush;
        debug_assert!(self.bounce.is_none());
    }

    /// Takes the slot's bounce piece, so that the caller can free it.
    pub(super) fn release(&mut self) -> Option<u16> {
        self.bounce.take()
    }

    /// Returns the next step. `buffer_of` returns the registered buffer that contains a span.
    pub(super) fn next(
        &mut self,
        number: u16,
        medium: &Medium,
        bounce: &mut Bounce,
        buffer_of: impl FnOnce(RegionId, &Span) -> Option<u16>,
    ) -> Next {
        let (offset, bytes) = (self.offset, self.bytes);
        match self.operation {
            _ if self.complete => Next::Done(Ok(())),
            Operation::Flush => Next::Job(Job::Sync),
            Operation::Discard if !medium.discards => Next::Done(Ok(())),
            Operation::Discard if medium.is_block => Next::Job(Job::Discard { offset, bytes }),
            Operation::Discard => Next::Job(Job::Allocate { how: HOLE, offset, bytes }),
            Operation::WriteZeroes => Next::Job(self.write_zeroes(medium)),
            Operation::CompareAndWrite => self.compare_and_write(number, medium, bounce),
            Operation::Read | Operation::Write | Operation::WriteDurable if self.bounces => {
                self.go_by_bounce(number, bounce)
            }
            Operation::Read | Operation::Write | Operation::WriteDurable => {
                let spans = &self.spans[self.first..self.count];
                let buffer = match (spans, self.region) {
                    ([span], Some(region)) => buffer_of(region, span),
                    _ => None,
                };
                Next::Job(self.transfer(spans, self.offset + self.done, buffer))
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
        bounce: &Bounce,
    ) -> Result<(), Failure> {
        match u64::try_from(result) {
            Ok(bytes) => self.succeeded(bytes, medium, bounce),
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => self.retry(-result),
            Err(_) => self.failed(-result, medium),
        }
    }

    fn succeeded(&mut self, bytes: u64, medium: &Medium, bounce: &Bounce) -> Result<(), Failure> {
        match self.operation {
            Operation::Flush | Operation::Discard => self.complete = true,
            Operation::WriteZeroes if self.zeroes != Zeroes::Written => self.complete = true,
            // End of file: the file has been truncated.
            Operation::Read if bytes == 0 => return Err(Failure::Io(libc::EIO)),
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
    fn moved(&mut self, bytes: usize, bounce: &Bounce) -> Result<(), Failure> {
        match self.operation {
            Operation::CompareAndWrite if !self.compared => {
                self.compared = true;
                return self.compare(bounce);
            }
            Operation::Read if self.bounces => {
                let from = self.piece.base().cast_const();
                // SAFETY: the request has read `bytes` bytes into the piece, which are no more than the spans
                // have left.
                unsafe { scatter(&self.spans[..self.count], self.done as usize, from, bytes) };
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

    fn failed(&mut self, error: i32, medium: &mut Medium) -> Result<(), Failure> {
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
            _ => return Err(Failure::Io(error)),
        }
        Ok(())
    }

    fn retry(&mut self, error: i32) -> Result<(), Failure> {
        self.retries += 1;
        if self.retries > RETRIES_MAX { Err(Failure::Io(error)) } else { Ok(()) }
    }

    /// Removes the next `bytes` bytes from the segments that are left.
    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let span = &mut self.spans[self.first];
            if bytes < span.bytes() {
                *span = span.without(bytes);
                return;
            }
            bytes -= span.bytes();
            self.first += 1;
        }
    }

    fn transfer(&self, spans: &[Span], offset: u64, buffer: Option<u16>) -> Job {
        let transfer = Transfer { spans: spans.as_ptr(), count: spans.len() as u32, offset, buffer };
        match self.operation {
            Operation::Read => Job::Read(transfer),
            Operation::CompareAndWrite if !self.compared => Job::Read(transfer),
            operation => Job::Write { transfer, durable: operation == Operation::WriteDurable },
        }
    }

    /// Returns the slot's bounce piece, taking one if necessary. `None` if the slot has to wait for one.
    fn bounce_piece(&mut self, number: u16, bounce: &mut Bounce) -> Option<u16> {
        if self.bounce.is_none() {
            self.bounce = bounce.take(number);
        }
        self.bounce
    }

    fn go_by_bounce(&mut self, number: u16, bounce: &mut Bounce) -> Next {
        let Some(piece) = self.bounce_piece(number, bounce) else { return Next::Wait };
        let bytes = (self.bytes - self.done).min(bounce.piece_bytes() as u64) as usize;
        self.piece = bounce.span(piece, 0, bytes);
        if self.operation != Operation::Read {
            let spans = &self.spans[..self.count];
            // SAFETY: the spans have `bytes` bytes left, and only this slot uses the piece.
            unsafe { gather(spans, self.done as usize, self.piece.base(), bytes) };
        }
        Next::Job(self.transfer(std::slice::from_ref(&self.piece), self.offset + self.done, Some(BOUNCE)))
    }

    fn compare_and_write(&mut self, number: u16, medium: &Medium, bounce: &mut Bounce) -> Next {
        let Some(piece) = self.bounce_piece(number, bounce) else { return Next::Wait };
        let block = medium.geometry.block as usize;
        // The piece holds three blocks: the expected contents, the new contents, and the contents read.
        if self.compared {
            self.piece = bounce.span(piece, block, block);
        } else {
            // SAFETY: `check` found two blocks in the spans, and only this slot uses the piece.
            unsafe { gather(&self.spans[..self.count], 0, bounce.at(piece), 2 * block) };
            self.piece = bounce.span(piece, 2 * block, block);
        }
        Next::Job(self.transfer(std::slice::from_ref(&self.piece), self.offset, Some(BOUNCE)))
    }

    fn compare(&self, bounce: &Bounce) -> Result<(), Failure> {
        let Some(piece) = self.bounce else { return Err(Failure::Io(libc::EIO)) };
        let block = self.piece.bytes();
        // SAFETY: only this slot uses the piece, and no request on it is in flight, so nobody writes to it.
        let (expected, there) = unsafe {
            let base = bounce.at(piece).cast_const();
            let there = std::slice::from_raw_parts(base.add(2 * block), block);
            (std::slice::from_raw_parts(base, block), there)
        };
        if expected == there { Ok(()) } else { Err(Failure::Mismatch) }
    }

    fn write_zeroes(&mut self, medium: &Medium) -> Job {
        let (offset, bytes) = (self.offset, self.bytes);
        self.zeroes = medium.zeroes;
        match self.zeroes {
            Zeroes::Ioctl => Job::ZeroOut { offset, bytes },
            Zeroes::Range => Job::Allocate { how: ZERO_RANGE, offset, bytes },
            Zeroes::Hole => Job::Allocate { how: HOLE, offset, bytes },
            Zeroes::Written => self.write_zero_pages(medium),
        }
    }

    fn write_zero_pages(&mut self, medium: &Medium) -> Job {
        let mut left = self.bytes - self.done;
        self.count = 0;
        while left > 0 && self.count < SPANS_MAX {
            self.spans[self.count] = medium.zeroes_span(left);
            left -= self.spans[self.count].bytes() as u64;
            self.count += 1;
        }
        self.transfer(&self.spans[..self.count], self.offset + self.done, None)
    }
}

const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
/// Without `KEEP_SIZE`, so that zeros beyond the end of a truncated file extend it again, as a write does.
const ZERO_RANGE: FallocateFlags = FallocateFlags::ZERO_RANGE;
