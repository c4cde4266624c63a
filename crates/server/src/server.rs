//! A running server: starts the threads of the cores and of control, and stops them.

use crate::control::{ControlThread, Event, EventSender, Registry, SharedState, serve_device, status};
use crate::core::clock::ClockStart;
use crate::core::cores::{Cores, DeviceNumbers};
use crate::core::order::CoreHandle;
use crate::core::{Core, Timeouts};
use crate::error::Error;
use crate::exporter::Exporter;
use crate::helpers::Helpers;
use crate::identity::Identities;
use crate::limits::{CORES_MAX, LimitsFile};
use crate::open_device::{OpenDevice, ServableDevice, open_device};
use bywash_device::{DeviceKind, Spec};
use bywash_link::{Listener, SocketFile};
use bywash_protocol::report::Status;
use bywash_volume::Store;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    socket: PathBuf,
    socket_mode: u32,
    pub(crate) devices: Vec<Spec>,
    pub(crate) device_kinds: Vec<&'static DeviceKind>,
    pub(crate) policy: Option<PathBuf>,
    pub(crate) limits: LimitsFile,
    pub(crate) cores: usize,
    cpu: Option<usize>,
    pub(crate) timeouts: Timeouts,
}

impl Options {
    /// Creates the default settings for a server at this socket, without devices.
    pub fn new(socket: impl Into<PathBuf>) -> Options {
        Options {
            socket: socket.into(),
            socket_mode: 0o666,
            devices: Vec::new(),
            device_kinds: Vec::new(),
            policy: None,
            limits: LimitsFile::default(),
            cores: 1,
            cpu: None,
            timeouts: Timeouts::default(),
        }
    }

    /// Sets the permissions of the socket, as bits of chmod(1). Default: 0o666, everybody may connect.
    pub fn socket_mode(self, socket_mode: u32) -> Options {
        Options { socket_mode, ..self }
    }

    /// Adds a device that the server opens.
    pub fn device(mut self, device: Spec) -> Options {
        self.devices.push(device);
        self
    }

    /// Sets the kinds of devices that administrators can add besides those of `bywash-device`. Default: none.
    pub fn device_kinds(self, device_kinds: impl Into<Vec<&'static DeviceKind>>) -> Options {
        Options { device_kinds: device_kinds.into(), ..self }
    }

    /// Sets the file of the store of volumes. Default: a store in memory, whose volumes end with the server.
    pub fn policy(self, policy: impl Into<Option<PathBuf>>) -> Options {
        Options { policy: policy.into(), ..self }
    }

    /// Sets the limits of the clients.
    pub fn limits(self, limits: LimitsFile) -> Options {
        Options { limits, ..self }
    }

    /// Sets the number of core threads, 1 to [`CORES_MAX`], which the clients are spread over. Default: 1.
    pub fn cores(self, cores: usize) -> Options {
        Options { cores, ..self }
    }

    /// Sets the processor that the core thread is bound to. Several core threads are bound to this one and those with the
    /// next numbers, one to each. Default: any.
    pub fn cpu(self, cpu: impl Into<Option<usize>>) -> Options {
        Options { cpu: cpu.into(), ..self }
    }

    /// Checks the number of cores, and that this process may run on their processors.
    pub(crate) fn check_cores(&self) -> Result<(), Error> {
        if !(1..=CORES_MAX).contains(&self.cores) {
            return Err(Error::Cores(self.cores));
        }
        let processors = self.cpu.map(|first| first..first.saturating_add(self.cores));
        processors.into_iter().flatten().try_for_each(check_processor)
    }

    /// Sets the times that the cores poll and wait.
    pub fn timeouts(self, timeouts: Timeouts) -> Options {
        Options { timeouts, ..self }
    }
}

