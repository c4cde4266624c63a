//! The lock over everything that changes rarely: pools, windows coming and going.
//!
//! Whoever holds it keeps all signals out, so that no signal handler of the program can run, and call back
//! into the library, in the middle. A holder never waits for a thread that might wait for the lock without
//! a limit, and makes only short system calls.

use crate::sys::{self, MaskChange, SignalSet};
use bywash_sync::{AtomicU32, Ordering, pause};

/// A lock that masks signals while it is held.
pub struct Lock(AtomicU32);

/// Holds the lock until dropped.
pub struct Held<'a> {
    lock: &'a Lock,
    mask: SignalSet,
}

impl Default for Lock {
    fn default() -> Lock {
        Lock::new()
    }
}

impl Lock {
    /// A free lock.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Waits for the lock.
    pub fn hold(&self) -> Held<'_> {
        let mut turns = 0u32;
        loop {
            if let Some(held) = self.try_hold() {
                return held;
            }
            turns += 1;
            pause();
            if turns > 100 {
                sys::yield_now();
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_hold(&self) -> Option<Held<'_>> {
        let mask = sys::change_mask(MaskChange::Block, SignalSet::MAX);
        // SYNC: lock (acquire; the drop of `Held` releases).
        if self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(Held { lock: self, mask });
        }
        sys::change_mask(MaskChange::Replace, mask);
        None
    }

    /// In a forked child: whoever held it is not here.
    pub(crate) fn reset_child(&self) {
        put_back!(self.0, 0);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SYNC: lock (release).
        self.lock.0.store(0, Ordering::Release);
        sys::change_mask(MaskChange::Replace, self.mask);
    }
}
