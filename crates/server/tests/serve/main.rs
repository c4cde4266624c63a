//! The server as its clients see it, by the protocol itself: what is served, what is refused, what survives.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attack;
mod by_hand;
mod crowd;
mod device;
mod faults;
mod held;
mod hostile;
mod idle;
mod kill;
mod limits;
mod memory;
mod peer;
mod process;
mod registered;
mod requests;
mod rights;
