//! Byte layout of requests and completions between a client and a device server: [version 1](crate::VERSION).
//!
//! A channel's request has an opcode, flags, six arguments and a buffer (`bywash_channel::layout`). In this
//! protocol they mean:
//!
//! ```text
//!     opcode            flags   arguments                  buffer
//!     1 read                    grant, offset, length      takes the bytes
//!     2 write           FUA     grant, offset, length      has the bytes
//!     3 flush                   grant                      -
//!     4 discard                 grant, offset, length      -
//!     5 write zeroes    FUA     grant, offset, length      -
//!     6 compare, write  FUA     grant, offset, length      what must be there, then what is written: length each
//!     7 read many               count                      count pieces, then room for their bytes, one behind the other
//!     8 write many      FUA     count                      count pieces, then their bytes, one behind the other
//!
//!     a piece, 24 bytes:  grant u64 | offset u64 | length u64      little-endian
//! ```
//!
//! *offset* and *length* are in bytes within the grant, and multiples of the device's logical block.
//! Arguments that the table does not name are 0. A request with several pieces is one request: the server
//! checks all pieces before it begins any of them, and sends one status. If the server refuses a piece, the
//! completion's value is the index of this piece; otherwise the value is a number of bytes.
//!
//! *Order.* Devices may carry out requests in flight in any order, and may interleave overlapping requests
//! block by block. A client that needs an order waits for the completion of the earlier request.
//! *Durability.* A write is durable after its completion if it had the flag FUA. Any other write is durable
//! after the completion of a flush of its grant that was submitted after the write's completion. A single
//! block is never torn.

use thiserror::Error;

/// Operation that a request asks the server to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Reads bytes of a grant.
    Read = 1,
    /// Writes bytes of a grant.
    Write = 2,
    /// Makes completed writes of a grant durable.
    Flush = 3,
    /// Tells the device that a range's contents are no longer needed (TRIM, deallocate).
    Discard = 4,
    /// Writes zeros to a range of a grant.
    WriteZeroes = 5,
    /// Writes a block if the block's contents equal the expected bytes.
    CompareAndWrite = 6,
    /// Reads ranges of one or more grants.
    ReadRanges = 7,
    /// Writes ranges of one or more grants.
    WriteRanges = 8,
}

impl Opcode {
    /// All opcodes, in the order of their numbers.
    pub const ALL: [Opcode; 8] = [
        Opcode::Read,
        Opcode::Write,
        Opcode::Flush,
        Opcode::Discard,
        Opcode::WriteZeroes,
        Opcode::CompareAndWrite,
        Opcode::ReadRanges,
        Opcode::WriteRanges,
    ];

    /// Returns the opcode with this number, or `None` if this version defines none.
    #[inline]
    pub fn from_number(number: u8) -> Option<Opcode> {
        Some(match number {
            1 => Opcode::Read,
            2 => Opcode::Write,
            3 => Opcode::Flush,
            4 => Opcode::Discard,
            5 => Opcode::WriteZeroes,
            6 => Opcode::CompareAndWrite,
            7 => Opcode::ReadRanges,
            8 => Opcode::WriteRanges,
            _ => return None,
        })
    }

    /// Returns true if the operation changes the volume's contents.
    pub fn writes(self) -> bool {
        !matches!(self, Opcode::Read | Opcode::ReadRanges | Opcode::Flush)
    }

    /// Returns true if a request with this opcode may carry the flag [`FUA`].
    fn takes_fua(self) -> bool {
        matches!(self, Opcode::Write | Opcode::WriteZeroes | Opcode::CompareAndWrite | Opcode::WriteRanges)
    }

    /// Returns true if the request's buffer begins with encoded pieces.
    fn is_many(self) -> bool {
        matches!(self, Opcode::ReadRanges | Opcode::WriteRanges)
    }
}

/// Request flag: the operation is durable when it completes (force unit access).
pub const FUA: u8 = 1;
/// Greatest number of pieces of a request: enough for a transaction's log and its pages.
pub const GRANT_RANGES_MAX: usize = 32;
/// Size of an encoded piece, in bytes.
pub const GRANT_RANGE_BYTES: usize = 24;

