//! Our server, in a process of its own, with volumes for clients.
//!
//! ```text
//!   NAME=mem:SIZE...     volumes NAME-0, NAME-1, ..., one for each client, filled from one end to the other
//! ```

use super::moved::FILLING;
use super::talk::{self, Program, Talk};
use crate::error::Error;
use bywash_client::{Access, Client, NewVolume, Options, PathChoice, VolumePath as Way};
use bywash_server::{LimitsFile, Timeouts};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What makes a process of the bench a server.
pub const SERVER: &str = "server";
/// How much is filled at a time.
const FILL_BYTES: usize = 1 << 20;
/// For many clients of one user.
const LIMITS: &str = "[default]\nclients = 4096\n";

/// A device that a server is to have.
#[derive(Clone, Debug)]
pub struct Device {
    /// As `bywash serve --device` has it.
    pub spec: String,
    /// Volumes on it.
    pub volumes: usize,
    /// Bytes of each.
    pub volume_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Job {
    socket: PathBuf,
    devices: Vec<String>,
    limits: PathBuf,
    is_spinning: bool,
    core: Option<usize>,
}

/// The server's part; `job` is what the bench has put on its command line.
///
/// # Errors
/// As [`talk::be`].
pub fn server(job: &str) -> Result<(), Error> {
    talk::be(job, |_: &Job| &[], serve)
}

fn serve(job: &Job) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| Error::failed("our server", error.to_string());
    let mut options = bywash_server::Options::new(&job.socket);
    for device in &job.devices {
        options.devices.push(device.parse().map_err(|error| failed(&error))?);
    }
    options.limits = LimitsFile::read(&job.limits).map_err(|error| failed(&error))?;
    options.cpu = job.core;
    if job.is_spinning {
        options.patience = Timeouts { poll: None, ..Timeouts::default() };
    }
    let server = bywash_server::Server::start(options).map_err(|error| failed(&error))?;
    // Until the bench has had enough of it.
    while talk::ready()? {}
    server.stop();
    Ok(())
}

/// A server; ended when dropped.
pub struct Server {
    talk: Talk,
    socket: PathBuf,
}

impl Server {
    /// Starts one with `devices`, its files in `folder` under `name`, on `core` if one is given.
    ///
    /// # Errors
    /// What keeps it from serving, or its volumes from being made.
    pub fn start(
        program: &Program,
        folder: &Path,
        name: &str,
        devices: &[Device],
        is_spinning: bool,
        core: Option<usize>,
    ) -> Result<Server, Error> {
        let socket = folder.join(format!("{name}.socket"));
        let limits = folder.join(format!("{name}.toml"));
        fs::write(&limits, LIMITS).map_err(|error| Error::io("write", &limits, error))?;
        let job = Job {
            socket: socket.clone(),
            devices: devices.iter().map(|device| device.spec.clone()).collect(),
            limits,
            is_spinning,
            core,
        };
        let mut talk = Talk::start("our server", program, SERVER, &job)?;
        talk.ready()?;
        let server = Server { talk, socket };
        let client = server.client()?;
        for device in devices {
            server.furnish(&client, device)?;
        }
        Ok(server)
    }

    fn client(&self) -> Result<Client, Error> {
        Client::connect(&self.socket, Options::new()).map_err(failed)
    }

    /// Makes the volumes of a device, and fills them.
    fn furnish(&self, client: &Client, device: &Device) -> Result<(), Error> {
        let name = device.name();
        let filling = vec![FILLING; FILL_BYTES];
        for number in 0..device.volumes {
            let volume = volume(name, number);
            let new = NewVolume {
                name: volume.clone(),
                device: name.into(),
                bytes: device.volume_bytes,
                owner: rustix::process::getuid().as_raw(),
                group: rustix::process::getgid().as_raw(),
                mode: 0o600,
            };
            client.create(new).map_err(failed)?;
            let opened = client.open(&volume, Access::ReadWrite).map_err(failed)?;
            for at in (0..device.volume_bytes).step_by(FILL_BYTES) {
                crate::interrupt::check()?;
                opened.write_at(&filling, at).map_err(failed)?;
            }
            opened.flush().map_err(failed)?;
        }
        Ok(())
    }

    /// Which way the library takes by itself to the volumes of a device.
    ///
    /// # Errors
    /// That there is none.
    pub fn own_way(&self, device: &str) -> Result<String, Error> {
        let client =
            Client::connect(&self.socket, Options::new().choice(PathChoice::Automatic)).map_err(failed)?;
        let opened = client.open(&volume(device, 0), Access::ReadWrite).map_err(failed)?;
        Ok(match opened.path() {
            Way::Mapped => "mapped".into(),
            Way::Channel { why } => format!("the channel, since {why}"),
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.talk.id()
    }
}

impl Device {
    /// Its name.
    pub fn name(&self) -> &str {
        self.spec.split('=').next().unwrap_or_default()
    }
}

/// The name of the volume of a client.
pub fn volume(device: &str, number: usize) -> String {
    format!("{device}-{number}")
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed("our server", format!("did not do what it was asked to: {error}"))
}
