//! State of each group of sixteen pages of a window, aligned in the file: one byte with three flags and a count.
//!
//! ```text
//!   7..4 visits   2 looked at   1 partly   0 warm
//! ```
//!
//! *warm*: every page of the group that the file has was in the page cache and is in the page tables, so that a
//! read of it takes no page fault. *partly*: some page of the group is in the page tables, and the states of its
//! pages ([`crate::pages`]) say which. *looked at*: not all pages of the group were cached when they were asked
//! for last. *visits*: reads of the group that the kernel has served, up to fifteen; a stream that passes over
//! it is one.
//!
//! A read that the kernel serves looks at one of these bytes and at nothing else that depends on where it
//! reads: the bytes of 200 MB are 3,200, which stay in the processor's caches beside the data, where a byte for
//! each page does not, and one miss there costs a twentieth of a read.
//!
//! Invariant: these are hints, as those of pages.

use crate::pages::PAGE_SHIFT;
use bywash_sync::{AtomicU8, Ordering::Relaxed};

/// Pages of a group: as many as a read fault maps.
pub const GROUP_PAGES: usize = 16;
/// log2 of the bytes of a group.
pub const GROUP_SHIFT: u32 = PAGE_SHIFT + GROUP_PAGES.trailing_zeros();
/// Bytes of a group.
pub const GROUP_BYTES: usize = 1 << GROUP_SHIFT;

const WARM: u8 = 0b1;
const PARTLY: u8 = 0b10;
const LOOKED_AT: u8 = 0b100;
const VISIT: u8 = 0b1_0000;
/// Largest number of visits that a state can hold.
pub const VISITS_MAX: u8 = u8::MAX / VISIT;

/// The groups that a request of `length > 0` bytes from `start` on touches.
#[inline(always)]
pub fn groups_of(start: usize, length: usize) -> core::ops::RangeInclusive<usize> {
    start >> GROUP_SHIFT..=(start + length - 1) >> GROUP_SHIFT
}

/// Returns whether a read of this group takes no page fault.
#[inline(always)]
pub fn is_warm(group: &AtomicU8) -> bool {
    group.load(Relaxed) & WARM != 0
}

/// Returns whether some page of this group is in the page tables.
#[inline(always)]
pub fn is_mapped_somewhere(group: &AtomicU8) -> bool {
    group.load(Relaxed) & (WARM | PARTLY) != 0
}

/// Reads of this group that the kernel has served.
#[inline(always)]
pub fn visits(group: &AtomicU8) -> u8 {
    group.load(Relaxed) / VISIT
}

/// Returns whether the pages of this group were looked at and not all cached.
#[inline]
pub fn is_looked_at(group: &AtomicU8) -> bool {
    group.load(Relaxed) & LOOKED_AT != 0
}

/// Notes that the kernel serves a read of this group.
#[inline(always)]
pub fn visit(group: &AtomicU8) {
    let value = group.load(Relaxed);
    if value < VISITS_MAX * VISIT {
        group.store(value + VISIT, Relaxed);
    }
}

/// Notes that the pages of this group were looked at and not all cached.
pub fn set_looked_at(group: &AtomicU8) {
    set(group, LOOKED_AT);
}

/// Notes that some page of this group is in the page tables.
pub fn set_partly(group: &AtomicU8) {
    set(group, PARTLY);
}

/// Notes that all pages of this group are in the page tables.
pub fn set_warm(group: &AtomicU8) {
    set(group, WARM);
}

/// Notes that no page of this group is in the page tables.
pub fn set_unmapped(group: &AtomicU8) {
    let value = group.load(Relaxed);
    if value & (WARM | PARTLY) != 0 {
        group.store(value & !(WARM | PARTLY), Relaxed);
    }
}

#[inline(always)]
fn set(group: &AtomicU8, flag: u8) {
    let value = group.load(Relaxed);
    if value & flag == 0 {
        group.store(value | flag, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_unmapped_remembers_its_visits() {
        let group = AtomicU8::new(0);
        assert!(visits(&group) == 0 && !is_mapped_somewhere(&group));
        visit(&group);
        set_partly(&group);
        assert!(is_mapped_somewhere(&group) && !is_warm(&group));
        set_warm(&group);
        visit(&group);
        assert!(is_warm(&group) && visits(&group) == 2);
        set_unmapped(&group);
        assert!(visits(&group) == 2 && !is_mapped_somewhere(&group) && !is_looked_at(&group));
    }

    #[test]
    fn visits_are_counted_up_to_fifteen() {
        let group = AtomicU8::new(0);
        set_looked_at(&group);
        (0..40).for_each(|_| visit(&group));
        assert!(visits(&group) == VISITS_MAX && is_looked_at(&group) && !is_mapped_somewhere(&group));
    }

    #[test]
    fn a_request_touches_its_groups() {
        assert_eq!(groups_of(0, GROUP_BYTES), 0..=0);
        assert_eq!(groups_of(GROUP_BYTES - 1, 2), 0..=1);
    }
}