/// Completion status of a request: 0, or an error number of Linux (errno(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Status {
    /// The request succeeded.
    Success = 0,
    /// The grant does not allow the operation (EACCES).
    AccessDenied = 13,
    /// The grant does not exist (EBADF).
    NoGrant = 9,
    /// The grant existed and was revoked (ESTALE).
    Revoked = 116,
    /// The range reaches beyond the end of the grant (ENXIO).
    OutOfBounds = 6,
    /// The request is malformed: opcode, flags, alignment or lengths (EINVAL).
    Malformed = 22,
    /// The device failed (EIO).
    Failed = 5,
    /// The device has no space left (ENOSPC).
    NoSpace = 28,
    /// The device did not complete the request before the timeout (ETIMEDOUT).
    TimedOut = 110,
    /// The block's contents differ from the expected bytes of a compare-and-write (EILSEQ).
    Mismatch = 84,
    /// The device does not support the operation (EOPNOTSUPP).
    NotSupported = 95,
    /// The range lies in too many extents of the device (E2BIG). The completion's value is the number of
    /// bytes, counted from the offset, that one request can cover.
    TooFragmented = 7,
}

impl Status {
    /// All statuses.
    pub const ALL: [Status; 12] = [
        Status::Success,
        Status::AccessDenied,
        Status::NoGrant,
        Status::Revoked,
        Status::OutOfBounds,
        Status::Malformed,
        Status::Failed,
        Status::NoSpace,
        Status::TimedOut,
        Status::Mismatch,
        Status::NotSupported,
        Status::TooFragmented,
    ];

    /// Returns the status with this number, or `None` if this version defines none.
    pub fn from_number(number: u16) -> Option<Status> {
        Status::ALL.into_iter().find(|status| *status as u16 == number)
    }
}

/// Range of a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantRange {
    /// Number of the grant.
    pub grant: u64,
    /// Offset within the grant, in bytes.
    pub offset: u64,
    /// Length of the range, in bytes.
    pub length: u64,
}

impl GrantRange {
    /// Encodes the piece as it is stored in a request's buffer: three little-endian words.
    pub fn to_bytes(self) -> [u8; GRANT_RANGE_BYTES] {
        let mut bytes = [0; GRANT_RANGE_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.grant, self.offset, self.length]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a piece from a copy of a request's buffer.
    pub fn from_bytes(bytes: &[u8; GRANT_RANGE_BYTES]) -> GrantRange {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        GrantRange { grant: word(0), offset: word(8), length: word(16) }
    }
}

/// Decoded form of a request's own fields: opcode, flags, arguments and buffer length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedRequest {
    /// Operation to carry out.
    pub opcode: Opcode,
    /// True if the operation must be durable when it completes.
    pub fua: bool,
    /// Range of the operation. For a request of several pieces, `length` is the number of pieces and the
    /// other fields are 0.
    pub piece: GrantRange,
    /// Size of the encoded pieces at the beginning of the buffer, in bytes; 0 for requests of one range.
    pub pieces_bytes: usize,
    /// Number of data bytes in the buffer, behind the encoded pieces if there are any.
    pub data_bytes: u64,
}

/// Reason why a request is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The opcode is not defined in this version.
    #[error("there is no opcode {0}")]
    Opcode(u8),
    /// The opcode does not take one of the flags.
    #[error("{opcode:?} does not take flags {flags:#x}")]
    Flags {
        /// Opcode of the request.
        opcode: Opcode,
        /// All flags of the request.
        flags: u8,
    },
    /// An argument that the opcode does not use is not 0; the number is the argument's index.
    #[error("argument {0} is not used by this operation and must be 0")]
    Argument(usize),
    /// The number of pieces is 0 or greater than [`GRANT_RANGES_MAX`].
    #[error("a request of {0} ranges is out of bounds; give 1 to {GRANT_RANGES_MAX}")]
    Pieces(u64),
    /// The buffer's length differs from the length that the arguments require.
    #[error("the buffer has {has} bytes, and {wants} are needed")]
    Buffer {
        /// Length of the buffer, in bytes.
        has: usize,
        /// Length that the arguments require, in bytes.
        wants: u64,
    },
}

