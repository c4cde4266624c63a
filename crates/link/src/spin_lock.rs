//! A spin lock whose release is a plain store.
//!
//! The state of one side of a ring is nearly always used by one thread, for some ten nanoseconds. A lock that
//! must find out at its release whether a thread sleeps needs an atomic exchange there, which waits for all
//! recent writes to shared memory. A thread that finds this lock taken spins, and yields the processor after
//! every [`LOOKS`] looks. Nobody holds the lock for longer than a few microseconds, and never while sleeping.

use bywash_sync::{AtomicBool, Ordering, pause};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Looks at a taken lock before the thread yields the processor.
const LOOKS: u32 = 100;

/// A value behind a spin lock, which one thread at a time can use.
#[derive(Debug, Default)]
pub struct SpinLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only a guard gives access to the value, and at most one guard exists at a time; so `T: Send`
// suffices.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Exclusive access to the value; dropping the guard releases the lock. Like `&mut T`, a guard is [`Sync`]
/// only if `T` is: several threads with a reference to one guard all reach the value.
pub struct Guard<'a, T>(&'a SpinLock<T>, PhantomData<&'a mut T>);

impl<T> SpinLock<T> {
    /// Makes an unlocked value.
    pub fn new(value: T) -> SpinLock<T> {
        SpinLock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, and spins while another thread holds it.
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

    /// Takes the lock if it is free; `None` if another thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // SYNC: exclusive (acquire).
        let was_taken = self.taken.swap(true, Ordering::Acquire);
        // The guard is made only if the lock was free, since dropping a guard releases the lock.
        if was_taken { None } else { Some(Guard(self, PhantomData)) }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so nobody else accesses the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed exclusively, so nobody else accesses the
        // value.
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

    /// Runs under Miri too.
    #[test]
    fn nothing_is_lost_between_threads() {
        const TIMES: u64 = if cfg!(miri) { 20 } else { 10_000 };
        let sum = Arc::new(SpinLock::new(0u64));
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
        let value = SpinLock::new(1);
        let guard = value.lock();
        assert!(value.try_lock().is_none());
        drop(guard);
        assert!(value.try_lock().is_some());
    }
}
