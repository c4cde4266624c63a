//! Disks without a guest: frontends that come and go, that lie and that wait, and volumes of a device server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attack;
mod driver;
mod frontend;
mod held;
mod volume;
