//! Sides of the bench, and what they run with: file systems, servers, cores.

use super::bound::Bound;
use super::client;
use super::daemon::Daemon;
use super::figure::Figures;
use super::file::{PAGE, open};
use super::medium::{Media, Medium};
use super::nbd::{self, NbdServer};
use super::ours::Path as OurPath;
use super::process::{Crew, Job};
use super::server::{Device, Server};
use super::workload::{Direction, Workload};
use crate::engine::{Rounds, Runs, Side};
use crate::error::Error;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of streams in the experiment of the Moneta paper.
pub const STREAMS: usize = 23;
/// Greatest number of clients in other cases.
pub const CLIENTS_MAX: usize = 8;
/// Duration of a command on the slow device, in nanoseconds.
pub const SLOW_NS: u64 = 4000;
/// Bandwidth of the device that clients share, in bytes a second.
const SHARED_BANDWIDTH: u64 = 400 << 20;
/// Rounds of a case without a goal.
const ROUNDS_WITHOUT_GOAL: u32 = 3;
/// Duration of a run, and of a quick one.
const TIME: Duration = Duration::from_millis(250);
const TIME_QUICK: Duration = Duration::from_millis(20);
/// Size of each client's file or volume, in bytes.
const MEDIUM_BYTES: u64 = 32 << 20;
const MEDIUM_BYTES_QUICK: u64 = 4 << 20;
/// Core of a client that is alone.
pub const CLIENT_CORE: usize = 0;
/// Core of a server that has one client, and of ours always.
pub const SERVER_CORE: usize = 1;

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the core of our server; `None` on a machine with one core, which clients need, too.
pub fn server_core() -> Option<usize> {
    (cores() > 1).then_some(SERVER_CORE)
}

/// Returns the list of `core` alone; an empty list on a machine with one core.
pub fn only(core: usize) -> Vec<usize> {
    if cores() > 1 { vec![core] } else { Vec::new() }
}

/// Restricts this thread and those that it starts to `cores`, if there are some.
pub fn run_on(cores: &[usize]) -> Result<(), Error> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set)
        .map_err(|errno| Error::Unavailable(format!("the cores {cores:?} cannot be used: {errno}")))
}

/// Device of our server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Home {
    /// Memory.
    Fast,
    /// Memory whose commands take [`SLOW_NS`].
    Slow,
    /// Memory with a bandwidth that its clients share.
    Shared,
    /// A file on the disk.
    Disk,
}

impl Home {
    pub fn name(self) -> &'static str {
        match self {
            Home::Fast => "fast",
            Home::Slow => "slow",
            Home::Shared => "shared",
            Home::Disk => "disk",
        }
    }

    pub fn volume(self, number: usize) -> String {
        format!("{}-{number}", self.name())
    }
}

/// Side of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// A volume of our server.
    Ours(Home, OurPath),
    /// Our memory by vhost-user-blk, with the client that qemu-storage-daemon has.
    Export,
    /// pread(2) and pwrite(2).
    Calls(Medium),
    Uring(Medium),
    /// qemu-storage-daemon, by vhost-user-blk.
    Daemon(Medium),
    /// Server of NBD clients; the client is the same for all.
    Nbd(NbdServer),
    Bound(Bound),
}

impl Contender {
    pub fn name(self) -> String {
        let direct = |medium: Medium| if medium.is_direct() { ", O_DIRECT" } else { "" };
        match self {
            Contender::Ours(_, path) => path.name().into(),
            Contender::Export => "vhost-user-blk".into(),
            Contender::Calls(medium) => format!("{}: pread and pwrite{}", medium.name(), direct(medium)),
            Contender::Uring(medium) => format!("{}: io_uring{}", medium.name(), direct(medium)),
            Contender::Daemon(medium) => format!("{}: qemu-storage-daemon", medium.name()),
            Contender::Nbd(server) => server.name().into(),
            Contender::Bound(bound) => bound.texts().0.into(),
        }
    }

    pub fn is_ours(self) -> bool {
        matches!(self, Contender::Ours(..) | Contender::Export | Contender::Nbd(NbdServer::Ours))
    }

    /// Returns whether it is a peer: neither ours nor a bound.
    pub fn is_peer(self) -> bool {
        !self.is_ours() && !matches!(self, Contender::Bound(_) | Contender::Nbd(NbdServer::Bare))
    }

