//! Bounce memory: a bounded number of pieces, mapped for DMA once, for commands whose own memory is not.
//!
//! The controller reaches registered memory only. Data in other memory is copied through a piece, some kilobytes at a
//! time. A command that finds no free piece waits until another command frees one; a command has at most one piece, so
//! commands cannot wait for each other in a circle. Called by the device.

use crate::data::Piece;
use crate::dma::{DmaMemory, PAGE};
use crate::error::Error;
use crate::function::Function;
use bywash_device::Pieces;
use std::sync::Arc;

/// Size of a piece, in bytes; a compare-and-write needs three blocks, of 4096 bytes at most.
const PIECE: usize = 64 << 10;
/// Greatest number of pieces.
const PIECES_MAX: usize = 32;

/// Bounce pieces, and the slots that wait for one.
#[derive(Debug)]
pub(super) struct BounceBuffers<F: Function> {
    memory: DmaMemory<F>,
    /// Pieces that are free, and slots that wait for one.
    pub(super) numbers: Pieces,
}

impl<F: Function> BounceBuffers<F> {
    /// Allocates and maps the pieces of a device of `depth` commands.
    pub(super) fn new(function: &Arc<F>, depth: usize) -> Result<BounceBuffers<F>, Error> {
        let pieces = depth.min(PIECES_MAX);
        Ok(BounceBuffers {
            memory: DmaMemory::new(function, pieces * PIECE)?,
            numbers: Pieces::new(pieces as u16, depth),
        })
    }

    /// Keeps the memory mapped for ever; see [`DmaMemory::leak`].
    pub(super) fn leak(&mut self) {
        self.memory.leak();
    }

    /// Returns the size of a piece, in bytes.
    pub(super) fn piece_bytes(&self) -> usize {
        PIECE
    }

    /// Returns this process's address of byte `from` of a piece.
    pub(super) fn at(&self, piece: u16, from: usize) -> *mut u8 {
        self.memory.at(usize::from(piece) * PIECE + from)
    }

    /// Returns the `bytes` bytes of a piece from byte `from` on, as the controller addresses them.
    pub(super) fn piece(&self, piece: u16, from: usize, bytes: usize) -> Piece {
        debug_assert!(from + bytes <= PIECE);
        Piece { address: self.memory.address(usize::from(piece) * PIECE + from), bytes }
    }

    /// Returns true if two blocks of a piece are equal.
    pub(super) fn has_equal(&self, piece: u16, first: usize, second: usize, bytes: usize) -> bool {
        let start = usize::from(piece) * PIECE;
        self.memory.has_equal(start + first, start + second, bytes)
    }
}

const _: () = assert!(PIECE >= 3 * 4096 && PIECE.is_multiple_of(PAGE));
