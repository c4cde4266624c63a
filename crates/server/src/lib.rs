//! A device server: fast devices shared under protection, by a private channel for each client.
//!
//! ```no_run
//! use bywash_server::{Options, Server};
//!
//! let mut options = Options::new("/run/bywash.sock");
//! options.devices.push("fast=mem:1G".parse()?);
//! let server = Server::start(options)?;
//! // Clients come and go, until
//! server.stop();
//! # Ok::<_, bywash_server::Error>(())
//! ```
//!
//! A client connects to the server's socket and is known by what the kernel says of it. It opens grants: by the name of
//! a volume, whose owner, group and mode decide, or by a descriptor that the kernel has opened for it. Then it reads and
//! writes by requests over a channel of its own ([`bywash_protocol::layout`]), each of which is checked against the
//! client's table of grants, or in chunks of a `mem:` device that it has mapped, where the MMU does the same.
//!
//! - [`Server`], [`Options`], [`Patience`]: a server that runs
//! - [`LimitsFile`], [`Limits`]: what a client may have
//! - [`identity`]: which device a device is, by the label on it; taking one, and writing its label again
//! - [`describe`]: a volume of the store, as a server tells of it
//! - [`schedule`]: whose request is taken next, so that nobody starves anybody
//! - [`metrics`]: what was done, as Prometheus reads it
//! - [`Error`]: why there is no server
//!
//! With the feature `testing` there is `Stepped`, a server that its caller's thread steps.
//!
//! Invariant: nothing that a client has written is believed before it was copied and checked.

#![deny(unsafe_code)]

mod bell;
mod control;
mod core;
mod error;
mod helpers;
pub mod identity;
mod limits;
pub mod metrics;
pub mod schedule;
mod server;
#[cfg(feature = "testing")]
mod stepped;

pub use crate::control::describe;
pub use crate::core::Patience;
pub use bywash_volume::Contents;
pub use error::Error;
pub use limits::{CLIENTS_MAX, Limits, LimitsError, LimitsFile};
pub use server::{Opened, Options, Server, Watch};
#[cfg(feature = "testing")]
pub use stepped::Stepped;
