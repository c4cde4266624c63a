//! Calls at the kernel's position that began while their descriptor was still a candidate.
//!
//! Once a candidate has a data path, calls at the kernel's position are counted in the open file's
//! [`Position`](crate::offset::Position). A call that began earlier is not counted there but uses the
//! kernel's position all the same, so the position must not be taken until that call has ended.
//!
//! ```text
//!   the call                          the thread that takes the position
//!   count itself                      (the entry is an open file)
//!   full fence                        full fence
//!   look at the entry again           look at the count
//! ```
//!
//! Invariant: either the call sees the open file, or the thread that takes the position sees the call.
//! [`crate::table`] calls this module.

use bywash_sync::{AtomicU32, AtomicUsize, Ordering, full_fence};

/// Number of calls in flight that began on a candidate.
pub struct Warming(AtomicU32);

/// Call in flight that began on a candidate; dropping it ends the call.
#[must_use]
pub struct WarmCall<'a>(&'a Warming);

impl Default for Warming {
    fn default() -> Warming {
        Warming::new()
    }
}

impl Warming {
    /// Creates a counter without calls.
    #[cfg(not(loom))]
    pub const fn new() -> Warming {
        Warming(AtomicU32::new(0))
    }

    /// Creates a counter without calls.
    #[cfg(loom)]
    pub fn new() -> Warming {
        Warming(AtomicU32::new(0))
    }

    /// Notes that a call begins on a descriptor that was a candidate a moment ago. Returns `None` if the
    /// entry is no candidate any more, according to `is_candidate`.
    pub fn begin(
        &self,
        entry: &AtomicUsize,
        is_candidate: impl FnOnce(usize) -> bool,
    ) -> Option<WarmCall<'_>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        full_fence();
        let call = WarmCall(self);
        is_candidate(entry.load(Ordering::Relaxed)).then_some(call)
    }

    /// Returns true if no such call is in flight, so that the position may be taken. The caller has seen that
    /// the descriptor's entry is an open file.
    pub fn is_over(&self) -> bool {
        full_fence();
        // SYNC: warm-call (acquire).
        self.0.load(Ordering::Acquire) == 0
    }

    /// Clears the count in a forked child, which does not have the threads that made the calls.
    #[cfg(not(loom))]
    pub fn reset_child(&self) {
        put_back!(self.0, 0);
    }
}

impl Drop for WarmCall<'_> {
    fn drop(&mut self) {
        // SYNC: warm-call (release).
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    #[test]
    fn no_position_is_taken_under_a_call() {
        const CANDIDATE: usize = 1;
        const FILE: usize = 2;
        loom::model(|| {
            let warming = Arc::new(Warming::new());
            let entry = Arc::new(AtomicUsize::new(CANDIDATE));
            let position = Arc::new(UnsafeCell::new(0));
            let call = {
                let (warming, entry, position) = (warming.clone(), entry.clone(), position.clone());
                thread::spawn(move || {
                    if let Some(_call) = warming.begin(&entry, |entry| entry == CANDIDATE) {
                        // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
                        position.with_mut(|position| unsafe { *position += 1 });
                    }
                })
            };
            entry.store(FILE, Ordering::Release);
            if warming.is_over() {
                // loom reports a race if the call can still be in flight here.
                // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
                position.with_mut(|position| unsafe { *position += 1 });
            }
            call.join().unwrap();
        });
    }
}
