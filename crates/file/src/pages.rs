//! State of each page of a window: one byte with two flags. A state is used only where not all pages of a
//! group ([`crate::groups`]) are in the page tables.
//!
//! - *seen*: the kernel has served the page on this open file, or reported it as cached, so the page was in
//!   the page cache.
//! - *mapped*: the page or a page beside it was read through the mapping, so that the next read of the page
//!   takes no page fault.
//!
//! Invariant: page states are hints. A lost update costs time, never data, so plain loads and stores suffice.

use bywash_sync::{AtomicU8, Ordering::Relaxed};

/// Size of a page, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Base-2 logarithm of [`PAGE_BYTES`].
pub const PAGE_SHIFT: u32 = 12;

const SEEN: u8 = 0b01;
const MAPPED: u8 = 0b10;

/// Returns the range of pages that a request of `length > 0` bytes from `start` on touches.
#[inline]
pub fn pages_of(start: usize, length: usize) -> core::ops::RangeInclusive<usize> {
    start >> PAGE_SHIFT..=(start + length - 1) >> PAGE_SHIFT
}

/// Returns true if this page was in the page cache when it was last noted.
#[inline]
pub fn is_seen(page: &AtomicU8) -> bool {
    page.load(Relaxed) & SEEN != 0
}

/// Notes that this page is in the page cache.
#[inline]
pub fn set_seen(page: &AtomicU8) {
    let value = page.load(Relaxed);
    if value & SEEN == 0 {
        page.store(value | SEEN, Relaxed);
    }
}

/// Returns true if this page is taken to be in the page tables.
#[inline]
pub fn is_mapped(page: &AtomicU8) -> bool {
    page.load(Relaxed) & MAPPED != 0
}

/// Notes that this page is in the page tables; does nothing if the page was not seen.
#[inline]
pub fn set_mapped(page: &AtomicU8) {
    let value = page.load(Relaxed);
    if value & (SEEN | MAPPED) == SEEN {
        page.store(value | MAPPED, Relaxed);
    }
}

/// Notes that this page is not in the page tables.
pub fn set_unmapped(page: &AtomicU8) {
    let value = page.load(Relaxed);
    if value & MAPPED != 0 {
        page.store(value & !MAPPED, Relaxed);
    }
}

/// Clears all flags of this page.
pub fn forget(page: &AtomicU8) {
    if page.load(Relaxed) != 0 {
        page.store(0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_seen_page_is_mapped() {
        let page = AtomicU8::new(0);
        set_mapped(&page);
        assert!(!is_mapped(&page) && !is_seen(&page));
        set_seen(&page);
        set_mapped(&page);
        assert!(is_mapped(&page) && is_seen(&page));
        set_unmapped(&page);
        assert!(!is_mapped(&page) && is_seen(&page));
        forget(&page);
        assert!(!is_seen(&page));
    }

    #[test]
    fn a_request_touches_its_pages() {
        assert_eq!(pages_of(0, 1), 0..=0);
        assert_eq!(pages_of(4095, 2), 0..=1);
        assert_eq!(pages_of(4096, 4096), 1..=1);
        assert_eq!(pages_of(8191, 4097), 1..=2);
    }
}
