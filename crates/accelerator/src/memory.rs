//! Memory of the processor for buffers and scenes, and its bytes as samples.
//!
//! A mapping begins at a page, as O_DIRECT asks for, and larger ones at a huge page. Pages without access lie on both
//! sides: a kernel that writes beyond its buffer ends the process instead of changing other data.
//!
//! Unsafe code: the mapping's system calls, and the view of aligned bytes as numbers.

#![allow(unsafe_code)]

use crate::error::Error;
use rustfft::num_complex::Complex32;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Size of a huge page, in bytes. A transfer to scattered small pages takes up to three times as long as one to a few large
/// ones.
const HUGE_PAGE: usize = 2 << 20;

/// Size of a sample, in bytes.
pub(crate) const SAMPLE: usize = size_of::<Complex32>();

/// Zeroed bytes of a mapping of their own.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: NonNull<c_void>,
    mapping_bytes: usize,
    /// First byte of the memory, aligned to a page.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value alone, which lends it by the rules of references.
unsafe impl Send for Memory {}
// SAFETY: shared references only read.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes` bytes. The kernel provides their pages when they are first used.
    ///
    /// # Errors
    /// [`Error::Memory`] if the process cannot have that much memory.
    pub(crate) fn new(bytes: usize) -> Result<Memory, Error> {
        let refused = || Error::Memory {
            device: "cpu".into(),
            bytes: bytes as u64,
            remedy: "ask for smaller or fewer blocks, or raise the limit of memory (ulimit -v)",
        };
        let page = rustix::param::page_size();
        let alignment = if bytes < HUGE_PAGE { page } else { HUGE_PAGE };
        let usable = bytes.max(1).checked_next_multiple_of(page).ok_or_else(refused)?;
        let mapping_bytes = usable.checked_add(page + alignment).ok_or_else(refused)?;
        // SAFETY: the kernel chooses the address, so no memory that is in use is replaced.
        let mapping = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapping_bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
        };
        let mapping = NonNull::new(mapping.map_err(|_| refused())?).ok_or_else(refused)?;
        let offset = (mapping.as_ptr() as usize + 1).next_multiple_of(alignment) - mapping.as_ptr() as usize;
        // SAFETY: `offset` is at most the alignment, and the mapping has the usable bytes and a page behind that.
        let start = unsafe { mapping.byte_add(offset) };
        let memory = Memory { mapping, mapping_bytes, start: start.cast(), bytes };
        // SAFETY: the range lies in the mapping that was just made, and nothing refers to it yet.
        unsafe { rustix::mm::mprotect(start.as_ptr(), usable, MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(|_| refused())?;
        if alignment == HUGE_PAGE {
            // A kernel without huge pages refuses the advice, and small pages are as right.
            // SAFETY: the advice changes no contents of the range, which lies in the mapping.
            let _ = unsafe { rustix::mm::madvise(start.as_ptr(), usable, Advice::LinuxHugepage) };
        }
        Ok(memory)
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has that many readable bytes, zero at first, until the value is dropped; only `bytes_mut`,
        // which borrows the value alone, gives access to change them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the bytes, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has that many writable bytes until the value is dropped, and the value is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no reference to it outlives the value. It can only fail for another
        // address than a mapping's.
        let _ = unsafe { rustix::mm::munmap(self.mapping.as_ptr(), self.mapping_bytes) };
    }
}

/// Returns whole aligned bytes as samples.
pub(crate) fn samples(bytes: &[u8]) -> &[Complex32] {
    // SAFETY: a sample is two `f32` without padding, of which all bits are values.
    let (before, samples, behind) = unsafe { bytes.align_to::<Complex32>() };
    assert!(before.is_empty() && behind.is_empty(), "buffers begin at a sample and have whole ones");
    samples
}

/// Returns whole aligned bytes as samples, to be changed.
pub(crate) fn samples_mut(bytes: &mut [u8]) -> &mut [Complex32] {
    // SAFETY: a sample is two `f32` without padding, of which all bits are values; bytes have no invalid values either.
    let (before, samples, behind) = unsafe { bytes.align_to_mut::<Complex32>() };
    assert!(before.is_empty() && behind.is_empty(), "buffers begin at a sample and have whole ones");
    samples
}

/// Returns whole aligned bytes as numbers: the real and the imaginary part of each sample.
pub(crate) fn numbers(bytes: &[u8]) -> &[f32] {
    // SAFETY: all bits of an `f32` are values.
    let (before, numbers, behind) = unsafe { bytes.align_to::<f32>() };
    assert!(before.is_empty() && behind.is_empty(), "buffers begin at a number and have whole ones");
    numbers
}

/// Returns whole aligned bytes as numbers, to be changed.
pub(crate) fn numbers_mut(bytes: &mut [u8]) -> &mut [f32] {
    // SAFETY: all bits of an `f32` are values; bytes have no invalid values either.
    let (before, numbers, behind) = unsafe { bytes.align_to_mut::<f32>() };
    assert!(before.is_empty() && behind.is_empty(), "buffers begin at a number and have whole ones");
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_at_a_page_and_is_zero() {
        for (bytes, alignment) in
            [(1, 4096), (3 * 4096, 4096), (HUGE_PAGE, HUGE_PAGE), (HUGE_PAGE + 9, HUGE_PAGE)]
        {
            let mut memory = Memory::new(bytes).unwrap();
            assert!((memory.bytes().as_ptr() as usize).is_multiple_of(alignment));
            assert_eq!(memory.bytes().len(), bytes);
            assert!(memory.bytes().iter().all(|byte| *byte == 0));
            memory.bytes_mut().fill(1);
            assert!(memory.bytes().iter().all(|byte| *byte == 1));
        }
    }

    #[test]
    fn memory_that_nobody_has_is_refused() {
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 62] {
            let error = Memory::new(bytes).unwrap_err();
            assert!(
                matches!(&error, Error::Memory { bytes: asked, .. } if *asked == bytes as u64),
                "{error}"
            );
        }
    }

    #[test]
    fn bytes_are_samples() {
        let mut memory = Memory::new(16).unwrap();
        samples_mut(memory.bytes_mut())[1] = Complex32::new(1.0, -2.0);
        assert_eq!(memory.bytes()[8..], [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        assert_eq!(samples(memory.bytes())[1], Complex32::new(1.0, -2.0));
        assert_eq!(numbers(memory.bytes()), [0.0, 0.0, 1.0, -2.0]);
    }
}
