//! For the tests of whoever uses devices: a device that fails, delays and crashes as it is told.
//!
//! Not for anything else: it allocates, and it is slow.

mod cache;
mod faulty;

pub use faulty::{Crash, Fault, Faulty, What};
