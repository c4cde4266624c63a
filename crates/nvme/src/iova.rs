//! Addresses by which a controller accesses memory (I/O virtual addresses). Pure.
//!
//! Invariant: ranges that are taken never overlap, lie within the ranges that the IOMMU allows, and begin at a multiple
//! of 2 MiB if they are that large, so that the IOMMU can use large pages. Called by the function of VFIO and by the
//! controller in software.

use crate::dma::PAGE;
use std::ops::Range;

/// Size of the large page that long ranges are aligned to, in bytes.
const LARGE: u64 = 2 << 20;

/// Free addresses, as ranges in ascending order that neither overlap nor touch.
#[derive(Clone, Debug)]
pub struct IovaSpace {
    free: Vec<Range<u64>>,
}

impl IovaSpace {
    /// Makes a space of the addresses in `allowed` that are below `end`. The first page is never given out, so that an
    /// address of zero is always a mistake.
    pub fn new(allowed: impl IntoIterator<Item = Range<u64>>, end: u64) -> IovaSpace {
        let page = PAGE as u64;
        let whole = |range: Range<u64>| {
            let start = range.start.max(page).checked_next_multiple_of(page)?;
            let end = range.end.min(end) / page * page;
            (start < end).then_some(start..end)
        };
        let mut space = IovaSpace { free: Vec::new() };
        for range in allowed.into_iter().filter_map(whole) {
            space.give_back(range.start, range.end - range.start);
        }
        space
    }

    /// Takes `bytes` bytes, a multiple of a page. `None` if no free range is long enough.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let alignment = if bytes >= LARGE { LARGE } else { PAGE as u64 };
        for (index, range) in self.free.iter().enumerate() {
            let range = range.clone();
            let Some(start) = range.start.checked_next_multiple_of(alignment) else { continue };
            let Some(end) = start.checked_add(bytes).filter(|end| *end <= range.end) else { continue };
            let rest = [range.start..start, end..range.end];
            self.free.splice(index..=index, rest.into_iter().filter(|range| !range.is_empty()));
            return Some(start);
        }
        None
    }

    /// Gives a range back.
    pub fn give_back(&mut self, start: u64, bytes: u64) {
        let mut range = start..start + bytes;
        let at = self.free.partition_point(|free| free.end < range.start);
        let mut last = at;
        while let Some(next) = self.free.get(last).filter(|next| next.start <= range.end) {
            range = range.start.min(next.start)..range.end.max(next.end);
            last += 1;
        }
        self.free.splice(at..last, [range]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // The addresses that an Intel IOMMU leaves beside those of interrupts.
    const ALLOWED: [Range<u64>; 2] = [0..0xfee0_0000, 0xfef0_0000..1 << 39];

    #[test]
    fn neither_zero_nor_the_addresses_of_interrupts_are_given_out() {
        let mut space = IovaSpace::new(ALLOWED, 1 << 39);
        assert_eq!(space.take(4096), Some(4096));
        assert_eq!(space.take(2 << 20), Some(2 << 20));
        let large = 0xfed0_0000;
        assert_eq!(space.take(large), Some(0xff00_0000));
        assert_eq!(space.take(1 << 39), None);
    }

    #[test]
    fn what_is_given_back_joins() {
        let mut space = IovaSpace::new(std::iter::once(0x1000..0x9000), u64::MAX);
        let taken: Vec<_> = (0..8).map(|_| space.take(4096).unwrap()).collect();
        assert_eq!(space.take(4096), None);
        for index in [0, 2, 1, 7, 5, 6, 3, 4] {
            space.give_back(taken[index], 4096);
        }
        assert_eq!(space.take(0x8000), Some(0x1000));
    }

    proptest! {
        #[test]
        fn ranges_never_overlap(steps in prop::collection::vec((any::<bool>(), 1u64..2000), 1..200)) {
            let mut space = IovaSpace::new(ALLOWED, 0x1_0000_0000);
            let mut taken: Vec<Range<u64>> = Vec::new();
            for (takes, number) in steps {
                if takes {
                    let bytes = number * 4096;
                    let Some(start) = space.take(bytes) else { continue };
                    let range = start..start + bytes;
                    prop_assert!(ALLOWED.iter().any(|allowed| allowed.start <= start && range.end <= allowed.end));
                    prop_assert!(start.is_multiple_of(4096) && (bytes < LARGE || start.is_multiple_of(LARGE)));
                    prop_assert!(taken.iter().all(|other| other.end <= range.start || range.end <= other.start));
                    taken.push(range);
                } else if !taken.is_empty() {
                    let range = taken.swap_remove(number as usize % taken.len());
                    space.give_back(range.start, range.end - range.start);
                }
            }
            for range in taken {
                space.give_back(range.start, range.end - range.start);
            }
            prop_assert_eq!(space.free, IovaSpace::new(ALLOWED, 0x1_0000_0000).free);
        }
    }
}
