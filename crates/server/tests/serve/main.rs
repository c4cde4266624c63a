//! The server as its clients see it through the protocol: what it serves, what it refuses, and what survives
//! a crash.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attack;
mod by_hand;
mod cores;
mod crowd;
mod device;
mod devices;
mod direct;
mod faults;
mod held;
mod hostile;
mod idle;
mod kill;
mod limits;
mod memory;
mod peer;
mod power;
mod process;
mod registered;
mod requests;
mod rights;
mod snapshots;
mod thin;
