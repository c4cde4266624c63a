//! Table of items of one type in memory of its own, which becomes usable in steps.
//!
//! ```text
//!   base                 base + usable              base + capacity
//!   +--------------------+--------------------------+
//!   | usable, zeroes     | reserved: PROT_NONE      |
//!   +--------------------+--------------------------+
//! ```
//!
//! Items never move. Reserved memory counts against no limit but RLIMIT_AS, and under that limit the library
//! does nothing. Usable memory counts as the program's data (RLIMIT_DATA) and grows by [`STEP_BYTES`]. If the
//! kernel refuses to let a pool grow, the pool is full, and the kernel serves whatever has no item in it.
//!
//! Invariant: `usable` only rises, after the memory below it has become usable, and memory below `usable` is
//! never unmapped. Only the thread that set `growing` changes the mapping.

use crate::sys::{self, Advice};
use bywash_sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, Ordering::Relaxed};

/// Number of bytes by which the usable part grows.
const STEP_BYTES: usize = 64 << 10;

/// Type for which zeroed memory is a valid value.
///
/// # Safety
/// All-zero bytes are a valid value, and so is every state that other threads may leave: each field is an
/// atomic, or is used by one thread alone.
pub(crate) unsafe trait Zeroed: 'static {}

// SAFETY: an atomic integer, for which all-zero bytes are valid.
unsafe impl Zeroed for AtomicUsize {}
// SAFETY: an atomic integer, for which all-zero bytes are valid.
unsafe impl Zeroed for bywash_sync::AtomicU64 {}

/// Contents of a pool in a forked child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InChild {
    /// All items are zero (MADV_WIPEONFORK).
    Wiped,
    /// All items are as they were in the parent.
    Kept,
}

/// Table of at most `capacity` items, in memory that is never unmapped while usable.
pub(crate) struct Pool<T> {
    /// Address of the first item; null before [`Pool::prepare`].
    base: AtomicPtr<T>,
    /// Number of items that can be used.
    usable: AtomicUsize,
    /// Greatest number of items; [`Pool::trim`] lowers it to `usable`.
    capacity: AtomicUsize,
    /// True while a thread changes the mapping.
    growing: AtomicBool,
    in_child: InChild,
}

impl<T: Zeroed> Pool<T> {
    /// Creates a pool that has no memory yet.
    pub(crate) const fn new(capacity: usize, in_child: InChild) -> Pool<T> {
        assert!(STEP_BYTES.is_multiple_of(4096));
        Pool {
            base: AtomicPtr::new(core::ptr::null_mut()),
            usable: AtomicUsize::new(0),
            capacity: AtomicUsize::new(capacity),
            growing: AtomicBool::new(false),
            in_child,
        }
    }

    /// Reserves the memory; returns false if the address space is exhausted or the kernel refuses the advice.
    pub(crate) fn prepare(&self) -> bool {
        let bytes = self.bytes(self.capacity.load(Relaxed));
        let Some(base) = sys::reserve(bytes) else { return false };
        // SYNC: pool-base (release; `get` acquires `usable`, which is stored after it).
        self.base.store(base.cast(), Ordering::Release);
        self.in_child == InChild::Kept || sys::advise(base, bytes, Advice::WipeOnFork)
    }

    /// Clears `growing` in a forked child, which does not have the thread that was growing the pool.
    pub(crate) fn reset_child(&self) {
        put_back!(self.growing, false);
    }