/// A running server. It stops when it is stopped or dropped.
pub struct Server {
    shared: Arc<SharedState>,
    control: Option<(EventSender, JoinHandle<()>)>,
    cores: Vec<JoinHandle<()>>,
    /// Name of the socket in the file system, removed when this is dropped.
    name: Option<SocketFile>,
}

impl Server {
    /// Opens the devices, listens, and serves in threads of its own.
    ///
    /// # Errors
    /// Each variant of [`Error`]; its description is the condition.
    pub fn start(options: Options) -> Result<Server, Error> {
        Server::with_devices(options, Vec::new())
    }

    /// Like [`Server::start`], but also serves devices that the caller has opened.
    ///
    /// # Errors
    /// Same as [`Server::start`].
    pub fn with_devices(options: Options, more: Vec<OpenDevice>) -> Result<Server, Error> {
        options.check_cores()?;
        let store = open_store(&options)?;
        Server::with_store(options, store, more)
    }

    /// Like [`Server::with_devices`], but serves the volumes of a store that the caller has opened, instead of opening one.
    ///
    /// # Errors
    /// Same as [`Server::start`].
    pub fn with_store(options: Options, store: Store, more: Vec<OpenDevice>) -> Result<Server, Error> {
        options.check_cores()?;
        let Ready { store, devices, listener, name } = Ready::new(&options, store, more)?;
        let helpers = Helpers::start().map_err(Error::io("make a thread"))?;
        let (handles, threads) = start_cores(&options, &helpers)?;
        let shared = shared_state(options, store, devices, handles, helpers)?;
        let control = ControlThread::new(shared.clone(), listener)
            .map_err(Error::io("begin to listen"))
            .inspect_err(|_| shared.cores.stop())?;
        let post = control.post();
        let thread = thread::Builder::new().name("control".into()).spawn(move || control.run());
        let control = Some((post, thread.map_err(Error::io("make a thread"))?));
        Ok(Server { shared, control, cores: threads, name: Some(name) })
    }

    /// Returns the server's current state and counters.
    ///
    /// # Errors
    /// [`Error::Io`] if a core thread has stopped.
    pub fn status(&self) -> Result<Status, Error> {
        status(&self.shared)
            .map_err(|stopped| Error::Io { what: "ask the core", source: io::Error::other(stopped) })
    }

    /// Returns a handle by which other threads can query the server's status.
    pub fn status_handle(&self) -> StatusHandle {
        StatusHandle(self.shared.clone())
    }

    /// Sets what exports volumes to programs that are no clients, by order of administrators. Without it such orders
    /// are refused. Only the first call counts.
    pub fn set_exporter(&self, exporter: Arc<dyn Exporter>) {
        let _ = self.shared.exports.0.set(exporter);
    }

    /// Returns true while all core threads and the control thread run.
    pub fn is_running(&self) -> bool {
        let runs = |thread: &JoinHandle<()>| !thread.is_finished();
        self.cores.iter().all(runs) && self.control.as_ref().is_some_and(|(_, thread)| runs(thread))
    }

    /// Stops the server: refuses new connections, waits for commands in flight and flushes the devices (5
    /// seconds at most together) and for changes of the store, and removes the socket's name.
    pub fn stop(self) {}
}

/// Handle for querying a server's status from any thread.
#[derive(Clone, Debug)]
pub struct StatusHandle(Arc<SharedState>);

impl StatusHandle {
    /// Returns the server's current state and counters, or `None` when the server has stopped.
    pub fn status(&self) -> Option<Status> {
        status(&self.0).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The name goes first, so that the kernel refuses whoever connects from now on.
        drop(self.name.take());
        // Tell all threads to stop before waiting for one. The administrator may wait for a drain that
        // never happens, and this wait ends only when the cores end.
        self.shared.cores.stop();
        if let Some((post, thread)) = self.control.take() {
            post.send(Event::Stop);
            // The join fails only if the thread panicked, and the panic was reported then.
            let _ = thread.join();
        }
        for thread in std::mem::take(&mut self.cores) {
            let _ = thread.join();
        }
        self.shared.changes.finish();
        // The hardware of direct grants is taken back now, whoever else still has a handle of the server's state.
        let devices = std::mem::take(&mut self.shared.registry.lock().devices);
        drop(devices);
    }
}

