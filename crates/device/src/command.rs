//! Commands that a device carries out, and their completions.
//!
//! Invariant: a command that passes [`Command::check`] is in whole blocks and within the device, whatever its
//! offset and lengths were. The user of a device makes commands; every device calls `check` first of all.

use crate::device::Geometry;
use crate::region::RegionId;
use crate::segment::{MemoryOwner, Segment};
use bywash_protocol::Access;

/// Operation that a command carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Copies bytes of the device to memory.
    Read,
    /// Copies bytes of memory to the device, which may keep them in a volatile cache.
    Write,
    /// Like `Write`, but the bytes are durable when the command completes (FUA).
    WriteDurable,
    /// Makes durable every command that had completed before the flush was submitted.
    Flush,
    /// Tells the device that the range's contents are no longer needed (TRIM, deallocate).
    Discard,
    /// Sets the range to zeros.
    WriteZeroes,
    /// Writes one block if the block has the expected contents.
    CompareAndWrite,
}

impl Operation {
    /// Returns true if the operation changes contents of the device.
    #[inline]
    pub fn is_write(self) -> bool {
        !matches!(self, Operation::Read | Operation::Flush)
    }

    /// Returns true if the operation moves data between memory and the device.
    #[inline]
    pub fn moves_data(self) -> bool {
        !matches!(self, Operation::Flush | Operation::Discard | Operation::WriteZeroes)
    }

    /// Returns true if the operation's result reveals contents of the device.
    #[inline]
    pub fn is_read(self) -> bool {
        matches!(self, Operation::Read | Operation::CompareAndWrite)
    }
}

/// Command that has not been submitted yet.
#[derive(Debug)]
#[must_use = "a command does nothing before it is submitted"]
pub struct Command<'a> {
    pub(crate) token: u64,
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    /// Bytes of the device, for operations that move no data; otherwise ignored, since the segments' lengths
    /// count.
    pub(crate) length: u64,
    pub(crate) segments: &'a [Segment],
    pub(crate) region: Option<RegionId>,
    pub(crate) owner: Option<MemoryOwner>,
}

