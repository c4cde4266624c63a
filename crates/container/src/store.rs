//! Stores through pointers, to memory that others may read or write: no reference to it is made.

/// Copies bytes.
///
/// # Safety
/// As many bytes from `to` on are mapped for writing, nobody else in this process accesses them meanwhile, and `bytes`
/// does not overlap them.
#[inline]
pub(crate) unsafe fn bytes(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the range can be written and does not overlap the source; the caller says so.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

/// Stores at most `count` words in little-endian order.
///
/// # Safety
/// `count` words from `to` on are mapped for writing, and nobody else in this process accesses them meanwhile.
#[inline]
pub(crate) unsafe fn words(to: *mut u8, count: usize, words: impl Iterator<Item = u32>) {
    for (at, word) in (0..count).zip(words) {
        // SAFETY: word `at` of `count` can be written; the caller says so.
        unsafe { to.add(4 * at).cast::<u32>().write_unaligned(word.to_le()) };
    }
}
