//! Peers that die or lie: what the tests of paths and channels have in common.
//!
//! - [`Child`]: a process that can be killed at any moment; [`Belongings`]: what may not be left behind then
//! - [`Words`], [`accept`], [`send`], [`receive`], [`memory`], [`offered`]: what a liar writes and says
//! - [`Lingering`], [`SilentFile`]: descriptors that hold up whoever closes them
//! - [`as_user`]: somebody else
//! - [`Random`], [`fill`], [`check`]: numbers and contents by a seed

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocking;
mod liar;
mod processes;
mod random;
mod users;

pub use blocking::{Lingering, SilentFile};
pub use liar::{FIXED, LIMIT, OFFERED, Words, accept, memory, offered, receive, send, taken, timed, watch};
pub use processes::{Belongings, Child, alone, inherited_sockets, memfd_mappings, memfds, role};
pub use random::{Random, SIZE_MIN, WAITS, check, fill, rounds, wait_by_name};
pub use users::as_user;
