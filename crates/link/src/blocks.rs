//! Allocator of an arena's blocks, used by the arena's owner. Its records are in private memory.
//!
//! An arena is divided into free *extents*, and *blocks* that were cut from them. A block has the requested
//! length, rounded up to one of eight lengths between a power of two and the next: at most 12.5 % more, and
//! less than [`UNIT_BYTES`] more below 1 KiB. It begins at a multiple of the largest power of two that
//! divides its length, up to a page. So whole pages, and whole sectors of 512 bytes, are aligned as devices
//! want them.
//!
//! Freed blocks are not joined at once. Those of one length are reused in turns, the oldest first: a block
//! that was just freed is in the peer's nearest caches, from which fetching it is expensive; a block that was
//! freed long ago is in no cache. So new blocks are cut only until [`TURN_BYTES`] of a length are in use in
//! turns, or when no block of the length is free. If no extent is large enough, everything free is joined,
//! all at once, and the smallest extent that suffices is cut.
//!
//! A peer cannot confuse this allocator, since no record is in shared memory. Freeing a block and reusing a
//! freed one take a few ns. Cutting a block takes time in proportion to the logarithm of the number of
//! extents. Joining takes time in proportion to the free blocks, and happens at most once between two frees.

use crate::arena_use::ArenaUse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Unit of positions and lengths, in bytes: two cache lines.
const UNIT_BYTES: usize = 128;
/// Number of lengths between a power of two and the next.
const STEPS: u32 = 8;
/// Alignment of blocks whose length is a multiple of the page size, in units.
const PAGE_UNITS: u32 = (4096 / UNIT_BYTES) as u32;
/// Size of the blocks of one length that are reused in turns, in bytes: as much as the larger caches hold
/// (`bywash bench ipc`: blocks of 64 KiB moved at 17 GiB/s through 16 MiB, at 22 GiB/s through the block
/// freed last, and at 33 GiB/s through 4 MiB).
const TURN_BYTES: usize = 4 << 20;

/// A part of an arena that is in use; position and length in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    start: u32,
    length: u32,
}

/// Allocator of an arena's blocks.
#[derive(Debug)]
pub struct BlockAllocator {
    /// Freed blocks by the class of their length.
    lengths: Vec<FreeList>,
    free: Extents,
    /// Size of the arena, in units.
    units: u32,
    /// Number of blocks in use that have no class's length, since only their exact length fitted.
    odd: usize,
    /// True if a block was freed since extents were joined last.
    may_join: bool,
}

/// The blocks of one length.
#[derive(Debug, Default)]
struct FreeList {
    /// Starts of the freed blocks, in units; the oldest first.
    back: VecDeque<u32>,
    /// Number of blocks that were cut, in use or freed.
    count: usize,
}

/// Returns the class of a length in units: its number, and the length of its blocks in units.
#[inline]
fn class_of(units: u32) -> (usize, u32) {
    if units < STEPS {
        return (units as usize, units);
    }
    let shift = units.ilog2() - STEPS.ilog2();
    let steps = units.div_ceil(1 << shift);
    // A length that rounds up to the next power of two gets the number of that power's own class.
    ((shift * STEPS + steps) as usize, steps << shift)
}

/// Returns the alignment of blocks of a length; both in units.
fn alignment_of(units: u32) -> u32 {
    (1 << units.trailing_zeros()).min(PAGE_UNITS)
}

impl BlockAllocator {
    /// Makes the allocator of an arena of `bytes` bytes, a multiple of 4096, which are all free.
    pub fn new(bytes: usize) -> BlockAllocator {
        let units = (bytes / UNIT_BYTES) as u32;
        let mut free = Extents::default();
        if units > 0 {
            free.insert(0, units);
        }
        let classes = class_of(units.max(1)).0 + 1;
        BlockAllocator {
            lengths: (0..classes).map(|_| FreeList::default()).collect(),
            free,
            units,
            odd: 0,
            may_join: false,
        }
    }

    /// Returns the offset of a block in the arena, in bytes.
    #[inline]
    pub fn offset(&self, block: Block) -> usize {
        block.start as usize * UNIT_BYTES
    }

    /// Returns the length of a block, in bytes.
    #[inline]
    pub fn bytes(&self, block: Block) -> usize {
        block.length as usize * UNIT_BYTES
    }

    /// Allocates a block of at least `bytes` bytes; `None` if there is no room.
    #[inline]
    pub fn allocate(&mut self, bytes: usize) -> Option<Block> {
        let units = u32::try_from(bytes.max(1).div_ceil(UNIT_BYTES)).ok()?;
        let (class, length) = class_of(units);
        let turn = self.lengths.get_mut(class)?;
        let in_turn = turn.count * length as usize * UNIT_BYTES >= TURN_BYTES;
        if in_turn && let Some(start) = turn.back.pop_front() {
            return Some(Block { start, length });
        }
        self.take_slowly(class, length, units)
    }

