//! For tests of devices and of code that uses devices: the conformance suite, and devices that fail, delay, crash
//! and stop on demand.
//!
//! Not for production: the devices allocate memory for their commands, and are slow.

mod cache;
pub mod conformance;
mod faulty;
mod late;

pub use faulty::{Crash, Fault, FaultEffect, Faulty};
pub use late::Late;
