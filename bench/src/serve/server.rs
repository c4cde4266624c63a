//! Our server, and processes that use it all the time: exports of a volume by vhost-user-blk and to NBD clients, and clients
//! that do nothing.
//!
//! `bywash serve` exports a volume in the server's process, by a thread of its own. Here the export is a process, so that its
//! CPU time is known. It reaches the volume as the library chooses: memory is mapped, and the server's core has
//! no part in it.

use super::contest::{Home, run_on, server_core};
use super::moved::FILLING;
use super::nbd::EXPORT;
use super::process::{Crew, Job, ready};
use crate::error::{Attempt, Error};
use bywash_client::{Access, Client, NewVolume, Options, Queue};
use bywash_server::{LimitsFile, Timeouts};
use bywash_vhost::{Export, OnVolume};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fmt::Display;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Size of a write that fills a volume, in bytes.
const FILL_BYTES: usize = 1 << 20;
/// Limits for many clients of one user.
const LIMITS: &str = "[default]\nclients = 4096\n";
/// Arena of an export, in bytes.
const EXPORT_ARENA: usize = 32 << 20;

fn failed(error: impl Display) -> Error {
    Error::failed("our server", error.to_string())
}

/// Runs a server in this process until the bench ends it.
pub fn serve(
    socket: &Path,
    devices: &[String],
    is_spinning: bool,
    core: Option<usize>,
    cores: usize,
) -> Result<(), Error> {
    let limits = socket.with_extension("toml");
    fs::write(&limits, LIMITS).doing("write", &limits)?;
    let limits = LimitsFile::read(&limits).map_err(failed)?;
    let mut options = bywash_server::Options::new(socket).limits(limits).cores(cores).cpu(core);
    for device in devices {
        options = options.device(device.parse().map_err(failed)?);
    }
    if is_spinning {
        options = options.timeouts(Timeouts::default().poll(None));
    }
    let server = bywash_server::Server::start(options).map_err(failed)?;
    ready()?;
    server.stop();
    Ok(())
}

/// Exports a volume in this process until the bench ends it.
pub fn export(server: &Path, socket: &Path, cores: &[usize]) -> Result<(), Error> {
    let (medium, listener) = exported(server, socket, cores)?;
    // The client notices by itself what becomes of the export.
    let export = Export::start(listener, medium, bywash_vhost::Options::new(), |_| ()).map_err(failed)?;
    ready()?;
    drop(export);
    Ok(())
}

/// Exports a volume to NBD clients in this process until the bench ends it.
pub fn export_nbd(server: &Path, socket: &Path, cores: &[usize]) -> Result<(), Error> {
    let (medium, listener) = exported(server, socket, cores)?;
    let disks = vec![bywash_nbd::Disk::new(EXPORT, medium)];
    let options = bywash_nbd::Options::new();
    // The client notices by itself what becomes of the export.
    let export = bywash_nbd::Export::start(listener, disks, options, |_| ()).map_err(failed)?;
    ready()?;
    drop(export);
    Ok(())
}

/// Opens a volume to be exported at a socket, with the threads that are made from now on restricted to `cores`.
fn exported(server: &Path, socket: &Path, cores: &[usize]) -> Result<(OnVolume, UnixListener), Error> {
    run_on(cores)?;
    let queue = Queue::connect(server, Options::new().arena_bytes(EXPORT_ARENA)).map_err(failed)?;
    let medium = OnVolume::open(queue, &Home::Fast.volume(0), Access::ReadWrite).map_err(failed)?;
    // An earlier export may have left its socket.
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket).doing("listen at", socket)?;
    Ok((medium, listener))
}

/// Connects clients of this process, which do nothing.
pub fn idle_clients(socket: &Path, clients: usize) -> Result<Vec<Queue>, Error> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
        .map_err(|errno| Error::Unavailable(format!("as many descriptors cannot be had: {errno}")))?;
    let queue = |_| Queue::connect(socket, Options::new().depth(8).arena_bytes(64 << 10));
    (0..clients).map(queue).collect::<Result<_, _>>().map_err(failed)
}

/// Device of a server, with a volume for each client.
pub struct Device {
    pub home: Home,
    /// Specification for `bywash serve --device`, behind the name.
    pub kind: String,
    pub volumes: usize,
}

/// Server in a process of its own; ended when dropped.
pub struct Server {
    process: Crew,
    pub socket: PathBuf,
}

impl Server {
    /// Starts a server on its core, makes the volumes of `devices`, each of so many bytes, and fills them. Its files are
    /// `name`d in `folder`.
    pub fn start(
        folder: &Path,
        name: &str,
        devices: &[Device],
        volume_bytes: u64,
        is_spinning: bool,
    ) -> Result<Server, Error> {
        Server::start_job(folder, name, devices, volume_bytes, (is_spinning, server_core(), 1))
    }

    /// Like [`Server::start`], but with so many cores, which run on any processor and sleep while there are no requests.
    pub fn start_on(
        folder: &Path,
        name: &str,
        devices: &[Device],
        volume_bytes: u64,
        cores: usize,
    ) -> Result<Server, Error> {
        Server::start_job(folder, name, devices, volume_bytes, (false, None, cores))
    }

    fn start_job(
        folder: &Path,
        name: &str,
        devices: &[Device],
        volume_bytes: u64,
        (is_spinning, core, cores): (bool, Option<usize>, usize),
    ) -> Result<Server, Error> {
        let socket = folder.join(format!("{name}.socket"));
        let specs = devices.iter().map(|device| format!("{}={}", device.home.name(), device.kind)).collect();
        let job = Job::Server { socket: socket.clone(), devices: specs, is_spinning, core, cores };
        let process = Crew::start("our server", &[job])?;
        let client = Client::connect(&socket, Options::new()).map_err(failed)?;
        for Device { home, volumes, .. } in devices {
            (0..*volumes).try_for_each(|number| furnish(&client, *home, number, volume_bytes))?;
        }
        Ok(Server { process, socket })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

/// Makes a volume and fills it.
fn furnish(client: &Client, home: Home, number: usize, bytes: u64) -> Result<(), Error> {
    let name = home.volume(number);
    client.create(NewVolume::new(&name, home.name(), bytes)).map_err(failed)?;
    let volume = client.open(&name, Access::ReadWrite).map_err(failed)?;
    let filling = vec![FILLING; FILL_BYTES];
    for offset in (0..bytes).step_by(FILL_BYTES) {
        crate::interrupt::check()?;
        volume.write_at(&filling, offset).map_err(failed)?;
    }
    volume.flush().map_err(failed)
}
