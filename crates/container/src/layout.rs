//! Protocol between the two ends of a path: its version and every byte that they exchange.
//!
//! The handshake and the transfer of memory use the socket. Besides it each direction has a *lane*: a file of
//! control memory, and the arena of the end that ships.
//!
//! ```text
//!   control memory, in words of eight bytes
//!
//!   +----------------------------------+-----------------------------------+
//!   | shipped: ring of 16-word entries | returned: ring of 1-word entries  |
//!   +----------------------------------+-----------------------------------+
//!    written by who ships               written by who receives
//!
//!   an entry of `shipped`            63        49 48   47     40 39     32 31     0
//!                                   +------------+----+---------+---------+--------+
//!     word 0                        |     0      |more|  count  |  kind   |  turn  |
//!                                   +------------+----+---------+---------+--------+
//!     kind INLINE   words 1..=15    `count` bytes of contents
//!     kind PIECES   words 1..=14    `count` pieces of two words:
//!                                    63          48 47     32 31              0
//!                                   +--------------+---------+-----------------+
//!                                   |      0       |  arena  |     ticket      |
//!                                   +--------------+---------+-----------------+
//!                                   |      length, bytes     | offset, 64 bytes|
//!                                   +------------------------+-----------------+
//!                                    63                    32 31              0
//!
//!   an entry of `returned`           63     32 31     0
//!                                   +---------+--------+
//!                                   | ticket  |  turn  |
//!                                   +---------+--------+
//! ```
//!
//! A message of more than [`PIECES_PER_ENTRY`] pieces takes several entries, of which all but the last have
//! *more* set. A *ticket* is the shipper's number for a container that the peer owns; the receiver returns
//! the ticket when it drops the container. *arena* 0 is the shipper's own; every other arena was passed
//! through the socket before.

use bywash_link::ring::words_needed;
use bywash_link::{MessagePolicy, Protocol};

/// Parameters of the handshake. The version covers everything on this page and in [`bywash_link::ring::layout`].
/// The two rings of an end are its `shipped` and `returned`. Its control memory is passed with the hello
/// message, and so is its arena if it has one.
pub(crate) const PROTOCOL: Protocol = Protocol {
    magic: *b"bywash p",
    version: 1,
    noun: "an end of a bywash path",
    rings_max: [DEPTH_MAX, TICKETS_MAX],
};

/// Size of an entry of `shipped`, in words: two cache lines.
pub(crate) const SHIPPED_WORDS: usize = 16;
/// Size of an entry of `returned`, in words.
pub(crate) const RETURNED_WORDS: usize = 1;
/// Greatest number of bytes that are shipped within an entry.
pub(crate) const INLINE_BYTES: usize = (SHIPPED_WORDS - 1) * 8;
/// Greatest number of pieces in an entry.
pub(crate) const PIECES_PER_ENTRY: usize = 7;
/// Unit of a piece's offset in its arena, in bytes.
pub(crate) const GRANULE: usize = 64;
/// Greatest number of arenas that one lane can refer to, the shipper's own included.
pub(crate) const ARENAS_MAX: usize = 64;
/// Greatest number of entries of `shipped`.
pub(crate) const DEPTH_MAX: u32 = 1 << 12;
/// Greatest number of tickets, which is also that of the entries of `returned`.
pub(crate) const TICKETS_MAX: u32 = 1 << 16;

/// An entry of `shipped`, in its form in memory.
pub(crate) type Entry = [u64; SHIPPED_WORDS];

/// Returns the size of a lane's control memory in words, and the index of the word at which `returned`
/// begins.
pub(crate) fn control_words(depth: u32, tickets: u32) -> (usize, usize) {
    let shipped = words_needed::<SHIPPED_WORDS>(depth as usize);
    (shipped + words_needed::<RETURNED_WORDS>(tickets as usize), shipped)
}

/// One container of a message: a range of an arena, and its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) ticket: u32,
    pub(crate) arena: u16,
    /// Offset in the arena, in granules of [`GRANULE`] bytes.
    pub(crate) offset: u32,
    /// Length, in bytes.
    pub(crate) length: u32,
}

const KIND_INLINE: u64 = 1;
const KIND_PIECES: u64 = 2;
const MORE: u64 = 1 << 48;

fn head(kind: u64, count: usize) -> u64 {
    (count as u64) << 40 | kind << 32
}

/// Kind of an entry, decoded from a private copy of its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Contents within the entry, from word 1 on: their length in bytes, at most [`INLINE_BYTES`].
    Inline(usize),
    /// Number of pieces, 1 to [`PIECES_PER_ENTRY`], and true if the message continues in the next entry.
    Pieces(usize, bool),
}

/// Encodes an entry that carries `bytes` bytes of contents.
#[inline]
pub(crate) fn inline_entry(contents: &[u64; SHIPPED_WORDS - 1], bytes: usize) -> Entry {
    let mut entry = [head(KIND_INLINE, bytes); SHIPPED_WORDS];
    entry[1..].copy_from_slice(contents);
    entry
}

/// Encodes an entry that describes `pieces`; `more`: the message continues in the next entry.
pub(crate) fn pieces_entry(pieces: &[Piece], more: bool) -> Entry {
    let mut entry = [0; SHIPPED_WORDS];
    entry[0] = head(KIND_PIECES, pieces.len()) | if more { MORE } else { 0 };
    for (number, piece) in pieces.iter().enumerate() {
        entry[1 + 2 * number] = u64::from(piece.arena) << 32 | u64::from(piece.ticket);
        entry[2 + 2 * number] = u64::from(piece.length) << 32 | u64::from(piece.offset);
    }
    entry
}

