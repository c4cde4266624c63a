//! The gate of an inode: keeps mapped reads and writes of a process apart from its writes by the kernel.
//!
//! Where the file system makes reads atomic against writes (XFS, btrfs) a mapped read checks with
//! [`Gate::unchanged`] that no write began or ended under it. And where writes are mapped (tmpfs, if the user
//! asked for it) the gate lets in one mapped writer, or any number of writers through the kernel: the kernel
//! serialises its own writers of one inode, but a mapped write does not take the kernel's lock. A mapped write
//! that finds anybody inside for long goes to the kernel instead, and a kernel writer waits for the mapped one,
//! which copies at most the threshold.
//!
//! Gates live in a fixed table and are shared by inodes whose numbers fall together: that costs a detour
//! through the kernel now and then, never an error.
//!
//! Invariant: `mapped` is set only by a compare-exchange from zero, so a mapped writer is alone. It is
//! known by a token, so that a thread which left its copy by a jump can be taken out whether it was inside yet
//! or not any more. Kernel writers wait `PATIENCE` turns for a mapped one and then go on, because the gate orders
//! writes and does not protect memory.

use bywash_sync::{AtomicU32, AtomicU64, Ordering, pause};

/// Turns that a writer through the kernel waits for a mapped one; each gives the processor away.
const PATIENCE: u32 = if cfg!(loom) { 3 } else { 10_000 };
/// Looks of a mapped writer at a gate with somebody inside. One that went to the kernel at once would keep the
/// next one out, and that one the next.
const TURNS_MAPPED: u32 = if cfg!(loom) { 2 } else { 100 };
/// Where the token of the mapped writer begins.
const MAPPED_SHIFT: u32 = 32;
const KERNEL: u64 = 1;

/// The gate of one or more inodes.
#[repr(align(64))]
pub struct Gate {
    /// Upper half: the token of the mapped writer inside, or zero; lower half: how many writers through the
    /// kernel are.
    inside: AtomicU64,
    /// Moves on whenever a write begins or ends.
    changes: AtomicU32,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new()
    }
}

impl Gate {
    /// An open gate.
    #[cfg(not(loom))]
    pub const fn new() -> Gate {
        Gate { inside: AtomicU64::new(0), changes: AtomicU32::new(0) }
    }

    /// An open gate.
    #[cfg(loom)]
    pub fn new() -> Gate {
        Gate { inside: AtomicU64::new(0), changes: AtomicU32::new(0) }
    }

    /// In a forked child: whoever was inside is not here.
    pub fn reset_child(&self) {
        put_back!(self.inside, 0);
    }

    /// Lets a mapped writer in when nobody is inside; not for ever, and never called from within a write.
    /// `token` is not zero, and no other thread's.
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

    /// The mapped writer leaves, if it is inside.
    #[inline]
    pub fn leave_mapped(&self, token: u32) {
        if self.inside.load(Ordering::Relaxed) >> MAPPED_SHIFT != u64::from(token) {
            return;
        }
        self.changes.fetch_add(1, Ordering::SeqCst);
        // SYNC: gate (release).
        self.inside.fetch_and(u64::from(u32::MAX), Ordering::Release);
    }

    /// Lets a writer through the kernel in, after the mapped one has left. `noticed`: readers want to know
    /// ([`Gate::mark`]). `nested`: the caller may have interrupted that very writer and must not wait for it.
    #[inline]
    pub fn enter_kernel(&self, noticed: bool, nested: bool) {
        // SYNC: gate (acquire).
        let mut inside = self.inside.fetch_add(KERNEL, Ordering::Acquire);
        let mut turns = 0;
        while inside >> MAPPED_SHIFT != 0 && !nested && turns < PATIENCE {
            turns += 1;
            give_way(turns);
            inside = self.inside.load(Ordering::Acquire);
        }
        if noticed {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A writer through the kernel leaves; `noticed` as when it entered.
    #[inline]
    pub fn leave_kernel(&self, noticed: bool) {
        if noticed {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
        // SYNC: gate (release).
        self.inside.fetch_sub(KERNEL, Ordering::Release);
    }

    /// For a reader: a mark to compare with later, or `None` while somebody writes.
    #[inline]
    pub fn mark(&self) -> Option<u32> {
        let mark = self.changes.load(Ordering::SeqCst);
        (self.inside.load(Ordering::SeqCst) == 0).then_some(mark)
    }

    /// Whether no write began or ended since the mark.
    #[inline]
    pub fn unchanged(&self, mark: u32) -> bool {
        self.changes.load(Ordering::SeqCst) == mark
    }
}

fn give_way(turns: u32) {
    pause();
    if !cfg!(loom) && turns > 100 {
        crate::sys::yield_now();
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
            // loom reports a race if two threads are ever here at once.
            // SAFETY: loom's cell, whose pointer is valid here and whose races loom reports.
            shared.1.with_mut(|value| unsafe { *value += 1 });
            shared.0.leave_mapped(token);
        }
    }
}
