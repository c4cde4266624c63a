//! `bywash serve`: a device server, its exports, its metrics, its status.

mod devices;
mod export;
mod exports;
mod metrics;
mod nbd;
mod prometheus;
mod status;
mod ublk;

use crate::cli::serve::{ServeArgs, ServeCommand, ServerArgs};
use crate::error::Failure;
use crate::http;
use crate::signals::Signals;
use crate::standard::Unfailing;
use bywash_client::Client;
use bywash_server::{LimitsFile, Options, Server};
use exports::Exports;
use metrics::StatusReport;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tracing_subscriber::filter::LevelFilter;

/// Interval between checks for a signal.
const TURN: Duration = Duration::from_millis(50);

/// Carries out the command line and returns the exit status.
///
/// # Errors
/// Any [`Failure`] of starting the server, its exports or its metrics, or of printing; [`Failure::Broken`] if
/// a thread of the server ended unexpectedly. For `status`, same as
/// [`status::main`]; for `add` and `drop`, same as [`devices::add`].
pub fn main(arguments: &ServeArgs) -> Result<i32, Failure> {
    match &arguments.command {
        Some(ServeCommand::Status(arguments)) => status::main(arguments),
        Some(ServeCommand::Add(arguments)) => devices::add(arguments),
        Some(ServeCommand::Drop(arguments)) => devices::drop(arguments),
        None => serve(&arguments.server),
    }
}

fn serve(arguments: &ServerArgs) -> Result<i32, Failure> {
    // A failure is ignored: the subscriber is set only once, here.
    let _ = tracing_subscriber::fmt()
        .with_writer(|| Unfailing)
        .with_target(false)
        .without_time()
        .with_max_level(LevelFilter::INFO)
        .try_init();
    let signals = Signals::listen();
    claim_memory();
    lay_down_capabilities();
    let limits = match &arguments.limits {
        Some(path) => LimitsFile::read(path).map_err(bywash_server::Error::from)?,
        None => LimitsFile::default(),
    };
    let options = Options::new(&arguments.socket)
        .socket_mode(arguments.socket_mode.into())
        .policy(arguments.policy.clone())
        .limits(limits)
        .cores(arguments.cores)
        .cpu(arguments.cpu)
        .timeouts(arguments.timeouts())
        .device_kinds([&bywash_nvme::DEVICE_KIND]);
    let options = arguments.devices.iter().cloned().fold(options, Options::device);
    let server = Server::start(options)?;
    let exports = Exports::start(&arguments.socket, arguments).map(Arc::new)?;
    server.set_exporter(exports.clone());
    let told =
        arguments.metrics.as_ref().map(|place| metrics::start(place, server.status_handle())).transpose()?;
    tell(&server, arguments, &exports, told.as_ref())?;
    // A service manager waits for this notification; without one it has no effect.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    while signals.seen().is_none() {
        if !server.is_running() {
            return Err(Failure::Broken);
        }
        match &told {
            Some(told) => http::turn(&told.listener, &told.service).map_err(|source| told.failed(source))?,
            None => thread::sleep(TURN),
        }
    }
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Stopping]);
    exports.stop();
    server.stop();
    Ok(0)
}

/// Connects to a server.
///
/// # Errors
/// [`Failure::NoServer`] if no server listens there, or if it refuses the connection.
pub fn connect(socket: &Path, name: &str) -> Result<Client, Failure> {
    Client::connect(socket, bywash_client::Options::new().name(name))
        .map_err(|error| Failure::NoServer { socket: socket.to_owned(), error })
}

/// Prints the devices and the sockets of the server.
fn tell(
    server: &Server,
    arguments: &ServerArgs,
    exports: &Exports,
    metrics: Option<&StatusReport>,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for device in server.status()?.devices {
        writeln!(out, "device {}: {}", device.name, device.how).map_err(Failure::Output)?;
    }
    for export in &arguments.exports {
        let (volume, path) = (&export.volume, export.at.socket.path.display());
        writeln!(out, "volume {volume} for virtual machines at {path}").map_err(Failure::Output)?;
    }
    for (volume, uri) in exports.uris() {
        writeln!(out, "volume {volume} for NBD clients at {uri}").map_err(Failure::Output)?;
    }
    for (volume, path) in exports.disks() {
        writeln!(out, "volume {volume} as the disk {}", path.display()).map_err(Failure::Output)?;
    }
    if let Some(told) = metrics {
        writeln!(out, "metrics at {}", told.place).map_err(Failure::Output)?;
    }
    writeln!(out, "serving at {}", arguments.socket.display()).map_err(Failure::Output)?;
    out.flush().map_err(Failure::Output)
}

/// Has the kernel give this process memory without writing to disks first, if it may become the server of one: writing to its
/// own disk would wait for itself.
fn claim_memory() {
    if !Path::new(bywash_ublk::CONTROL).exists() {
        return;
    }
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("cannot become a server of disks for the kernel (PR_SET_IO_FLUSHER): {error}");
    }
}

/// Drops the capabilities that would let clients do through the server what they could not do themselves:
/// keep the set-user-ID bits of a file that is written, exceed quotas, and use the reserve of a file system.
fn lay_down_capabilities() {
    let more = CapabilitySet::FSETID | CapabilitySet::SYS_RESOURCE;
    let laid_down = capabilities(None).and_then(|mut sets| {
        sets.effective -= more;
        sets.permitted -= more;
        sets.inheritable -= more;
        set_capabilities(None, sets)
    });
    if let Err(error) = laid_down {
        tracing::warn!("cannot lay down the capabilities CAP_FSETID and CAP_SYS_RESOURCE: {error}");
    }
}
