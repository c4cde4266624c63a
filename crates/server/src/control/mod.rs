//! Everything but requests: connections, grants, changes by administrators, and reports.
//!
//! ```text
//!                        orders                            orders
//!     control ─────────────────────► core ◄──────────────────────── administrator
//!       ▲  │  answers, by a bell       │                               ▲
//!       │  └───────────────────────────┘                               │
//!       └── helpers: threads of each user's, for what may block ───────┴── registry, store
//! ```
//!
//! The control thread sleeps on the listening socket, on the sockets of all clients, and on a bell. It
//! carries out quick operations itself and hands all others to other threads, which send the reply back as an
//! event. Meanwhile the client's next message waits in its socket. So no client delays another.
//!
//! Invariant: neither the control thread nor the core receives, inspects, maps, unmaps or closes a descriptor
//! that a client has passed, nor closes a socket whose queue may contain descriptors. The [`Helpers`] of the
//! client's user do that.

mod administrator;
mod clearing;
mod connection;
mod copying;
mod descriptors;
mod devices;
mod direct;
mod event;
mod granting;
mod hardware;
mod maps;
mod refusal;
mod registry;
mod report;
mod revocation_page;
mod room;
mod snapshots;
mod thin;
mod thread;
mod users;

use clearing::SpareBlocks;
pub(crate) use devices::serve as serve_device;
use direct::Direct;
pub(crate) use event::{Event, EventSender};
use hardware::Hardware;
pub(crate) use registry::Registry;
pub(crate) use report::status;
pub use report::volume_reports;
use room::Shortages;
use thin::Changes;
pub(crate) use thread::ControlThread;
pub(crate) use users::Users;

use crate::core::cores::{Cores, DeviceNumbers};
use crate::exporter::Exporter;
use crate::helpers::Helpers;
use crate::limits::LimitsFile;
use bywash_device::DeviceKind;
use bywash_protocol::report::Export;
use bywash_protocol::{Refusal, RefusalKind};
use bywash_sync::AtomicU64;
use bywash_volume::{DeviceNumber, Store};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// State that the server's threads share.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) cores: Cores,
    pub(crate) device_numbers: Arc<DeviceNumbers>,
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    /// True if the store has no file, so that volumes end with the server.
    pub(crate) is_temporary: bool,
    /// Kinds of devices that administrators can add besides those of `bywash-device`.
    pub(crate) device_kinds: Vec<&'static DeviceKind>,
    pub(crate) helpers: Helpers,
    pub(crate) limits: LimitsFile,
    /// Counters of clients that have ended, by user.
    pub(crate) users: Users,
    /// Blocks of no volume that threads are clearing or copying to.
    pub(crate) spare: Arc<SpareBlocks>,
    /// Changes of thin volumes' maps that are under way.
    pub(crate) changes: Arc<Changes>,
    /// Devices that have too little room for thin volumes.
    pub(crate) shortages: Shortages,
    /// Exporter of volumes in this process.
    pub(crate) exports: Exports,
    /// Thread that hands hardware over and takes it back.
    pub(crate) direct: Direct,
    pub(crate) began: Instant,
    /// Number of control messages that were refused.
    pub(crate) asks_refused: AtomicU64,
    /// Number of clients that were refused a connection or disconnected.
    pub(crate) clients_refused: AtomicU64,
}

/// Exporter of volumes to programs that are no clients; unset until [`crate::Server::set_exporter`].
#[derive(Default)]
pub(crate) struct Exports(pub(crate) OnceLock<Arc<dyn Exporter>>);

impl Exports {
    fn report(&self) -> Vec<Export> {
        self.0.get().map(|exporter| exporter.report()).unwrap_or_default()
    }

    fn resized(&self, volume: &str) {
        if let Some(exporter) = self.0.get() {
            exporter.resized(volume);
        }
    }

    fn exporter(&self) -> Result<&dyn Exporter, Refusal> {
        let none = || Refusal::new(RefusalKind::Unfit, "this server exports no volumes; `bywash serve` does");
        self.0.get().map(|exporter| &**exporter).ok_or_else(none)
    }
}

impl std::fmt::Debug for Exports {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("exports")
    }
}

/// Properties of a device of the server that control needs.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFacts {
    pub(crate) number: DeviceNumber,
    /// Logical block of the device, in bytes.
    pub(crate) block: u32,
    /// True if the device may only be read.
    pub(crate) read_only: bool,
    /// Size of a chunk in bytes, if the device is memory that clients can map.
    pub(crate) chunk_bytes: Option<u64>,
    /// True if the contents are lost when the server ends.
    pub(crate) is_volatile: bool,
    /// Hardware behind the device, if it can be handed to a client.
    pub(crate) hardware: Option<Hardware>,
}
