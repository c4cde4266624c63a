//! Hazards: a thread's uses of open files, each of which ends by itself or is left by a jump.
//!
//! A thread names the open file that it copies from or to in its record, so that nobody unmaps the file's
//! windows meanwhile. Whoever ends such a use also releases leftovers of the file
//! ([`crate::open_file`]).
//!
//! [`crate::table`] begins and ends uses; the preloaded library tells when a thread jumps, handles a signal or
//! ends.

use crate::open_file;
use crate::reclaim;
use crate::stack;
use crate::threads::{Thread, set_word, waiting};
use bywash_sync::{AtomicUsize, Ordering, Ordering::Relaxed};

/// Value of a hazard that names no file: the thread runs the program's handler of a fault signal.
const HANDLING: usize = 1;
/// Value of `frame` for a copy that may continue although the thread runs elsewhere on its stacks.
pub(crate) const SUSPENDED: usize = usize::MAX;

impl Thread {
    /// Returns true if a copy must not begin: this code runs in a signal handler that interrupted a copy of
    /// the thread, or the kernel blocks a fault signal. A copy that the thread has left by a jump is ended.
    #[inline(always)]
    pub fn nested(&self) -> bool {
        (self.hazard.load(Relaxed) != 0 && !self.has_left_copy()) || waiting() != 0
    }

    /// Sets the hazard to `wanted` and returns true if `source` still holds `wanted`; [`Self::release`] ends
    /// the use.
    #[inline(always)]
    pub(crate) fn protect(&self, source: &AtomicUsize, wanted: usize) -> bool {
        self.frame.set(stack::pointer());
        let protected = reclaim::protect(&self.hazard, source, wanted);
        if !protected {
            // The file was closed meanwhile, perhaps by a handler of this thread that could not release it
            // because of the hazard.
            open_file::after_release(wanted);
        }
        protected
    }

    /// Clears the hazard: the thread no longer uses the file that it protected.
    #[inline(always)]
    pub(crate) fn release(&self) {
        reclaim::release(&self.hazard);
    }

    /// Runs `handler`, the program's handler of a fault signal, during which no copy may begin: the signal is
    /// blocked, so a fault in a copy would kill the process.
    pub fn without_copies(&self, handler: impl FnOnce()) {
        let (hazard, frame) = (self.hazard.load(Relaxed), self.frame.get());
        if hazard == 0 {
            self.frame.set(stack::pointer());
            self.hazard.store(HANDLING, Relaxed);
        }
        handler();
        self.frame.set(frame);
        self.hazard.store(hazard, Ordering::Release);
    }

    /// Returns true if the thread has left the function that set the hazard; the copy is then ended.
    #[cold]
    fn has_left_copy(&self) -> bool {
        let left = stack::is_left(self.frame.get(), stack::pointer());
        if left {
            self.abandon_copy();
        }
        left
    }

    /// Ends a copy that does not continue: clears the hazard and releases leftovers of its file.
    fn abandon_copy(&self) {
        let hazard = self.hazard.swap(0, Ordering::AcqRel);
        if hazard > HANDLING {
            open_file::after_release(hazard);
        }
    }

    /// Ends the copies and writes that the thread leaves by a jump to a function whose stack pointer is
    /// `target`.
    #[cold]
    pub fn jumps_to(&self, target: usize) {
        if self.hazard.load(Relaxed) != 0 && stack::is_left(self.frame.get(), target) {
            self.abandon_copy();
        }
        self.ends_writes_left_for(target);
    }

    /// Notes that the thread saves a context to which it may return from anywhere: a copy that is interrupted
    /// now may continue later, so only its own end releases it.
    pub fn saves_context(&self) {
        if self.hazard.load(Relaxed) != 0 {
            self.frame.set(SUSPENDED);
        }
    }
}

/// Frees the record of the calling thread, which ends.
pub fn unregister(thread: &'static Thread) {
    open_file::usage::hand_on(thread);
    thread.return_shard();
    set_word(0);
    thread.abandon_copy();
    thread.free();
}
