//! Whether more than one thread of the process uses the data path.
//!
//! A thread that is alone passes no gates: nothing can come between its own calls, and right after a system
//! call each atomic update costs 20 ns, since it waits for all that the kernel has stored. So every thread
//! says in a word of its own that it writes (a plain store), then looks whether it is alone. The thread that
//! comes second says so, passes a heavy fence, and waits until the first has left what it began before.
//!
//! Invariant: a write that began alone has ended when [`Crowd::join`] has returned true. A crowd stays one.

use bywash_sync::{AtomicBool, AtomicUsize, Ordering, heavy_fence, light_fence, pause};

/// Looks at the other threads before a thread gives up joining them for now.
const TURNS: u32 = if cfg!(loom) { 3 } else { 100 };

/// The threads of a process, as far as one must know of another.
pub struct Crowd {
    crowded: AtomicBool,
}

impl Default for Crowd {
    fn default() -> Crowd {
        Crowd::new()
    }
}

impl Crowd {
    /// One thread at most.
    #[cfg(not(loom))]
    pub const fn new() -> Crowd {
        Crowd { crowded: AtomicBool::new(false) }
    }

    /// One thread at most.
    #[cfg(loom)]
    pub fn new() -> Crowd {
        Crowd { crowded: AtomicBool::new(false) }
    }

    /// In a forked child: the other threads are not here.
    pub fn reset_child(&self) {
        put_back!(self.crowded, false);
    }

    /// Says in `busy`, by storing `frame` (not zero), that the thread begins a write; true if it is alone and
    /// so need not pass a gate.
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

    /// The write has ended.
    #[inline(always)]
    pub fn end_alone(&self, busy: &AtomicUsize) {
        // SYNC: busy (release; `join` acquires).
        busy.store(0, Ordering::Release);
    }

    /// Another thread begins; `others` are the words of those that were there. False: one of them is in the
    /// middle of a long write, and the thread must leave the data path to the others for now.
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
                // loom reports a race if the first can still be writing, or begins again.
                // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
                file.with_mut(|value| unsafe { *value = 2 });
            }
            first.join().unwrap();
        });
    }
}