/// Decodes and checks a request's fields. The arguments must be a copy that no other process can change.
///
/// # Errors
/// The [`Malformed`] variant that names the first field that is wrong. This function does not check grants:
/// the server does that later.
// Inlined, so that the result stays in registers.
#[inline]
pub fn decode_request(
    opcode: u8,
    flags: u8,
    arguments: &[u64; 6],
    buffer: usize,
) -> Result<DecodedRequest, Malformed> {
    let opcode = Opcode::from_number(opcode).ok_or(Malformed::Opcode(opcode))?;
    if flags & !FUA != 0 || (flags & FUA != 0 && !opcode.takes_fua()) {
        return Err(Malformed::Flags { opcode, flags });
    }
    let [grant, offset, length, others @ ..] = *arguments;
    let more = match opcode {
        Opcode::Flush | Opcode::ReadRanges | Opcode::WriteRanges => offset | length,
        _ => 0,
    };
    if others.iter().fold(more, |all, argument| all | argument) != 0 {
        return Err(no_meaning(arguments, if more == 0 { 3 } else { 1 }));
    }
    let fua = flags & FUA != 0;
    if opcode.is_many() {
        let count = grant;
        let head = usize::try_from(count).ok().filter(|count| (1..=GRANT_RANGES_MAX).contains(count));
        let head = head.ok_or(Malformed::Pieces(count))? * GRANT_RANGE_BYTES;
        let data = buffer.checked_sub(head).ok_or(Malformed::Buffer { has: buffer, wants: head as u64 })?;
        let piece = GrantRange { length: count, ..GrantRange::default() };
        return Ok(DecodedRequest { opcode, fua, piece, pieces_bytes: head, data_bytes: data as u64 });
    }
    let data = match opcode {
        Opcode::Read | Opcode::Write => Some(length),
        Opcode::CompareAndWrite => length.checked_mul(2),
        _ => Some(0),
    };
    match data.filter(|data| *data == buffer as u64) {
        Some(data) => Ok(DecodedRequest {
            opcode,
            fua,
            piece: GrantRange { grant, offset, length },
            pieces_bytes: 0,
            data_bytes: data,
        }),
        None => Err(Malformed::Buffer { has: buffer, wants: data.unwrap_or(u64::MAX) }),
    }
}

/// Decodes and checks the fields of a request to read or to write one range, as [`decode_request`] does, in fewer steps.
/// Returns the opcode, whether the bytes must be durable, and the range. `None` if the request is another one, or malformed.
#[inline(always)]
pub fn decode_transfer(
    opcode: u8,
    flags: u8,
    arguments: &[u64; 6],
    buffer: usize,
) -> Option<(Opcode, bool, GrantRange)> {
    let opcode = match (opcode, flags) {
        (1, 0) => Opcode::Read,
        (2, 0 | FUA) => Opcode::Write,
        _ => return None,
    };
    let [grant, offset, length, others @ ..] = *arguments;
    let is_right = (others[0] | others[1] | others[2]) == 0 && length == buffer as u64;
    is_right.then_some((opcode, flags == FUA, GrantRange { grant, offset, length }))
}

