//! A server that runs: its threads, from the first to the last.

use crate::control::{Control, DeviceFacts, Dropper, Event, House, Post, Registry, status};
use crate::core::order::{DeviceBox, Order, Orders};
use crate::core::{Core, Patience};
use crate::error::Error;
use crate::limits::LimitsFile;
use bywash_device::{Device, Medium, Spec};
use bywash_link::Listener;
use bywash_protocol::report::Status;
use bywash_volume::{BlockSize, Bytes, Contents, Store};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// What volumes are made of on a device that has no chunks, if its own block is not larger.
const VOLUME_BLOCK: u64 = 4096;

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens.
    pub socket: PathBuf,
    /// Who may connect, as chmod(1) has it: everybody, if it is not said.
    pub socket_mode: u32,
    /// What it serves.
    pub devices: Vec<Spec>,
    /// The store of volumes. None: volumes last as long as the server.
    pub policy: Option<PathBuf>,
    /// What clients may have.
    pub limits: LimitsFile,
    /// The processor that the core stays on.
    pub cpu: Option<usize>,
    /// How it waits.
    pub patience: Patience,
}

impl Options {
    /// A server at a socket, without devices yet.
    pub fn new(socket: impl Into<PathBuf>) -> Options {
        Options {
            socket: socket.into(),
            socket_mode: 0o666,
            devices: Vec::new(),
            policy: None,
            limits: LimitsFile::default(),
            cpu: None,
            patience: Patience::default(),
        }
    }
}

/// A device that is open.
pub struct Opened {
    /// What volumes know it by.
    pub name: String,
    /// It.
    pub device: Box<dyn Device>,
    /// What is in it, if the store does not know it yet.
    pub contents: Contents,
}

/// A server that runs, until it is stopped or dropped.
pub struct Server {
    house: Arc<House>,
    control: Option<(Post, JoinHandle<()>)>,
    core: Option<JoinHandle<()>>,
    socket: PathBuf,
}

impl Server {
    /// Opens the devices, listens, and serves in threads of its own.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn start(options: Options) -> Result<Server, Error> {
        Server::with_devices(options, Vec::new())
    }

    /// As [`Server::start`], with devices besides that the caller has opened.
    ///
    /// # Errors
    /// As there.
    pub fn with_devices(options: Options, more: Vec<Opened>) -> Result<Server, Error> {
        raise_descriptors();
        let store = match &options.policy {
            Some(path) => Store::open(path)?,
            None => Store::in_memory()?,
        };
        let mut devices = options.devices.iter().map(Opened::open).collect::<Result<Vec<_>, _>>()?;
        devices.extend(more);
        let mut names = HashSet::new();
        for device in &devices {
            if !names.insert(&device.name) {
                return Err(Error::Twice(device.name.clone()));
            }
            device.attach(&store)?;
        }
        let listener = listen(&options.socket, options.socket_mode)?;
        let (orders, waiting, bell) =
            Orders::new().map_err(io::Error::from).map_err(Error::io("make a bell"))?;
        let (patience, cpu) = (options.patience, options.cpu);
        let core = thread::Builder::new().name("core".into()).spawn(move || {
            if let Some(cpu) = cpu {
                stay_on(cpu);
            }
            match Core::new(waiting, bell, patience) {
                Ok(core) => core.run(),
                Err(error) => tracing::error!("the core cannot begin: {error}"),
            }
        });
        let core = core.map_err(Error::io("make a thread"))?;
        let mut facts = HashMap::new();
        for Opened { name, device, .. } in devices {
            let geometry = device.geometry();
            let chunk_bytes = device.chunks().map(bywash_device::Chunks::chunk_bytes);
            let added = orders.ask(|reply| {
                let (name, device) = (name.clone(), DeviceBox(device));
                Order::AddDevice { name, device, reply }
            });
            let number = added
                .map_err(|stopped| Error::Io { what: "start the core", source: io::Error::other(stopped) })?;
            let (block, read_only) = (geometry.block, geometry.access == bywash_device::Access::Read);
            let device = DeviceFacts { number, block, read_only, chunk_bytes };
            facts.insert(name, device);
        }
        let house = Arc::new(House {
            orders,
            store,
            devices: facts,
            registry: Registry::default(),
            dropper: Dropper::start().map_err(Error::io("make a thread"))?,
            limits: options.limits,
            began: Instant::now(),
            asks_refused: Default::default(),
            clients_refused: Default::default(),
        });
        let control = Control::new(house.clone(), listener).map_err(Error::io("begin to listen"))?;
        let post = control.post();
        let thread = thread::Builder::new().name("control".into()).spawn(move || control.run());
        let control = Some((post, thread.map_err(Error::io("make a thread"))?));
        Ok(Server { house, control, core: Some(core), socket: options.socket })
    }

    /// What it does.
    ///
    /// # Errors
    /// That it has stopped.
    pub fn status(&self) -> Result<Status, Error> {
        status(&self.house)
            .map_err(|stopped| Error::Io { what: "ask the core", source: io::Error::other(stopped) })
    }

    /// A handle for those who ask what it does from other threads.
    pub fn watch(&self) -> Watch {
        Watch(self.house.clone())
    }

    /// Whether it serves: its threads are there.
    pub fn is_running(&self) -> bool {
        let runs = |thread: &JoinHandle<()>| !thread.is_finished();
        self.core.as_ref().is_some_and(runs) && self.control.as_ref().is_some_and(|(_, thread)| runs(thread))
    }

    /// Stops it: nobody is let in any more, what is under way is done and made durable, and the socket's name goes.
    pub fn stop(self) {}
}

