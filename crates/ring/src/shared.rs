//! Memory that another process may write at any moment.
//!
//! No reference to its bytes is ever made, only to atomics, and every value is copied out once before it is
//! used. The memory stays mapped as long as anybody holds a [`Shared`] of it.

use bywash_sync::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::any::Any;
use std::sync::Arc;

/// Words of shared memory, and whatever keeps them mapped.
#[derive(Clone)]
pub struct Shared {
    words: *const AtomicU64,
    len: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the words are atomics, and what keeps them mapped can be sent and shared.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Words at `base`, mapped as long as `owner` lives.
    ///
    /// # Safety
    /// `base` is aligned to eight bytes and leads to `len` words that stay mapped for reading and writing,
    /// without ever faulting, until `owner` is dropped, and are reached by atomic operations only.
    pub unsafe fn new(base: *const AtomicU64, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Shared {
        Shared { words: base, len, _owner: owner }
    }

    /// Memory of this process alone, all zero: for two threads, and for tests.
    pub fn in_this_process(len: usize) -> Shared {
        let words: Arc<Vec<AtomicU64>> = Arc::new((0..len).map(|_| AtomicU64::new(0)).collect());
        Shared { words: words.as_ptr(), len, _owner: words }
    }

    /// `len` words from `start` on.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part(&self, start: usize, len: usize) -> Shared {
        assert!(
            start <= self.len && len <= self.len - start,
            "no such words: {start} + {len} of {}",
            self.len
        );
        // SAFETY: within the memory, as was just checked.
        let words = unsafe { self.words.add(start) };
        Shared { words, len, _owner: self._owner.clone() }
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len);
        // SAFETY: within the memory, which `_owner` keeps.
        unsafe { &*self.words.add(index) }
    }

    /// Copies one word out.
    #[inline(always)]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Relaxed)
    }

    /// Writes one word, behind all that this thread has written before.
    pub fn publish(&self, index: usize, value: u64) {
        self.word(index).store(value, Release);
    }

    /// Where a word is, for futex(2).
    #[cfg(not(loom))]
    pub(crate) fn address(&self, index: usize) -> *const AtomicU64 {
        self.word(index)
    }

    /// Hints that a word is about to be read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        // SAFETY: a prefetch never faults, whatever the address.
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
