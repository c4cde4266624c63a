//! State of each group of sixteen pages of a window, aligned in the file: one byte with three flags and a
//! count.
//!
//! ```text
//!   7..4 visits   2 looked at   1 partly   0 warm
//! ```
//!
//! - *warm*: every page of the group that lies within the file is in the page tables, so that a read of the
//!   group takes no page fault.
//! - *partly*: some pages of the group are in the page tables; their page states ([`crate::pages`]) say
//!   which.
//! - *looked at*: the page cache was asked for the group, and some page was not cached.
//! - *visits*: number of reads of the group that the kernel has served, up to fifteen; a stream that passes
//!   over the group counts once.
//!
//! A read that the kernel serves touches one of these bytes and no other memory that depends on its offset.
//! The group bytes of 200 MB are 3,200 bytes and stay in the processor's caches beside the data; one byte for
//! each page would not, and a cache miss costs a twentieth of a read.
//!
//! Invariant: group states are hints. A lost update costs time, never data, so plain loads and stores
//! suffice.

use crate::pages::PAGE_SHIFT;
use bywash_sync::{AtomicU8, Ordering::Relaxed};

/// Number of pages of a group: as many as the kernel maps at one read fault.
pub const GROUP_PAGES: usize = 16;
/// Base-2 logarithm of [`GROUP_BYTES`].
pub const GROUP_SHIFT: u32 = PAGE_SHIFT + GROUP_PAGES.trailing_zeros();
/// Size of a group, in bytes.
pub const GROUP_BYTES: usize = 1 << GROUP_SHIFT;

const WARM: u8 = 0b1;
const PARTLY: u8 = 0b10;
const LOOKED_AT: u8 = 0b100;
const VISIT: u8 = 0b1_0000;
/// Greatest number of visits that a group state can hold.
pub const VISITS_MAX: u8 = u8::MAX / VISIT;

/// Returns the range of groups that a request of `length > 0` bytes from `start` on touches.
#[inline(always)]
pub fn groups_of(start: usize, length: usize) -> core::ops::RangeInclusive<usize> {
    start >> GROUP_SHIFT..=(start + length - 1) >> GROUP_SHIFT
}

/// Returns true if a read of this group takes no page fault.
#[inline(always)]
pub fn is_warm(group: &AtomicU8) -> bool {
    group.load(Relaxed) & WARM != 0
}

/// Returns true if at least one page of this group is in the page tables.
#[inline(always)]
pub fn is_mapped_somewhere(group: &AtomicU8) -> bool {
    group.load(Relaxed) & (WARM | PARTLY) != 0
}

/// Returns the number of reads of this group that the kernel has served, up to [`VISITS_MAX`].
#[inline(always)]
pub fn visits(group: &AtomicU8) -> u8 {
    group.load(Relaxed) / VISIT
}

/// Returns true if the page cache was asked for this group and some page was not cached.
#[inline]
pub fn is_looked_at(group: &AtomicU8) -> bool {
    group.load(Relaxed) & LOOKED_AT != 0
}

/// Counts a read of this group that the kernel serves.
#[inline(always)]
pub fn visit(group: &AtomicU8) {
    let value = group.load(Relaxed);
    if value < VISITS_MAX * VISIT {
        group.store(value + VISIT, Relaxed);
    }
}

/// Notes that the page cache was asked for this group and some page was not cached.
pub fn set_looked_at(group: &AtomicU8) {
    set(group, LOOKED_AT);
}

/// Notes that at least one page of this group is in the page tables.
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
