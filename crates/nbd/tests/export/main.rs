//! Tests of exports as their clients see them: byte by byte, in the hands of hostile clients, added and removed
//! meanwhile, at random, after power failures, and with the clients of other projects.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod held;
mod hostile;
mod live;
mod power;
mod protocol;
mod random;
mod served;
mod strangers;
#[cfg(feature = "tls")]
mod tls;
