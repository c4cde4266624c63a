//! Place of the next batch in the area, which is written around.
//!
//! Invariant: a batch never overlaps a block from the tail on, so that no block with an acknowledged record is written
//! again before every file that has records in it is durable by itself.

use crate::layout::Geometry;

/// End of the log: what the next batch needs to know of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Block of the area behind the last batch; may be the end of the area.
    pub block: u64,
    /// Number of the next batch.
    pub number: u64,
    /// Checksum of the last batch.
    pub previous: u64,
}

impl Head {
    /// Head of a log without batches whose tail is at `block`.
    pub const fn empty(block: u64, number: u64) -> Head {
        Head { block, number, previous: 0 }
    }

    /// Returns the block of the area at which a batch of so many blocks goes; `None` if the log is full. `tail` is the
    /// block of the oldest batch and its number; with that of the next batch the log is empty.
    pub const fn next_block(&self, geometry: &Geometry, tail: (u64, u64), blocks: u64) -> Option<u64> {
        let area = geometry.area_blocks();
        let (tail_block, tail_number) = tail;
        let is_empty = tail_number == self.number;
        if is_empty || self.block > tail_block {
            if self.block + blocks <= area {
                return Some(self.block);
            }
            // The batch goes to the beginning of the area, and must leave a block before the tail: head and tail are at
            // the same block only in an empty log.
            let limit = if is_empty { area + 1 } else { tail_block };
            return if blocks < limit { Some(0) } else { None };
        }
        if self.block + blocks < tail_block { Some(self.block) } else { None }
    }

    /// Returns the head behind a batch at `block`.
    pub const fn behind(&self, block: u64, blocks: u64, checksum: u64) -> Head {
        Head { block: block + blocks, number: self.number + 1, previous: checksum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_batch_that_does_not_fit_goes_to_the_beginning() {
        let geometry = Geometry::new(2 + 3 + 1024, 1).unwrap();
        let at = |block, number, tail, blocks| {
            Head { block, number, previous: 0 }.next_block(&geometry, tail, blocks)
        };
        assert_eq!(at(1020, 9, (500, 3), 4), Some(1020));
        assert_eq!(at(1021, 9, (500, 3), 4), Some(0));
        assert_eq!(at(1024, 9, (4, 3), 4), None);
        assert_eq!(at(1024, 9, (5, 3), 4), Some(0));
        assert_eq!(at(3, 9, (7, 3), 4), None);
        assert_eq!(at(2, 9, (7, 3), 4), Some(2));
        // An empty log has all blocks.
        assert_eq!(at(1020, 9, (1020, 9), 256), Some(0));
    }

    proptest! {
        /// A queue of batches, of which the oldest are given up when there is no room: none ever overlaps another.
        #[test]
        fn batches_never_overlap(sizes in proptest::collection::vec(1u64..=256, 1..200)) {
            let geometry = Geometry::new(2 + 3 + 1024, 1).unwrap();
            let mut live = VecDeque::<(u64, u64, u64)>::new();
            let mut head = Head::empty(0, 1);
            for blocks in sizes {
                let block = loop {
                    let tail = live.front().map_or((head.block % 1024, head.number), |(block, _, number)| (*block, *number));
                    match head.next_block(&geometry, tail, blocks) {
                        Some(block) => break block,
                        None => prop_assert!(live.pop_front().is_some(), "an empty log has no room for {blocks}"),
                    }
                };
                prop_assert!(block + blocks <= geometry.area_blocks());
                for (other, length, _) in &live {
                    prop_assert!(block + blocks <= *other || other + length <= block);
                }
                live.push_back((block, blocks, head.number));
                head = head.behind(block, blocks, 0);
            }
        }
    }
}
