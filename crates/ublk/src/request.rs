//! Requests of the kernel as it describes them, turned into commands of a device.
//!
//! Invariant: the data of what [`Request::parse`] returns is not longer than the memory for it. Whether the range is of the
//! device, the device checks. Called by `queue`.

use crate::layout::{DESCRIPTOR, SECTOR};
use bywash_device::{Command, CommandError, Operation, Segment};
use rustix::io::Errno;

/// A request: an operation on a range of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// Begin of the range, in bytes.
    pub(crate) offset: u64,
    /// Length of the range, in bytes.
    pub(crate) length: u64,
}

/// Flag of a write that is to be durable.
const FUA: u32 = 1 << 13;

impl Request {
    /// Reads a descriptor (`struct ublksrv_io_desc`) of a request with at most `data_max` bytes of data.
    ///
    /// # Errors
    /// The error for the kernel: EOPNOTSUPP for an operation that was not offered, EINVAL for a range or data beyond all
    /// limits.
    pub(crate) fn parse(descriptor: &[u8; DESCRIPTOR], data_max: u64) -> Result<Request, Errno> {
        let (words, _) = descriptor.as_chunks::<4>();
        let (flags, sectors) = (u32::from_ne_bytes(words[0]), u64::from(u32::from_ne_bytes(words[1])));
        let (numbers, _) = descriptor.as_chunks::<8>();
        let first = u64::from_ne_bytes(numbers[1]);
        let operation = match flags & 0xff {
            0 => Operation::Read,
            1 if flags & FUA != 0 => Operation::WriteDurable,
            1 => Operation::Write,
            // The sectors of a flush say nothing.
            2 => return Ok(Request { operation: Operation::Flush, offset: 0, length: 0 }),
            3 => Operation::Discard,
            // What stays allocated, the device decides: the flag NOUNMAP is a wish.
            5 => Operation::WriteZeroes,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let (offset, length) = (first.checked_mul(SECTOR).ok_or(Errno::INVAL)?, sectors * SECTOR);
        if operation.moves_data() && length > data_max {
            return Err(Errno::INVAL);
        }
        Ok(Request { operation, offset, length })
    }

    /// Makes the command that carries the request out. `memory` is the memory of its data, if it has any.
    pub(crate) fn command<'a>(&self, token: u64, memory: &'a [Segment; 1]) -> Command<'a> {
        let segments: &[Segment] = if self.operation.moves_data() { memory } else { &[] };
        Command::new(token, self.operation, self.offset, self.length, segments)
    }

    /// Returns the result of the request for the kernel: the number of bytes, or a negative error number.
    pub(crate) fn result(&self, outcome: Result<(), CommandError>) -> i32 {
        match outcome {
            // No request that moves data is longer than its memory, and of others the kernel only looks at the sign.
            Ok(()) => i32::try_from(self.length).unwrap_or(i32::MAX),
            Err(error) => -error_number(error),
        }
    }
}

fn error_number(error: CommandError) -> i32 {
    match error {
        CommandError::Io(number) if number > 0 => number,
        CommandError::OutOfRange => libc::ENOSPC,
        CommandError::ReadOnly | CommandError::WriteOnly => libc::EPERM,
        CommandError::Unaligned | CommandError::TooLong | CommandError::TooManySegments => libc::EINVAL,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA_MAX: u64 = 64 << 10;

    fn parsed(flags: u32, sectors: u32, first: u64) -> Result<Request, Errno> {
        let mut descriptor = [0; DESCRIPTOR];
        descriptor[..4].copy_from_slice(&flags.to_ne_bytes());
        descriptor[4..8].copy_from_slice(&sectors.to_ne_bytes());
        descriptor[8..16].copy_from_slice(&first.to_ne_bytes());
        Request::parse(&descriptor, DATA_MAX)
    }

    #[test]
    fn requests_are_what_the_kernel_means() {
        let request = |operation, offset, length| Ok(Request { operation, offset, length });
        assert_eq!(parsed(0, 8, 3), request(Operation::Read, 1536, 4096));
        assert_eq!(parsed(1, 128, 0), request(Operation::Write, 0, DATA_MAX));
        // With flags that say nothing here: metadata, and where not to repeat.
        assert_eq!(parsed(1 | FUA | 1 << 11 | 1 << 8, 1, 1), request(Operation::WriteDurable, 512, 512));
        assert_eq!(parsed(2, 77, u64::MAX), request(Operation::Flush, 0, 0));
        assert_eq!(parsed(3, 1 << 20, 8), request(Operation::Discard, 4096, 512 << 20));
        assert_eq!(parsed(5 | 1 << 15, u32::MAX, 0), request(Operation::WriteZeroes, 0, 0xffff_ffff * 512));
    }

    #[test]
    fn what_was_not_offered_is_refused() {
        for operation in [4, 6, 15, 0xff] {
            assert_eq!(parsed(operation, 1, 0), Err(Errno::OPNOTSUPP));
        }
        assert_eq!(parsed(0, 129, 0), Err(Errno::INVAL));
        assert_eq!(parsed(1, 1, u64::MAX / 256), Err(Errno::INVAL));
    }

    #[test]
    fn results_are_lengths_and_negative_errors() {
        let request = parsed(0, 8, 0).unwrap();
        assert_eq!(request.result(Ok(())), 4096);
        assert_eq!(request.result(Err(CommandError::Io(libc::ENODATA))), -libc::ENODATA);
        assert_eq!(request.result(Err(CommandError::OutOfRange)), -libc::ENOSPC);
        assert_eq!(request.result(Err(CommandError::Io(0))), -libc::EIO);
        assert_eq!(parsed(5, u32::MAX, 0).unwrap().result(Ok(())), i32::MAX);
    }
}
