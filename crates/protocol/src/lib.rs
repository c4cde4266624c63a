//! Messages and layouts that a client and a device server exchange.
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
//! A client connects to the server's socket (a Unix socket of sequenced packets). The server identifies the
//! client by the credentials that the kernel reports. Over the socket the client opens grants and sets up its
//! channel, each by one [`ControlRequest`], to which the server sends one [`ControlReply`]. Then the client
//! reads and writes by requests over the channel ([`layout`]), or directly in chunks of a memory device that
//! it has mapped. The connection stands for the client: when the connection ends, the server releases
//! everything that the client held.
//!
//! ```
//! use bywash_protocol::{Access, ControlRequest};
//!
//! let request = ControlRequest::Open { volume: "log".into(), access: Access::ReadWrite };
//! let bytes = request.to_bytes().unwrap();
//! assert_eq!(bytes, br#"{"ask":"open","volume":"log","access":"read-write"}"#);
//! assert_eq!(ControlRequest::from_bytes(&bytes), Ok(request));
//! ```
//!
//! - [`ControlRequest`], [`ControlReply`], [`Refusal`], [`RefusalKind`]: the messages of the control socket
//! - [`ExportProtocol`]: protocols by which volumes are exported to programs that are no clients
//! - [`Access`]: reading, writing or both
//! - [`layout`]: requests over the channel and their completions
//! - [`revocations`]: the page that tells which grants were revoked
//! - [`report`]: the server's reports on its state
//!
//! Invariant: this crate only encodes and decodes; it uses no socket and no shared memory.

#![forbid(unsafe_code)]

mod access;
pub mod layout;
mod message;
pub mod report;
pub mod revocations;

pub use access::Access;
pub use message::{
    ControlReply, ControlRequest, DecodeError, ExportProtocol, GrantInfo, MESSAGE_BYTES_MAX, Refusal,
    RefusalKind,
};

/// Version of the protocol, which the client sends in its hello message.
pub const VERSION: u32 = 1;
