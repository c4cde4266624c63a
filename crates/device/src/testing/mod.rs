//! Devices that fail, delay, crash and stop on demand, for tests of code that uses devices.
//!
//! Not for production: the devices allocate memory for their commands, and are slow.

mod cache;
mod faulty;
mod late;

pub use faulty::{Crash, Fault, FaultEffect, Faulty};
pub use late::Late;