/// Decodes the first word of an entry; `None` if it is malformed.
#[inline]
pub(crate) fn read_head(first_word: u64) -> Option<EntryKind> {
    let count = (first_word >> 40 & 0xff) as usize;
    match (first_word >> 32 & 0xff, first_word & MORE != 0) {
        (KIND_INLINE, false) if count <= INLINE_BYTES => Some(EntryKind::Inline(count)),
        (KIND_PIECES, more) if (1..=PIECES_PER_ENTRY).contains(&count) => {
            Some(EntryKind::Pieces(count, more))
        }
        _ => None,
    }
}

/// Decodes the piece with this number, counted from 0. The caller checks that the entry has so many pieces.
pub(crate) fn read_piece(entry: &Entry, number: usize) -> Piece {
    let (first, second) = (entry[1 + 2 * number], entry[2 + 2 * number]);
    Piece {
        ticket: first as u32,
        arena: (first >> 32) as u16,
        offset: second as u32,
        length: (second >> 32) as u32,
    }
}

/// Flag of a hello message: this end ships sealed containers.
pub(crate) const FLAG_SEALED: u32 = 1;
/// Flag of a hello message: the receiver may map this end's arena for writing.
pub(crate) const FLAG_WRITABLE: u32 = 2;
/// Message through the socket after the handshake, besides doorbells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketMessage {
    /// A foreign arena, whose descriptor is attached: the number that this lane gives to the arena, and its
    /// size in bytes.
    Arena(u16, u64),
    /// Sealed containers, whose descriptors are attached: their lengths in bytes, in the same order.
    Sealed(Vec<u64>),
}

/// Greatest number of arenas that a peer may pass before it ships a container in them.
const ARENAS_AHEAD_MAX: usize = ARENAS_MAX;
/// Greatest number of sealed messages that are read from the socket before they are received; the socket
/// queues more.
const SEALED_AHEAD_MAX: usize = 16;

/// Socket messages that an unsealed path accepts: a [`Note::Arena`] with one descriptor. More than
/// [`ARENAS_AHEAD_MAX`] unread ones are a violation of the protocol.
pub(crate) const ARENA_MESSAGES: MessagePolicy = MessagePolicy {
    fits: |bytes, descriptors| {
        descriptors == 1 && matches!(SocketMessage::from_bytes(bytes), Some(SocketMessage::Arena(..)))
    },
    ahead_max: ARENAS_AHEAD_MAX,
    leaves_more: false,
};
/// Socket messages that a sealed path accepts: a [`Note::Sealed`] with one descriptor for each length. The
/// socket queues those beyond [`SEALED_AHEAD_MAX`].
pub(crate) const SEALED_MESSAGES: MessagePolicy = MessagePolicy {
    fits: |bytes, descriptors| matches!(SocketMessage::from_bytes(bytes), Some(SocketMessage::Sealed(lengths)) if lengths.len() == descriptors),
    ahead_max: SEALED_AHEAD_MAX,
    leaves_more: true,
};

const NOTE_ARENA: u8 = 2;
const NOTE_SEALED: u8 = 3;

impl SocketMessage {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            SocketMessage::Arena(number, bytes) => {
                [&[NOTE_ARENA][..], &number.to_le_bytes(), &bytes.to_le_bytes()].concat()
            }
            SocketMessage::Sealed(lengths) => {
                let lengths = lengths.iter().flat_map(|length| length.to_le_bytes());
                std::iter::once(NOTE_SEALED).chain(lengths).collect()
            }
        }
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<SocketMessage> {
        let u64_of = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        match bytes.split_first()? {
            (&NOTE_ARENA, [low, high, rest @ ..]) => {
                Some(SocketMessage::Arena(u16::from_le_bytes([*low, *high]), u64_of(rest)?))
            }
            (&NOTE_SEALED, rest) if !rest.is_empty() && rest.len().is_multiple_of(8) => {
                Some(SocketMessage::Sealed(rest.chunks(8).filter_map(u64_of).collect()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_entries() {
        let piece = Piece { ticket: 0x11, arena: 0x22, offset: 0x33, length: 0x44 };
        let entry = pieces_entry(&[piece, piece], true);
        assert_eq!(entry[..4], [0x0001_0202_0000_0000, 0x22_0000_0011, 0x44_0000_0033, 0x22_0000_0011]);
        assert_eq!(read_head(entry[0]), Some(EntryKind::Pieces(2, true)));
        assert_eq!(read_piece(&entry, 1), piece);
        let entry = inline_entry(&[7; SHIPPED_WORDS - 1], 120);
        assert_eq!(entry[..2], [0x0000_7801_0000_0000, 7]);
        assert_eq!(read_head(entry[0]), Some(EntryKind::Inline(120)));
        for word in [0, 0x0000_7901_0000_0000, 0x0001_0101_0000_0000, 0x0000_0002_0000_0000] {
            assert!(read_head(word).is_none(), "{word:#x}");
        }
    }

    #[test]
    fn golden_notes() {
        for (note, bytes) in [
            (SocketMessage::Arena(0x0201, 3), &[2u8, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0][..]),
            (SocketMessage::Sealed(vec![5]), &[3, 5, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(note.to_bytes(), bytes);
            assert_eq!(SocketMessage::from_bytes(bytes), Some(note));
        }
        for bytes in [&[][..], &[0], &[1], &[1, 1], &[2, 1], &[3], &[3, 1]] {
            assert_eq!(SocketMessage::from_bytes(bytes), None);
        }
    }
}