/// Asks a server what it does.
#[derive(Clone, Debug)]
pub struct Watch(Arc<House>);

impl Watch {
    /// What it does; none when it has stopped.
    pub fn status(&self) -> Option<Status> {
        status(&self.0).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The name first: who comes now is told so by the kernel.
        let _ = fs::remove_file(&self.socket);
        // All of them before one is waited for: what an administrator waits for may never come, and ends with the core. One
        // that has stopped by itself needs not be told.
        let _ = self.house.orders.send(Order::Stop);
        if let Some((post, thread)) = self.control.take() {
            post.send(Event::Stop);
            // A thread that has panicked has told so.
            let _ = thread.join();
        }
        if let Some(thread) = self.core.take() {
            let _ = thread.join();
        }
    }
}

impl Opened {
    fn open(spec: &Spec) -> Result<Opened, Error> {
        // Memory is new each time; of a file or a block device nobody knows what is in it.
        let contents = match spec.medium {
            Medium::Memory(_) => Contents::Cleared,
            Medium::File(_) => Contents::Unknown,
        };
        Ok(Opened { name: spec.name.clone(), device: spec.open()?, contents })
    }

    /// Makes it known to the store.
    fn attach(&self, store: &Store) -> Result<(), Error> {
        let geometry = self.device.geometry();
        let block = match self.device.chunks() {
            Some(chunks) => chunks.chunk_bytes(),
            None => VOLUME_BLOCK.max(geometry.block.into()),
        };
        if geometry.bytes < block {
            return Err(Error::Small { name: self.name.clone(), has: geometry.bytes, least: block });
        }
        let block = BlockSize::new(Bytes(block))?;
        store.attach_device(&self.name, Bytes(geometry.bytes), block, self.contents)?;
        Ok(())
    }
}

/// Listens at a name. One that a server has left behind is taken over.
fn listen(path: &Path, mode: u32) -> Result<Listener, Error> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket {
        match bywash_link::connect(path) {
            Ok(_) => return Err(Error::Listening { path: path.to_owned() }),
            Err(_) => {
                fs::remove_file(path).map_err(Error::io("take a socket over that nobody listens at"))?
            }
        }
    }
    let listener = Listener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(Error::io("set the socket's mode"))?;
    Ok(listener)
}

/// Each client takes some descriptors: as many as the system allows are allowed.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It stays as it was then, and clients are refused when it is reached.
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

fn stay_on(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::error!("cannot stay on processor {cpu}: {error}");
    }
}
