//! A lock whose release is a plain store.
//!
//! The state of one side of a ring is used by one thread nearly always, for some ten nanoseconds. A lock that must find out
//! at its release whether somebody sleeps pays an atomic exchange there, which waits for all that was just
//! written to shared memory. Here whoever finds it taken looks again, and after some looks gives the
//! processor away; nobody holds it for longer than a few microseconds, and never while sleeping.

use bywash_sync::{AtomicBool, Ordering, pause};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// Looks before the processor is given away.
const LOOKS: u32 = 100;

/// A value that one thread at a time can use.
#[derive(Debug, Default)]
pub struct Exclusive<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the one guard that there is at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// The right to use it.
pub struct Guard<'a, T>(&'a Exclusive<T>);

impl<T> Exclusive<T> {
    /// A value that nobody uses yet.
    pub fn new(value: T) -> Exclusive<T> {
        Exclusive { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else uses it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let mut looks = 0u32;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                std::thread::yield_now();
            }
            pause();
        }
    }

    /// None: somebody else uses it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // SYNC: exclusive (acquire).
        let was_taken = self.taken.swap(true, Ordering::Acquire);
        // Made only here: a guard that is dropped gives the value free.
        if was_taken { None } else { Some(Guard(self)) }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the one guard.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the one guard, and it is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SYNC: exclusive (release).
        self.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    /// Also what Miri runs.
    #[test]
    fn nothing_is_lost_between_threads() {
        const TIMES: u64 = if cfg!(miri) { 20 } else { 10_000 };
        let sum = Arc::new(Exclusive::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let sum = sum.clone();
                thread::spawn(move || (0..TIMES).for_each(|_| *sum.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*sum.lock(), 4 * TIMES);
    }

    #[test]
    fn what_is_taken_cannot_be_taken() {
        let value = Exclusive::new(1);
        let guard = value.lock();
        assert!(value.try_lock().is_none());
        drop(guard);
        assert!(value.try_lock().is_some());
    }
}