impl<'a> Command<'a> {
    /// Makes a command of any operation. The command's range has `length` bytes if the operation moves no
    /// data, otherwise as many bytes as `segments` have together.
    #[inline]
    pub fn new(
        token: u64,
        operation: Operation,
        offset: u64,
        length: u64,
        segments: &'a [Segment],
    ) -> Command<'a> {
        Command { token, operation, offset, length, segments, region: None, owner: None }
    }

    /// Makes a command that reads as many bytes as `segments` have, beginning at `offset`.
    pub fn read(token: u64, offset: u64, segments: &'a [Segment]) -> Command<'a> {
        Command::new(token, Operation::Read, offset, 0, segments)
    }

    /// Makes a command that writes the bytes of `segments`, beginning at `offset`.
    pub fn write(token: u64, offset: u64, segments: &'a [Segment]) -> Command<'a> {
        Command::new(token, Operation::Write, offset, 0, segments)
    }

    /// Like [`Command::write`], but the bytes are durable when the command completes (FUA).
    pub fn write_durable(token: u64, offset: u64, segments: &'a [Segment]) -> Command<'a> {
        Command::new(token, Operation::WriteDurable, offset, 0, segments)
    }

    /// Makes a command that makes durable every command that has completed before the flush is submitted.
    pub fn flush(token: u64) -> Command<'static> {
        Command::new(token, Operation::Flush, 0, 0, &[])
    }

    /// Makes a command that discards the contents of `length` bytes from `offset` on; a device may ignore it.
    pub fn discard(token: u64, offset: u64, length: u64) -> Command<'static> {
        Command::new(token, Operation::Discard, offset, length, &[])
    }

    /// Makes a command that sets `length` bytes from `offset` on to zeros.
    pub fn write_zeroes(token: u64, offset: u64, length: u64) -> Command<'static> {
        Command::new(token, Operation::WriteZeroes, offset, length, &[])
    }

    /// Makes a command that writes the block at `offset` if it has the expected contents. `segments` have two
    /// blocks together: first the expected contents, then the new ones.
    pub fn compare_and_write(token: u64, offset: u64, segments: &'a [Segment]) -> Command<'a> {
        Command::new(token, Operation::CompareAndWrite, offset, 0, segments)
    }

    /// Sets the owner that keeps the segments' memory mapped. [`Completion`] returns the owner to the
    /// submitter.
    pub fn owner(mut self, owner: MemoryOwner) -> Command<'a> {
        self.owner = Some(owner);
        self
    }

    /// Names the registered region that contains the segments' memory. If a segment is outside the region, or
    /// the region is no longer registered, the command loses the speed of registered memory but works all the
    /// same.
    pub fn region(mut self, region: Option<RegionId>) -> Command<'a> {
        self.region = region;
        self
    }

    /// Returns the operation that the command carries out.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the offset of the command's range in the device, in bytes.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the memory that the command reads into or writes from.
    #[inline]
    pub fn segments(&self) -> &'a [Segment] {
        self.segments
    }

    /// Returns the registered region that the submitter named with [`Command::region`].
    #[inline]
    pub fn registered_region(&self) -> Option<RegionId> {
        self.region
    }

    /// Returns the number of bytes of the device that the command affects. Every device calls this first of all.
    ///
    /// # Errors
    /// The reason why a device of this geometry cannot carry out the command, with which it then completes.
    #[inline]
    pub fn check(&self, geometry: &Geometry) -> Result<u64, CommandError> {
        if self.operation == Operation::Flush {
            return Ok(0);
        }
        match geometry.access {
            Access::Read if self.operation.is_write() => return Err(CommandError::ReadOnly),
            Access::Write if self.operation.is_read() => return Err(CommandError::WriteOnly),
            _ => {}
        }
        if self.segments.len() > geometry.segments_max {
            return Err(CommandError::TooManySegments);
        }
        let block = u64::from(geometry.block);
        let bytes = match self.operation {
            Operation::Discard | Operation::WriteZeroes => self.length,
            Operation::CompareAndWrite if self.memory() == Some(2 * block) => block,
            Operation::CompareAndWrite => return Err(CommandError::Unaligned),
            _ => self.memory().ok_or(CommandError::TooLong)?,
        };
        if !self.offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(CommandError::Unaligned);
        }
        if self.offset > geometry.bytes || bytes > geometry.bytes - self.offset {
            return Err(CommandError::OutOfRange);
        }
        let longest = if self.operation.moves_data() { geometry.transfer_max } else { geometry.range_max };
        if bytes > longest {
            return Err(CommandError::TooLong);
        }
        Ok(bytes)
    }

    /// Returns the number of bytes of all segments together, or `None` if the sum overflows.
    #[inline]
    fn memory(&self) -> Option<u64> {
        match self.segments {
            [segment] => Some(segment.bytes() as u64),
            segments => {
                segments.iter().try_fold(0u64, |sum, segment| sum.checked_add(segment.bytes() as u64))
            }
        }
    }

    /// Turns the command into its completion. A device keeps the completion from the submission on, since it has
    /// the owner of the memory.
    #[inline]
    pub fn done(self, result: Result<(), CommandError>) -> Completion {
        Completion { token: self.token, owner: self.owner, result }
    }
}

/// Completion of a command.
#[derive(Debug)]
pub struct Completion {
    /// Token that the submitter chose to identify the command.
    pub token: u64,
    /// Owner that kept the command's memory mapped, as given to [`Command::owner`].
    pub owner: Option<MemoryOwner>,
    /// `Ok` if the command was carried out, otherwise the reason for its failure.
    pub result: Result<(), CommandError>,
}

/// Reason why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The command's range extends beyond the end of the device. Nothing was changed.
    #[error("the command goes past the end of the device")]
    OutOfRange,
    /// Offset or length is not a multiple of the block, or a compare-and-write does not have exactly two
    /// blocks of memory. Nothing was changed.
    #[error("the command is not of whole blocks of the device")]
    Unaligned,
    /// The command is longer than [`Geometry::transfer_max`] or [`Geometry::range_max`]. Nothing was changed.
    #[error("the command is longer than the device takes in one; submit it in parts")]
    TooLong,
    /// The command has more segments than [`Geometry::segments_max`]. Nothing was changed.
    #[error("the command has more segments than the device takes in one; submit it in parts")]
    TooManySegments,
    /// The command would change a device that may only be read. Nothing was changed.
    #[error("the device may only be read")]
    ReadOnly,
    /// The command would reveal contents of a device that may only be written. Nothing was changed.
    #[error("the device may only be written")]
    WriteOnly,
    /// A compare-and-write found other contents than the expected ones. Nothing was changed.
    #[error("the block differs from the expected contents")]
    Mismatch,
    /// The medium or the kernel reported an error; the number is an errno(3). If the command was a write, any
    /// of its blocks may have been written, each of them whole.
    #[error("the device failed: {}", std::io::Error::from_raw_os_error(*.0))]
    Io(i32),
}

