//! Types for bytes, blocks, and ranges of both.
//!
//! The store counts in blocks of a device; requests and grants count in bytes. The two are distinct types,
//! and only [`BlockSize`] converts between them, so neither can be mistaken for the other.

use crate::error::Error;
use std::fmt;

/// Number of bytes, or byte offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Number of blocks of a device, or number of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} B", self.0)
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} blocks", self.0)
    }
}

/// Size of a device's block, the unit that volumes are allocated in: a power of two from 512 B to 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    shift: u8,
}

impl BlockSize {
    const SHIFT_MIN: u32 = 9;
    const SHIFT_MAX: u32 = 30;

    /// Makes a block size of `size` bytes.
    ///
    /// # Errors
    /// [`Error::BlockSize`] if `size` is not a power of two from 512 to 2^30.
    pub fn new(size: Bytes) -> Result<BlockSize, Error> {
        if !size.0.is_power_of_two() {
            return Err(Error::BlockSize(size));
        }
        BlockSize::from_shift(size.0.trailing_zeros()).ok_or(Error::BlockSize(size))
    }

    pub(crate) fn from_shift(shift: u32) -> Option<BlockSize> {
        let allowed = (Self::SHIFT_MIN..=Self::SHIFT_MAX).contains(&shift);
        allowed.then_some(BlockSize { shift: shift as u8 })
    }

    pub(crate) fn shift(self) -> u32 {
        u32::from(self.shift)
    }

    /// Returns the size in bytes.
    pub fn size(self) -> Bytes {
        Bytes(1 << self.shift)
    }

    /// Returns the number of whole blocks that fit into `bytes`, rounded down.
    pub fn blocks_floor(self, bytes: Bytes) -> Blocks {
        Blocks(bytes.0 >> self.shift)
    }

    /// Returns the number of blocks that can hold `bytes`, rounded up.
    pub fn blocks_ceil(self, bytes: Bytes) -> Blocks {
        Blocks(bytes.0.div_ceil(1 << self.shift))
    }

    /// Returns the size of `blocks` blocks in bytes, or `None` if it exceeds 64 bits.
    pub fn bytes(self, blocks: Blocks) -> Option<Bytes> {
        (blocks.0 <= u64::MAX >> self.shift).then(|| Bytes(blocks.0 << self.shift))
    }

    /// Converts an extent to bytes; `None` if its end exceeds 64 bits.
    pub fn span(self, extent: Extent) -> Option<ByteRange> {
        let end = self.bytes(extent.end()?)?;
        let start = self.bytes(extent.start)?;
        Some(ByteRange { start, length: Bytes(end.0 - start.0) })
    }
}

/// Contiguous range of a device, in its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Number of the first block.
    pub start: Blocks,
    /// Number of blocks.
    pub length: Blocks,
}

impl Extent {
    /// Makes an extent of `length` blocks from block `start` on.
    pub fn new(start: u64, length: u64) -> Extent {
        Extent { start: Blocks(start), length: Blocks(length) }
    }

    /// Returns the number of the block after the extent, or `None` if that exceeds 64 bits.
    pub fn end(self) -> Option<Blocks> {
        self.start.0.checked_add(self.length.0).map(Blocks)
    }
}

/// Contiguous range of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: Bytes,
    /// Number of bytes.
    pub length: Bytes,
}

impl ByteRange {
    /// Makes a range of `length` bytes from byte `start` on.
    pub fn new(start: u64, length: u64) -> ByteRange {
        ByteRange { start: Bytes(start), length: Bytes(length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_powers_of_two_within_limits() {
        for size in [0, 1, 256, 513, 1000, 1 << 31, u64::MAX] {
            assert!(
                matches!(BlockSize::new(Bytes(size)), Err(Error::BlockSize(Bytes(told))) if told == size)
            );
        }
        for shift in 9..=30 {
            let block = BlockSize::new(Bytes(1 << shift)).unwrap();
            assert_eq!(block.size(), Bytes(1 << shift));
        }
    }

    #[test]
    fn nothing_overflows_at_the_ends_of_64_bits() {
        let block = BlockSize::new(Bytes(4096)).unwrap();
        assert_eq!(block.blocks_floor(Bytes(u64::MAX)), Blocks((1 << 52) - 1));
        assert_eq!(block.blocks_ceil(Bytes(u64::MAX)), Blocks(1 << 52));
        assert_eq!(block.bytes(Blocks((1 << 52) - 1)), Some(Bytes(u64::MAX - 4095)));
        assert_eq!(block.bytes(Blocks(1 << 52)), None);
        assert_eq!(block.span(Extent::new(1, u64::MAX)), None);
        assert_eq!(block.span(Extent::new(1, 1 << 52)), None);
        assert_eq!(block.span(Extent::new(2, 3)), Some(ByteRange::new(8192, 12288)));
    }

    #[test]
    fn sizes_are_rounded_as_they_are_used() {
        let block = BlockSize::new(Bytes(512)).unwrap();
        assert_eq!((block.blocks_floor(Bytes(1023)), block.blocks_ceil(Bytes(1023))), (Blocks(1), Blocks(2)));
        assert_eq!((block.blocks_floor(Bytes(1024)), block.blocks_ceil(Bytes(1024))), (Blocks(2), Blocks(2)));
    }
}