    /// Returns whether the client accesses our volume's memory itself.
    pub fn is_mapped(self) -> bool {
        matches!(self, Contender::Ours(_, path) if path.is_mapped())
    }

    /// Carries `workload` out by so many clients, each with a file or volume of its own.
    pub fn run(self, setup: &Setup, workload: &Workload, clients: usize) -> Result<Figures, Error> {
        // A client that is alone has a core of its own.
        let alone = if clients == 1 { only(CLIENT_CORE) } else { Vec::new() };
        let files = |medium| setup.media.files(medium, clients, workload.medium_bytes);
        let run =
            |places: &[PathBuf], server, cores: &[usize]| client::run(self, places, workload, server, cores);
        match self {
            Contender::Calls(medium) | Contender::Uring(medium) => run(&files(medium)?, None, &alone),
            Contender::Daemon(medium) => {
                let files = files(medium)?;
                let aio = aio(medium, &files, workload.block);
                let core = if clients == 1 { server_core() } else { None };
                let daemon = Daemon::start(&files, &setup.folder, aio, core)?;
                run(&daemon.sockets, Some(daemon.id()), &alone)
            }
            Contender::Export => {
                let (server, socket) = (setup.usual.socket.clone(), setup.folder.join("export.socket"));
                let job = Job::Export { server, socket: socket.clone(), cores: only(SERVER_CORE) };
                let export = Crew::start("an export", &[job])?;
                run(&[socket], Some(export.id()), &alone)
            }
            Contender::Nbd(server) => self.run_nbd(server, setup, workload, &alone),
            Contender::Bound(bound) => {
                // The server made the volumes, and has no further part in a bound.
                run(&vec![setup.usual.socket.clone(); clients], None, &bound.cores(clients)?)
            }
            Contender::Ours(home, path) => match &setup.no_disk {
                Some(why) if home == Home::Disk => Err(Error::Unavailable(why.clone())),
                // A core that spins gains nothing where no requests arrive.
                _ if path.is_mapped() => self.run_at(&setup.usual, workload, clients),
                _ => self.run_at(&setup.spinning, workload, clients),
            },
        }
    }

    /// Carries `workload` out by one client, on `cores`, of an NBD server on its core.
    fn run_nbd(
        self,
        server: NbdServer,
        setup: &Setup,
        workload: &Workload,
        cores: &[usize],
    ) -> Result<Figures, Error> {
        let run = |socket: &Path, id| client::run(self, &[socket.to_owned()], workload, Some(id), cores);
        let (socket, bytes) = (setup.folder.join("nbd.socket"), workload.medium_bytes);
        let own = |job| {
            let server = Crew::start("an NBD server", &[job])?;
            run(&socket, server.id())
        };
        match server {
            NbdServer::Ours => {
                let server = setup.usual.socket.clone();
                own(Job::NbdExport { server, socket: socket.clone(), cores: only(SERVER_CORE) })
            }
            NbdServer::Bare => own(Job::BareNbd { socket: socket.clone(), bytes, cores: only(SERVER_CORE) }),
            NbdServer::Daemon => {
                let files = setup.media.files(Medium::Tmpfs, 1, bytes)?;
                let aio = aio(Medium::Tmpfs, &files, workload.block);
                let daemon = Daemon::start_nbd(&files[0], &setup.folder, aio, server_core())?;
                run(&daemon.sockets[0], daemon.id())
            }
            NbdServer::Nbdkit => {
                let nbdkit = Daemon::start_nbdkit(bytes, &setup.folder, server_core())?;
                nbd::fill(&nbdkit.sockets[0], bytes)?;
                run(&nbdkit.sockets[0], nbdkit.id())
            }
        }
    }

    /// Carries `workload` out at a server of ours, whose core no client of the channel shares.
    pub fn run_at(self, server: &Server, workload: &Workload, clients: usize) -> Result<Figures, Error> {
        let cores = match clients {
            1 => only(CLIENT_CORE),
            _ if self.is_mapped() => Vec::new(),
            _ => (0..cores()).filter(|core| *core != SERVER_CORE).collect(),
        };
        client::run(self, &vec![server.socket.clone(); clients], workload, Some(server.id()), &cores)
    }
}

