//! The only door to atomics: under `--cfg loom` the model checker's stand in for the processor's.
//!
//! ```
//! use bywash_sync::{AtomicUsize, Ordering, light_fence};
//!
//! let hazard = AtomicUsize::new(0);
//! hazard.store(7, Ordering::Relaxed);
//! light_fence();
//! ```
//!
//! Besides the atomics there is one pair of fences, [`light_fence`] for the side that runs all the time and
//! [`heavy_fence`] for the side that runs seldom. Together they order a store before a later load on both
//! sides, as two sequentially consistent fences would; the whole cost is on the heavy side
//! (membarrier(2), `MEMBARRIER_CMD_PRIVATE_EXPEDITED`). [`light_shared_fence`] and [`heavy_shared_fence`]
//! are such a pair between processes.

#![cfg_attr(not(loom), no_std)]

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// The processor's own atomics, also under loom: for static variables and mapped memory that no loom test has.
pub mod processor {
    pub use core::sync::atomic::{AtomicU64, Ordering};
}

mod asymmetric;
mod cell;

pub use asymmetric::{
    heavy_fence, heavy_shared_fence, light_fence, light_shared_fence, prepare_fences, prepare_shared_fences,
};
pub use cell::Cell;

/// A full fence of this thread.
#[inline(always)]
pub fn full_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A fence behind loads: those before it have been done before any that come behind it.
#[inline(always)]
pub fn read_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::fence(Ordering::Acquire);
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::Acquire);
}

/// Lets another thread run while this one waits for it: a processor hint, or loom's scheduler.
pub fn pause() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
