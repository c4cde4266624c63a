//! What a device is asked to do, and what became of it.
//!
//! Invariant: what [`Command::check`] lets through is within the device and in whole blocks, whatever the numbers are
//! that came in. Called by whoever submits, and by every device first of all.

use crate::device::{Access, Geometry};
use crate::region::RegionId;
use crate::span::{Owner, SPANS_MAX, Span};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The device's bytes go to memory.
    Read,
    /// Bytes of memory go to the device, which may keep them in a volatile cache for now.
    Write,
    /// As `Write`, and when it is done the bytes are durable (FUA).
    WriteDurable,
    /// When it is done, everything is durable that was done before it was submitted.
    Flush,
    /// The contents are not needed any more.
    Discard,
    /// The contents become zeros.
    WriteZeroes,
    /// One block is written if it has the contents that are expected.
    CompareAndWrite,
}

impl Operation {
    /// Whether the device is another one afterwards.
    #[inline]
    pub fn changes(self) -> bool {
        !matches!(self, Operation::Read | Operation::Flush)
    }

    /// Whether data goes along.
    #[inline]
    pub fn moves_data(self) -> bool {
        !matches!(self, Operation::Flush | Operation::Discard | Operation::WriteZeroes)
    }

    /// Whether something of what is there can be learned from it.
    #[inline]
    pub fn tells(self) -> bool {
        matches!(self, Operation::Read | Operation::CompareAndWrite)
    }
}

/// A command, as long as it is not submitted.
#[derive(Debug)]
#[must_use = "a command does nothing before it is submitted"]
pub struct Command<'a> {
    pub(crate) token: u64,
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    /// Of the device. Where data goes along, what the spans have is what counts.
    pub(crate) length: u64,
    pub(crate) spans: &'a [Span],
    pub(crate) region: Option<RegionId>,
    pub(crate) owner: Option<Owner>,
}

impl<'a> Command<'a> {
    /// Any of those below. Where no data goes along `length` says how much of the device it is about, else what `spans`
    /// have.
    #[inline]
    pub fn new(token: u64, operation: Operation, offset: u64, length: u64, spans: &'a [Span]) -> Command<'a> {
        Command { token, operation, offset, length, spans, region: None, owner: None }
    }

    /// Reads from `offset` on as many bytes as `spans` have.
    pub fn read(token: u64, offset: u64, spans: &'a [Span]) -> Command<'a> {
        Command::new(token, Operation::Read, offset, 0, spans)
    }

    /// Writes the bytes of `spans` from `offset` on.
    pub fn write(token: u64, offset: u64, spans: &'a [Span]) -> Command<'a> {
        Command::new(token, Operation::Write, offset, 0, spans)
    }

    /// As [`Command::write`], and they are durable when it is done (FUA).
    pub fn write_durable(token: u64, offset: u64, spans: &'a [Span]) -> Command<'a> {
        Command::new(token, Operation::WriteDurable, offset, 0, spans)
    }

    /// Makes everything durable that was done before this is submitted.
    pub fn flush(token: u64) -> Command<'static> {
        Command::new(token, Operation::Flush, 0, 0, &[])
    }

    /// Gives up the contents of `length` bytes from `offset` on: advice, which a device may ignore.
    pub fn discard(token: u64, offset: u64, length: u64) -> Command<'static> {
        Command::new(token, Operation::Discard, offset, length, &[])
    }

    /// Makes `length` bytes from `offset` on zeros.
    pub fn write_zeroes(token: u64, offset: u64, length: u64) -> Command<'static> {
        Command::new(token, Operation::WriteZeroes, offset, length, &[])
    }

    /// Writes the block at `offset` if it has the contents that are expected. `spans` have two blocks: what is
    /// expected, then what is written.
    pub fn compare_and_write(token: u64, offset: u64, spans: &'a [Span]) -> Command<'a> {
        Command::new(token, Operation::CompareAndWrite, offset, 0, spans)
    }

    /// What keeps the spans' memory mapped. It comes back with [`Done`].
    pub fn owner(mut self, owner: Owner) -> Command<'a> {
        self.owner = Some(owner);
        self
    }

    /// Which registered region the spans are of. A span that is not of it, or a region that is not registered any more,
    /// costs the advantage and nothing else.
    pub fn region(mut self, region: Option<RegionId>) -> Command<'a> {
        self.region = region;
        self
    }

    /// Bytes of the device that it is about, if it can be carried out.
    #[inline]
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<u64, Failure> {
        if self.operation == Operation::Flush {
            return Ok(0);
        }
        match geometry.access {
            Access::Read if self.operation.changes() => return Err(Failure::ReadOnly),
            Access::Write if self.operation.tells() => return Err(Failure::WriteOnly),
            _ => {}
        }
        if self.spans.len() > SPANS_MAX {
            return Err(Failure::TooManySpans);
        }
        let block = u64::from(geometry.block);
        let bytes = match self.operation {
            Operation::Discard | Operation::WriteZeroes => self.length,
            Operation::CompareAndWrite if self.memory() == Some(2 * block) => block,
            Operation::CompareAndWrite => return Err(Failure::Unaligned),
            _ => self.memory().ok_or(Failure::TooLong)?,
        };
        if !self.offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(Failure::Unaligned);
        }
        if self.offset > geometry.bytes || bytes > geometry.bytes - self.offset {
            return Err(Failure::OutOfRange);
        }
        if bytes > geometry.transfer_max {
            return Err(Failure::TooLong);
        }
        Ok(bytes)
    }

    /// Bytes that the spans have.
    #[inline]
    fn memory(&self) -> Option<u64> {
        match self.spans {
            [span] => Some(span.bytes() as u64),
            spans => spans.iter().try_fold(0u64, |sum, span| sum.checked_add(span.bytes() as u64)),
        }
    }

    /// As it is given back.
    #[inline]
    pub(crate) fn done(self, result: Result<(), Failure>) -> Done {
        Done { token: self.token, owner: self.owner, result }
    }
}

