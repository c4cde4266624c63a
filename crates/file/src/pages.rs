//! What is remembered of each page of a window: one byte.
//!
//! ```text
//!  7     4    3      2      0
//! +-------+---------+--------+
//! | epoch | settled |  heat  |
//! +-------+---------+--------+
//! ```
//!
//! *heat*: 0, never seen; 1, the kernel has served the page on this file, so it was in the page cache; then
//! to `HOT`, written by the kernel, where all steps but the first are taken by lot, so that few bits count to
//! many; then what was found out about the page's folio. What is more than 1 counts only while *epoch* is the
//! file's, which moves on with every fsync. *settled*: streams have passed over the page often enough.
//!
//! Invariant: these are hints. A lost update or an epoch that came round again costs time, never data; that
//! is why plain loads and stores suffice.

use crate::policy::Heat;
use bywash_sync::{AtomicU8, Ordering::Relaxed};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// log2 of [`PAGE_BYTES`].
pub const PAGE_SHIFT: u32 = 12;

const HEAT_MASK: u8 = 0b111;
const SEEN: u8 = 1;
const SETTLED: u8 = 0b1000;
const EPOCH_SHIFT: u32 = 4;

/// The pages that a request of `length > 0` bytes from `start` on touches.
#[inline]
pub fn pages_of(start: usize, length: usize) -> core::ops::RangeInclusive<usize> {
    start >> PAGE_SHIFT..=(start + length - 1) >> PAGE_SHIFT
}

/// Whether the kernel served this page before.
#[inline]
pub fn is_seen(page: &AtomicU8) -> bool {
    page.load(Relaxed) & HEAT_MASK != 0
}

/// The kernel served this page.
#[inline]
pub fn set_seen(page: &AtomicU8) {
    let value = page.load(Relaxed);
    if value & HEAT_MASK == 0 {
        page.store(value | SEEN, Relaxed);
    }
}

/// Whether streams may read this page through the mapping.
#[inline]
pub fn is_settled(page: &AtomicU8) -> bool {
    page.load(Relaxed) & SETTLED != 0
}

/// Streams have passed over this page, which is there, often enough.
#[inline]
pub fn settle(page: &AtomicU8) {
    set_seen(page);
    let value = page.load(Relaxed);
    if value & SETTLED == 0 {
        page.store(value | SETTLED, Relaxed);
    }
}

/// Forget everything about this page.
pub fn forget(page: &AtomicU8) {
    if page.load(Relaxed) != 0 {
        page.store(0, Relaxed);
    }
}

/// The heat of a page that was written often enough.
const HOT: u8 = SEEN + 4;
const LARGE: u8 = HOT + 1;
const SMALL: u8 = HOT + 2;
/// Steps that are taken by lot.
pub const STEPS_BY_LOT: u32 = (HOT - SEEN) as u32 - 1;
const _: () = assert!(SMALL <= HEAT_MASK);

/// The heat field, if it is of this epoch; else that of a page that was only seen.
#[inline]
fn heat_field(page: &AtomicU8, epoch: u8) -> u8 {
    let value = page.load(Relaxed);
    if value >> EPOCH_SHIFT == epoch & 15 { (value & HEAT_MASK).max(SEEN) } else { SEEN }
}

fn set_heat_field(page: &AtomicU8, epoch: u8, heat: u8) {
    let settled = page.load(Relaxed) & SETTLED;
    page.store(epoch << EPOCH_SHIFT | settled | heat, Relaxed);
}

/// How hot the page is in this epoch.
#[inline]
pub fn heat(page: &AtomicU8, epoch: u8) -> Heat {
    match heat_field(page, epoch) {
        SEEN => Heat::Clean,
        HOT => Heat::Hot,
        LARGE => Heat::Large,
        SMALL => Heat::Small,
        _ => Heat::Warm,
    }
}

/// Notes what was found out about a hot page: it is clean after all, or its folio is large or small.
pub fn found(page: &AtomicU8, epoch: u8, heat: Heat) {
    let field = match heat {
        Heat::Large => LARGE,
        Heat::Small => SMALL,
        Heat::Clean | Heat::Warm | Heat::Hot => SEEN,
    };
    set_heat_field(page, epoch, field);
}

/// The kernel wrote this page once more; `lot`: whether that counts beyond the first time.
#[inline]
pub fn warm(page: &AtomicU8, epoch: u8, lot: bool) {
    let heat = heat_field(page, epoch);
    if heat == SEEN || lot && heat < HOT {
        set_heat_field(page, epoch, heat + 1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn heat_belongs_to_an_epoch() {
        let page = AtomicU8::new(0);
        set_seen(&page);
        assert_eq!(heat(&page, 0), Heat::Clean);
        warm(&page, 3, false);
        warm(&page, 3, false);
        assert_eq!(heat(&page, 3), Heat::Warm);
        for _ in 0..STEPS_BY_LOT {
            assert_eq!(heat(&page, 3), Heat::Warm);
            warm(&page, 3, true);
        }
        assert_eq!(heat(&page, 3), Heat::Hot);
        assert_eq!(heat(&page, 4), Heat::Clean);
        found(&page, 4, Heat::Small);
        assert_eq!(heat(&page, 4), Heat::Small);
        warm(&page, 4, true);
        assert_eq!(heat(&page, 4), Heat::Small);
        assert!(is_seen(&page));
        forget(&page);
        assert!(!is_seen(&page));
    }

    #[test]
    fn settled_pages_stay_so_whatever_is_written() {
        let page = AtomicU8::new(0);
        assert!(!is_settled(&page));
        settle(&page);
        assert!(is_settled(&page) && is_seen(&page));
        warm(&page, 5, true);
        found(&page, 5, Heat::Small);
        assert_eq!(heat(&page, 5), Heat::Small);
        assert!(is_settled(&page));
        forget(&page);
        assert!(!is_settled(&page));
    }

    #[test]
    fn a_request_touches_its_pages() {
        assert_eq!(pages_of(0, 1), 0..=0);
        assert_eq!(pages_of(4095, 2), 0..=1);
        assert_eq!(pages_of(4096, 4096), 1..=1);
        assert_eq!(pages_of(8191, 4097), 1..=2);
    }
}
