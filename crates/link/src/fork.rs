//! Whether this process is the one that made an end.
//!
//! A forked child inherits the memory of an end and its descriptors, but there can be only one party at each
//! end. So the ends of the parent are dead in the child: every operation says so, and what the child drops
//! is neither freed nor given back, since it is the parent's.

use bywash_sync::{AtomicU64, Ordering::Relaxed};
use std::sync::Once;

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static WATCHING: Once = Once::new();

/// The process that made something.
#[derive(Clone, Copy, Debug)]
pub struct Maker(u64);

impl Maker {
    /// This process.
    pub fn this() -> Maker {
        extern "C" fn in_child() {
            GENERATION.fetch_add(1, Relaxed);
        }
        WATCHING.call_once(|| {
            // SAFETY: the handler only adds to an atomic. Should there be no memory for it, a child would
            // take itself for its parent, as it would without this module.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Maker(GENERATION.load(Relaxed))
    }

    /// Whether it is this one.
    #[inline(always)]
    pub fn is_here(self) -> bool {
        GENERATION.load(Relaxed) == self.0
    }
}
