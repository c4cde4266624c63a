//! Release of open files and windows that were in use when they should have been released.
//!
//! A copy can be in progress when its file is closed: in another thread, or in this thread if a signal
//! handler interrupted the copy and closed the file. A mapping keeps the kernel's open file alive, with its
//! locks, so the mapping must be removed as soon as the copy has ended.
//!
//! Invariant: a thread that ends a copy of a file with leftovers tries to release them
//! ([`OpenFile::after_release`]), and so does a thread that closes a file. Both hold the lock; the first only
//! tries to take it. A file without leftovers costs one check of its flags.

use super::{FREE, LEFT_OVER, OpenFile, POOL, USED, at};
use crate::reclaim;
use crate::state::LOCK;
use crate::threads;
use crate::window;
use bywash_sync::{AtomicU32, Ordering, Ordering::Relaxed};

/// Number of open files that have leftovers.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Clears the count in a forked child, whose pool is empty.
pub(super) fn reset_child() {
    put_back!(COUNT, 0);
}

impl OpenFile {
    /// Releases leftovers after the calling thread has ended a copy of this file, if the lock is free.
    #[inline(always)]
    pub(crate) fn after_release(&self) {
        if self.has(LEFT_OVER) {
            sweep_if_free();
        }
    }

    /// Notes that this file has leftovers.
    pub(super) fn leaves_over(&self) {
        if self.flags.fetch_or(LEFT_OVER, Relaxed) & LEFT_OVER == 0 {
            COUNT.fetch_add(1, Relaxed);
        }
    }

    /// Frees the entry in the pool if no descriptor leads to the file, nothing is mapped and no thread uses
    /// it; otherwise notes leftovers. The caller holds the lock.
    pub(super) fn retire(&self, turns: u32) {
        let unused = reclaim::wait_until_unused(threads::hazards, self.address(), turns, threads::alone);
        if !unused || !window::sweep(self.address(), |window| self.names(window)) {
            return self.leaves_over();
        }
        if self.flags.fetch_and(!LEFT_OVER, Relaxed) & LEFT_OVER != 0 {
            COUNT.fetch_sub(1, Relaxed);
        }
        if self.references.load(Relaxed) == 0 {
            self.next_free.store(FREE.load(Relaxed), Relaxed);
            FREE.store(POOL.index_of(self) as u32 + 1, Relaxed);
        }
    }
}

/// Releases leftovers after a copy of the open file at this address has ended.
pub(crate) fn after_release(address: usize) {
    // SAFETY: a hazard that names a file holds an address of the pool, which is never unmapped.
    unsafe { &*(address as *const OpenFile) }.after_release();
}

#[cold]
fn sweep_if_free() {
    if let Some(held) = LOCK.try_hold() {
        sweep_if_any();
        drop(held);
    }
}

/// Releases leftovers that no thread uses any more. The caller holds the lock.
pub(super) fn sweep_if_any() {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    for file in (0..USED.load(Ordering::Acquire)).filter_map(at).filter(|file| file.has(LEFT_OVER)) {
        file.retire(1);
    }
}
