//! Calls at the kernel's position that began while their descriptor was still a candidate.
//!
//! Once a candidate has its data path, such calls are counted in the open file's
//! [`Position`](crate::offset::Position). One that began before uses the kernel's position all the same, so
//! nobody may take the position over until it has ended.
//!
//! ```text
//!   the call                          who takes the position over
//!   count itself                      (the entry is an open file)
//!   full fence                        full fence
//!   look at the entry again           look at the count
//! ```
//!
//! Invariant: either the call sees the open file, or the taker sees the call.

use bywash_sync::{AtomicU32, AtomicUsize, Ordering, full_fence};

/// How many such calls are under way.
pub struct Warming(AtomicU32);

/// One of them.
#[must_use]
pub struct WarmCall<'a>(&'a Warming);

impl Default for Warming {
    fn default() -> Warming {
        Warming::new()
    }
}

impl Warming {
    /// None.
    #[cfg(not(loom))]
    pub const fn new() -> Warming {
        Warming(AtomicU32::new(0))
    }

    /// None.
    #[cfg(loom)]
    pub fn new() -> Warming {
        Warming(AtomicU32::new(0))
    }

    /// Begins a call on a descriptor that was a candidate a moment ago. None: `entry` is none any more, by
    /// `is_candidate`.
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

    /// Whether the position of a descriptor whose entry was seen to be an open file may be taken over.
    pub fn is_over(&self) -> bool {
        full_fence();
        // SYNC: warm-call (acquire).
        self.0.load(Ordering::Acquire) == 0
    }

    /// In a forked child: the other threads' calls are not here.
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
                // loom reports a race if the call can still be under way.
                // SAFETY: as above.
                position.with_mut(|position| unsafe { *position += 1 });
            }
            call.join().unwrap();
        });
    }
}