    /// Returns the item at `index` if it is usable.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&'static T> {
        // SYNC: pool-usable (acquire).
        if index >= self.usable.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: items below `usable` lie in memory that stays mapped, and `Zeroed` makes zeroes valid.
        Some(unsafe { &*self.base.load(Relaxed).add(index) })
    }

    /// Returns the item at `index`, and lets the pool grow if necessary; `None` beyond the capacity, if the
    /// kernel refuses memory, or while another thread is growing the pool.
    #[inline]
    pub(crate) fn get_or_grow(&self, index: usize) -> Option<&'static T> {
        self.get(index).or_else(|| {
            self.grow(index);
            self.get(index)
        })
    }

    #[cold]
    fn grow(&self, index: usize) {
        if self.growing.swap(true, Ordering::Acquire) {
            return;
        }
        let (base, capacity) = (self.base.load(Relaxed), self.capacity.load(Relaxed));
        let bytes = self.bytes(index + 1).next_multiple_of(STEP_BYTES).min(self.bytes(capacity));
        if !base.is_null() && index < capacity && sys::make_usable(base.cast(), bytes) {
            // SYNC: pool-usable (release; `get` acquires).
            self.usable.store((bytes / size_of::<T>()).min(capacity), Ordering::Release);
        }
        self.growing.store(false, Ordering::Release);
    }

    /// Unmaps the reserved part. The pool cannot grow any more.
    pub(crate) fn trim(&self) {
        if self.growing.swap(true, Ordering::Acquire) {
            return;
        }
        let (base, usable) = (self.base.load(Relaxed), self.usable.load(Relaxed));
        let all = self.bytes(self.capacity.swap(usable, Relaxed));
        let kept = self.bytes(usable).min(all);
        if !base.is_null() && kept < all {
            // SAFETY: no item behind `usable` has been or will be handed out, because the capacity was
            // lowered first.
            unsafe { sys::unmap(base.cast::<u8>().add(kept), all - kept) };
        }
        self.growing.store(false, Ordering::Release);
    }

    /// Returns the address and the size in bytes of the usable part.
    pub(crate) fn usable(&self) -> (*mut u8, usize) {
        (self.base.load(Relaxed).cast(), self.bytes(self.usable.load(Relaxed)))
    }

    /// Returns the index of an item, which must belong to this pool.
    pub(crate) fn index_of(&self, item: &T) -> usize {
        (core::ptr::from_ref(item) as usize - self.base.load(Relaxed) as usize) / size_of::<T>()
    }

    /// Size of the first `items` items in bytes, rounded up to whole pages.
    fn bytes(&self, items: usize) -> usize {
        (items * size_of::<T>()).next_multiple_of(4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_can_be_used_as_they_are_asked_for() {
        static POOL: Pool<AtomicUsize> = Pool::new(20_000, InChild::Wiped);
        assert!(POOL.get(0).is_none() && POOL.get_or_grow(0).is_none(), "nothing is reserved yet");
        assert!(POOL.prepare());
        assert!(POOL.get(0).is_none());
        POOL.get_or_grow(3).unwrap().store(7, Relaxed);
        assert_eq!(POOL.usable().1, STEP_BYTES);
        assert!(POOL.get(STEP_BYTES / 8 - 1).is_some() && POOL.get(STEP_BYTES / 8).is_none());
        assert_eq!(POOL.index_of(POOL.get(3).unwrap()), 3);
        assert_eq!(POOL.get_or_grow(19_999).unwrap().load(Relaxed), 0);
        assert!(POOL.get_or_grow(20_000).is_none());
        assert_eq!(POOL.get(3).unwrap().load(Relaxed), 7);
    }

    #[test]
    fn a_trimmed_pool_keeps_what_is_usable() {
        static POOL: Pool<AtomicUsize> = Pool::new(1 << 20, InChild::Kept);
        assert!(POOL.prepare());
        POOL.get_or_grow(0).unwrap().store(1, Relaxed);
        POOL.trim();
        assert!(POOL.get_or_grow(STEP_BYTES / 8).is_none());
        assert_eq!(POOL.get(0).unwrap().load(Relaxed), 1);
        let (base, bytes) = POOL.usable();
        // mincore(2) returns ENOMEM if the page behind the usable part is unmapped.
        let mut there = 0u8;
        // SAFETY: the call asks about one page and writes one byte, which is a local variable.
        let answer = unsafe { libc::mincore(base.add(bytes).cast(), 4096, &raw mut there) };
        let gone = answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM);
        // Another thread of this test program may have mapped other memory at the same address meanwhile.
        assert!(gone || answer == 0);
        assert_eq!(bytes, STEP_BYTES);
    }
}
