//! Memory that another process may write at any moment.
//!
//! The words are accessed only as atomics, never through references to plain memory, and every value is
//! copied out once before it is used. The memory stays mapped as long as a [`Shared`] of it exists.

use bywash_sync::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::any::Any;
use std::sync::Arc;

/// Words of shared memory, and the owner of their mapping.
#[derive(Clone)]
pub struct Shared {
    words: *const AtomicU64,
    len: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the words are accessed as atomics only, and the owner of their mapping is `Send + Sync`.
unsafe impl Send for Shared {}
// SAFETY: the words are accessed as atomics only, and the owner of their mapping is `Send + Sync`.
unsafe impl Sync for Shared {}

impl Shared {
    /// Wraps `len` words at `base`, which stay mapped as long as `owner` lives.
    ///
    /// # Safety
    /// `base` is aligned to eight bytes and points to `len` words. Until `owner` is dropped they stay mapped
    /// for reading and writing, never fault, and are accessed by atomic operations only.
    pub unsafe fn new(base: *const AtomicU64, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Shared {
        Shared { words: base, len, _owner: owner }
    }

    /// Allocates zeroed memory of this process alone: for two threads, and for tests.
    pub fn in_this_process(len: usize) -> Shared {
        let words: Arc<Vec<AtomicU64>> = Arc::new((0..len).map(|_| AtomicU64::new(0)).collect());
        Shared { words: words.as_ptr(), len, _owner: words }
    }

    /// Returns `len` words from index `start` on, which share the owner.
    ///
    /// # Panics
    /// If there are fewer words.
    pub fn part(&self, start: usize, len: usize) -> Shared {
        assert!(
            start <= self.len && len <= self.len - start,
            "no such words: {start} + {len} of {}",
            self.len
        );
        // SAFETY: `start` is at most `len` of the memory, as asserted, so the address stays within the
        // allocation.
        let words = unsafe { self.words.add(start) };
        Shared { words, len, _owner: self._owner.clone() }
    }

    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no words.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len);
        // SAFETY: the index is within the memory, as asserted, which `_owner` keeps mapped.
        unsafe { &*self.words.add(index) }
    }

    /// Returns the `WORDS` words from index `start` on, such as those of an entry.
    #[inline(always)]
    pub(crate) fn entry<const WORDS: usize>(&self, start: usize) -> &[AtomicU64; WORDS] {
        assert!(start <= self.len && WORDS <= self.len - start);
        // SAFETY: the words are within the memory, as asserted, which `_owner` keeps mapped.
        unsafe { &*self.words.add(start).cast() }
    }

    /// Copies one word out, with relaxed ordering.
    #[inline(always)]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Relaxed)
    }

    /// Writes one word, ordered after all earlier writes of this thread (release).
    pub fn publish(&self, index: usize, value: u64) {
        self.word(index).store(value, Release);
    }

    /// Returns the address of a word, for futex(2).
    #[cfg(not(loom))]
    pub(crate) fn address(&self, index: usize) -> *const AtomicU64 {
        self.word(index)
    }

    /// Prefetches the cache line of a word that will be read soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        // SAFETY: a prefetch of any address never faults and changes no memory.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                self.words.wrapping_add(index).cast(),
            );
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
        let _ = index;
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} words)", self.len)
    }
}
