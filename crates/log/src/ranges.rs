//! Ranges of a file that were written since its last commit, noted without a lock by all who write the file.
//!
//! A writer notes its range before the kernel's write and again behind it. A commit takes the ranges out and then reads
//! the file. So a write that a commit did not read is noted when the writer returns:
//!
//! ```text
//!   writer:  note ── write ── fence ── note again        commit:  take ── read the file
//! ```
//!
//! If the second note finds the range still noted, it was not taken before, so a later commit reads the write. If it was
//! taken, the second note puts it back.
//!
//! A range is kept in units of [`UNIT`] bytes, rounded outwards: a commit may hold more bytes than were written, never
//! fewer. Noting costs a look at the slots in use, most often one; [`RangeSet::note`] allocates nothing and ends after a
//! limited number of attempts.

use bywash_sync::{AtomicU64, Ordering, full_fence};

/// Size of the unit of ranges, in bytes.
pub const UNIT: u64 = 256;
/// Number of ranges that a file can have between two commits; more are joined.
pub const RANGES: usize = 32;
/// Greatest number of units of a range; a range with that many reaches to the end of the file.
const TO_THE_END: u64 = (1 << LENGTH_BITS) - 1;
const LENGTH_BITS: u32 = 24;
/// Attempts at a slot that others change at the same time.
const ATTEMPTS: usize = 64;

/// Range of a file in units of [`UNIT`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    start: u64,
    /// Number of units, at least one; [`TO_THE_END`]: up to the end of the file.
    units: u64,
}

impl Range {
    /// Returns the range that covers `length` bytes from `offset` on; `None` if there are none, or if the offset is beyond
    /// those of files.
    pub fn new(offset: u64, length: u64) -> Option<Range> {
        let end = offset.checked_add(length).filter(|end| length > 0 && *end <= i64::MAX as u64)?;
        let start = offset / UNIT;
        let units = end.div_ceil(UNIT) - start;
        (start < 1 << (64 - LENGTH_BITS)).then_some(Range { start, units: units.min(TO_THE_END) })
    }

    /// Returns the range from `offset` to the end of the file, wherever that will be.
    pub fn to_the_end(offset: u64) -> Option<Range> {
        Range::new(offset, 1).map(|range| Range { units: TO_THE_END, ..range })
    }

    /// Returns offset and length in bytes, in a file of `size` bytes; `None` if the range lies behind its end.
    pub fn bytes(&self, size: u64) -> Option<(u64, u64)> {
        let offset = self.start * UNIT;
        let length = if self.units == TO_THE_END { u64::MAX } else { self.units * UNIT };
        (offset < size).then(|| (offset, length.min(size - offset)))
    }

    fn end(&self) -> u64 {
        if self.units == TO_THE_END { u64::MAX } else { self.start + self.units }
    }

    /// Returns the smallest range that covers both.
    fn joined(&self, other: &Range) -> Range {
        let start = self.start.min(other.start);
        let end = self.end().max(other.end());
        Range { start, units: (end - start).min(TO_THE_END) }
    }

    /// Returns true if the ranges overlap or touch.
    fn touches(&self, other: &Range) -> bool {
        self.start <= other.end() && other.start <= self.end()
    }

    fn packed(&self) -> u64 {
        self.start << LENGTH_BITS | self.units
    }

    fn unpacked(word: u64) -> Option<Range> {
        (word != 0).then_some(Range { start: word >> LENGTH_BITS, units: word & TO_THE_END })
    }
}

/// Ranges of one file. All zero: none.
#[repr(C)]
#[derive(Debug)]
pub struct RangeSet {
    slots: [AtomicU64; RANGES],
}

impl RangeSet {
    /// Returns an empty set.
    #[cfg(not(loom))]
    pub const fn new() -> RangeSet {
        RangeSet { slots: [const { AtomicU64::new(0) }; RANGES] }
    }

    /// Notes a range. Returns false if others kept changing the slots, in which case the range may not be noted and the
    /// next commit of the file must be the kernel's.
    #[must_use]
    pub fn note(&self, range: Range) -> bool {
        // A write that is noted behind it is in the page cache before the slots are looked at.
        full_fence();
        for _ in 0..ATTEMPTS {
            match self.try_note(range) {
                Some(true) => return true,
                Some(false) => {}
                None => return false,
            }
        }
        false
    }

