//! Memory of a disk's requests: a buffer for each tag, and the kernel's descriptors.
//!
//! Invariant: nothing in here is borrowed as bytes. The kernel and devices access buffers by address, and a buffer is one
//! request's alone from when the kernel hands it over until its result is committed. Commands of devices own the buffers.
//! Called by `queue`.

#![expect(unsafe_code, reason = "memory that the kernel and devices access by address")]

use crate::layout::DESCRIPTOR;
use bywash_device::Segment;
use bywash_export::Error;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::os::fd::AsFd;
use std::ptr;

/// A mapping, which ends with this value.
#[derive(Debug)]
struct Mapping {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value, and it gives out addresses only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and nothing refers to it any more: commands own the buffers, and
        // descriptors are copied out. Unmapping what was mapped does not fail.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

/// Buffers for the data of requests, one for each tag. Their pages are allocated when they are used.
#[derive(Debug)]
pub(crate) struct Buffers {
    memory: Mapping,
    /// Size of each buffer, in bytes.
    pub(crate) each: usize,
}

impl Buffers {
    /// Maps `count` buffers of `each` bytes, a multiple of the page.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel gives no memory.
    pub(crate) fn new(count: usize, each: usize) -> Result<Buffers, Error> {
        let bytes = count * each;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of private memory overlaps no other.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let base = base.map_err(|error| Error::io("map memory for requests", error))?;
        Ok(Buffers { memory: Mapping { base: base.cast(), bytes }, each })
    }

    /// Returns the address of a tag's buffer.
    pub(crate) fn address(&self, tag: usize) -> u64 {
        self.base(tag).expose_provenance() as u64
    }

    /// Describes the first `bytes` bytes of a tag's buffer for a command.
    ///
    /// # Safety
    /// The command is the only one for the tag until it is over, and it owns the buffers, or is over before the call that
    /// carries it out returns.
    ///
    /// # Panics
    /// If the buffer is smaller.
    pub(crate) unsafe fn segment(&self, tag: usize, bytes: u64) -> Segment {
        assert!(bytes <= self.each as u64);
        // SAFETY: the buffer has as many bytes; the caller promises the rest.
        unsafe { Segment::new(self.base(tag), bytes as usize) }
    }

    fn base(&self, tag: usize) -> *mut u8 {
        assert!((tag + 1) * self.each <= self.memory.bytes);
        self.memory.base.wrapping_add(tag * self.each)
    }
}

/// Descriptors of the first queue's requests, which the kernel writes.
#[derive(Debug)]
pub(crate) struct Descriptors(Mapping);

impl Descriptors {
    /// Maps the descriptors of `depth` requests of the disk whose requests come from `file`.
    ///
    /// # Errors
    /// [`Error::Io`] if the driver refuses.
    pub(crate) fn new(file: impl AsFd, depth: usize) -> Result<Descriptors, Error> {
        let bytes = (depth * DESCRIPTOR).next_multiple_of(rustix::param::page_size());
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping overlaps no other.
        let base = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, flags, file, 0) };
        let base = base.map_err(|error| Error::io("map the requests of a disk", error))?;
        Ok(Descriptors(Mapping { base: base.cast(), bytes }))
    }

    /// Copies the descriptor of a tag.
    pub(crate) fn copy(&self, tag: usize) -> [u8; DESCRIPTOR] {
        assert!((tag + 1) * DESCRIPTOR <= self.0.bytes);
        let from = self.0.base.wrapping_add(tag * DESCRIPTOR).cast::<[u8; DESCRIPTOR]>();
        // SAFETY: the descriptor lies within the mapping, and bytes have no alignment. The driver has written it before it
        // handed the request over and leaves it alone until the result is committed; a volatile read assumes no more.
        unsafe { from.read_volatile() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tag_has_a_buffer_of_its_own() {
        let buffers = Buffers::new(3, 8192).unwrap();
        assert_eq!(buffers.address(2), buffers.address(0) + 2 * 8192);
        // SAFETY: no command uses the memory.
        let segment = unsafe { buffers.segment(1, 512) };
        assert_eq!((segment.base().addr() as u64, segment.bytes()), (buffers.address(1), 512));
        assert!(std::panic::catch_unwind(|| buffers.address(3)).is_err());
    }

    #[test]
    fn descriptors_are_read_from_the_file() {
        let file = tempfile::tempfile().unwrap();
        let all: Vec<u8> = (0..4096).map(|at| (at / DESCRIPTOR) as u8).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &all, 0).unwrap();
        let descriptors = Descriptors::new(&file, 100).unwrap();
        assert_eq!(descriptors.copy(99), [99; DESCRIPTOR]);
    }
}
