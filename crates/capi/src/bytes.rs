//! Memory of the caller's, which is copied into or out of.

use crate::error::{Failure, answer};
use std::ffi::c_int;
use std::slice;

/// Copies of so many bytes are made under a table's lock, which costs less than to take it twice.
pub(crate) const BRIEF_BYTES: usize = 4096;

/// Where a copy goes.
///
/// # Safety
/// `to` is null, or `size` bytes there are the caller's to write, and nobody else's meanwhile.
pub(crate) unsafe fn to_fill<'a>(to: *mut u8, size: usize) -> Result<&'a mut [u8], Failure> {
    match (to.is_null(), size) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failure::null(c"the pointer to the bytes to fill is null")),
        // SAFETY: what the caller promises. No object is larger than isize::MAX.
        (false, size) => Ok(unsafe { slice::from_raw_parts_mut(to, size.min(isize::MAX as usize)) }),
    }
}

/// Where a copy comes from.
///
/// # Safety
/// `from` is null, or `size` bytes there can be read, and nobody writes them meanwhile.
pub(crate) unsafe fn to_copy<'a>(from: *const u8, size: usize) -> Result<&'a [u8], Failure> {
    match (from.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::null(c"the pointer to the bytes to copy is null")),
        // SAFETY: what the caller promises. No object is larger than isize::MAX.
        (false, size) => Ok(unsafe { slice::from_raw_parts(from, size.min(isize::MAX as usize)) }),
    }
}

/// Tells C how much was copied, if it wants to know.
///
/// # Safety
/// `copied` is null or the caller's to write.
pub(crate) unsafe fn answer_copied(done: Result<usize, Failure>, copied: *mut usize) -> c_int {
    answer(done.map(|done| {
        if !copied.is_null() {
            // SAFETY: what the caller promises.
            unsafe { copied.write(done) };
        }
    }))
}
