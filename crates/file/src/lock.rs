//! Lock over state that changes rarely: the pools, and the creation and removal of windows.
//!
//! The holder blocks all signals, so that no signal handler of the program can interrupt it and call back
//! into the library. A holder never waits without a bound for a thread that may itself be waiting for the
//! lock, and makes only short system calls.

use crate::sys::{self, MaskChange, SignalSet};
use bywash_sync::{AtomicU32, Ordering, pause};

/// Spin lock that blocks all signals of the thread while it is held.
pub struct Lock(AtomicU32);

/// Guard of the lock: releases it and restores the signal mask when dropped.
pub struct LockGuard<'a> {
    lock: &'a Lock,
    mask: SignalSet,
}

impl Default for Lock {
    fn default() -> Lock {
        Lock::new()
    }
}

impl Lock {
    /// Creates a free lock.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Waits until the lock is free and takes it; yields the processor after a hundred attempts.
    pub fn hold(&self) -> LockGuard<'_> {
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

    /// Takes the lock if it is free, and blocks all signals; otherwise leaves the signal mask as it was.
    pub fn try_hold(&self) -> Option<LockGuard<'_>> {
        let mask = sys::change_mask(MaskChange::Block, SignalSet::MAX);
        // SYNC: lock (acquire; the drop of `StoredMessage` releases).
        if self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(LockGuard { lock: self, mask });
        }
        sys::change_mask(MaskChange::Replace, mask);
        None
    }

    /// Frees the lock in a forked child, which does not have the thread that held it.
    pub(crate) fn reset_child(&self) {
        put_back!(self.0, 0);
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        // SYNC: lock (release).
        self.lock.0.store(0, Ordering::Release);
        sys::change_mask(MaskChange::Replace, self.mask);
    }
}