    /// Tries to note a range: in the first slot with a range that it touches, else in an empty one, else in the slot that
    /// grows least. False if somebody else changed that slot meanwhile.
    fn try_note(&self, range: Range) -> Option<bool> {
        let mut best: Option<(usize, u64, Range, u64)> = None;
        for (number, slot) in self.slots.iter().enumerate() {
            // SYNC: range-slot (acquire; the exchange below and `take` release).
            let word = slot.load(Ordering::Acquire);
            let (joined, growth) = match Range::unpacked(word) {
                None => (range, 0),
                Some(there) => {
                    let joined = there.joined(&range);
                    if joined == there {
                        return Some(true);
                    }
                    // A range that touches is better than an empty slot, which is better than a gap that joins.
                    if there.touches(&range) {
                        best = Some((number, word, joined, 0));
                        break;
                    }
                    (joined, (joined.end() - joined.start).saturating_add(1))
                }
            };
            if best.is_none_or(|(_, _, _, least)| growth < least) {
                best = Some((number, word, joined, growth));
            }
        }
        let (number, word, joined, _) = best?;
        // SYNC: range-slot (release and acquire).
        let set =
            self.slots[number].compare_exchange(word, joined.packed(), Ordering::AcqRel, Ordering::Relaxed);
        Some(set.is_ok())
    }

    /// Returns true if no range is noted.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.load(Ordering::Acquire) == 0)
    }

    /// Moves all ranges into `to`, which the caller's lock protects and which is empty. A range is in `to` before it is
    /// taken out here, so that none is lost if the process ends in between.
    pub fn take(&self, to: &RangeSet) {
        for (slot, kept) in self.slots.iter().zip(&to.slots) {
            let mut word = slot.load(Ordering::Acquire);
            while word != 0 {
                kept.store(word, Ordering::Relaxed);
                // SYNC: range-slot (release and acquire): the file is read behind this, and what a writer wrote before its
                // note, or before it found this note, is read.
                match slot.compare_exchange(word, 0, Ordering::SeqCst, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(now) => word = now,
                }
            }
            if word == 0 {
                kept.store(0, Ordering::Relaxed);
            }
        }
        full_fence();
    }

    /// Notes all ranges of `from` again and empties it; false as [`RangeSet::note`].
    #[must_use]
    pub fn put_back(&self, from: &RangeSet) -> bool {
        let mut all = true;
        for range in from.iter() {
            all &= self.note(range);
        }
        from.clear();
        all
    }

    /// Forgets all ranges.
    pub fn clear(&self) {
        for slot in &self.slots {
            slot.store(0, Ordering::Release);
        }
    }

    /// Returns the ranges.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.slots.iter().filter_map(|slot| Range::unpacked(slot.load(Ordering::Acquire)))
    }
}

#[cfg(not(loom))]
impl Default for RangeSet {
    fn default() -> RangeSet {
        RangeSet::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn covered(set: &RangeSet, size: u64) -> Vec<bool> {
        let mut bytes = std::vec![false; size as usize];
        for (offset, length) in set.iter().filter_map(|range| range.bytes(size)) {
            bytes[offset as usize..(offset + length) as usize].fill(true);
        }
        bytes
    }

    #[test]
    fn an_append_needs_one_slot() {
        let set = RangeSet::new();
        for page in 0..1000 {
            assert!(set.note(Range::new(page * 4096, 4096).unwrap()));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [Range::new(0, 4_096_000).unwrap()]);
    }

    #[test]
    fn a_range_to_the_end_covers_what_comes_later() {
        let range = Range::to_the_end(1000).unwrap();
        assert_eq!(range.bytes(768), None);
        assert_eq!(range.bytes(10_000), Some((768, 9232)));
        assert_eq!(Range::new(0, 5 << 32).unwrap().bytes(6 << 32), Some((0, 6 << 32)));
        assert_eq!((Range::new(0, 0), Range::new(u64::MAX, 1)), (None, None));
    }

    proptest! {
        #[test]
        fn all_that_was_noted_is_covered(ranges in proptest::collection::vec((0u64..200_000, 1u64..5000), 1..200)) {
            let (set, taken) = (RangeSet::new(), RangeSet::new());
            let mut model = std::vec![false; 210_000];
            for (offset, length) in &ranges {
                prop_assert!(set.note(Range::new(*offset, *length).unwrap()));
                model[*offset as usize..(offset + length) as usize].fill(true);
            }
            let now = covered(&set, 210_000);
            prop_assert!(model.iter().zip(&now).all(|(wanted, there)| !wanted || *there));
            set.take(&taken);
            prop_assert!(set.is_empty());
            prop_assert_eq!(covered(&taken, 210_000), now.clone());
            prop_assert!(set.put_back(&taken) && taken.is_empty());
            prop_assert_eq!(covered(&set, 210_000), now);
        }
    }
}
