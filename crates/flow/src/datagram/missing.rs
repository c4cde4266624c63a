//! Record of the parts of a stream that did not arrive.
//!
//! Invariant: ranges ascend and do not touch. There are at most [`RANGES_MAX`]; beyond that, the last one is
//! extended over bytes that arrived, and marked as merged; the number of missing bytes stays exact. Called by
//! [`super::assembly`].

use serde::Serialize;

/// Greatest number of ranges kept (16 KiB).
pub(crate) const RANGES_MAX: usize = 1024;

/// Range of positions in a stream, from `from` up to but excluding `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Range {
    /// Position of the first byte.
    pub from: u64,
    /// Position behind the last byte.
    pub to: u64,
}

/// Parts of a stream that did not arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missing {
    ranges: Vec<Range>,
    bytes: u64,
    merged: bool,
}

impl Missing {
    /// Adds a range, which must lie behind all ranges added before.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        debug_assert!(from < to && self.ranges.last().is_none_or(|last| last.to <= from));
        self.bytes += to - from;
        let is_full = self.ranges.len() >= RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.to == from => last.to = to,
            Some(last) if is_full => {
                last.to = to;
                self.merged = true;
            }
            _ => self.ranges.push(Range { from, to }),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Returns true if the last range also covers bytes that arrived.
    pub(crate) fn is_merged(&self) -> bool {
        self.merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut missing = Missing::default();
        missing.add(0, 10);
        missing.add(10, 20);
        missing.add(30, 40);
        assert_eq!(missing.ranges(), [Range { from: 0, to: 20 }, Range { from: 30, to: 40 }]);
        assert_eq!((missing.bytes(), missing.is_merged()), (30, false));
    }

    #[test]
    fn too_many_ranges_are_merged_and_it_says_so() {
        let mut missing = Missing::default();
        for number in 0..RANGES_MAX as u64 + 10 {
            missing.add(number * 10, number * 10 + 5);
        }
        assert_eq!(missing.ranges().len(), RANGES_MAX);
        assert!(missing.is_merged());
        assert_eq!(missing.bytes(), (RANGES_MAX as u64 + 10) * 5);
        assert_eq!(missing.ranges()[RANGES_MAX - 1].to, (RANGES_MAX as u64 + 9) * 10 + 5);
    }
}
