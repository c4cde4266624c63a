//! A device server: fast devices shared under protection, by a private channel for each client.
//!
//! ```
//! use bywash_server::schedule::{Limits, Schedule};
//!
//! // Two clients that always want something, one with twice the share of the other.
//! let mut schedule = Schedule::new();
//! let [one, other] = [1, 2].map(|share| schedule.join(Limits { share, ..Limits::default() }).unwrap());
//! schedule.wants(one);
//! schedule.wants(other);
//! let mut served = [0u64; 2];
//! for now in 0..3000 {
//!     let next = schedule.next(now).unwrap();
//!     served[usize::from(next == other)] += 4096;
//!     schedule.served(next, 4096, now);
//! }
//! assert!((served[1] as f64 / served[0] as f64 - 2.0).abs() < 0.05);
//! ```
//!
//! - [`layout`]: what goes over a channel: requests, pieces of several grants in one, statuses
//! - [`schedule`]: whose request is taken next, so that nobody starves anybody
//!
//! Invariant: nothing that a client has written is believed before it was copied and checked.

#![forbid(unsafe_code)]

pub mod layout;
pub mod schedule;