    #[cold]
    fn take_slowly(&mut self, class: usize, length: u32, units: u32) -> Option<Block> {
        if let Some(block) = self.cut(class, length) {
            return Some(block);
        }
        if let Some(start) = self.lengths[class].back.pop_front() {
            return Some(Block { start, length });
        }
        self.join();
        // The rounded length may be more than the whole arena: so the exact length is tried last.
        self.cut(class, length).or_else(|| {
            let start = self.free.cut(units)?;
            self.odd += 1;
            Some(Block { start, length: units })
        })
    }

    /// Cuts a block of a class off the extent that fits best.
    fn cut(&mut self, class: usize, length: u32) -> Option<Block> {
        let start = self.free.cut(length)?;
        self.lengths[class].count += 1;
        Some(Block { start, length })
    }

    /// Frees a block.
    #[inline]
    pub fn free(&mut self, block: Block) {
        let (class, length) = class_of(block.length);
        self.may_join = true;
        if length == block.length {
            self.lengths[class].back.push_back(block.start);
        } else {
            self.odd -= 1;
            self.free.insert_joined(block.start, block.length);
        }
    }

    /// Returns the use of the arena, where every block in use counts as held. It takes time in proportion to
    /// the free blocks, and joins none of them.
    pub fn usage(&self) -> ArenaUse {
        let mut free = Extents::default();
        self.free.by_start.iter().for_each(|(start, length)| free.insert(*start, *length));
        let mut held = self.odd;
        for (class, turn) in self.lengths.iter().enumerate() {
            held += turn.count - turn.back.len();
            turn.back.iter().for_each(|start| free.insert_joined(*start, length_of(class)));
        }
        let free_units: usize = free.by_start.values().map(|length| *length as usize).sum();
        ArenaUse {
            bytes: self.units as usize * UNIT_BYTES,
            held,
            held_bytes: (self.units as usize - free_units) * UNIT_BYTES,
            largest_free: free.largest() as usize * UNIT_BYTES,
            ..ArenaUse::default()
        }
    }

    /// Turns all freed blocks into extents, and joins adjacent extents.
    fn join(&mut self) {
        if !std::mem::take(&mut self.may_join) {
            return;
        }
        for class in 0..self.lengths.len() {
            let turn = &mut self.lengths[class];
            let length = length_of(class);
            turn.count -= turn.back.len();
            for start in std::mem::take(&mut turn.back) {
                self.free.insert_joined(start, length);
            }
        }
    }

    /// Returns the size of the largest block that an arena of `bytes` bytes can hold, in bytes.
    pub fn largest(bytes: usize) -> usize {
        bytes / UNIT_BYTES * UNIT_BYTES
    }
}

/// Returns the length of the blocks of a class, in units: the inverse of [`class_of`].
fn length_of(class: usize) -> u32 {
    let class = class as u32;
    if class < 2 * STEPS { class } else { (class % STEPS + STEPS) << (class / STEPS - 1) }
}

/// Free extents, by start and by length, in units. No two of them are adjacent.
#[derive(Debug, Default)]
struct Extents {
    by_start: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
}

