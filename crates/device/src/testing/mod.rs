//! A device that fails, delays and crashes on demand, for tests of code that uses devices.
//!
//! Not for production: the device allocates memory for its commands, and is slow.

mod cache;
mod faulty;

pub use faulty::{Crash, Fault, FaultEffect, Faulty};
