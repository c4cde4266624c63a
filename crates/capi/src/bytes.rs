//! Slices of the C program's memory, for copies in both directions.

use crate::error::{Failure, answer};
use std::ffi::c_int;
use std::slice;

/// Largest copy, in bytes, that is made under a table's lock: taking the lock twice would cost more.
pub(crate) const BRIEF_BYTES: usize = 4096;

/// Returns the caller's memory as a slice to be filled.
///
/// # Safety
/// `to` is null, or points to `size` bytes that only the caller accesses during the lifetime of the slice.
pub(crate) unsafe fn to_fill<'a>(to: *mut u8, size: usize) -> Result<&'a mut [u8], Failure> {
    match (to.is_null(), size) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failure::null(c"the pointer to the bytes to fill is null")),
        // SAFETY: the caller guarantees exclusive access to `size` bytes, and no object exceeds isize::MAX bytes.
        (false, size) => Ok(unsafe { slice::from_raw_parts_mut(to, size.min(isize::MAX as usize)) }),
    }
}

/// Returns the caller's memory as a slice to be copied from.
///
/// # Safety
/// `from` is null, or points to `size` readable bytes that no thread writes during the lifetime of the slice.
pub(crate) unsafe fn to_copy<'a>(from: *const u8, size: usize) -> Result<&'a [u8], Failure> {
    match (from.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::null(c"the pointer to the bytes to copy is null")),
        // SAFETY: the caller guarantees `size` readable bytes, and no object exceeds isize::MAX bytes.
        (false, size) => Ok(unsafe { slice::from_raw_parts(from, size.min(isize::MAX as usize)) }),
    }
}

/// Stores the number of copied bytes in `copied`, unless `copied` is null, and returns the result for C.
///
/// # Safety
/// `copied` is null or valid for writing.
pub(crate) unsafe fn answer_copied(done: Result<usize, Failure>, copied: *mut usize) -> c_int {
    answer(done.map(|done| {
        if !copied.is_null() {
            // SAFETY: not null, and the caller guarantees that it is valid for writing.
            unsafe { copied.write(done) };
        }
    }))
}