impl Extents {
    fn insert(&mut self, start: u32, length: u32) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: u32, length: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }

    /// Adds an extent, and joins it with adjacent ones.
    fn insert_joined(&mut self, start: u32, length: u32) {
        let (mut first, mut end) = (start, start + length);
        let before = self.by_start.range(..start).next_back().map(|(start, length)| (*start, *length));
        if let Some((start, length)) = before.filter(|(start, length)| start + length == first) {
            self.remove(start, length);
            first = start;
        }
        if let Some(length) = self.by_start.get(&end).copied() {
            self.remove(end, length);
            end += length;
        }
        self.insert(first, end - first);
    }

    /// Returns the length of the longest block that can be cut, in units. Every start is aligned for an odd
    /// length, so an extent that cannot hold a block of its whole length can hold one that is a unit shorter.
    fn largest(&self) -> u32 {
        let longest = |(start, length): (&u32, &u32)| {
            if start.is_multiple_of(alignment_of(*length)) { *length } else { length - 1 }
        };
        self.by_start.iter().map(longest).max().unwrap_or(0)
    }

    /// Cuts `units` units, at their alignment, off the smallest extent in which they fit. Returns the start.
    fn cut(&mut self, units: u32) -> Option<u32> {
        let alignment = alignment_of(units);
        let fits = |&(length, start): &(u32, u32)| {
            let aligned = start.checked_next_multiple_of(alignment)?;
            (aligned - start <= length && units <= length - (aligned - start))
                .then_some((length, start, aligned))
        };
        let (length, start, aligned) = self.by_length.range((units, 0)..).find_map(fits)?;
        self.remove(start, length);
        if aligned > start {
            self.insert(start, aligned - start);
        }
        let end = aligned + units;
        if start + length > end {
            self.insert(end, start + length - end);
        }
        Some(aligned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ARENA: usize = 1 << 20;

    #[test]
    fn blocks_are_used_in_turns_within_what_the_caches_hold() {
        let mut blocks = BlockAllocator::new(16 << 20);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let block = blocks.allocate(64 << 10).unwrap();
            seen.insert(blocks.offset(block));
            blocks.free(block);
        }
        assert_eq!(seen.len() * (64 << 10), TURN_BYTES);
    }

    #[test]
    fn an_arena_can_be_used_whole_again() {
        let mut blocks = BlockAllocator::new(ARENA);
        let small: Vec<Block> = std::iter::from_fn(|| blocks.allocate(1)).collect();
        assert_eq!(small.len() * blocks.bytes(small[0]), ARENA);
        assert_eq!(blocks.allocate(ARENA), None);
        small.into_iter().for_each(|block| blocks.free(block));
        assert!(blocks.allocate(ARENA).is_some());
    }

    #[test]
    fn sizes_that_are_no_power_of_two() {
        assert_eq!(BlockAllocator::largest(ARENA), ARENA);
        for bytes in [ARENA + 4096, 3 << 20, 17 << 20] {
            assert_eq!(BlockAllocator::largest(bytes), bytes);
            let mut blocks = BlockAllocator::new(bytes);
            let block = blocks.allocate(bytes).unwrap();
            assert_eq!((blocks.bytes(block), blocks.allocate(1)), (bytes, None));
            blocks.free(block);
            assert!(blocks.allocate(bytes - 1).is_some());
        }
        assert!(BlockAllocator::new(ARENA).allocate(ARENA + 1).is_none());
        assert!(BlockAllocator::new(0).allocate(1).is_none());
    }

    #[test]
    fn as_many_fit_as_their_sizes_say() {
        let fitting = |arena: usize, bytes: usize| {
            let mut blocks = BlockAllocator::new(arena);
            std::iter::from_fn(|| blocks.allocate(bytes)).count()
        };
        // Frames of 1920 by 1080 pixels: 4:2:0, RGB, RGBA.
        assert_eq!(fitting(16 << 20, 1920 * 1080 * 3 / 2), 5);
        assert_eq!(fitting(24 << 20, 1920 * 1080 * 3), 4);
        assert_eq!(fitting(64 << 20, 1920 * 1080 * 4), 8);
        assert_eq!(fitting(16 << 20, 4096), 4096);
        assert_eq!(fitting(16 << 20, 9000), (16 << 20) / 9216);
    }

    #[test]
    fn whole_pages_and_sectors_are_aligned() {
        let mut blocks = BlockAllocator::new(16 << 20);
        for number in 1..300usize {
            // A block of another length before each, so that the next extent starts at an odd position.
            let odd = blocks.allocate(128 * number).unwrap();
            for bytes in [number * 512, number * 4096] {
                let block = blocks.allocate(bytes).unwrap();
                let aligned = if bytes.is_multiple_of(4096) { 4096 } else { 512 };
                assert!(blocks.offset(block).is_multiple_of(aligned), "{bytes}");
                blocks.free(block);
            }
            blocks.free(odd);
        }
    }

    #[test]
    fn every_length_is_rounded_up_by_an_eighth_at_most() {
        for units in (1..5000).chain([1 << 20, (1 << 20) + 1, (1 << 31) - 1]) {
            let (class, length) = class_of(units);
            assert_eq!(length_of(class), length, "{units}");
            assert!(
                length >= units && u64::from(length - units) * 8 <= u64::from(units),
                "{units}: {length}"
            );
            assert_eq!(class_of(length), (class, length));
        }
    }

    proptest! {
        /// After any sequence of operations no two blocks overlap, none lies outside the arena, and each is
        /// large enough.
        #[test]
        fn blocks_never_overlap(
            sizes in proptest::collection::vec((1usize..100_000, any::<bool>()), 1..300),
            pages in 64usize..700,
        ) {
            let bytes = pages * 4096;
            let mut blocks = BlockAllocator::new(bytes);
            let mut held: Vec<(Block, usize)> = Vec::new();
            for (size, give) in sizes {
                if give && !held.is_empty() {
                    let (block, _) = held.swap_remove(size % held.len());
                    blocks.free(block);
                } else if let Some(block) = blocks.allocate(size) {
                    held.push((block, size));
                }
                let mut spans: Vec<(usize, usize)> = held
                    .iter()
                    .map(|(block, size)| {
                        assert!(blocks.bytes(*block) >= *size);
                        (blocks.offset(*block), blocks.offset(*block) + blocks.bytes(*block))
                    })
                    .collect();
                spans.sort_unstable();
                let usage = blocks.usage();
                let used: usize = held.iter().map(|(block, _)| blocks.bytes(*block)).sum();
                prop_assert_eq!((usage.bytes, usage.held, usage.held_bytes), (bytes, held.len(), used));
                prop_assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                prop_assert!(spans.last().is_none_or(|span| span.1 <= bytes));
            }
            // The largest free block can be allocated, and no larger one.
            let largest = blocks.usage().largest_free;
            prop_assert_eq!(blocks.allocate(largest + 1), None);
            prop_assert_eq!(blocks.allocate(largest).is_some(), largest > 0 || blocks.allocate(1).is_some());
        }
    }
}
