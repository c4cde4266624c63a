//! Tests of disks without a guest: frontends that connect and disconnect, that are malicious or wait, and
//! volumes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attack;
mod driver;
mod frontend;
mod held;
mod volume;
