//! State of each page of a window: one byte with two flags, looked at only where not all pages of a group
//! ([`crate::groups`]) are in the page tables.
//!
//! *seen*: the kernel has served the page on this open file, so it was in the page cache. *mapped*: it was read
//! through the mapping, or a page beside it was, so that the next read of it takes no page fault.
//!
//! Invariant: these are hints. A lost update costs time, never data; that is why plain loads and stores
//! suffice.

use bywash_sync::{AtomicU8, Ordering::Relaxed};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// log2 of [`PAGE_BYTES`].
pub const PAGE_SHIFT: u32 = 12;

const SEEN: u8 = 0b01;
const MAPPED: u8 = 0b10;

/// The pages that a request of `length > 0` bytes from `start` on touches.
#[inline]
pub fn pages_of(start: usize, length: usize) -> core::ops::RangeInclusive<usize> {
    start >> PAGE_SHIFT..=(start + length - 1) >> PAGE_SHIFT
}

/// Whether the kernel served this page before.
#[inline]
pub fn is_seen(page: &AtomicU8) -> bool {
    page.load(Relaxed) & SEEN != 0
}

/// Notes that the kernel served this page.
#[inline]
pub fn set_seen(page: &AtomicU8) {
    let value = page.load(Relaxed);
    if value & SEEN == 0 {
        page.store(value | SEEN, Relaxed);
    }
}

/// Whether this page is taken to be in the page tables.
#[inline]
pub fn is_mapped(page: &AtomicU8) -> bool {
    page.load(Relaxed) & MAPPED != 0
}

/// Notes that this page, if it was seen, is in the page tables.
#[inline]
pub fn set_mapped(page: &AtomicU8) {
    let value = page.load(Relaxed);
    if value & (SEEN | MAPPED) == SEEN {
        page.store(value | MAPPED, Relaxed);
    }
}

/// Notes that this page is in no page table.
pub fn set_unmapped(page: &AtomicU8) {
    let value = page.load(Relaxed);
    if value & MAPPED != 0 {
        page.store(value & !MAPPED, Relaxed);
    }
}

/// Forgets all flags of this page.
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
