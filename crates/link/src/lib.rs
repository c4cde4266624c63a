//! The basis of paths and channels: a connection that knows its peer's credentials and death, memory that
//! both ends map and neither can resize, rings in it, and waiting for each other.
//!
//! Paths (`bywash-container`) and channels (`bywash-channel`) are built on this crate and define their own
//! protocols. This crate has no other users. It checks everything that a peer says before it uses it.
//!
//! ```
//! use bywash_link::{Hello, MessagePolicy, Protocol, handshake, socket_pair};
//! use std::time::Duration;
//!
//! const GREETING: Protocol =
//!     Protocol { magic: *b"greeting", version: 1, noun: "an end of a greeting", rings_max: [16, 16] };
//! let hello = Hello { flags: 0, arena_bytes: 0, rings: [8, 8] };
//! let (here, there) = socket_pair()?;
//! let limit = Duration::from_secs(1);
//! let other = std::thread::spawn(move || handshake(there, &GREETING, hello, &[], limit, MessagePolicy::NONE).map(drop));
//! let (link, theirs, _memory) = handshake(here, &GREETING, hello, &[], limit, MessagePolicy::NONE)?;
//! assert_eq!((link.peer().pid, theirs), (std::process::id(), hello));
//! # other.join().unwrap()?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Acceptor`], [`Listener`], [`connect`], [`connect_within`], [`socket_pair`]: connecting two programs
//! - [`listen_at`], [`SocketFile`]: names of sockets in the file system; [`let_descriptors_in`]: refusing
//!   descriptors
//! - [`handshake`], [`Hello`], [`Protocol`]: the handshake
//! - [`Link`], [`MessagePolicy`]: the connection after the handshake; [`Messages`], [`NextMessage`]: a
//!   connection without rings
//! - [`MemoryFile`], [`Mapping`], [`Arena`], [`BlockAllocator`]: memory and its allocation; [`ArenaUse`]: the
//!   holders of an arena's bytes
//! - [`ring`]: rings of requests, completions and containers in memory that both ends map
//! - [`RingWaiter`], [`Wait`], [`Waiter`]: waiting for the other side, and waking it
//! - [`SpinLock`], [`ProcessGeneration`], [`Counter`]: a lock, detection of forks, and counts of operations
//! - [`Error`]: every error of paths and channels

mod acceptor;
mod arena;
mod arena_use;
mod backing;
mod blocks;
mod connect;
mod error;
mod fork;
mod hello;
mod link;
mod memory;
mod messages;
#[cfg(feature = "async")]
mod readiness;
pub mod ring;
mod ring_waiter;
mod socket;
mod socket_file;
mod spin_lock;
mod spin_policy;
mod stats;
mod wait;

pub use acceptor::{Acceptor, PENDING_MAX};
pub use arena::{ARENA_BYTES_MAX, Arena, Writers};
pub use arena_use::{ArenaUse, Holder};
pub use blocks::{Block, BlockAllocator};
pub use connect::{Listener, connect, connect_within, socket_pair};
pub use error::Error;
pub use fork::ProcessGeneration;
pub use hello::{FLAG_FENCES, Hello, Protocol};
pub use link::{Link, MessagePolicy, Packet, handshake};
pub use memory::{HUGE_PAGE, HugePages, Mapping, MemoryFile, PAGE, SEALS_FIXED, SEALS_FROZEN};
pub use messages::Messages;
#[cfg(feature = "async")]
pub use readiness::{readable, spawn_blocking};
pub use ring_waiter::RingWaiter;
pub use socket::{Credentials, DESCRIPTORS_MAX, NextMessage, let_descriptors_in};
pub use socket_file::{SocketFile, listen_at};
pub use spin_lock::{Guard, SpinLock};
pub use spin_policy::{LOOKS, PeerState, Reason, SpinPolicy};
pub use stats::{Counter, Waits};
pub use wait::{OtherConnection, Wait, Waiter};
