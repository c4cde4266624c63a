//! Everything but requests: who is let in, what is granted, what administrators change, what is told.
//!
//! ```text
//!                        orders                            orders
//!     control ─────────────────────► core ◄──────────────────────── administrator
//!       ▲  │  answers, by a bell       │                               ▲
//!       │  └───────────────────────────┘                               │
//!       └── helpers: threads of each user's, for what may block ───────┴── registry, store
//! ```
//!
//! The control thread sleeps on the listening socket, on every client's, and on a bell. It carries out what is quick and
//! has the rest done by others, who send it what is to be answered; meanwhile the client's next message waits in its
//! socket. So no client holds up another.
//!
//! Invariant: neither this thread nor the core receives, looks at, maps, unmaps or closes a descriptor that a client has
//! passed, nor closes a socket that may have some in its queue: that is for the client's user's [`Helpers`].

mod administrator;
mod connection;
mod descriptors;
mod granting;
mod notices;
mod registry;
mod report;
mod thread;
mod users;

pub(crate) use registry::Registry;
pub use report::describe;
pub(crate) use report::status;
pub(crate) use thread::{Control, Event, Post};
pub(crate) use users::Users;

use crate::core::order::Orders;
use crate::helpers::Helpers;
use crate::limits::LimitsFile;
use bywash_protocol::report::Export;
use bywash_sync::AtomicU64;
use bywash_volume::{DeviceNumber, Store};
use registry::ByName;
use std::sync::OnceLock;
use std::time::Instant;

/// What the threads of the server share.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) orders: Orders,
    pub(crate) store: Store,
    pub(crate) devices: ByName<DeviceFacts>,
    pub(crate) registry: Registry,
    pub(crate) helpers: Helpers,
    pub(crate) limits: LimitsFile,
    /// What was done for clients that have ended.
    pub(crate) users: Users,
    /// What tells of volumes that this process exports.
    pub(crate) exports: Exports,
    pub(crate) began: Instant,
    /// Asks that were refused.
    pub(crate) asks_refused: AtomicU64,
    /// Clients that were turned away or thrown out.
    pub(crate) clients_refused: AtomicU64,
}

/// A function that tells of the volumes that are exported to virtual machines, once they are.
#[derive(Default)]
pub(crate) struct Exports(pub(crate) OnceLock<Box<dyn Fn() -> Vec<Export> + Send + Sync>>);

impl Exports {
    fn tell(&self) -> Vec<Export> {
        self.0.get().map(|tell| tell()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Exports {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("exports")
    }
}

/// A device that volumes are on.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFacts {
    pub(crate) number: DeviceNumber,
    /// Of its logical block.
    pub(crate) block: u32,
    /// It may only be read.
    pub(crate) read_only: bool,
    /// Bytes of a chunk, where it is memory that can be mapped.
    pub(crate) chunk_bytes: Option<u64>,
}
