//! The basis of paths and channels: a connection that knows its peer's credentials and death, memory that
//! both ends map and neither can resize, and waiting for each other.
//!
//! Paths (`bywash-container`) and channels (`bywash-channel`) are built on this crate and define their own
//! protocols. This crate has no other users. It checks everything that a peer says before it uses it.
//!
//! ```
//! use bywash_link::{Hello, Mail, Protocol, greet, socket_pair};
//! use std::time::Duration;
//!
//! const GREETING: Protocol =
//!     Protocol { magic: *b"greeting", version: 1, noun: "an end of a greeting", rings_max: [16, 16] };
//! let hello = Hello { flags: 0, arena_bytes: 0, rings: [8, 8] };
//! let (here, there) = socket_pair()?;
//! let limit = Duration::from_secs(1);
//! let other = std::thread::spawn(move || greet(there, &GREETING, hello, &[], limit, Mail::NONE).map(drop));
//! let (link, theirs, _memory) = greet(here, &GREETING, hello, &[], limit, Mail::NONE)?;
//! assert_eq!((link.peer().pid, theirs), (std::process::id(), hello));
//! # other.join().unwrap()?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Acceptor`], [`Listener`], [`connect`], [`connect_within`], [`socket_pair`]: connecting two programs
//! - [`listen_at`], [`SocketFile`]: names of sockets in the file system; [`let_descriptors_in`]: refusing
//!   descriptors
//! - [`greet`], [`Hello`], [`Protocol`]: the handshake
//! - [`Link`], [`Mail`]: the connection after the handshake; [`Messages`], [`Front`]: a connection without
//!   rings
//! - [`File`], [`Mapping`], [`Arena`], [`Blocks`]: memory and its allocation; [`ArenaUse`]: the holders of an
//!   arena's bytes
//! - [`Meeting`], [`Wait`], [`Waiter`]: waiting for the other side, and waking it
//! - [`Exclusive`], [`Maker`], [`Counter`]: a lock, detection of forks, and counts of operations
//! - [`Error`]: every error of paths and channels

mod acceptor;
mod arena;
mod arena_use;
mod backing;
mod blocks;
mod error;
mod exclusive;
mod fork;
mod hello;
mod link;
mod meeting;
mod memory;
mod messages;
mod patience;
#[cfg(feature = "async")]
mod readiness;
mod rendezvous;
mod socket;
mod socket_file;
mod stats;
mod wait;

pub use acceptor::{Acceptor, PENDING_MAX};
pub use arena::{ARENA_BYTES_MAX, Arena, Writers};
pub use arena_use::{ArenaUse, Holder};
pub use blocks::{Block, Blocks};
pub use error::Error;
pub use exclusive::{Exclusive, Guard};
pub use fork::Maker;
pub use hello::{FLAG_FENCES, Hello, Protocol};
pub use link::{Link, Mail, Packet, greet};
pub use meeting::Meeting;
pub use memory::{File, HUGE_PAGE, HugePages, Mapping, PAGE, SEALS_FIXED, SEALS_FROZEN};
pub use messages::Messages;
pub use patience::{LOOKS, Patience};
#[cfg(feature = "async")]
pub use readiness::{aside, readable};
pub use rendezvous::{Listener, connect, connect_within, socket_pair};
pub use socket::{Credentials, DESCRIPTORS_MAX, Front, let_descriptors_in};
pub use socket_file::{SocketFile, listen_at};
pub use stats::{Counter, Waits};
pub use wait::{Elsewhere, Wait, Waiter};
