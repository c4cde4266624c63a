//! Gate of an inode: keeps mapped reads and writes of a process apart from its writes by the kernel.
//!
//! Where the file system makes reads atomic (XFS, btrfs), a mapped read checks with [`Gate::unchanged`] that
//! no write began or ended during the copy. Where writes are mapped (tmpfs, if the user asked for it), the
//! gate admits either one mapped writer or any number of writers through the kernel: the kernel serialises
//! its own writers of an inode, but a mapped write does not take the kernel's lock. A mapped write that finds
//! the gate occupied for long goes to the kernel instead. A writer through the kernel waits for the mapped
//! one, which copies at most the threshold ([`crate::state::Settings::threshold`]).
//!
//! Gates live in a fixed table, and inodes whose numbers collide share one. A collision sends some requests
//! to the kernel and is never an error.
//!
//! Invariant: the token in the upper half of `inside` is set only by a compare-exchange from zero, so a
//! mapped writer is alone. [`Gate::leave_mapped`] compares the token, so that a thread that left its copy by
//! a jump (longjmp) can be taken out whether it had entered, had left, or neither. Writers through the kernel
//! wait `TURNS_KERNEL` turns for a mapped writer, which is much longer than a thread that can run waits for a
//! processor, and then go on: such a writer has left its copy by a jump, and the gate does not protect memory.

use bywash_sync::{AtomicU32, AtomicU64, Ordering, pause};

/// Number of turns that a writer through the kernel waits for a mapped writer: spinning at first, then yielding
/// the processor, then sleeping [`SLEEP_NS`] each, 0.3 seconds in all.
const TURNS_KERNEL: u32 = if cfg!(loom) { 3 } else { TURNS_YIELDING + 2_000 };
/// Turn from which on a waiting writer yields the processor.
const TURNS_SPINNING: u32 = 100;
/// Turn from which on a waiting writer sleeps.
const TURNS_YIELDING: u32 = 1_000;
/// Time that a waiting writer sleeps in a turn.
const SLEEP_NS: u32 = 100_000;
/// Number of times that a mapped writer tries an occupied gate. A mapped writer that went to the kernel at
/// once would occupy the gate itself and turn away the next one.
const TURNS_MAPPED: u32 = if cfg!(loom) { 2 } else { 100 };
/// Position of the mapped writer's token in `inside`, in bits.
const MAPPED_SHIFT: u32 = 32;
/// Unit of the count of writers through the kernel in `inside`.
const KERNEL: u64 = 1;

/// Gate of one or more inodes, in a cache line of its own.
#[repr(align(64))]
pub struct Gate {
    /// Upper half: token of the mapped writer inside, or zero; lower half: number of writers through the
    /// kernel that are inside.
    inside: AtomicU64,
    /// Counter that increases when a write begins and when it ends, and wraps.
    changes: AtomicU32,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new()
    }
}

impl Gate {
    /// Creates a gate with nobody inside.
    #[cfg(not(loom))]
    pub const fn new() -> Gate {
        Gate { inside: AtomicU64::new(0), changes: AtomicU32::new(0) }
    }

    /// Creates a gate with nobody inside.
    #[cfg(loom)]
    pub fn new() -> Gate {
        Gate { inside: AtomicU64::new(0), changes: AtomicU32::new(0) }
    }

    /// Empties the gate in a forked child, which does not have the threads that were inside.
    pub fn reset_child(&self) {
        put_back!(self.inside, 0);
    }

    /// Admits a mapped writer if nobody is inside; returns false after `TURNS_MAPPED` attempts. `token` is
    /// not zero and belongs to the calling thread alone. Must not be called during another write of the same
    /// thread.
    #[inline]
    pub fn enter_mapped(&self, token: u32) -> bool {
        let mapped = u64::from(token) << MAPPED_SHIFT;
        for _ in 0..TURNS_MAPPED {
            // SYNC: gate (acquire; the leaving side releases).
            if self.inside.compare_exchange(0, mapped, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                self.changes.fetch_add(1, Ordering::SeqCst);
                return true;
            }
            pause();
        }
        false
    }

    /// Takes the mapped writer with this token out of the gate; does nothing if it is not inside.
    #[inline]
    pub fn leave_mapped(&self, token: u32) {
        if self.inside.load(Ordering::Relaxed) >> MAPPED_SHIFT != u64::from(token) {
            return;
        }
        self.changes.fetch_add(1, Ordering::SeqCst);
        // SYNC: gate (release).
        self.inside.fetch_and(u64::from(u32::MAX), Ordering::Release);
    }

