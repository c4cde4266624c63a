//! A device server: shares fast devices among clients under protection, by a private channel for each client.
//!
//! ```no_run
//! use bywash_server::{Options, Server};
//!
//! let options = Options::new("/run/bywash.sock").device("fast=mem:1G".parse()?);
//! let server = Server::start(options)?;
//! // Clients come and go, until
//! server.stop();
//! # Ok::<_, bywash_server::Error>(())
//! ```
//!
//! A client connects to the server's socket, and the server identifies the client by the credentials that the
//! kernel reports. The client opens grants: by a volume's name, where the volume's owner, group and mode
//! decide, or by a descriptor that the client has opened itself. Then the client reads and writes by requests
//! over its own channel ([`bywash_protocol::layout`]); the server checks each of them against the client's
//! table of grants. A client can also map chunks of a `mem:` device, where the MMU enforces the grant.
//!
//! - [`Server`], [`Options`], [`CORES_MAX`], [`Timeouts`]: a running server and its settings
//! - [`LimitsFile`], [`Limits`]: limits of a user's clients
//! - [`identity`]: recognises a device by the label on it; adopts a device, and writes its label again
//! - [`Exporter`]: exports volumes by other protocols, in the process of the server
//! - [`volume_reports`]: reports of the volumes of a store
//! - [`schedule`]: chooses whose request is served next, so that no client starves another
//! - [`Error`]: reasons why a server cannot start
//!
//! With the feature `testing` there is also `SteppedServer`, a server without threads that its caller steps.
//!
//! Invariant: the server copies and checks everything that a client has written before it relies on it.

#![deny(unsafe_code)]

mod bell;
mod control;
mod core;
mod error;
mod exporter;
mod helpers;
pub mod identity;
mod limits;
mod open_device;
pub mod schedule;
mod server;
#[cfg(feature = "testing")]
mod stepped;

pub use crate::control::volume_reports;
pub use crate::core::Timeouts;
pub use bywash_volume::NewBlocks;
pub use error::Error;
pub use exporter::Exporter;
pub use limits::{CLIENTS_MAX, CORES_MAX, Limits, LimitsError, LimitsFile};
pub use open_device::OpenDevice;
pub use server::{Options, Server, StatusHandle};
#[cfg(feature = "testing")]
pub use stepped::SteppedServer;