/// Fastest access of the daemon: Linux AIO past the page cache, which makes no threads. Otherwise io_uring: for less than
/// a page on a tmpfs, where the daemon would read the rest of the page before, and on a tmpfs before Linux 6.6, which
/// refuses O_DIRECT.
fn aio(medium: Medium, files: &[PathBuf], block: usize) -> &'static str {
    let is_whole = block.is_multiple_of(PAGE) || medium != Medium::Tmpfs;
    let is_direct = is_whole && files.iter().all(|file| open(file, true).is_ok());
    if is_direct { "native" } else { "io_uring" }
}

/// File systems and servers that all sides run with.
pub struct Setup {
    pub media: Media,
    pub folder: PathBuf,
    pub quick: bool,
    /// Number of rounds of a case with a goal.
    pub count: u32,
    /// Server whose core polls for requests as long as there are clients.
    pub spinning: Server,
    /// Server that sleeps while there are no requests.
    pub usual: Server,
    /// Reason why there is no file on the disk.
    no_disk: Option<String>,
}

impl Setup {
    /// Makes the file systems in `folder`, and starts our servers.
    pub fn open(folder: &Path, quick: bool, count: u32) -> Result<Setup, Error> {
        let bytes = medium_bytes(quick);
        let media = Media::make(folder, STREAMS as u64 * bytes)?;
        let memory = |home: Home, volumes: usize, options: &str| Device {
            home,
            kind: format!("mem:{}{options}", volumes as u64 * bytes),
            volumes,
        };
        let mut devices = vec![memory(Home::Fast, STREAMS, "")];
        let usual = Server::start(folder, "usual", &devices, bytes, false)?;
        devices.push(memory(Home::Slow, 1, &format!(",latency={SLOW_NS}")));
        devices.push(memory(Home::Shared, CLIENTS_MAX, &format!(",bandwidth={SHARED_BANDWIDTH}/s")));
        let no_disk = match media.folder(Medium::Disk) {
            Err(error) if error.is_absence() => Some(error.to_string()),
            Err(error) => return Err(error),
            Ok(disk) => {
                // The server makes the file with all its blocks and those of its label.
                let (file, size) = (disk.join("device"), bytes + bywash_volume::RESERVED_BYTES);
                let _ = fs::remove_file(&file);
                let kind = format!("file:{},size={size}", escaped(&file)?);
                devices.push(Device { home: Home::Disk, kind, volumes: 1 });
                None
            }
        };
        // A single core cannot be given to the server alone.
        let spinning = Server::start(folder, "spinning", &devices, bytes, cores() > 1)?;
        Ok(Setup { media, folder: folder.to_owned(), quick, count, spinning, usual, no_disk })
    }

    /// A workload with random offsets.
    pub fn workload(&self, direction: Direction, block: usize, depth: usize) -> Workload {
        Workload {
            direction,
            seed: Some(1),
            block,
            medium_bytes: medium_bytes(self.quick),
            depth,
            batch: 1,
            requests: u64::MAX,
            time: if self.quick { TIME_QUICK } else { TIME },
        }
    }

    pub fn rounds(&self, has_goal: bool) -> Rounds {
        Rounds::new(if has_goal { self.count } else { self.count.min(ROUNDS_WITHOUT_GOAL) }).limited()
    }

    pub fn hold(
        &self,
        contenders: &[Contender],
        workload: &Workload,
        clients: usize,
        has_goal: bool,
    ) -> Result<Vec<Runs<Figures>>, Error> {
        let side = |contender: &Contender| {
            let contender = *contender;
            Side::new(contender.name(), move || contender.run(self, workload, clients))
        };
        self.rounds(has_goal).run(contenders.iter().map(side).collect())
    }
}

/// Size of each client's file or volume, in bytes.
pub fn medium_bytes(quick: bool) -> u64 {
    if quick { MEDIUM_BYTES_QUICK } else { MEDIUM_BYTES }
}

/// Writes a path as the specification of a device has it.
fn escaped(path: &Path) -> Result<String, Error> {
    let text = path
        .to_str()
        .ok_or_else(|| Error::Unavailable(format!("a device's path has to be UTF-8: {}", path.display())))?;
    Ok(text.replace('\\', "\\\\").replace(',', "\\,"))
}
