//! A ring that is shared with the kernel: entries, and two counters of which each side writes one (the kernel's
//! `Documentation/networking/af_xdp.rst`).
//!
//! ```text
//!     producer ──► | entry | entry | entry | ... |  ──► consumer        counters run on, modulo 2^32
//! ```
//!
//! | ring | we | of |
//! |---|---|---|
//! | fill | produce | frames that the kernel may receive into |
//! | receive | consume | frames that came |
//! | send | produce | frames that are to go |
//! | completion | consume | frames that have gone |
//!
//! Invariant: an entry is written before the counter that shows it (release), and read after that counter (acquire); it
//! is given back only after it has been read. Called by [`super::socket`]. An entry costs a copy of 8 or 16 bytes; the
//! counters are touched once a row.

use bywash_sync::{AtomicU32, Ordering};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// A mapped ring of entries of one kind.
pub(super) struct Ring<E> {
    base: *mut u8,
    bytes: usize,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    /// The counter that we write.
    ours: u32,
    /// The other one, when it was last read.
    theirs: u32,
    entry: PhantomData<E>,
}

// SAFETY: the mapping belongs to this value alone and stays until it is dropped.
unsafe impl<E: Copy> Send for Ring<E> {}

/// What lies in the rings: plain numbers, of which any bytes are a value.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

impl<E: Entry> Ring<E> {
    /// Maps a ring of `entries`, a power of two, of which the socket has been told.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        entries: u32,
        offsets: libc::xdp_ring_offset,
        place: u64,
    ) -> Result<Ring<E>, Errno> {
        assert!(entries.is_power_of_two());
        let bytes = offsets.desc as usize + entries as usize * size_of::<E>();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping where the kernel finds room.
        let base = unsafe { mmap(null_mut(), bytes, protection, flags, socket, place) }?;
        Ok(Ring { base: base.cast(), bytes, offsets, entries, ours: 0, theirs: 0, entry: PhantomData })
    }

    /// Takes at most `most` entries of those that the kernel has produced; how many it were.
    pub(super) fn consume(&mut self, most: u32, mut take: impl FnMut(E)) -> u32 {
        // SYNC: xdp-produced. Acquire: the entries, and the frames that they name, are seen as the kernel wrote them
        // before it moved its counter.
        self.theirs = self.counter(self.offsets.producer).load(Ordering::Acquire);
        // The kernel is trusted with memory anyway; a counter that makes no sense is cut all the same.
        let count = self.theirs.wrapping_sub(self.ours).min(self.entries).min(most);
        for number in 0..count {
            // SAFETY: within the mapping, aligned, and not written by the kernel until it has been given back below.
            take(unsafe { self.entry(self.ours.wrapping_add(number)).read() });
        }
        self.ours = self.ours.wrapping_add(count);
        if count > 0 {
            // SYNC: xdp-consumed. Release: the kernel writes an entry anew only after it has been read.
            self.counter(self.offsets.consumer).store(self.ours, Ordering::Release);
        }
        count
    }

    /// Entries that there is room for.
    pub(super) fn room(&mut self) -> u32 {
        // SYNC: xdp-consumed. Acquire: the kernel has read the entries that it gave back.
        self.theirs = self.counter(self.offsets.consumer).load(Ordering::Acquire);
        self.entries - self.ours.wrapping_sub(self.theirs).min(self.entries)
    }

    /// Adds entries, for which there is room, and shows them to the kernel.
    pub(super) fn produce(&mut self, entries: impl Iterator<Item = E>) {
        let mut next = self.ours;
        for entry in entries {
            assert!(next.wrapping_sub(self.theirs) < self.entries, "more entries than there is room for");
            // SAFETY: within the mapping, aligned, and not read by the kernel until it is shown below.
            unsafe { self.entry(next).write(entry) };
            next = next.wrapping_add(1);
        }
        self.ours = next;
        // SYNC: xdp-produced. Release: entries and frames are written before the kernel sees that they are there.
        self.counter(self.offsets.producer).store(next, Ordering::Release);
    }

    /// Whether the kernel has taken everything that was produced.
    pub(super) fn is_taken(&mut self) -> bool {
        self.room() == self.entries
    }

    fn entry(&self, number: u32) -> *mut E {
        let place = (number & (self.entries - 1)) as usize;
        // SAFETY: there are so many entries behind `desc`, which the length of the mapping was made from.
        unsafe { self.base.add(self.offsets.desc as usize).cast::<E>().add(place) }
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel said where the counters are, aligned; all that use them do so as atomics.
        unsafe { AtomicU32::from_ptr(self.base.add(offset as usize).cast()) }
    }
}

impl<E> Drop for Ring<E> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and no reference into it is left.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}
