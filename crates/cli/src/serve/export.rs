//! Volumes for virtual machines, each at a socket of its own.
//!
//! Whoever may connect to the socket can use the volume: by default the user who runs the server, and root. Called by
//! `exports`.

use crate::cli::addresses::{ExportArg, VhostUserAddress};
use crate::error::Failure;
use crate::socket::SocketArg;
use bywash_client::{Access, Options, Queue, RefusalKind};
use bywash_link::SocketFile;
use bywash_protocol::report;
use bywash_vhost::{Event, Export, OnVolume, Stats};
use std::path::Path;

/// Size of an export's arena, in bytes: requests of virtual machines and of NBD clients are large.
const ARENA: usize = 32 << 20;
/// Users of exports, as messages name them.
const VIRTUAL_MACHINES: &str = "virtual machines";
/// Users of exports by NBD, as messages name them.
pub const NBD_CLIENTS: &str = "NBD clients";
/// User of exports by ublk, as messages name it.
pub const KERNEL: &str = "the kernel of this machine";

/// A volume exported to virtual machines; the export ends when this is dropped.
pub struct Exported {
    /// Name of the socket, which is dropped, and so removed, before the socket itself.
    _name: SocketFile,
    /// Name of the volume when it was exported.
    pub volume: String,
    /// The socket.
    pub socket: SocketArg,
    export: Export,
}

impl Exported {
    /// Exports a volume of the server at `socket`.
    ///
    /// # Errors
    /// [`Failure::Export`] if the server or the volume cannot be opened, or the socket cannot be made.
    pub fn start(socket: &Path, argument: &ExportArg) -> Result<Exported, Failure> {
        let ExportArg { volume, at: VhostUserAddress { socket: at, queues } } = argument;
        let path = &at.path;
        let failed = |what: String| Failure::Export { volume: volume.clone(), whom: VIRTUAL_MACHINES, what };
        let medium = open(socket, volume, "vhost-user", VIRTUAL_MACHINES)?;
        let (listener, name_of_socket) =
            at.listen().map_err(|error| failed(format!("{}: {error}", path.display())))?;
        let name = volume.chars().filter(char::is_ascii_graphic).take(20).collect::<String>();
        let volume_name = volume.clone();
        let report = move |event| match event {
            Event::Connected => tracing::info!("volume '{volume_name}': a virtual machine has connected"),
            Event::Disconnected => tracing::info!("volume '{volume_name}': the virtual machine is gone"),
            Event::CutOff(error) => tracing::warn!("volume '{volume_name}': {error}"),
            event => tracing::info!("volume '{volume_name}': {event:?}"),
        };
        let export =
            Export::start(listener, medium, bywash_vhost::Options::new().name(name).queues(*queues), report)
                .map_err(|error| failed(error.to_string()))?;
        Ok(Exported { _name: name_of_socket, volume: volume.clone(), socket: at.clone(), export })
    }

    /// Has the volume's size looked at again.
    pub fn refresh(&self) {
        self.export.refresh();
    }

    /// Returns the export's state and counters.
    pub fn report(&self) -> report::Export {
        let Stats { frontends, requests, leaving, stuck: taken_back, .. } = self.export.stats();
        report::Export {
            volume: self.volume.clone(),
            protocol: "vhost-user".to_owned(),
            address: self.socket.shown(),
            frontends,
            requests,
            leaving,
            taken_back,
            ..Default::default()
        }
    }
}

/// Opens a volume of the server at `socket` as the device of an export. A volume that is marked read-only, or lies
/// on a read-only device, is opened to be read.
///
/// # Errors
/// [`Failure::Export`] if the server or the volume cannot be opened.
pub fn open(socket: &Path, volume: &str, protocol: &str, whom: &'static str) -> Result<OnVolume, Failure> {
    let failed = |what: String| Failure::Export { volume: volume.to_owned(), whom, what };
    let queue = || {
        let options = Options::new().name(format!("{protocol} {volume}")).arena_bytes(ARENA);
        Queue::connect(socket, options).map_err(|error| failed(error.to_string()))
    };
    let access = match queue()?.open(volume, Access::ReadWrite) {
        Err(error) if error.code() == Some(RefusalKind::Denied) => Access::Read,
        _ => Access::ReadWrite,
    };
    OnVolume::open(queue()?, volume, access).map_err(|error| failed(error.to_string()))
}
