//! Rings between two parties that share memory and need not trust each other.
//!
//! A ring carries fixed-size entries of `WORDS` words from one producer to one consumer, without a system call
//! and, while both keep up, with one transfer of a cache line per line of an entry: an entry itself says
//! whether it is there ([`layout`]). Nothing in shared memory is believed: entries are copied out before
//! anybody looks at them, and an index of the other side is checked against what is possible.
//!
//! ```
//! use bywash_ring::{Consumer, Producer, Shared};
//!
//! let memory = Shared::in_this_process(bywash_ring::words_needed::<2>(8));
//! let mut producer = Producer::<2>::new(memory.clone(), 8);
//! let mut consumer = Consumer::<2>::new(memory, 8);
//! assert!(producer.push(&[7 << 32, 42]).unwrap());
//! assert_eq!(consumer.pop().map(|entry| (entry[0] >> 32, entry[1])), Some((7, 42)));
//! assert_eq!(consumer.pop(), None);
//! ```
//!
//! - [`layout`]: what lies where
//! - [`Producer`], [`Consumer`]: the two ends
//! - [`Bell`]: how one end sleeps, and how the other knows that it must be woken
//! - [`slots`]: what one thread has sent and another waits for, by tag
//! - [`View`]: entries that are on their way, for somebody who counts them
//! - [`Shared`]: the memory, reached by atomic operations alone
//!
//! A push and a pop cost some nanoseconds beside the cache misses; `bywash bench ipc` measures both.

#[cfg(not(target_endian = "little"))]
compile_error!("the layout of bywash-ring is little-endian");

mod bell;
mod consumer;
pub mod layout;
mod producer;
mod shared;
mod slots;
mod view;

pub use bell::{Bell, Fence, Sleeper};
pub use consumer::{Closing, Consumer};
pub use layout::words_needed;
pub use producer::Producer;
pub use shared::Shared;
pub use slots::{Done, Sent, UnderWay, slots};
pub use view::View;

/// The other side wrote what it cannot have written if it keeps to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the consumer's index went from {known} to {found} while {pushed} entries had been sent")]
pub struct Rubbish {
    /// What it was.
    pub known: u64,
    /// What it says now.
    pub found: u64,
    /// What there is at most.
    pub pushed: u64,
}
