//! Memory of the device's own, for commands whose memory the medium does not take: a bounded number of pieces.
//!
//! Past the page cache (O_DIRECT) memory has to be aligned as the medium wants it. What is not goes by way of a piece,
//! some kilobytes at a time, and a command that finds none waits until another gives one back. A command has one at most,
//! so that nobody waits for who waits for him.

use crate::pages::Pages;
use crate::span::Span;
use std::collections::VecDeque;

/// Blocks that a piece has at least: comparing and writing needs three.
const BLOCKS: usize = 4;

/// The pieces, and who waits for one.
#[derive(Debug)]
pub(super) struct Bounce {
    pages: Pages,
    piece_bytes: usize,
    free: Vec<u16>,
    waiting: VecDeque<u16>,
}

impl Bounce {
    /// So many pieces of so many bytes, more if the blocks are that large, for a device of this depth.
    pub(super) fn new(pieces: usize, piece_bytes: usize, depth: usize, block: usize) -> Bounce {
        let (piece_bytes, pieces) = (piece_bytes.max(BLOCKS * block), depth.min(pieces));
        Bounce {
            pages: Pages::new(pieces * piece_bytes),
            piece_bytes,
            free: (0..pieces as u16).collect(),
            waiting: VecDeque::with_capacity(depth),
        }
    }

    /// Bytes of a piece.
    pub(super) fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// A piece for the command in `slot`; or it is told by [`Bounce::give`] when there is one.
    pub(super) fn take(&mut self, slot: u16) -> Option<u16> {
        let piece = self.free.pop();
        if piece.is_none() {
            self.waiting.push_back(slot);
        }
        piece
    }

    /// Gives a piece back; answers who has waited for it longest and should take one now.
    pub(super) fn give(&mut self, piece: u16) -> Option<u16> {
        self.free.push(piece);
        self.waiting.pop_front()
    }

    /// Where a piece is.
    pub(super) fn at(&self, piece: u16) -> *mut u8 {
        self.pages.base().wrapping_add(usize::from(piece) * self.piece_bytes)
    }

    /// All of it.
    pub(super) fn all(&self) -> (*mut u8, usize) {
        (self.pages.base(), self.pages.bytes())
    }

    /// The first `bytes` bytes of a piece.
    pub(super) fn span(&self, piece: u16, from: usize, bytes: usize) -> Span {
        assert!(from + bytes <= self.piece_bytes);
        // SAFETY: of the pages, which live until the kernel has let go of them: see `File::drop`.
        unsafe { Span::new(self.at(piece).wrapping_add(from), bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_in_turn() {
        let mut bounce = Bounce::new(2, 4096, 8, 512);
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
        let bounce = Bounce::new(2, 64 << 10, 1, 64 << 10);
        assert_eq!((bounce.piece_bytes(), bounce.all().1), (256 << 10, 256 << 10));
    }
}
