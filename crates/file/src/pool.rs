//! A table of one kind of item in memory of its own, which a process pays for as it is used.
//!
//! ```text
//!   base                 base + usable              base + capacity
//!   +--------------------+--------------------------+
//!   | usable, zeroes     | reserved: PROT_NONE      |
//!   +--------------------+--------------------------+
//! ```
//!
//! Items never move. Reserved memory counts against no limit but RLIMIT_AS, with which the library does
//! nothing; usable memory counts as the program's data (RLIMIT_DATA) and grows by [`STEP_BYTES`]. Where the
//! kernel refuses to let a pool grow, the pool is full, and whatever finds no place in it is the kernel's.
//!
//! Invariant: `usable` only rises, after the memory below it can be used; nothing below it is ever unmapped.
//! Only the holder of `growing` changes the mapping.

use crate::sys::{self, Advice};
use bywash_sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, Ordering::Relaxed};

/// Bytes by which the usable part grows.
const STEP_BYTES: usize = 64 << 10;

/// A type of which zero bytes are a value, as [`Pool`] makes them.
///
/// # Safety
/// Zero bytes are a valid value, and so is whatever other threads may leave in one: its fields are atomics,
/// or are used by one thread alone.
pub(crate) unsafe trait Zeroed: 'static {}

// SAFETY: integers in atomics.
unsafe impl Zeroed for AtomicUsize {}
// SAFETY: integers in atomics.
unsafe impl Zeroed for bywash_sync::AtomicU64 {}

/// What a forked child finds in a pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InChild {
    /// Zeroes (MADV_WIPEONFORK).
    Wiped,
    /// What the parent had.
    Kept,
}

/// A table of at most `capacity` items.
pub(crate) struct Pool<T> {
    base: AtomicPtr<T>,
    usable: AtomicUsize,
    /// Items that there can be at most; less once [`Pool::trim`] has given the rest back.
    capacity: AtomicUsize,
    growing: AtomicBool,
    in_child: InChild,
}

impl<T: Zeroed> Pool<T> {
    /// A pool that has no memory yet.
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

    /// Reserves the memory; false when there is no address space for it.
    pub(crate) fn prepare(&self) -> bool {
        let bytes = self.bytes(self.capacity.load(Relaxed));
        let Some(base) = sys::reserve(bytes) else { return false };
        // SYNC: pool-base (release; `get` acquires `usable`, which is stored after it).
        self.base.store(base.cast(), Ordering::Release);
        self.in_child == InChild::Kept || sys::advise(base, bytes, Advice::WipeOnFork)
    }

    /// In a forked child: whoever was growing the pool is not here.
    pub(crate) fn reset_child(&self) {
        put_back!(self.growing, false);
    }

    /// The item at `index`, if it can be used by now.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&'static T> {
        // SYNC: pool-usable (acquire).
        if index >= self.usable.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: items below `usable` are in memory that stays mapped, and zeroes are valid.
        Some(unsafe { &*self.base.load(Relaxed).add(index) })
    }

    /// The item at `index`, for which the pool grows if it has to; `None` beyond its capacity, and when the
    /// kernel gives no memory or another thread is making the pool grow just now.
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

    /// Gives back what is reserved and not usable. The pool does not grow any more.
    pub(crate) fn trim(&self) {
        if self.growing.swap(true, Ordering::Acquire) {
            return;
        }
        let (base, usable) = (self.base.load(Relaxed), self.usable.load(Relaxed));
        let all = self.bytes(self.capacity.swap(usable, Relaxed));
        let kept = self.bytes(usable).min(all);
        if !base.is_null() && kept < all {
            // SAFETY: nothing has been handed out of the part behind `usable`, and nothing will be.
            unsafe { sys::unmap(base.cast::<u8>().add(kept), all - kept) };
        }
        self.growing.store(false, Ordering::Release);
    }

    /// The usable part: where it begins and its bytes.
    pub(crate) fn usable(&self) -> (*mut u8, usize) {
        (self.base.load(Relaxed).cast(), self.bytes(self.usable.load(Relaxed)))
    }

    /// The place of an item of this pool.
    pub(crate) fn index_of(&self, item: &T) -> usize {
        (core::ptr::from_ref(item) as usize - self.base.load(Relaxed) as usize) / size_of::<T>()
    }

    /// Bytes of the first `items`, in whole pages.
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
        // The page behind is gone: mincore(2) says so with ENOMEM.
        let mut there = 0u8;
        // SAFETY: asks for one page, into one byte.
        let answer = unsafe { libc::mincore(base.add(bytes).cast(), 4096, &raw mut there) };
        let gone = answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM);
        // Another thread of this test program may have mapped something there meanwhile.
        assert!(gone || answer == 0);
        assert_eq!(bytes, STEP_BYTES);
    }
}
