//! Our server, and processes that use it all the time: an export of a volume by vhost-user-blk, and clients that do nothing.
//!
//! `bywash serve --vhost-user` exports a volume in the server's process, by a thread of its own. Here the export is a process,
//! so that its CPU time is known. It reaches the volume as the library chooses: memory is mapped, and the server's core has
//! no part in it.

use super::client::run_on;
use super::moved::FILLING;
use super::talk::{self, Talk};
use crate::error::Error;
use crate::say::say;
use bywash_client::{Access, Client, NewVolume, Options, PathChoice, Queue, VolumePath};
use bywash_server::{LimitsFile, Timeouts};
use bywash_vhost::{Event, Export, OnVolume};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
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

/// Device of a server, with volumes named `NAME-0`, `NAME-1`, ..., one for each client.
#[derive(Clone, Debug)]
pub struct Device {
    /// Specification for `bywash serve --device`, `NAME=...`.
    pub spec: String,
    pub volumes: usize,
    pub volume_bytes: u64,
}

/// Job of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    socket: PathBuf,
    devices: Vec<String>,
    limits: PathBuf,
    /// True for a core that polls for requests as long as there are clients.
    is_spinning: bool,
    core: Option<usize>,
}

/// Job of an export: the server's socket, the volume, and the socket of the export.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportJob {
    pub server: PathBuf,
    pub volume: String,
    pub socket: PathBuf,
    pub cores: Vec<usize>,
}

/// Job of clients that do nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdleJob {
    pub socket: PathBuf,
    pub clients: usize,
}

fn failed(error: impl Display) -> Error {
    Error::failed("our server", error.to_string())
}

/// Runs a server in this process until the bench ends it.
///
/// # Errors
/// [`Error::Failed`] with the reason of the server.
pub fn serve(job: &Job) -> Result<(), Error> {
    let mut options = bywash_server::Options::new(&job.socket);
    for device in &job.devices {
        options = options.device(device.parse().map_err(failed)?);
    }
    options = options.limits(LimitsFile::read(&job.limits).map_err(failed)?).cpu(job.core);
    if job.is_spinning {
        options = options.timeouts(Timeouts::default().poll(None));
    }
    let server = bywash_server::Server::start(options).map_err(failed)?;
    while talk::ready()? {}
    server.stop();
    Ok(())
}

/// Exports a volume in this process until the bench ends it.
///
/// # Errors
/// [`Error::Failed`] with the reason of the server or the export.
pub fn export(job: &ExportJob) -> Result<(), Error> {
    run_on(&job.cores)?;
    let queue = Queue::connect(&job.server, Options::new().arena_bytes(EXPORT_ARENA)).map_err(failed)?;
    let medium = OnVolume::open(queue, &job.volume, Access::ReadWrite).map_err(failed)?;
    // The client notices by itself that the export has ended.
    let report = |event| {
        if let Event::CutOff(error) = event {
            say(format_args!("the export: {error}"));
        }
    };
    // An earlier export may have left its socket.
    let _ = fs::remove_file(&job.socket);
    let listener =
        UnixListener::bind(&job.socket).map_err(|error| Error::io("listen at", &job.socket, error))?;
    let export = Export::start(listener, medium, bywash_vhost::Options::new(), report).map_err(failed)?;
    while talk::ready()? {}
    drop(export);
    Ok(())
}

/// Connects clients in this process, which do nothing until the bench ends them.
///
/// # Errors
/// [`Error::Unavailable`] if there are not enough descriptors, [`Error::Failed`] with the reason of the server.
pub fn be_idle(job: &IdleJob) -> Result<(), Error> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
        .map_err(|errno| Error::Unavailable(format!("as many descriptors cannot be had: {errno}")))?;
    let queue = |_| Queue::connect(&job.socket, Options::new().depth(8).arena_bytes(64 << 10));
    let clients = (0..job.clients).map(queue).collect::<Result<Vec<Queue>, _>>().map_err(failed)?;
    while talk::ready()? {}
    drop(clients);
    Ok(())
}

/// Server in a process of its own; ended when dropped.
pub struct Server {
    talk: Talk,
    socket: PathBuf,
}

impl Server {
    /// Starts a server with `devices` on `core`, makes their volumes and fills them. Its files are `name`d in `folder`.
    ///
    /// # Errors
    /// [`Error::Failed`] with the reason of the server.
    pub fn start(
        folder: &Path,
        name: &str,
        devices: &[Device],
        is_spinning: bool,
        core: Option<usize>,
    ) -> Result<Server, Error> {
        let socket = folder.join(format!("{name}.socket"));
        let limits = folder.join(format!("{name}.toml"));
        fs::write(&limits, LIMITS).map_err(|error| Error::io("write", &limits, error))?;
        let devices_of_job = devices.iter().map(|device| device.spec.clone()).collect();
        let job = Job { socket: socket.clone(), devices: devices_of_job, limits, is_spinning, core };
        let mut talk = Talk::start("our server", &talk::Job::Server(job))?;
        talk.ready()?;
        let server = Server { talk, socket };
        let client = Client::connect(&server.socket, Options::new()).map_err(failed)?;
        devices.iter().try_for_each(|device| furnish(&client, device))?;
        Ok(server)
    }

    /// Name of the access path that the library chooses for the volumes of a device.
    ///
    /// # Errors
    /// [`Error::Failed`] if the first volume cannot be opened.
    pub fn own_path(&self, device: &str) -> Result<String, Error> {
        let options = Options::new().choice(PathChoice::Automatic);
        let client = Client::connect(&self.socket, options).map_err(failed)?;
        let opened = client.open(&volume(device, 0), Access::ReadWrite).map_err(failed)?;
        Ok(match opened.path() {
            VolumePath::Mapped => "mapped".into(),
            VolumePath::Channel { why } => format!("the channel, since {why}"),
        })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.talk.id()
    }
}

/// Makes the volumes of a device and fills them.
fn furnish(client: &Client, device: &Device) -> Result<(), Error> {
    let name = device.spec.split('=').next().unwrap_or_default();
    let filling = vec![FILLING; FILL_BYTES];
    for number in 0..device.volumes {
        let volume = volume(name, number);
        client.create(NewVolume::new(&volume, name, device.volume_bytes)).map_err(failed)?;
        let opened = client.open(&volume, Access::ReadWrite).map_err(failed)?;
        for offset in (0..device.volume_bytes).step_by(FILL_BYTES) {
            crate::interrupt::check()?;
            opened.write_at(&filling, offset).map_err(failed)?;
        }
        opened.flush().map_err(failed)?;
    }
    Ok(())
}

/// Name of the volume of a client.
pub fn volume(device: &str, number: usize) -> String {
    format!("{device}-{number}")
}
