//! Which parts of an arena are free: a buddy system, kept by the arena's owner in memory of its own.
//!
//! An arena consists of units; a block is a power of two of them, at a multiple of its size. Blocks of a size are
//! used in turns. What has just come back is in the peer's nearest caches, from where it is dear to fetch; what
//! has not been used for long is in none. So new blocks are cut only until [`TURN_BYTES`] are in turn, or when
//! none has come back. Neighbours are joined only when nothing large enough is left, all at once.
//!
//! Nothing here is shared, so nothing that a peer does can confuse it. Each operation takes a few ns; to join
//! takes time in proportion to the free blocks, and happens at most once between two frees.

use std::collections::VecDeque;

/// Most units of an arena: what is kept of one block is four bytes.
const UNITS_MAX: usize = 1 << 14;
/// The smallest unit, in bytes.
const UNIT_BYTES_MIN: usize = 256;
/// Bytes of one size that are used in turns: what the larger caches hold (`bywash bench ipc`: 64 KiB at a time went
/// at 17 GiB/s through 16 MiB, at 22 through what was freed last, and at 33 through 4 MiB).
const TURN_BYTES: usize = 4 << 20;
const ORDERS: usize = UNITS_MAX.trailing_zeros() as usize + 1;

/// A part of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    unit: u32,
    order: u8,
}

/// The free blocks of an arena.
#[derive(Debug)]
pub struct Blocks {
    unit_bytes: usize,
    free: [VecDeque<u32>; ORDERS],
    /// Blocks that there are of each size, free or not.
    blocks: [u32; ORDERS],
    /// Whether something was freed since neighbours were joined last.
    may_join: bool,
}

impl Blocks {
    /// An arena of `bytes`, a multiple of 4096, all free.
    pub fn new(bytes: usize) -> Blocks {
        let unit_bytes = bytes.div_ceil(UNITS_MAX).next_power_of_two().max(UNIT_BYTES_MIN);
        let mut blocks =
            Blocks { unit_bytes, free: Default::default(), blocks: [0; ORDERS], may_join: false };
        let units = bytes / unit_bytes;
        let mut unit = 0;
        while unit < units {
            let order = ((units - unit).ilog2()).min(unit.trailing_zeros()).min(ORDERS as u32 - 1);
            blocks.free[order as usize].push_back(unit as u32);
            blocks.blocks[order as usize] += 1;
            unit += 1 << order;
        }
        blocks
    }

    /// Where a block begins in the arena, in bytes.
    #[inline]
    pub fn offset(&self, block: Block) -> usize {
        block.unit as usize * self.unit_bytes
    }

    /// Bytes of a block.
    #[inline]
    pub fn bytes(&self, block: Block) -> usize {
        self.unit_bytes << block.order
    }

    #[inline]
    fn order_for(&self, bytes: usize) -> usize {
        bytes.max(1).div_ceil(self.unit_bytes).next_power_of_two().trailing_zeros() as usize
    }

    /// A block of at least `bytes`, if there is one.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Option<Block> {
        let order = self.order_for(bytes);
        if order >= ORDERS {
            return None;
        }
        let in_turn = (self.blocks[order] as usize * self.unit_bytes) << order >= TURN_BYTES;
        if !in_turn && let Some(block) = self.split(order, order + 1) {
            return Some(block);
        }
        if let Some(unit) = self.free[order].pop_front() {
            return Some(Block { unit, order: order as u8 });
        }
        self.split(order, order).or_else(|| {
            self.join();
            self.split(order, order)
        })
    }

    /// Takes a block of `order` off one of order `least` or more.
    #[cold]
    fn split(&mut self, order: usize, least: usize) -> Option<Block> {
        let larger = (least..ORDERS).find(|larger| !self.free[*larger].is_empty())?;
        let unit = self.free[larger].pop_front()?;
        self.blocks[larger] -= 1;
        for half in (order..larger).rev() {
            self.free[half].push_back(unit + (1 << half));
            self.blocks[half] += 1;
        }
        self.blocks[order] += 1;
        Some(Block { unit, order: order as u8 })
    }

    /// Gives a block back.
    #[inline]
    pub fn give(&mut self, block: Block) {
        self.free[block.order as usize].push_back(block.unit);
        self.may_join = true;
    }

    /// Joins all free neighbours that belong together.
    #[cold]
    fn join(&mut self) {
        if !std::mem::take(&mut self.may_join) {
            return;
        }
        for order in 0..ORDERS - 1 {
            let mut units = Vec::from(std::mem::take(&mut self.free[order]));
            units.sort_unstable();
            let mut alone = VecDeque::with_capacity(units.len());
            let mut at = 0;
            while at < units.len() {
                let unit = units[at];
                let buddy = unit + (1 << order);
                if unit & (1 << order) == 0 && units.get(at + 1) == Some(&buddy) {
                    self.free[order + 1].push_back(unit);
                    self.blocks[order + 1] += 1;
                    self.blocks[order] -= 2;
                    at += 2;
                } else {
                    alone.push_back(unit);
                    at += 1;
                }
            }
            self.free[order] = alone;
        }
    }

    /// Bytes of the largest block that there can ever be in an arena of `bytes`.
    pub fn largest(bytes: usize) -> usize {
        let blocks = Blocks::new(bytes);
        let order = (0..ORDERS).rev().find(|order| !blocks.free[*order].is_empty());
        order.map_or(0, |order| blocks.unit_bytes << order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ARENA: usize = 1 << 20;

    #[test]
    fn blocks_are_used_in_turns_within_what_the_caches_hold() {
        let mut blocks = Blocks::new(16 << 20);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let block = blocks.take(64 << 10).unwrap();
            seen.insert(blocks.offset(block));
            blocks.give(block);
        }
        assert_eq!(seen.len() * (64 << 10), TURN_BYTES);
    }

    #[test]
    fn an_arena_can_be_used_whole_again() {
        let mut blocks = Blocks::new(ARENA);
        let small: Vec<Block> = std::iter::from_fn(|| blocks.take(1)).collect();
        assert_eq!(small.len() * blocks.bytes(small[0]), ARENA);
        assert_eq!(blocks.take(ARENA), None);
        small.into_iter().for_each(|block| blocks.give(block));
        assert!(blocks.take(ARENA).is_some());
    }

    #[test]
    fn sizes_that_are_no_power_of_two() {
        assert_eq!(Blocks::largest(ARENA), ARENA);
        assert_eq!(Blocks::largest(ARENA + 4096), ARENA);
        assert_eq!(Blocks::largest(3 << 20), 2 << 20);
        assert!(Blocks::new(ARENA).take(ARENA + 1).is_none());
    }

    proptest! {
        /// However it is used, no two blocks overlap, none lies outside, and each is large enough.
        #[test]
        fn blocks_never_overlap(
            sizes in proptest::collection::vec((1usize..100_000, any::<bool>()), 1..300),
            pages in 64usize..700,
        ) {
            let bytes = pages * 4096;
            let mut blocks = Blocks::new(bytes);
            let mut held: Vec<(Block, usize)> = Vec::new();
            for (size, give) in sizes {
                if give && !held.is_empty() {
                    let (block, _) = held.swap_remove(size % held.len());
                    blocks.give(block);
                } else if let Some(block) = blocks.take(size) {
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
                prop_assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                prop_assert!(spans.last().is_none_or(|span| span.1 <= bytes));
            }
        }
    }
}