/// The device already has as many commands in flight as its depth. The rejected command is returned
/// unchanged.
#[derive(Debug)]
pub struct QueueFull<'a>(pub Command<'a>);

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        bytes: 8 << 10,
        block: 512,
        optimal: 4096,
        transfer_max: 4096,
        range_max: 4096,
        segments_max: 4,
        access: Access::ReadWrite,
    };

    fn segment(bytes: usize) -> Segment {
        // SAFETY: nobody reads or writes this memory, since the tests only check commands.
        unsafe { Segment::new(std::ptr::dangling_mut(), bytes) }
    }

    #[test]
    fn what_is_outside_or_uneven_is_refused() {
        for (offset, bytes, result) in [
            (0, 512, Ok(512)),
            (8192 - 512, 512, Ok(512)),
            (8192, 0, Ok(0)),
            (8192 - 512, 1024, Err(CommandError::OutOfRange)),
            (8192, 512, Err(CommandError::OutOfRange)),
            (8192 + 512, 0, Err(CommandError::OutOfRange)),
            (u64::MAX - 511, 512, Err(CommandError::OutOfRange)),
            (u64::MAX, 512, Err(CommandError::Unaligned)),
            (256, 512, Err(CommandError::Unaligned)),
            (0, 100, Err(CommandError::Unaligned)),
            (0, 8192, Err(CommandError::TooLong)),
        ] {
            assert_eq!(
                Command::read(0, offset, &[segment(bytes)]).check(&GEOMETRY),
                result,
                "{offset} {bytes}"
            );
            assert_eq!(
                Command::write_zeroes(0, offset, bytes as u64).check(&GEOMETRY),
                result,
                "{offset} {bytes}"
            );
        }
    }

    #[test]
    fn a_sum_that_overflows_is_refused() {
        let segments = [segment(usize::MAX), segment(512)];
        assert_eq!(Command::write(0, 0, &segments).check(&GEOMETRY), Err(CommandError::TooLong));
        assert_eq!(Command::discard(0, 512, u64::MAX - 511).check(&GEOMETRY), Err(CommandError::OutOfRange));
    }

    #[test]
    fn who_may_only_read_or_write_does_nothing_else() {
        let segments = [segment(1024)];
        let commands = [
            Command::read(0, 0, &segments),
            Command::write(0, 0, &segments),
            Command::write_durable(0, 0, &segments),
            Command::discard(0, 0, 512),
            Command::write_zeroes(0, 0, 512),
            Command::compare_and_write(0, 0, &segments),
            Command::flush(0),
        ];
        for (access, refused, allowed) in [
            (Access::Read, CommandError::ReadOnly, [0, 6].as_slice()),
            (Access::Write, CommandError::WriteOnly, &[1, 2, 3, 4, 6]),
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
    fn segments_are_counted() {
        let check = |count| Command::read(0, 0, &[segment(0); 5][..count]).check(&GEOMETRY);
        assert_eq!(check(4), Ok(0));
        assert_eq!(check(5), Err(CommandError::TooManySegments));
    }

    #[test]
    fn ranges_and_transfers_have_limits_of_their_own() {
        let geometry = Geometry { range_max: 8192, ..GEOMETRY };
        assert_eq!(Command::discard(0, 0, 8192).check(&geometry), Ok(8192));
        assert_eq!(Command::read(0, 0, &[segment(8192)]).check(&geometry), Err(CommandError::TooLong));
        let geometry = Geometry { range_max: 512, ..GEOMETRY };
        assert_eq!(Command::write_zeroes(0, 0, 1024).check(&geometry), Err(CommandError::TooLong));
        assert_eq!(Command::read(0, 0, &[segment(1024)]).check(&geometry), Ok(1024));
    }

    #[test]
    fn two_blocks_are_compared_and_written() {
        let check = |bytes| Command::compare_and_write(0, 512, &[segment(bytes)]).check(&GEOMETRY);
        assert_eq!(check(1024), Ok(512));
        assert_eq!(check(512), Err(CommandError::Unaligned));
        assert_eq!(check(2048), Err(CommandError::Unaligned));
    }
}
