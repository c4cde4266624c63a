//! Ring shared with the kernel: entries, and two counters, one of which each side writes (the kernel's
//! `Documentation/networking/af_xdp.rst`).
//!
//! ```text
//!     producer ──► | entry | entry | entry | ... |  ──► consumer        counters run on, modulo 2^32
//! ```
//!
//! | ring | role here | entries |
//! |---|---|---|
//! | fill | producer | frames that the kernel may receive into |
//! | receive | consumer | received frames |
//! | send | producer | frames to send |
//! | completion | consumer | frames that have been sent |
//!
//! Invariant: an entry is written before the counter that publishes it (release), and read after that counter
//! (acquire); it is returned only after it has been read. Called by [`super::socket`]. An entry costs a copy
//! of 8 or 16 bytes; the counters are accessed once for each batch.

use bywash_sync::{AtomicU32, Ordering};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// A mapped ring with entries of one type.
pub(super) struct Ring<E> {
    base: *mut u8,
    bytes: usize,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    /// Value of the counter that this side writes.
    ours: u32,
    /// Last known value of the kernel's counter.
    theirs: u32,
    entry: PhantomData<E>,
}

// SAFETY: this value alone owns the mapping, which lives until it is dropped.
unsafe impl<E: Copy> Send for Ring<E> {}

/// Types of ring entries: integers, for which all bytes are valid.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

impl<E: Entry> Ring<E> {
    /// Maps a ring of `entries`, a power of two, which the socket has been configured with.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        entries: u32,
        offsets: libc::xdp_ring_offset,
        place: u64,
    ) -> Result<Ring<E>, Errno> {
        assert!(entries.is_power_of_two());
        let bytes = offsets.desc as usize + entries as usize * size_of::<E>();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
        let base = unsafe { mmap(null_mut(), bytes, protection, flags, socket, place) }?;
        Ok(Ring { base: base.cast(), bytes, offsets, entries, ours: 0, theirs: 0, entry: PhantomData })
    }

    /// Takes at most `most` entries that the kernel has produced, and returns their number.
    pub(super) fn consume(&mut self, most: u32, mut take: impl FnMut(E)) -> u32 {
        // SYNC: xdp-produced. Acquire: makes the entries, and the frames that they name, visible as the
        // kernel wrote them before it advanced its counter.
        self.theirs = self.counter(self.offsets.producer).load(Ordering::Acquire);
        // The kernel is trusted with memory anyway, but an impossible counter is still clamped.
        let count = self.theirs.wrapping_sub(self.ours).min(self.entries).min(most);
        for number in 0..count {
            // SAFETY: the entry lies within the mapping, is aligned, and is not written by the kernel until
            // it is returned below.
            take(unsafe { self.entry(self.ours.wrapping_add(number)).read() });
        }
        self.ours = self.ours.wrapping_add(count);
        if count > 0 {
            // SYNC: xdp-consumed. Release: the reads of the entries are complete before the kernel overwrites
            // them.
            self.counter(self.offsets.consumer).store(self.ours, Ordering::Release);
        }
        count
    }

    /// Returns the number of entries that can be produced.
    pub(super) fn room(&mut self) -> u32 {
        // SYNC: xdp-consumed. Acquire: the kernel has finished reading the entries that it returned.
        self.theirs = self.counter(self.offsets.consumer).load(Ordering::Acquire);
        self.entries - self.ours.wrapping_sub(self.theirs).min(self.entries)
    }

    /// Adds entries, for which there must be room, and publishes them to the kernel.
    pub(super) fn produce(&mut self, entries: impl Iterator<Item = E>) {
        let mut next = self.ours;
        for entry in entries {
            assert!(next.wrapping_sub(self.theirs) < self.entries, "more entries than there is room for");
            // SAFETY: the entry lies within the mapping, is aligned, and is not read by the kernel until it
            // is published below.
            unsafe { self.entry(next).write(entry) };
            next = next.wrapping_add(1);
        }
        self.ours = next;
        // SYNC: xdp-produced. Release: entries and frames are written before the kernel sees the counter.
        self.counter(self.offsets.producer).store(next, Ordering::Release);
    }

    /// Returns true if the kernel has taken all produced entries.
    pub(super) fn is_taken(&mut self) -> bool {
        self.room() == self.entries
    }

    fn entry(&self, number: u32) -> *mut E {
        let place = (number & (self.entries - 1)) as usize;
        // SAFETY: the index is masked to the number of entries, which the mapping was sized for.
        unsafe { self.base.add(self.offsets.desc as usize).cast::<E>().add(place) }
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel reported the offset of the counter, which is aligned; all accesses to it are
        // atomic.
        unsafe { AtomicU32::from_ptr(self.base.add(offset as usize).cast()) }
    }
}

impl<E> Drop for Ring<E> {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping with this length, and no reference into it is left.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}
