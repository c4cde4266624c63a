//! Rings between two parties that share memory and need not trust each other.
//!
//! A ring carries fixed-size entries of `WORDS` words from one producer to one consumer, without a system
//! call. While both keep up, each cache line of an entry is transferred once, since the entry itself shows
//! that it is complete ([`layout`]). Neither end trusts the shared memory: an entry is copied out before its
//! contents are used, and an index of the other side is checked against its possible range.
//!
//! ```
//! use bywash_link::ring::{Consumer, Producer, Shared};
//!
//! let memory = Shared::in_this_process(bywash_link::ring::words_needed::<2>(8));
//! let mut producer = Producer::<2>::new(memory.clone(), 8);
//! let mut consumer = Consumer::<2>::new(memory, 8);
//! assert!(producer.push(&[7 << 32, 42]).unwrap());
//! assert_eq!(consumer.pop().map(|entry| (entry[0] >> 32, entry[1])), Some((7, 42)));
//! assert_eq!(consumer.pop(), None);
//! ```
//!
//! - [`layout`]: positions of the words in a ring's memory
//! - [`Producer`], [`Consumer`]: the two ends
//! - [`Bell`]: the protocol by which one end sleeps and the other wakes it
//! - [`slot_pair`]: values that one thread has sent and another waits for, by tag
//! - [`View`]: entries in a ring, for a third party that counts them
//! - [`Shared`]: the memory, with atomic access only
//!
//! A push and a pop cost some nanoseconds beside the cache misses; `bywash bench ipc` measures both.

#[cfg(not(target_endian = "little"))]
compile_error!("the layout of rings is little-endian");

mod bell;
mod consumer;
pub mod layout;
mod producer;
mod shared;
mod slots;
mod view;

pub use bell::{Bell, Fence, WakeMethod};
pub use consumer::{ClosedFlag, Consumer};
pub use layout::words_needed;
pub use producer::Producer;
pub use shared::Shared;
pub use slots::{SlotSender, SlotSizes, SlotTaker, slot_pair};
pub use view::View;

/// Error for a consumer's index that a consumer which keeps to the protocol cannot have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the consumer's index went from {known} to {found} while {pushed} entries had been sent")]
pub struct InvalidIndex {
    /// Index when it was last read.
    pub known: u64,
    /// Index now.
    pub found: u64,
    /// Number of entries sent so far, the greatest valid index.
    pub pushed: u64,
}