/// Resources that a server acquires before it starts its first thread.
pub(crate) struct Ready {
    pub(crate) store: Store,
    pub(crate) devices: Vec<ServableDevice>,
    pub(crate) listener: Listener,
    pub(crate) name: SocketFile,
}

impl Ready {
    pub(crate) fn new(options: &Options, store: Store, more: Vec<OpenDevice>) -> Result<Ready, Error> {
        raise_descriptors();
        let mut names = HashSet::new();
        let all = options.devices.iter().map(|spec| &spec.name).chain(more.iter().map(|opened| &opened.name));
        if let Some(twice) = all.into_iter().find(|name| !names.insert(*name)) {
            return Err(Error::Twice(twice.clone()));
        }
        let mut devices = open_all(options, &store)?;
        for device in &more {
            device.attach(&store)?;
        }
        devices.extend(more.into_iter().map(ServableDevice::from));
        let mut names = HashSet::new();
        if let Some(twice) = devices.iter().find(|servable| !names.insert(&servable.device.name)) {
            return Err(Error::Twice(twice.device.name.clone()));
        }
        drop(names);
        let (listener, name) = listen(&options.socket, options.socket_mode)?;
        Ok(Ready { store, devices, listener, name })
    }
}

/// Opens the store that the options name, or makes one in memory.
pub(crate) fn open_store(options: &Options) -> Result<Store, Error> {
    match &options.policy {
        Some(path) => Ok(Store::open(path)?),
        None => Ok(Store::in_memory()?),
    }
}

/// Starts the threads of the cores, and warns if there are more than processors.
fn start_cores(options: &Options, helpers: &Helpers) -> Result<(Cores, Vec<JoinHandle<()>>), Error> {
    let (timeouts, start) = (options.timeouts, ClockStart::now());
    let processors = thread::available_parallelism().map_or(1, usize::from);
    if options.cores > processors {
        tracing::warn!(
            "{} cores share {processors} processors: while one polls, another waits for its turn; give as many cores as \
             processors, or fewer",
            options.cores
        );
    }
    let (mut handles, mut threads) = (Vec::new(), Vec::new());
    for number in 0..options.cores {
        let (handle, waiting, bell) =
            CoreHandle::new(number).map_err(io::Error::from).map_err(Error::io("make a bell"))?;
        let (own_orders, helpers) = (handle.clone(), helpers.clone());
        let cpu = options.cpu.map(|first| first + number);
        let name = if number == 0 { "core".into() } else { format!("core-{number}") };
        let thread = thread::Builder::new().name(name).spawn(move || {
            if let Some(cpu) = cpu {
                stay_on(cpu);
            }
            match Core::new(own_orders, waiting, bell, timeouts, helpers, start) {
                Ok(core) => core.run(),
                Err(error) => tracing::error!("core {number} cannot begin: {error}"),
            }
        });
        handles.push(handle);
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                Cores::new(handles).stop();
                return Err(Error::io("make a thread")(error));
            }
        }
    }
    Ok((Cores::new(handles), threads))
}

/// Creates the state that the server's threads share, and hands the devices to the cores.
pub(crate) fn shared_state(
    options: Options,
    store: Store,
    devices: Vec<ServableDevice>,
    cores: Cores,
    helpers: Helpers,
) -> Result<Arc<SharedState>, Error> {
    let shared = Arc::new(SharedState {
        cores,
        device_numbers: Arc::new(DeviceNumbers::default()),
        store,
        registry: Registry::default(),
        is_temporary: options.policy.is_none(),
        device_kinds: options.device_kinds,
        helpers,
        limits: options.limits,
        users: Default::default(),
        spare: Default::default(),
        changes: Default::default(),
        shortages: Default::default(),
        exports: Default::default(),
        direct: Default::default(),
        began: Instant::now(),
        asks_refused: Default::default(),
        clients_refused: Default::default(),
    });
    for device in devices {
        serve_device(&shared, device).inspect_err(|_| shared.cores.stop())?;
    }
    Ok(shared)
}

