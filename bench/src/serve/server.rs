//! Our server, and processes that use it all the time: an export of a volume by vhost-user-blk, and clients that do nothing.
//!
//! `bywash serve --vhost-user` exports a volume in the server's process, by a thread of its own. Here the export is a process,
//! so that its CPU time is known. It reaches the volume as the library chooses: memory is mapped, and the server's core has
//! no part in it.

use super::client::Target;
use super::contest::{run_on, server_core};
use super::moved::FILLING;
use super::process::{Bench, Job, Process};
use crate::error::{Attempt, Error};
use crate::say::say;
use bywash_client::{Access, Client, NewVolume, Options, Queue};
use bywash_server::{LimitsFile, Timeouts};
use bywash_vhost::{Event, Export, OnVolume};
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
    bench: &Bench,
    socket: &Path,
    devices: &[String],
    is_spinning: bool,
    core: Option<usize>,
) -> Result<(), Error> {
    let limits = socket.with_extension("toml");
    fs::write(&limits, LIMITS).doing("write", &limits)?;
    let limits = LimitsFile::read(&limits).map_err(failed)?;
    let mut options = bywash_server::Options::new(socket).limits(limits).cpu(core);
    for device in devices {
        options = options.device(device.parse().map_err(failed)?);
    }
    if is_spinning {
        options = options.timeouts(Timeouts::default().poll(None));
    }
    let server = bywash_server::Server::start(options).map_err(failed)?;
    bench.ready()?;
    server.stop();
    Ok(())
}

/// Exports a volume in this process until the bench ends it.
pub fn export(
    bench: &Bench,
    server: &Path,
    volume: &str,
    socket: &Path,
    cores: &[usize],
) -> Result<(), Error> {
    run_on(cores)?;
    let queue = Queue::connect(server, Options::new().arena_bytes(EXPORT_ARENA)).map_err(failed)?;
    let medium = OnVolume::open(queue, volume, Access::ReadWrite).map_err(failed)?;
    // The client notices by itself that the export has ended.
    let report = |event| {
        if let Event::CutOff(error) = event {
            say(format_args!("the export: {error}"));
        }
    };
    // An earlier export may have left its socket.
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket).doing("listen at", socket)?;
    let export = Export::start(listener, medium, bywash_vhost::Options::new(), report).map_err(failed)?;
    bench.ready()?;
    drop(export);
    Ok(())
}

/// Connects clients in this process, which do nothing until the bench ends them.
pub fn be_idle(bench: &Bench, socket: &Path, clients: usize) -> Result<(), Error> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
        .map_err(|errno| Error::Unavailable(format!("as many descriptors cannot be had: {errno}")))?;
    let queue = |_| Queue::connect(socket, Options::new().depth(8).arena_bytes(64 << 10));
    let clients = (0..clients).map(queue).collect::<Result<Vec<Queue>, _>>().map_err(failed)?;
    bench.ready()?;
    drop(clients);
    Ok(())
}

/// Device of a server, with volumes named `NAME-0`, `NAME-1`, ..., one for each client.
pub struct Device {
    pub name: &'static str,
    /// Specification for `bywash serve --device`, behind the name.
    pub kind: String,
    pub volumes: usize,
}

/// Server in a process of its own; ended when dropped.
pub struct Server {
    process: Process,
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
        let socket = folder.join(format!("{name}.socket"));
        let specs = devices.iter().map(|device| format!("{}={}", device.name, device.kind)).collect();
        let job = Job::Server { socket: socket.clone(), devices: specs, is_spinning, core: server_core() };
        let mut process = Process::start("our server", &job)?;
        process.ready()?;
        let client = Client::connect(&socket, Options::new()).map_err(failed)?;
        for device in devices {
            for number in 0..device.volumes {
                furnish(&client, device.name, &volume(device.name, number), volume_bytes)?;
            }
        }
        Ok(Server { process, socket })
    }

    /// A target on the volume of each client.
    pub fn targets(&self, device: &str, clients: usize) -> Vec<Target> {
        let target = |number| Target { at: self.socket.clone(), volume: volume(device, number) };
        (0..clients).map(target).collect()
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

/// Makes a volume and fills it.
fn furnish(client: &Client, device: &str, volume: &str, bytes: u64) -> Result<(), Error> {
    client.create(NewVolume::new(volume, device, bytes)).map_err(failed)?;
    let opened = client.open(volume, Access::ReadWrite).map_err(failed)?;
    let filling = vec![FILLING; FILL_BYTES];
    for offset in (0..bytes).step_by(FILL_BYTES) {
        crate::interrupt::check()?;
        opened.write_at(&filling, offset).map_err(failed)?;
    }
    opened.flush().map_err(failed)
}

/// Name of the volume of a client.
pub fn volume(device: &str, number: usize) -> String {
    format!("{device}-{number}")
}
