//! Devices compute the same results, and sessions on them keep the same rules: one suite for all.
//!
//! A test of a device calls [`suite::check`] with it, and asserts which cases it cannot run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "gpu")]
mod gpu;
mod suite;
