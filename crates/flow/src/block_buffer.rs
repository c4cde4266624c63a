//! Page-aligned buffers for the blocks of a flow, populated when they are allocated.

use crate::error::Error;
use rustix::mm::{MapFlags, ProtFlags};
use std::ops::{Deref, DerefMut};

/// A private anonymous mapping, aligned to pages, with pages behind it from the start.
pub(crate) struct BlockBuffer {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping is private to this value, which alone holds its address, so any thread may own it.
unsafe impl Send for BlockBuffer {}

impl BlockBuffer {
    /// Maps `bytes` bytes of zeroed memory and populates all pages.
    pub(crate) fn new(bytes: usize) -> Result<BlockBuffer, Error> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Populating all pages at once costs less than one page fault per page of the first block.
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an unused address, so no memory in use is replaced; only `drop` unmaps
        // it.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let base = base.map_err(|error| Error::io(format!("get {bytes} bytes of memory"), error))?;
        Ok(BlockBuffer { base: base.cast(), bytes })
    }
}

impl Deref for BlockBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `base` and `bytes` describe the whole mapping, which stays mapped as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }
    }
}

impl DerefMut for BlockBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping stays mapped as long as `self` lives, and `&mut self` makes this reference
        // exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }
}

impl Drop for BlockBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value alone, and no reference to it outlives the value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
