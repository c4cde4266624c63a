//! Open files and windows that could not be given up because a copy was under way, perhaps the very one that a
//! signal handler interrupted before it closed the file. A mapping keeps the kernel's open file alive, with its
//! locks, so it must go as soon as the copy has ended.
//!
//! Invariant: whoever ends a copy of a file that has leftovers looks for them ([`OpenFile::after_release`]), and
//! so does whoever closes a file; under the lock, which is only tried. Cost where there are none: a look at the
//! file's flags.

use super::{FREE, LEFT_OVER, OpenFile, POOL, USED, at};
use crate::process::LOCK;
use crate::reclaim;
use crate::threads;
use crate::window;
use bywash_sync::{AtomicU32, Ordering, Ordering::Relaxed};

/// Open files that have leftovers.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// In a forked child, whose pool is empty.
pub(super) fn reset_child() {
    put_back!(COUNT, 0);
}

impl OpenFile {
    /// The calling thread has ended a copy of this file.
    #[inline(always)]
    pub(crate) fn after_release(&self) {
        if self.has(LEFT_OVER) {
            sweep_if_free();
        }
    }

    /// Notes that something of this file has still to go.
    pub(super) fn leaves_over(&self) {
        if self.flags.fetch_or(LEFT_OVER, Relaxed) & LEFT_OVER == 0 {
            COUNT.fetch_add(1, Relaxed);
        }
    }

    /// Gives the place in the pool back when no descriptor leads here, nothing is mapped and no thread uses
    /// it; else it is left over. Under the lock.
    pub(super) fn retire(&self, turns: u32) {
        let address = core::ptr::from_ref(self) as usize;
        let unused = reclaim::wait_until_unused(threads::hazards, address, turns, threads::alone);
        if !unused || !window::sweep(self) {
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

/// A copy of the open file at this address has ended.
pub(crate) fn after_release(address: usize) {
    // SAFETY: hazards that name a file hold addresses of the pool, which is never unmapped.
    unsafe { &*(address as *const OpenFile) }.after_release();
}

#[cold]
fn sweep_if_free() {
    if let Some(held) = LOCK.try_hold() {
        sweep_if_any();
        drop(held);
    }
}

/// Gives up what is left over and not used any more. Under the lock.
pub(super) fn sweep_if_any() {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    for file in (0..USED.load(Ordering::Acquire)).filter_map(at).filter(|file| file.has(LEFT_OVER)) {
        file.retire(1);
    }
}
