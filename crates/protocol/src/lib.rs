//! What a client and a device server say to each other.
//!
//! ```text
//!                     control socket: messages, descriptors               (rarely)
//!     client  ◄──────────────────────────────────────────────►  server
//!             ◄──────────────────────────────────────────────►
//!                     channel: requests, completions, an arena            (always)
//!             ◄───────────────────────────────────────────────
//!                     notices: which grants were taken back
//! ```
//!
//! A client connects to the server's socket (a Unix socket of sequenced packets), and is then known by what the kernel
//! says of it. Over the socket it opens grants and asks for its channel, each by one [`Ask`], which has one [`Answer`].
//! Then it reads and writes by requests over the channel ([`layout`]), or in chunks of the medium that it has mapped.
//! The connection is the client: when it ends, all that the client had goes with it.
//!
//! ```
//! use bywash_protocol::{Access, Ask};
//!
//! let ask = Ask::Open { volume: "log".into(), access: Access::ReadWrite };
//! let bytes = ask.to_bytes().unwrap();
//! assert_eq!(bytes, br#"{"ask":"open","volume":"log","access":"read-write"}"#);
//! assert_eq!(Ask::of_bytes(&bytes), Ok(ask));
//! ```
//!
//! - [`Ask`], [`Answer`], [`Refused`], [`Code`]: the messages of the socket
//! - [`layout`]: requests over the channel, and how they end
//! - [`notices`]: the page that says which grants were taken back
//! - [`report`]: what a server tells of itself
//!
//! Invariant: pure; nothing here touches a socket or memory that is shared.

#![forbid(unsafe_code)]

pub mod layout;
mod message;
pub mod notices;
pub mod report;

pub use message::{Access, Answer, Ask, Code, Granted, MESSAGE_BYTES_MAX, NotAMessage, Refused};

/// The version of all this, which the client says first.
pub const VERSION: u32 = 1;
