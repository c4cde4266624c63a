//! Detects whether more than one thread of the process uses the data path.
//!
//! A thread that is alone passes no gates: no other thread can run between its calls, and an atomic
//! read-modify-write right after a system call costs 20 ns, because it waits for all stores of the kernel. So
//! each thread notes in a word of its own that it writes (a plain store), then checks whether it is alone.
//! The second thread sets `crowded`, passes a heavy fence, and waits until the first thread has ended the
//! writes that it began alone. [`crate::threads`] calls this module.
//!
//! Invariant: every write that began alone has ended when [`Crowd::join`] returns true. `crowded` stays set
//! until the process forks a child, which starts alone.

use bywash_sync::{AtomicBool, AtomicUsize, Ordering, heavy_fence, light_fence, pause};

/// Number of times that [`Crowd::join`] checks the other threads before it gives up.
const TURNS: u32 = if cfg!(loom) { 3 } else { 100 };

/// Flag of a process: true once a second thread has used the data path.
pub struct Crowd {
    crowded: AtomicBool,
}

impl Default for Crowd {
    fn default() -> Crowd {
        Crowd::new()
    }
}

impl Crowd {
    /// Creates a crowd of at most one thread.
    #[cfg(not(loom))]
    pub const fn new() -> Crowd {
        Crowd { crowded: AtomicBool::new(false) }
    }

    /// Creates a crowd of at most one thread.
    #[cfg(loom)]
    pub fn new() -> Crowd {
        Crowd { crowded: AtomicBool::new(false) }
    }

    /// Clears the flag in a forked child, which has only one thread.
    pub fn reset_child(&self) {
        put_back!(self.crowded, false);
    }

    /// Stores `frame` (not zero) into `busy` to note that the thread begins a write. Returns true if the
    /// thread is alone and need not pass a gate; otherwise `busy` is cleared again.
    #[inline(always)]
    pub fn begin_alone(&self, busy: &AtomicUsize, frame: usize) -> bool {
        busy.store(frame, Ordering::Relaxed);
        light_fence();
        if !self.crowded.load(Ordering::Relaxed) {
            return true;
        }
        self.end_alone(busy);
        false
    }

    /// Notes in `busy` that the write has ended.
    #[inline(always)]
    pub fn end_alone(&self, busy: &AtomicUsize) {
        // SYNC: busy (release; `join` acquires).
        busy.store(0, Ordering::Release);
    }

    /// Adds the calling thread; `others` lists the `busy` words of the threads that use the data path
    /// already. Returns false if one of them stays in a write that it began alone; the calling thread must
    /// then leave every request to the kernel for now.
    pub fn join<'a, I: Iterator<Item = &'a AtomicUsize>>(&self, others: impl Fn() -> I) -> bool {
        if others().next().is_none() {
            return true;
        }
        if !self.crowded.load(Ordering::Relaxed) {
            self.crowded.store(true, Ordering::SeqCst);
        }
        heavy_fence();
        for _ in 0..TURNS {
            // SYNC: busy (acquire).
            if others().all(|busy| busy.load(Ordering::Acquire) == 0) {
                return true;
            }
            pause();
        }
        false
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    #[test]
    fn who_is_alone_is_alone() {
        loom::model(|| {
            let crowd = Arc::new(Crowd::new());
            let busy = Arc::new(AtomicUsize::new(0));
            let file = Arc::new(UnsafeCell::new(0));
            let first = {
                let (crowd, busy, file) = (crowd.clone(), busy.clone(), file.clone());
                thread::spawn(move || {
                    if crowd.begin_alone(&busy, 1) {
                        // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
                        file.with_mut(|value| unsafe { *value = 1 });
                        crowd.end_alone(&busy);
                    }
                })
            };
            if crowd.join(|| [&*busy].into_iter()) {
                // loom reports a race if the first thread is still writing here, or begins another write alone.
                // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
                file.with_mut(|value| unsafe { *value = 2 });
            }
            first.join().unwrap();
        });
    }
}
