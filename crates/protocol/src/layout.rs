//! What a client and a device server say to each other over a channel: [version 1](crate::VERSION), and every byte of it.
//!
//! A request of a channel has an opcode, flags, six arguments and a buffer (`bywash_channel::layout`). Here they mean
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
//! *offset* and *length* are bytes within the grant, multiples of the device's logical block. Arguments that are not named
//! are 0. A request of many pieces is one request: its pieces are checked before any of them is begun, and it has one
//! status; where that is a refusal, its value is the number of the piece that was refused. Else the value is the number
//! of bytes.
//!
//! *Order.* Requests that are under way at a time are done in any order, and overlapping ones may be mixed block by block.
//! Who needs an order waits for the completion. *Durability.* A write is durable when it was completed with FUA, or when
//! a flush of its grant has completed that was submitted after the write had completed. A block is never torn.

use thiserror::Error;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Bytes of a grant.
    Read = 1,
    /// To change bytes of a grant.
    Write = 2,
    /// That what was written is durable.
    Flush = 3,
    /// That what the bytes were is of no matter any more.
    Discard = 4,
    /// To change bytes to zeroes.
    WriteZeroes = 5,
    /// To change bytes if they are what is expected.
    CompareAndWrite = 6,
    /// Bytes of several grants.
    ReadMany = 7,
    /// To change bytes of several grants.
    WriteMany = 8,
}

impl Opcode {
    /// All of them.
    pub const ALL: [Opcode; 8] = [
        Opcode::Read,
        Opcode::Write,
        Opcode::Flush,
        Opcode::Discard,
        Opcode::WriteZeroes,
        Opcode::CompareAndWrite,
        Opcode::ReadMany,
        Opcode::WriteMany,
    ];

    /// Of a request; none if there is no such.
    #[inline]
    pub fn of(number: u8) -> Option<Opcode> {
        Some(match number {
            1 => Opcode::Read,
            2 => Opcode::Write,
            3 => Opcode::Flush,
            4 => Opcode::Discard,
            5 => Opcode::WriteZeroes,
            6 => Opcode::CompareAndWrite,
            7 => Opcode::ReadMany,
            8 => Opcode::WriteMany,
            _ => return None,
        })
    }

    /// Whether it changes anything.
    pub fn writes(self) -> bool {
        !matches!(self, Opcode::Read | Opcode::ReadMany | Opcode::Flush)
    }

    /// Whether it may be asked to be durable when it completes.
    fn takes_fua(self) -> bool {
        matches!(self, Opcode::Write | Opcode::WriteZeroes | Opcode::CompareAndWrite | Opcode::WriteMany)
    }

    /// Whether it has pieces in its buffer.
    fn is_many(self) -> bool {
        matches!(self, Opcode::ReadMany | Opcode::WriteMany)
    }
}

/// Durable when it completes.
pub const FUA: u8 = 1;
/// Pieces of a request at most: a transaction's log and its pages.
pub const PIECES_MAX: usize = 32;
/// Of one.
pub const PIECE_BYTES: usize = 24;

/// How a request ended, as the channel's status: 0, or what errno(3) has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Done = 0,
    /// The grant does not allow it (EACCES).
    Denied = 13,
    /// There is no such grant (EBADF).
    NoGrant = 9,
    /// There was one, and it has been revoked (ESTALE).
    Revoked = 116,
    /// Beyond the end of the grant (ENXIO).
    OutOfBounds = 6,
    /// Malformed: opcode, flags, alignment, lengths (EINVAL).
    Malformed = 22,
    /// The device failed (EIO).
    Failed = 5,
    /// The device has no room (ENOSPC).
    NoSpace = 28,
    /// The device did not answer in time (ETIMEDOUT).
    TimedOut = 110,
    /// The bytes were not what was expected (EILSEQ).
    Differs = 84,
    /// This device does not do that (EOPNOTSUPP).
    NotSupported = 95,
    /// The device has it in too many pieces (E2BIG); the value is how many bytes from its offset on can be had in one.
    Scattered = 7,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 12] = [
        Status::Done,
        Status::Denied,
        Status::NoGrant,
        Status::Revoked,
        Status::OutOfBounds,
        Status::Malformed,
        Status::Failed,
        Status::NoSpace,
        Status::TimedOut,
        Status::Differs,
        Status::NotSupported,
        Status::Scattered,
    ];

    /// Of a completion; none if this version has no such.
    pub fn of(number: u16) -> Option<Status> {
        Status::ALL.into_iter().find(|status| *status as u16 == number)
    }
}

/// A range of a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Which grant.
    pub grant: u64,
    /// Where in it, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

impl Piece {
    /// As it lies in a buffer.
    pub fn to_bytes(self) -> [u8; PIECE_BYTES] {
        let mut bytes = [0; PIECE_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.grant, self.offset, self.length]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Out of a buffer, from a copy of it.
    pub fn of_bytes(bytes: &[u8; PIECE_BYTES]) -> Piece {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Piece { grant: word(0), offset: word(8), length: word(16) }
    }
}

/// What a request asks for, as far as its own fields say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What.
    pub opcode: Opcode,
    /// Whether durable when it completes.
    pub fua: bool,
    /// Of which range; of several in one request nothing but their number, as `length`.
    pub piece: Piece,
    /// Bytes of the buffer before its data: the pieces.
    pub head: usize,
    /// Bytes of data in the buffer; of many pieces, those behind the head.
    pub data: u64,
}

