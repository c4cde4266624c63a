//! Memory for blocks: aligned for every device, and warm after the first block.

use crate::error::Error;
use rustix::mm::{MapFlags, ProtFlags};
use std::ops::{Deref, DerefMut};

/// A private piece of memory, on pages of its own.
pub(crate) struct Memory {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: a mapping of its own, which nobody else refers to.
unsafe impl Send for Memory {}

impl Memory {
    /// So many bytes, zeros at first.
    pub(crate) fn new(bytes: usize) -> Result<Memory, Error> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // All pages at once: a fault for each costs more than the first block's way.
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice, unmapped by `drop` alone.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let base = base.map_err(|error| Error::io(format!("get {bytes} bytes of memory"), error))?;
        Ok(Memory { base: base.cast(), bytes })
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: all of the mapping, which lives as long as this.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
