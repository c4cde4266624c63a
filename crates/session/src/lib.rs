//! The memory in which the processes of one `bywash run` count what they did.
//!
//! `bywash run --stats` makes one *session*: a memory file that every process it starts maps. A process
//! claims a record when the library is loaded and again after each `exec`, and counts into it while it
//! runs, so that nothing is lost when it is killed. Whoever made the session reads the records at the end.
//!
//! ```
//! use bywash_session::{Counter, Session};
//!
//! let session = Session::create()?;
//! // In a process of the session (here the same one):
//! let record = Session::open(&session.path())?.claim().expect("a fresh session has room");
//! record.describe(std::process::id(), 1, 0, b"/bin/demo");
//! record.shard(0).add(Counter::UserReads, 3);
//!
//! let all = session.records();
//! assert_eq!(all[0].counter(Counter::UserReads), 3);
//! assert_eq!(all[0].program(), "/bin/demo");
//! # Ok::<(), bywash_session::Error>(())
//! ```
//!
//! - [`layout`]: what stands where in the memory, and its version
//! - [`counters`]: what is counted
//! - [`memory`]: the mapping, claiming a record, reading them all
//! - [`settings`]: variables of the environment that the preloaded library reads
//! - [`recording`]: the memory of a recorded run: every call with its times
//!
//! There is no standard library in it, since there is none in the preloaded one.

#![no_std]

extern crate alloc;

pub mod counters;
pub mod layout;
pub mod memory;
pub mod recording;
pub mod settings;

pub use counters::{Counter, FallbackReason};
pub use memory::{Error, FileUse, Record, RecordView, Session, Shard, Unserved};