/// Why a request is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// An opcode that this version has not.
    #[error("there is no opcode {0}")]
    Opcode(u8),
    /// Flags that the opcode does not take.
    #[error("{opcode:?} does not take flags {flags:#x}")]
    Flags {
        /// Of which request.
        opcode: Opcode,
        /// All of them.
        flags: u8,
    },
    /// An argument without a meaning is not 0.
    #[error("argument {0} means nothing here and is not 0")]
    Argument(usize),
    /// No pieces, or too many.
    #[error("{0} pieces in one request: there are 1 to {PIECES_MAX}")]
    Pieces(u64),
    /// The buffer is not as long as what goes through it.
    #[error("a buffer of {has} bytes, and {wants} are to pass it")]
    Buffer {
        /// Its bytes.
        has: usize,
        /// What the arguments say.
        wants: u64,
    },
}

/// Reads a request's fields, which are a copy: nobody changes them any more.
///
/// # Errors
/// What is malformed. Whether the grant allows it is another question.
// Inlined, so that what it answers stays in registers.
#[inline]
pub fn asked(opcode: u8, flags: u8, arguments: &[u64; 6], buffer: usize) -> Result<Asked, Malformed> {
    let opcode = Opcode::of(opcode).ok_or(Malformed::Opcode(opcode))?;
    if flags & !FUA != 0 || (flags & FUA != 0 && !opcode.takes_fua()) {
        return Err(Malformed::Flags { opcode, flags });
    }
    let [grant, offset, length, others @ ..] = *arguments;
    let more = match opcode {
        Opcode::Flush | Opcode::ReadMany | Opcode::WriteMany => offset | length,
        _ => 0,
    };
    if others.iter().fold(more, |all, argument| all | argument) != 0 {
        return Err(no_meaning(arguments, if more == 0 { 3 } else { 1 }));
    }
    let fua = flags & FUA != 0;
    if opcode.is_many() {
        let count = grant;
        let head = usize::try_from(count).ok().filter(|count| (1..=PIECES_MAX).contains(count));
        let head = head.ok_or(Malformed::Pieces(count))? * PIECE_BYTES;
        let data = buffer.checked_sub(head).ok_or(Malformed::Buffer { has: buffer, wants: head as u64 })?;
        let piece = Piece { length: count, ..Piece::default() };
        return Ok(Asked { opcode, fua, piece, head, data: data as u64 });
    }
    let data = match opcode {
        Opcode::Read | Opcode::Write => Some(length),
        Opcode::CompareAndWrite => length.checked_mul(2),
        _ => Some(0),
    };
    match data.filter(|data| *data == buffer as u64) {
        Some(data) => Ok(Asked { opcode, fua, piece: Piece { grant, offset, length }, head: 0, data }),
        None => Err(Malformed::Buffer { has: buffer, wants: data.unwrap_or(u64::MAX) }),
    }
}

/// Which argument behind the first so many is not 0.
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
            assert_eq!(Opcode::of(number), known);
        }
        let piece = Piece { grant: 0x0102_0304_0506_0708, offset: 4096, length: u64::MAX };
        let mut golden = [0u8; 24];
        golden[..8].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        golden[9] = 0x10;
        golden[16..].copy_from_slice(&[0xff; 8]);
        assert_eq!((piece.to_bytes(), Piece::of_bytes(&golden)), (golden, piece));
        for number in 0..=u16::MAX {
            assert_eq!(Status::of(number).is_some(), Status::ALL.iter().any(|one| *one as u16 == number));
        }
    }

    #[test]
    fn requests_say_what_they_mean() {
        let read = asked(1, 0, &[7, 512, 4096, 0, 0, 0], 4096).unwrap();
        assert_eq!((read.opcode, read.fua, read.data), (Opcode::Read, false, 4096));
        assert_eq!(read.piece, Piece { grant: 7, offset: 512, length: 4096 });
        let many = asked(8, FUA, &[2, 0, 0, 0, 0, 0], 48 + 8192).unwrap();
        assert_eq!((many.fua, many.head, many.data, many.piece.length), (true, 48, 8192, 2));
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
            assert_eq!(asked(opcode, flags, &arguments, buffer), Err(wanted));
        }
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_or_fits_its_buffer(
            opcode: u8, flags: u8, arguments: [u64; 6], small: [u8; 6], buffer in 0usize..1 << 20,
        ) {
            for arguments in [arguments, small.map(u64::from), [u64::from(small[0]), 0, buffer as u64, 0, 0, 0]] {
                if let Ok(asked) = asked(opcode % 10, flags % 3, &arguments, buffer) {
                    prop_assert_eq!(asked.head as u64 + asked.data, buffer as u64);
                    prop_assert!(asked.head <= PIECES_MAX * PIECE_BYTES);
                }
            }
        }
    }
}
