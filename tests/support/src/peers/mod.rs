//! Peers that die or break the protocol: support for the tests of paths and channels.
//!
//! - [`Child`]: a process that can be killed at any moment; [`Resources`]: resources that must not be left
//!   behind then
//! - [`Words`], [`accept`], [`send`], [`receive`], [`memory`], [`offered`]: messages and memory of a
//!   malicious peer
//! - [`Lingering`], [`SilentFile`]: descriptors that block the program that closes them
//! - [`as_user`]: running code as another user
//! - [`Random`], [`fill`], [`check`]: numbers and contents made from a seed

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocking;
mod liar;
mod processes;
mod random;
mod users;

pub use blocking::{Lingering, SilentFile};
pub use liar::{
    FIXED, LIMIT, OFFERED, Words, accept, backed_bytes, memory, offered, receive, send, timed, watch,
};
pub use processes::{Child, Resources, inherited_sockets, memfd_mappings, memfds, role, serialise_test};
pub use random::{Random, SIZE_MIN, WAITS, check, fill, rounds, wait_by_name};
pub use users::as_user;
