//! Division of an arena's bytes among its owner, the peer, the queues between them, and the free blocks.

use std::fmt;

/// Use of an arena at one moment, as its owner knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaUse {
    /// Size of the arena, in bytes.
    pub bytes: usize,
    /// Number of blocks that this program has allocated and not sent.
    pub held: usize,
    /// Size of the blocks that this program has allocated and not sent, in bytes.
    pub held_bytes: usize,
    /// Number of blocks that were sent and that the peer has not taken yet. On a path they count as the
    /// peer's.
    pub queued: usize,
    /// Size of the blocks that were sent and that the peer has not taken yet, in bytes.
    pub queued_bytes: usize,
    /// Number of blocks that the peer owns.
    pub shipped: usize,
    /// Size of the blocks that the peer owns, in bytes.
    pub shipped_bytes: usize,
    /// Number of blocks that the peer has returned and that this program has not taken: completions to be
    /// reaped.
    pub returned: usize,
    /// Size of the blocks that the peer has returned and that this program has not taken, in bytes.
    pub returned_bytes: usize,
    /// Size of the largest block that could be allocated, in bytes.
    pub largest_free: usize,
}

/// Holder of a block that its owner has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody: the block waits until the peer takes it.
    SubmissionQueue,
    /// The peer.
    Peer,
    /// Nobody: the block waits until the owner takes it back.
    CompletionQueue,
}

impl ArenaUse {
    /// Counts blocks of these sizes in bytes, which were counted as the program's own, as held by `holder`.
    pub fn attribute(&mut self, holder: Holder, sizes: impl Iterator<Item = usize>) {
        let (count, sum) = match holder {
            Holder::SubmissionQueue => (&mut self.queued, &mut self.queued_bytes),
            Holder::Peer => (&mut self.shipped, &mut self.shipped_bytes),
            Holder::CompletionQueue => (&mut self.returned, &mut self.returned_bytes),
        };
        for bytes in sizes {
            self.held = self.held.saturating_sub(1);
            self.held_bytes = self.held_bytes.saturating_sub(bytes);
            *count += 1;
            *sum += bytes;
        }
    }
}

/// Lists the holders, as a part of a sentence.
impl fmt::Display for ArenaUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "of the arena's {} bytes this program holds {} in {} buffers that are not submitted, {} in {} wait for the \
             server to take them, the server has {} in {}, and {} in {} are done and wait to be reaped; the largest free \
             piece has {}",
            self.bytes,
            self.held_bytes,
            self.held,
            self.queued_bytes,
            self.queued,
            self.shipped_bytes,
            self.shipped,
            self.returned_bytes,
            self.returned,
            self.largest_free
        )
    }
}
