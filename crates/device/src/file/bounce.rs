//! Bounce memory: a bounded number of pieces for commands whose own memory the medium does not accept.
//!
//! Past the page cache (O_DIRECT) memory has to be aligned as the medium requires. Data in other memory is
//! copied through a piece, some kilobytes at a time. A command that finds no free piece waits until another
//! command frees one. A command holds at most one piece, so commands cannot wait for each other in a cycle.
//! Called by slots.

use crate::pages::Pages;
use crate::pieces::Pieces;
use crate::segment::Segment;

/// Least size of a piece, in blocks; a compare-and-write needs three.
const BLOCKS: usize = 4;

/// Bounce pieces, and the slots that wait for one.
#[derive(Debug)]
pub(super) struct BounceBuffers {
    pages: Pages,
    piece_bytes: usize,
    /// Pieces that are free, and slots that wait for one.
    pub(super) numbers: Pieces,
}

impl BounceBuffers {
    /// Allocates `pieces` pieces (at most `depth`) of `piece_bytes` bytes, or of `BLOCKS` blocks if that is
    /// more.
    pub(super) fn new(pieces: usize, piece_bytes: usize, depth: usize, block: usize) -> BounceBuffers {
        let (piece_bytes, pieces) = (piece_bytes.max(BLOCKS * block), depth.min(pieces));
        BounceBuffers {
            pages: Pages::new(pieces * piece_bytes),
            piece_bytes,
            numbers: Pieces::new(pieces as u16, depth),
        }
    }

    /// Returns the size of a piece, in bytes.
    pub(super) fn piece_bytes(&self) -> usize {
        self.piece_bytes
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
    fn pieces_lie_beside_each_other() {
        let bounce = BounceBuffers::new(2, 4096, 8, 512);
        assert_eq!(bounce.at(1).addr() - bounce.at(0).addr(), 4096);
    }

    #[test]
    fn a_piece_has_room_for_large_blocks() {
        let bounce = BounceBuffers::new(2, 64 << 10, 1, 64 << 10);
        assert_eq!((bounce.piece_bytes(), bounce.all().1), (256 << 10, 256 << 10));
    }
}
