//! Protocol between the two ends of a channel: its version and every byte that they exchange.
//!
//! The client allocates the memory: control memory with both rings, and the arena that its buffers are
//! allocated from.
//!
//! ```text
//!   control memory, in words of eight bytes
//!
//!   +----------------------------------+-----------------------------------+
//!   | requests: ring of 8-word entries | completions: of 2-word entries    |
//!   +----------------------------------+-----------------------------------+
//!    written by the client              written by the server
//!
//!   a request: 64 bytes              63      48 47   40 39    32 31       0
//!                                   +----------+-------+--------+----------+
//!     word 0                        |   tag    | flags | opcode |   turn   |
//!                                   +----------+-------+--------+----------+
//!     word 1, the buffer            |   length, bytes  |  offset, 64 bytes |
//!                                   +------------------+-------------------+
//!     words 2 to 7                  |  arguments, as the service defines   |
//!                                   +--------------------------------------+
//!
//!   a completion: 16 bytes           63      48 47            32 31       0
//!                                   +----------+----------------+----------+
//!     word 0                        |   tag    |     status     |   turn   |
//!                                   +----------+----------------+----------+
//!     word 1                        |   value, as the service defines      |
//!                                   +--------------------------------------+
//! ```
//!
//! A *tag* is the client's number for a request in flight: less than the depth, and not used for another
//! request until the completion. Requests complete in any order. A request without a buffer has one of length
//! 0 at offset 0. The service that is offered over the channel defines *opcode*, *flags*, *status*,
//! *arguments* and *value*; a status of 0 is success.

use bywash_link::Protocol;
use bywash_link::ring::words_needed;

/// Parameters of the handshake. The version covers everything on this page and in [`bywash_link::ring::layout`]. A
/// client's hello message has the number of entries that it asks for, for both rings, and passes its control
/// memory and its arena. A server's has the greatest number of entries and the greatest arena size that it
/// allows.
pub(crate) const PROTOCOL: Protocol = Protocol {
    magic: *b"bywash c",
    version: 1,
    noun: "an end of a bywash channel",
    rings_max: [DEPTH_MAX, DEPTH_MAX],
};

/// Flag of a hello message: this end submits requests.
pub(crate) const FLAG_CLIENT: u32 = 1;
/// Flag of a hello message: this end completes requests.
pub(crate) const FLAG_SERVER: u32 = 2;

/// Size of a request, in words: one cache line.
pub(crate) const REQUEST_WORDS: usize = 8;
/// Size of a completion, in words.
pub(crate) const COMPLETION_WORDS: usize = 2;
/// Number of words of a request that the service defines.
pub const ARGUMENTS: usize = 6;
/// Unit of a buffer's offset in the arena, in bytes.
pub(crate) const GRANULE: usize = 64;
/// Greatest number of requests in flight on a channel.
pub const DEPTH_MAX: u32 = 1 << 14;

const _: () = assert!(REQUEST_WORDS * 8 == 64 && COMPLETION_WORDS * 8 <= 32 && DEPTH_MAX <= 1 << 16);

/// A request, in its form in memory.
pub(crate) type RequestEntry = [u64; REQUEST_WORDS];
/// A completion, in its form in memory.
pub(crate) type CompletionEntry = [u64; COMPLETION_WORDS];

/// Returns the size of a channel's control memory in words, and the index of the word at which `completions`
/// begins.
pub(crate) fn control_words(depth: u32) -> (usize, usize) {
    let requests = words_needed::<REQUEST_WORDS>(depth as usize);
    (requests + words_needed::<COMPLETION_WORDS>(depth as usize), requests)
}

/// A range of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BufferRange {
    /// Offset, in granules of [`GRANULE`] bytes.
    pub(crate) offset: u32,
    /// Length, in bytes.
    pub(crate) length: u32,
}

/// The decoded fields of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestFields {
    pub(crate) tag: u16,
    pub(crate) flags: u8,
    pub(crate) opcode: u8,
    pub(crate) buffer: BufferRange,
    pub(crate) arguments: [u64; ARGUMENTS],
}

impl RequestFields {
    #[inline]
    pub(crate) fn to_entry(self) -> RequestEntry {
        let mut entry = [0; REQUEST_WORDS];
        entry[0] = u64::from(self.tag) << 48 | u64::from(self.flags) << 40 | u64::from(self.opcode) << 32;
        entry[1] = u64::from(self.buffer.length) << 32 | u64::from(self.buffer.offset);
        entry[2..].copy_from_slice(&self.arguments);
        entry
    }

    #[inline]
    pub(crate) fn from_entry(entry: &RequestEntry) -> RequestFields {
        let mut arguments = [0; ARGUMENTS];
        arguments.copy_from_slice(&entry[2..]);
        RequestFields {
            tag: (entry[0] >> 48) as u16,
            flags: (entry[0] >> 40) as u8,
            opcode: (entry[0] >> 32) as u8,
            buffer: BufferRange { offset: entry[1] as u32, length: (entry[1] >> 32) as u32 },
            arguments,
        }
    }
}

/// The decoded fields of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompletionFields {
    pub(crate) tag: u16,
    pub(crate) status: u16,
    pub(crate) value: u64,
}

impl CompletionFields {
    #[inline]
    pub(crate) fn to_entry(self) -> CompletionEntry {
        [u64::from(self.tag) << 48 | u64::from(self.status) << 32, self.value]
    }

    #[inline]
    pub(crate) fn from_entry(entry: &CompletionEntry) -> CompletionFields {
        CompletionFields { tag: (entry[0] >> 48) as u16, status: (entry[0] >> 32) as u16, value: entry[1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_request() {
        let request = RequestFields {
            tag: 0x1122,
            flags: 0x33,
            opcode: 0x44,
            buffer: BufferRange { offset: 0x5566_7788, length: 0x99aa_bbcc },
            arguments: [1, 2, 3, 4, 5, u64::MAX],
        };
        let entry = request.to_entry();
        assert_eq!(entry, [0x1122_3344_0000_0000, 0x99aa_bbcc_5566_7788, 1, 2, 3, 4, 5, u64::MAX]);
        // Decoding ignores the turn, which belongs to the ring.
        let turned = [entry[0] | 0xffff_ffff, entry[1], 1, 2, 3, 4, 5, u64::MAX];
        assert_eq!(RequestFields::from_entry(&turned), request);
    }

    #[test]
    fn golden_completion() {
        let completion = CompletionFields { tag: 0x1122, status: 0x3344, value: 0x5566_7788_99aa_bbcc };
        let entry = completion.to_entry();
        assert_eq!(entry, [0x1122_3344_0000_0000, 0x5566_7788_99aa_bbcc]);
        assert_eq!(CompletionFields::from_entry(&[entry[0] | 7, entry[1]]), completion);
    }

    #[test]
    fn golden_control_memory() {
        assert_eq!(control_words(4), ((32 + 4 * 8) + (32 + 4 * 2), 32 + 4 * 8));
    }
}
