//! Bounce memory: a bounded number of pieces for commands whose own memory the medium does not accept.
//!
//! Past the page cache (O_DIRECT) memory has to be aligned as the medium requires. Data in other memory is
//! copied through a piece, some kilobytes at a time. A command that finds no free piece waits until another
//! command frees one. A command holds at most one piece, so commands cannot wait for each other in a cycle.
//! Called by slots.

use crate::pages::Pages;
use crate::segment::Segment;
use std::collections::VecDeque;

/// Least size of a piece, in blocks; a compare-and-write needs three.
const BLOCKS: usize = 4;

/// Bounce pieces, and the slots that wait for one.
#[derive(Debug)]
pub(super) struct BounceBuffers {
    pages: Pages,
    piece_bytes: usize,
    free: Vec<u16>,
    waiting: VecDeque<u16>,
}

impl BounceBuffers {
    /// Allocates `pieces` pieces (at most `depth`) of `piece_bytes` bytes, or of `BLOCKS` blocks if that is
    /// more.
    pub(super) fn new(pieces: usize, piece_bytes: usize, depth: usize, block: usize) -> BounceBuffers {
        let (piece_bytes, pieces) = (piece_bytes.max(BLOCKS * block), depth.min(pieces));
        BounceBuffers {
            pages: Pages::new(pieces * piece_bytes),
            piece_bytes,
            free: (0..pieces as u16).collect(),
            waiting: VecDeque::with_capacity(depth),
        }
    }

    /// Returns the size of a piece, in bytes.
    pub(super) fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// Takes a free piece. If there is none, queues `slot` until [`BounceBuffers::give`] returns it.
    pub(super) fn take(&mut self, slot: u16) -> Option<u16> {
        let piece = self.free.pop();
        if piece.is_none() {
            self.waiting.push_back(slot);
        }
        piece
    }

    /// Frees a piece. Returns the slot that has waited longest, which should call [`BounceBuffers::take`] now.
    pub(super) fn give(&mut self, piece: u16) -> Option<u16> {
        self.free.push(piece);
        self.waiting.pop_front()
    }

    /// Returns the address of a piece.
    pub(super) fn at(&self, piece: u16) -> *mut u8 {
        self.pages.base().wrapping_add(usize::from(piece) * self.piece_bytes)
    }

    /// Returns address and size of the memory of all pieces.
    pub(super) fn all(&self) -> (*mut u8, usize) {
        (self.pages.base(), self.pages.bytes())
    }

    /// Returns the `bytes` bytes of a piece from byte `from` on.
    pub(super) fn segment(&self, piece: u16, from: usize, bytes: usize) -> Segment {
        assert!(from + bytes <= self.piece_bytes);
        // SAFETY: a range of the pages, which `File::drop` frees only when no request uses them any more.
        unsafe { Segment::new(self.at(piece).wrapping_add(from), bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_in_turn() {
        let mut bounce = BounceBuffers::new(2, 4096, 8, 512);
        let (first, second) = (bounce.take(7).unwrap(), bounce.take(8).unwrap());
        assert_ne!(bounce.at(first), bounce.at(second));
        assert_eq!((bounce.take(5), bounce.take(6)), (None, None));
        assert_eq!(bounce.give(first), Some(5));
        assert_eq!(bounce.take(5), Some(first));
        assert_eq!(bounce.give(second), Some(6));
        assert_eq!(bounce.take(6), Some(second));
        assert_eq!(bounce.give(first), None);
    }

    #[test]
    fn a_piece_has_room_for_large_blocks() {
        let bounce = BounceBuffers::new(2, 64 << 10, 1, 64 << 10);
        assert_eq!((bounce.piece_bytes(), bounce.all().1), (256 << 10, 256 << 10));
    }
}