/// Opens the devices of the options, and checks their identities against the store.
fn open_all(options: &Options, store: &Store) -> Result<Vec<ServableDevice>, Error> {
    let mut identities = Identities::new(store, options.policy.is_none(), Vec::new());
    let mut devices = Vec::new();
    for spec in &options.devices {
        devices.extend(open_device(store, &mut identities, spec)?);
    }
    Ok(devices)
}

/// Listens on a socket of this name. A name that an ended server has left behind is taken over.
fn listen(path: &Path, mode: u32) -> Result<(Listener, SocketFile), Error> {
    let permit = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let (listener, file) = Listener::bind_prepared(path, permit)?;
    if !listener.keep_descriptors_out()? {
        tracing::debug!("this kernel lets clients pass descriptors at any time; Linux 6.16 does not");
    }
    Ok((listener, file))
}

/// Raises the limit of open files as far as allowed, because each client takes several descriptors.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // On failure the limit stays as it is, and the server refuses clients when it is reached.
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

/// Checks that this process may run on a processor.
fn check_processor(cpu: usize) -> Result<(), Error> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None)
        .map_err(io::Error::from)
        .map_err(Error::io("see which processors there are"))?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    match allowed.contains(&cpu) {
        true => Ok(()),
        false => Err(Error::Processor { cpu, allowed: ranges(&allowed) }),
    }
}

/// Formats ascending numbers as ranges, for example `0-3,6`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let text = runs.map(|run| match run {
        [only] => only.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    text.collect::<Vec<_>>().join(",")
}

fn stay_on(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::error!("cannot stay on processor {cpu}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::order::CoreOrder;
    use bywash_client::{Access, Client, NewVolume};
    use bywash_nvme::testing::{Model, ModelNamespace, ModelOptions};
    use bywash_nvme::{Nvme, Options as ControllerOptions};
    use bywash_volume::{DeviceNumber, NewBlocks};
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(60);

    fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so() {
            assert!(Instant::now() < end, "{what}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_device_that_is_removed_leaves_no_arena_pinned() {
        let model = Model::new(ModelOptions::new(ModelNamespace::new(1, 16 << 10, 9)));
        let device = Nvme::open(model.clone(), &ControllerOptions::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let (name, contents) = ("disk".to_owned(), NewBlocks::Cleared);
        let disk = OpenDevice { name, device: Box::new(device), contents, is_volatile: true };
        let server = Server::with_devices(Options::new(&socket), vec![disk]).unwrap();
        let own = model.mapped_bytes();
        let client = Client::connect(&socket, bywash_client::Options::new().arena_bytes(1 << 20)).unwrap();
        client.create(NewVolume::new("one", "disk", 1 << 20)).unwrap();
        let volume = client.open("one", Access::ReadWrite).unwrap();
        wait_until("the arena is pinned", || {
            volume.write_at(&[7; 4096], 0).unwrap();
            model.mapped_bytes() > own
        });
        // Commands that use the pinned memory: the device refers to it, not only the client's channel.
        for _ in 0..8 {
            volume.write_at(&[7; 4096], 0).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        let device = DeviceNumber(0);
        let removed = server.shared.cores.ask(0, |reply| CoreOrder::RemoveDevice { device, reply }).unwrap();
        wait_until("the arena is unpinned, though its client is there", || model.mapped_bytes() == own);
        drop(removed);
        assert_eq!((model.mapped_bytes(), model.counts().faults), (0, 0));
    }
}
