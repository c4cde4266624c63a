//! Safe removal of memory that other threads may be using (hazard pointers).
//!
//! A thread that is about to use an open file stores the file's address into its own *hazard* word, then
//! checks that the descriptor still leads to the file ([`protect`]). A thread that removes a file or one of
//! its windows first makes it unreachable, then passes a heavy fence, then waits until no hazard names the
//! file ([`wait_until_unused`]). The frequent side costs a store and a load.
//!
//! Invariant: between a `protect` that returned true and the clearing of the hazard, no thread that made the
//! same address unreachable gets true from `wait_until_unused`.

use bywash_sync::{AtomicUsize, Ordering, full_fence, heavy_fence, light_fence, pause};

/// Stores `wanted` into the hazard and returns true if `source` still holds `wanted`; otherwise clears the
/// hazard.
#[inline(always)]
pub fn protect(hazard: &AtomicUsize, source: &AtomicUsize, wanted: usize) -> bool {
    hazard.store(wanted, Ordering::Relaxed);
    light_fence();
    // SYNC: published-file (acquire; the table's store releases).
    if source.load(Ordering::Acquire) == wanted {
        return true;
    }
    hazard.store(0, Ordering::Release);
    false
}

/// Clears the hazard: the caller no longer uses the memory.
#[inline(always)]
pub fn release(hazard: &AtomicUsize) {
    // SYNC: hazard (release; wait_until_unused acquires).
    hazard.store(0, Ordering::Release);
}

/// Waits until no hazard holds `unpublished`, an address that no thread can reach any more. Returns false if
/// a hazard still holds it after `turns` checks. `alone` is called after a full fence and returns true if no
/// other thread has ever used a hazard, so that no heavy fence is needed.
pub fn wait_until_unused<'a, I>(
    hazards: impl Fn() -> I,
    unpublished: usize,
    turns: u32,
    alone: impl Fn() -> bool,
) -> bool
where
    I: Iterator<Item = &'a AtomicUsize>,
{
    full_fence();
    if !alone() {
        heavy_fence();
    }
    for turn in 0..turns {
        // SYNC: hazard (acquire).
        if hazards().all(|hazard| hazard.load(Ordering::Acquire) != unpublished) {
            return true;
        }
        pause();
        if !cfg!(loom) && turn > 100 {
            crate::sys::yield_now();
        }
    }
    false
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    #[test]
    fn nothing_is_taken_away_in_use() {
        loom::model(|| {
            let hazard = Arc::new(AtomicUsize::new(0));
            let source = Arc::new(AtomicUsize::new(7));
            let memory = Arc::new(UnsafeCell::new(1));
            let reader = {
                let (hazard, source, memory) = (hazard.clone(), source.clone(), memory.clone());
                thread::spawn(move || {
                    if protect(&hazard, &source, 7) {
                        // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
                        assert_eq!(memory.with(|value| unsafe { *value }), 1);
                        release(&hazard);
                    }
                })
            };
            source.store(0, Ordering::Release);
            if wait_until_unused(|| [&*hazard].into_iter(), 7, 3, || false) {
                // loom reports a race if the reader still uses the memory.
                // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
                memory.with_mut(|value| unsafe { *value = 2 });
            }
            reader.join().unwrap();
        });
    }
}
