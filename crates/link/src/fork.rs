//! Detection of forks: whether this process is the one that made an end.
//!
//! A forked child inherits the memory and the descriptors of its parent's ends, but each end must have only
//! one user. So the parent's ends are dead in the child: every operation fails with
//! [`Error::Forked`](crate::Error::Forked), and dropping them in the child frees and returns nothing, since
//! everything still belongs to the parent.

use bywash_sync::processor::{AtomicU64, Ordering::Relaxed};
use std::sync::Once;

/// Number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static WATCHING: Once = Once::new();

/// Identity of the process that made something.
#[derive(Clone, Copy, Debug)]
pub struct ProcessGeneration(u64);

impl ProcessGeneration {
    /// Returns the identity of this process.
    pub fn current() -> ProcessGeneration {
        extern "C" fn in_child() {
            GENERATION.fetch_add(1, Relaxed);
        }
        WATCHING.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is allowed in a forked child. If the
            // registration fails for lack of memory, a child is not detected, as if this module did not
            // exist.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        ProcessGeneration(GENERATION.load(Relaxed))
    }

    /// Returns true if this process is the one that made it.
    #[inline(always)]
    pub fn is_here(self) -> bool {
        GENERATION.load(Relaxed) == self.0
    }
}