/// Finds the first argument that is not 0 among those that the opcode does not use (`meaning` and above).
#[cold]
fn no_meaning(arguments: &[u64; 6], meaning: usize) -> Malformed {
    let number = (meaning..arguments.len()).find(|number| arguments[*number] != 0);
    Malformed::Argument(number.unwrap_or(arguments.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_and_bytes_stay_what_they_are() {
        assert_eq!(Opcode::ALL.map(|opcode| opcode as u8), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Status::ALL.map(|status| status as u16), [0, 13, 9, 116, 6, 22, 5, 28, 110, 84, 95, 7]);
        for number in 0..=u8::MAX {
            let known = Opcode::ALL.into_iter().find(|opcode| *opcode as u8 == number);
            assert_eq!(Opcode::from_number(number), known);
        }
        let piece = GrantRange { grant: 0x0102_0304_0506_0708, offset: 4096, length: u64::MAX };
        let mut golden = [0u8; 24];
        golden[..8].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        golden[9] = 0x10;
        golden[16..].copy_from_slice(&[0xff; 8]);
        assert_eq!((piece.to_bytes(), GrantRange::from_bytes(&golden)), (golden, piece));
        for number in 0..=u16::MAX {
            assert_eq!(
                Status::from_number(number).is_some(),
                Status::ALL.iter().any(|one| *one as u16 == number)
            );
        }
    }

    #[test]
    fn requests_say_what_they_mean() {
        let read = decode_request(1, 0, &[7, 512, 4096, 0, 0, 0], 4096).unwrap();
        assert_eq!((read.opcode, read.fua, read.data_bytes), (Opcode::Read, false, 4096));
        assert_eq!(read.piece, GrantRange { grant: 7, offset: 512, length: 4096 });
        let many = decode_request(8, FUA, &[2, 0, 0, 0, 0, 0], 48 + 8192).unwrap();
        assert_eq!((many.fua, many.pieces_bytes, many.data_bytes, many.piece.length), (true, 48, 8192, 2));
        assert!(Opcode::Discard.writes() && !Opcode::Flush.writes());
    }

    #[test]
    fn what_is_malformed_is_named() {
        let none = [0; 6];
        for (opcode, flags, arguments, buffer, wanted) in [
            (0, 0, none, 0, Malformed::Opcode(0)),
            (9, 0, none, 0, Malformed::Opcode(9)),
            (1, FUA, none, 0, Malformed::Flags { opcode: Opcode::Read, flags: FUA }),
            (2, 2, none, 0, Malformed::Flags { opcode: Opcode::Write, flags: 2 }),
            (3, 0, [1, 1, 0, 0, 0, 0], 0, Malformed::Argument(1)),
            (2, 0, [1, 0, 8, 0, 0, 5], 8, Malformed::Argument(5)),
            (7, 0, none, 0, Malformed::Pieces(0)),
            (8, 0, [33, 0, 0, 0, 0, 0], 4096, Malformed::Pieces(33)),
            (8, 0, [u64::MAX, 0, 0, 0, 0, 0], 4096, Malformed::Pieces(u64::MAX)),
            (7, 0, [2, 0, 0, 0, 0, 0], 47, Malformed::Buffer { has: 47, wants: 48 }),
            (2, 0, [1, 0, 4096, 0, 0, 0], 512, Malformed::Buffer { has: 512, wants: 4096 }),
            (3, 0, none, 1, Malformed::Buffer { has: 1, wants: 0 }),
            (6, 0, [1, 0, u64::MAX, 0, 0, 0], 8, Malformed::Buffer { has: 8, wants: u64::MAX }),
        ] {
            assert_eq!(decode_request(opcode, flags, &arguments, buffer), Err(wanted));
        }
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_or_fits_its_buffer(
            opcode: u8, flags: u8, arguments: [u64; 6], small: [u8; 6], buffer in 0usize..1 << 20,
        ) {
            for arguments in [arguments, small.map(u64::from), [u64::from(small[0]), 0, buffer as u64, 0, 0, 0]] {
                if let Ok(asked) = decode_request(opcode % 10, flags % 3, &arguments, buffer) {
                    prop_assert_eq!(asked.pieces_bytes as u64 + asked.data_bytes, buffer as u64);
                    prop_assert!(asked.pieces_bytes <= GRANT_RANGES_MAX * GRANT_RANGE_BYTES);
                }
            }
        }

        #[test]
        fn transfers_are_decoded_alike(
            opcode in 0u8..10, flags in 0u8..4, range: [u64; 3], others in prop::sample::select(&[[0; 3], [0, 0, 1], [1, 0, 0]]),
            is_right: bool, buffer in 0usize..1 << 20,
        ) {
            let length = if is_right { buffer as u64 } else { range[2] };
            let arguments = [range[0], range[1], length, others[0], others[1], others[2]];
            let asked = decode_request(opcode, flags, &arguments, buffer).ok();
            let transfer = asked.filter(|asked| matches!(asked.opcode, Opcode::Read | Opcode::Write));
            let transfer = transfer.map(|asked| (asked.opcode, asked.fua, asked.piece));
            prop_assert_eq!(decode_transfer(opcode, flags, &arguments, buffer), transfer);
        }
    }
}