/// A command that is done.
#[derive(Debug)]
pub struct Done {
    /// The submitter's name for it.
    pub token: u64,
    /// What was given to keep its memory mapped.
    pub owner: Option<Owner>,
    /// What became of it.
    pub result: Result<(), Failure>,
}

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It goes past the end of the device. Nothing was done.
    #[error("the command goes past the end of the device")]
    OutOfRange,
    /// Offset or length are no whole blocks, or there are not two blocks to compare and write. Nothing was done.
    #[error("the command is not of whole blocks of the device")]
    Unaligned,
    /// It is longer than the device's `transfer_max`. Nothing was done.
    #[error("the command is longer than the device takes in one; submit it in parts")]
    TooLong,
    /// It has more spans than [`SPANS_MAX`]. Nothing was done.
    #[error("the command has more than {SPANS_MAX} spans; submit it in parts")]
    TooManySpans,
    /// The device may only be read. Nothing was done.
    #[error("the device may only be read")]
    ReadOnly,
    /// The device may only be written, and this would tell something of what is there. Nothing was done.
    #[error("the device may only be written")]
    WriteOnly,
    /// The block has other contents than were expected. Nothing was done.
    #[error("the block has other contents than were expected")]
    Mismatch,
    /// What the medium or the kernel said, as a number of errno(3). Of a write any blocks may have been written, each
    /// of them whole.
    #[error("the device failed: {}", std::io::Error::from_raw_os_error(*.0))]
    Io(i32),
}

/// As many commands are under way as the device is deep. The command comes back as it was.
#[derive(Debug)]
pub struct Full<'a>(pub Command<'a>);

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry =
        Geometry { bytes: 8 << 10, block: 512, optimal: 4096, transfer_max: 4096, access: Access::ReadWrite };

    fn span(bytes: usize) -> Span {
        // SAFETY: nobody reads or writes there: commands are only checked.
        unsafe { Span::new(std::ptr::dangling_mut(), bytes) }
    }

    #[test]
    fn what_is_outside_or_uneven_is_refused() {
        for (offset, bytes, result) in [
            (0, 512, Ok(512)),
            (8192 - 512, 512, Ok(512)),
            (8192, 0, Ok(0)),
            (8192 - 512, 1024, Err(Failure::OutOfRange)),
            (8192, 512, Err(Failure::OutOfRange)),
            (8192 + 512, 0, Err(Failure::OutOfRange)),
            (u64::MAX - 511, 512, Err(Failure::OutOfRange)),
            (u64::MAX, 512, Err(Failure::Unaligned)),
            (256, 512, Err(Failure::Unaligned)),
            (0, 100, Err(Failure::Unaligned)),
            (0, 8192, Err(Failure::TooLong)),
        ] {
            assert_eq!(Command::read(0, offset, &[span(bytes)]).check(&GEOMETRY), result, "{offset} {bytes}");
            assert_eq!(
                Command::write_zeroes(0, offset, bytes as u64).check(&GEOMETRY),
                result,
                "{offset} {bytes}"
            );
        }
    }

    #[test]
    fn a_sum_that_overflows_is_refused() {
        let spans = [span(usize::MAX), span(512)];
        assert_eq!(Command::write(0, 0, &spans).check(&GEOMETRY), Err(Failure::TooLong));
        assert_eq!(Command::discard(0, 512, u64::MAX - 511).check(&GEOMETRY), Err(Failure::OutOfRange));
    }

    #[test]
    fn who_may_only_read_or_write_does_nothing_else() {
        let spans = [span(1024)];
        let commands = [
            Command::read(0, 0, &spans),
            Command::write(0, 0, &spans),
            Command::write_durable(0, 0, &spans),
            Command::discard(0, 0, 512),
            Command::write_zeroes(0, 0, 512),
            Command::compare_and_write(0, 0, &spans),
            Command::flush(0),
        ];
        for (access, refused, allowed) in [
            (Access::Read, Failure::ReadOnly, [0, 6].as_slice()),
            (Access::Write, Failure::WriteOnly, &[1, 2, 3, 4, 6]),
        ] {
            let geometry = Geometry { access, ..GEOMETRY };
            for (number, command) in commands.iter().enumerate() {
                let checked = command.check(&geometry);
                let expected = if allowed.contains(&number) { None } else { Some(refused) };
                assert_eq!(checked.err(), expected, "{access:?}: {command:?}");
            }
        }
    }

    #[test]
    fn spans_are_counted() {
        let check = |count| Command::read(0, 0, &[span(0); SPANS_MAX + 1][..count]).check(&GEOMETRY);
        assert_eq!(check(SPANS_MAX), Ok(0));
        assert_eq!(check(SPANS_MAX + 1), Err(Failure::TooManySpans));
    }

    #[test]
    fn two_blocks_are_compared_and_written() {
        let check = |bytes| Command::compare_and_write(0, 512, &[span(bytes)]).check(&GEOMETRY);
        assert_eq!(check(1024), Ok(512));
        assert_eq!(check(512), Err(Failure::Unaligned));
        assert_eq!(check(2048), Err(Failure::Unaligned));
    }
}