    /// Admits a writer through the kernel, and waits a bounded time for a mapped writer to leave. `noticed`:
    /// the write changes the mark of readers ([`Gate::mark`]). `nested`: the caller may have interrupted the
    /// mapped writer in this thread and must not wait for it.
    #[inline]
    pub fn enter_kernel(&self, noticed: bool, nested: bool) {
        // SYNC: gate (acquire).
        let mut inside = self.inside.fetch_add(KERNEL, Ordering::Acquire);
        let mut turns = 0;
        while inside >> MAPPED_SHIFT != 0 && !nested && turns < TURNS_KERNEL {
            turns += 1;
            give_way(turns);
            inside = self.inside.load(Ordering::Acquire);
        }
        if noticed {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Takes a writer through the kernel out of the gate; `noticed` has the same value as in
    /// [`Gate::enter_kernel`].
    #[inline]
    pub fn leave_kernel(&self, noticed: bool) {
        if noticed {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
        // SYNC: gate (release).
        self.inside.fetch_sub(KERNEL, Ordering::Release);
    }

    /// Returns a mark for a reader to compare later ([`Gate::unchanged`]); `None` while a write is in
    /// progress.
    #[inline]
    pub fn mark(&self) -> Option<u32> {
        let mark = self.changes.load(Ordering::SeqCst);
        (self.inside.load(Ordering::SeqCst) == 0).then_some(mark)
    }

    /// Returns true if no write began or ended since the mark was taken.
    #[inline]
    pub fn unchanged(&self, mark: u32) -> bool {
        self.changes.load(Ordering::SeqCst) == mark
    }
}

fn give_way(turns: u32) {
    if cfg!(loom) || turns <= TURNS_SPINNING {
        pause();
    } else if turns <= TURNS_YIELDING {
        crate::sys::yield_now();
    } else {
        crate::sys::sleep(SLEEP_NS);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_writer_is_alone() {
        let gate = Gate::new();
        assert!(gate.enter_mapped(1));
        assert!(!gate.enter_mapped(1));
        assert_eq!(gate.mark(), None);
        gate.leave_mapped(1);
        gate.enter_kernel(true, false);
        gate.enter_kernel(true, false);
        assert!(!gate.enter_mapped(1));
        gate.leave_kernel(true);
        gate.leave_kernel(true);
        let mark = gate.mark().unwrap();
        assert!(gate.unchanged(mark));
        assert!(gate.enter_mapped(1));
        assert!(!gate.unchanged(mark));
    }

    #[test]
    fn a_writer_through_the_kernel_waits_for_a_mapped_one_that_is_not_run() {
        let gate = Gate::new();
        assert!(gate.enter_mapped(1));
        let entered = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                gate.enter_kernel(true, false);
                entered.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            // Longer than a thread waits for a processor on a machine with more threads than processors.
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!entered.load(std::sync::atomic::Ordering::SeqCst));
            gate.leave_mapped(1);
            waiting.join().unwrap();
        });
        gate.leave_kernel(true);
        // One that never leaves, since a jump took its thread away, is not waited for without end.
        assert!(gate.enter_mapped(1));
        gate.enter_kernel(true, false);
        gate.leave_kernel(true);
    }

    #[test]
    fn only_who_is_inside_leaves() {
        let gate = Gate::new();
        assert!(gate.enter_mapped(7));
        gate.leave_mapped(8);
        assert!(!gate.enter_mapped(8));
        gate.leave_mapped(7);
        gate.leave_mapped(7);
        assert!(gate.enter_mapped(8));
    }

    #[test]
    fn a_stuck_writer_delays_and_does_not_stop() {
        let gate = Gate::new();
        assert!(gate.enter_mapped(1));
        gate.enter_kernel(true, false);
        gate.leave_kernel(true);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    #[test]
    fn mapped_writers_exclude_each_other() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), UnsafeCell::new(0)));
            let other = {
                let shared = shared.clone();
                thread::spawn(move || write_mapped(&shared, 1))
            };
            write_mapped(&shared, 2);
            other.join().unwrap();
        });
    }

    fn write_mapped(shared: &(Gate, UnsafeCell<i32>), token: u32) {
        if shared.0.enter_mapped(token) {
            // loom reports a race if two threads are ever inside at once.
            // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
            shared.1.with_mut(|value| unsafe { *value += 1 });
            shared.0.leave_mapped(token);
        }
    }
}
