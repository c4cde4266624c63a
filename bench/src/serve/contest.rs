//! Sides of the bench, and what they run with: file systems, servers, cores.

use super::bound::Bound;
use super::client::{self, Figures, Target};
use super::daemon::{Daemon, Reach};
use super::file::{PAGE, open};
use super::medium::{Media, Medium};
use super::ours::{Ours, Path as OurPath, Waiting};
use super::server::{Device, ExportJob, Server, volume};
use super::talk::{Job, Talk};
use super::workload::{Direction, Order, Until, Workload};
use crate::engine::{Metric, Rounds, Runs, Side};
use crate::error::Error;
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
/// Duration of a run, of a point of a curve, and of both in a quick run.
const TIME: Duration = Duration::from_millis(250);
const TIME_OF_POINT: Duration = Duration::from_millis(120);
const TIME_QUICK: Duration = Duration::from_millis(20);
/// Size of each client's file or volume, in bytes.
const MEDIUM_BYTES: u64 = 32 << 20;
const MEDIUM_BYTES_QUICK: u64 = 4 << 20;
/// Core of a client that is alone.
pub const CLIENT_CORE: usize = 0;
/// Core of a server that has one client, and of ours always.
pub const SERVER_CORE: usize = 1;

/// Number of cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Core of our server.
pub fn server_core() -> Option<usize> {
    (cores() > 1).then_some(SERVER_CORE)
}

fn client_core() -> Vec<usize> {
    if cores() > 1 { vec![CLIENT_CORE] } else { Vec::new() }
}

/// Device of our server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    fn device(self) -> &'static str {
        match self {
            Home::Fast => "fast",
            Home::Slow => "slow",
            Home::Shared => "shared",
            Home::Disk => "disk",
        }
    }

    /// Number of volumes.
    fn clients(self) -> usize {
        match self {
            Home::Fast => STREAMS,
            Home::Shared => CLIENTS_MAX,
            Home::Slow | Home::Disk => 1,
        }
    }
}

/// Side of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A volume of our server.
    Ours(Home, OurPath),
    /// Our memory by vhost-user-blk, with the client that qemu-storage-daemon has.
    Export,
    /// pread(2) and pwrite(2).
    Calls(Medium),
    Uring(Medium),
    /// qemu-storage-daemon.
    Daemon(Medium),
    Bound(Bound),
}

impl Contender {
    /// Name in rows.
    pub fn name(self) -> String {
        let direct = |medium: Medium| if medium.is_direct() { ", O_DIRECT" } else { "" };
        match self {
            Contender::Ours(_, path) => path.name().into(),
            Contender::Export => "vhost-user-blk".into(),
            Contender::Calls(medium) => format!("{}: pread and pwrite{}", medium.name(), direct(medium)),
            Contender::Uring(medium) => format!("{}: io_uring{}", medium.name(), direct(medium)),
            Contender::Daemon(medium) => format!("{}: qemu-storage-daemon", medium.name()),
            Contender::Bound(bound) => bound.name().into(),
        }
    }

    /// Returns whether it is a side of ours.
    pub fn is_ours(self) -> bool {
        matches!(self, Contender::Ours(..) | Contender::Export)
    }

    /// Returns whether it is a peer: neither ours nor a bound.
    pub fn is_peer(self) -> bool {
        !self.is_ours() && !matches!(self, Contender::Bound(_))
    }

    /// Carries `workload` out by so many clients, each with a file or volume of its own.
    ///
    /// # Errors
    /// [`Error::is_absence`] if this machine cannot run it, or the error of a client.
    pub fn run(self, setup: &Setup, workload: &Workload, clients: usize) -> Result<Figures, Error> {
        let is_alone = clients == 1;
        // A client that is alone has a core of its own.
        let alone = if is_alone { client_core() } else { Vec::new() };
        let files = |medium| setup.media.files(medium, clients, workload.medium_bytes);
        let run = |targets: &[Target], server, cores: &[usize]| client::run(targets, workload, server, cores);
        match self {
            Contender::Calls(medium) => {
                let is_direct = medium.is_direct();
                let target = |path| Target::Calls { path, is_direct };
                run(&files(medium)?.into_iter().map(target).collect::<Vec<_>>(), None, &alone)
            }
            Contender::Uring(medium) => {
                let is_direct = medium.is_direct();
                let target = |path| Target::Uring { path, is_direct };
                run(&files(medium)?.into_iter().map(target).collect::<Vec<_>>(), None, &alone)
            }
            Contender::Daemon(medium) => {
                let files = files(medium)?;
                let reach = reach(medium, &files, workload.block, is_alone);
                let daemon = Daemon::start(&files, &setup.folder, &reach)?;
                let target = |socket: &PathBuf| Target::VhostUser { socket: socket.clone() };
                let targets: Vec<Target> = daemon.sockets().iter().map(target).collect();
                run(&targets, Some(daemon.id()), &alone)
            }
            Contender::Export => {
                let socket = setup.folder.join("export.socket");
                let mut export = Talk::start(
                    "an export",
                    &Job::Export(ExportJob {
                        server: setup.usual.socket().to_owned(),
                        volume: volume(Home::Fast.device(), 0),
                        socket: socket.clone(),
                        cores: server_core().into_iter().collect(),
                    }),
                )?;
                export.ready()?;
                run(&[Target::VhostUser { socket }], Some(export.id()), &client_core())
            }
            Contender::Bound(bound) => {
                // The server made the volumes, and has no further part in a bound.
                let cores = bound.cores(clients)?;
                let target = |number| Target::Bound {
                    socket: setup.usual.socket().to_owned(),
                    volume: volume(Home::Fast.device(), number),
                    bound,
                };
                run(&(0..clients).map(target).collect::<Vec<_>>(), None, &cores)
            }
            Contender::Ours(home, path) => {
                // A core that spins gains nothing where no requests arrive.
                let server = if path.is_mapped() { &setup.usual } else { &setup.spinning };
                match (&setup.no_disk, home) {
                    (Some(why), Home::Disk) => Err(Error::Unavailable(why.clone())),
                    _ => run_ours(server, home.device(), path, workload, clients),
                }
            }
        }
    }
}

/// Fastest access of the daemon: Linux AIO past the page cache, which makes no threads. Otherwise io_uring: for less than
/// a page on a tmpfs, where the daemon would read the rest of the page before, and on a tmpfs before Linux 6.6, which
/// refuses O_DIRECT.
fn reach(medium: Medium, files: &[PathBuf], block: usize, is_alone: bool) -> Reach {
    let is_whole = block.is_multiple_of(PAGE) || medium != Medium::Tmpfs;
    let is_direct = is_whole && files.iter().all(|file| open(file, true).is_ok());
    let core = if is_alone { server_core() } else { None };
    Reach { is_direct, aio: if is_direct { "native" } else { "io_uring" }, core }
}

/// Carries `workload` out at a device of our server, whose core no client of the channel shares.
///
/// # Errors
/// The error of a client.
pub fn run_ours(
    server: &Server,
    device: &str,
    path: OurPath,
    workload: &Workload,
    clients: usize,
) -> Result<Figures, Error> {
    let wait = match clients {
        1 if cores() > 1 => Waiting::Spin,
        // A client that spins would only keep the others from the few cores.
        many if many > CLIENTS_MAX => Waiting::Sleep,
        _ => Waiting::Adaptive,
    };
    let target = |number| {
        let (socket, volume) = (server.socket().to_owned(), volume(device, number));
        Target::Ours(Ours { socket, volume, path, wait })
    };
    let targets: Vec<Target> = (0..clients).map(target).collect();
    let on: Vec<usize> = match (clients, cores()) {
        (1, _) => client_core(),
        (_, 1) => Vec::new(),
        _ if path.is_mapped() => Vec::new(),
        (_, cores) => (0..cores).filter(|core| *core != SERVER_CORE).collect(),
    };
    client::run(&targets, workload, Some(server.id()), &on)
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
    ///
    /// # Errors
    /// [`Error::Failed`] with the reason of a server.
    pub fn open(folder: &Path, quick: bool, count: u32) -> Result<Setup, Error> {
        let bytes = medium_bytes(quick);
        let media = Media::make(folder, STREAMS as u64 * bytes)?;
        let device = |home: Home, kind: String| Device {
            spec: format!("{}={kind}", home.device()),
            volumes: home.clients(),
            volume_bytes: bytes,
        };
        let memory = |home: Home, options: &str| {
            device(home, format!("mem:{}{options}", home.clients() as u64 * bytes))
        };
        let mut devices = vec![memory(Home::Fast, "")];
        let usual = Server::start(folder, "usual", &devices, false, server_core())?;
        devices.push(memory(Home::Slow, &format!(",latency={SLOW_NS}")));
        devices.push(memory(Home::Shared, &format!(",bandwidth={SHARED_BANDWIDTH}/s")));
        let no_disk = match media.folder(Medium::Disk) {
            Err(error) if error.is_absence() => Some(error.to_string()),
            Err(error) => return Err(error),
            Ok(disk) => {
                // The server makes the file with all its blocks and those of its label.
                let (file, size) = (disk.join("device"), bytes + bywash_volume::RESERVED_BYTES);
                let _ = fs::remove_file(&file);
                devices.push(device(Home::Disk, format!("file:{},size={size}", escaped(&file)?)));
                None
            }
        };
        // A single core cannot be given to the server alone.
        let spinning = Server::start(folder, "spinning", &devices, cores() > 1, server_core())?;
        Ok(Setup { media, folder: folder.to_owned(), quick, count, spinning, usual, no_disk })
    }

    /// A workload with random offsets.
    pub fn workload(&self, direction: Direction, block: usize, depth: usize) -> Workload {
        Workload {
            direction,
            order: Order::Random(1),
            block,
            medium_bytes: medium_bytes(self.quick),
            depth,
            batch: 1,
            until: Until::Time(if self.quick { TIME_QUICK } else { TIME }),
        }
    }

    /// A shorter workload of writes, for a point of a curve.
    pub fn point(&self, block: usize, depth: usize) -> Workload {
        let until = Until::Time(if self.quick { TIME_QUICK } else { TIME_OF_POINT });
        Workload { until, ..self.workload(Direction::Write, block, depth) }
    }

    /// Rounds of a case.
    pub fn rounds(&self, has_goal: bool) -> Rounds {
        Rounds::new(if has_goal { self.count } else { self.count.min(ROUNDS_WITHOUT_GOAL) }).limited()
    }

    /// Runs the contenders in turns.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn hold(
        &self,
        contenders: &[Contender],
        workload: &Workload,
        clients: usize,
        rounds: Rounds,
    ) -> Result<Vec<Runs<Figures>>, Error> {
        let side = |contender: &Contender| {
            let contender = *contender;
            Side::new(contender.name(), move || contender.run(self, workload, clients))
        };
        rounds.run(contenders.iter().map(side).collect())
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

/// Figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Median latency at depth 1.
    Latency,
    /// Latency that 99 % of the requests do not exceed, at depth 1.
    Latency99,
    /// Requests a second.
    Requests,
    /// Bytes a second.
    Bandwidth,
    /// CPU time of the clients for a request.
    ClientCpu,
    /// CPU time of the clients and the server for a request.
    BothCpu,
    /// CPU time of the clients, the server and the kernel's threads for a request.
    AllCpu,
    /// Requests for a CPU second of the clients and the server.
    Efficiency,
}

impl Figure {
    /// The figure as rows have it.
    pub fn metric(self) -> Metric<'static, Figures> {
        let value = move |figures: &Figures| self.value(figures);
        // A cost below the resolution of the kernel's clock counts as that.
        let cost =
            |name, unit| Metric::cost(name, unit, value).ratio(|ours, peer| peer.max(1e-3) / ours.max(1e-3));
        match self {
            Figure::Latency => cost("latency", "ns"),
            Figure::Latency99 => cost("latency, 99 %", "ns"),
            Figure::Requests => Metric::rate("requests", "op/s", value),
            Figure::Bandwidth => Metric::rate("throughput", "B/s", value),
            Figure::ClientCpu => cost("cpu of clients", "ns/op"),
            Figure::BothCpu => cost("cpu of clients and server", "ns/op"),
            Figure::AllCpu => cost("cpu of clients, server and kernel threads", "ns/op"),
            Figure::Efficiency => Metric::rate("requests per CPU second", "op/CPU s", value),
        }
    }

    /// The figure of one run; not a number if the run has none.
    fn value(self, figures: &Figures) -> f64 {
        let requests = figures.requests as f64;
        let both = figures.client_seconds + figures.used.server_seconds.unwrap_or(0.0);
        match self {
            Figure::Latency => figures.latency.quantile(0.5).unwrap_or(f64::NAN),
            Figure::Latency99 => figures.latency.quantile(0.99).unwrap_or(f64::NAN),
            Figure::Requests => requests / figures.seconds,
            Figure::Bandwidth => figures.bytes as f64 / figures.seconds,
            Figure::ClientCpu => figures.client_seconds * 1e9 / requests,
            Figure::BothCpu => both * 1e9 / requests,
            Figure::AllCpu => (both + figures.used.kernel_seconds) * 1e9 / requests,
            Figure::Efficiency => requests / both.max(1e-6),
        }
    }

    /// Median of the figure.
    pub fn median(self, runs: &Runs<Figures>) -> Option<f64> {
        runs.median(|figures| self.value(figures))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::histogram::Histogram;
    use super::super::processor::Used;
    use super::*;
    use crate::row::Row;

    pub fn figures(requests: u64) -> Figures {
        let mut latency = Histogram::default();
        (0..100).for_each(|_| latency.add(1_000_000_000 / requests));
        Figures {
            requests,
            bytes: requests * 512,
            rates: vec![requests as f64],
            seconds: 1.0,
            latency,
            client_seconds: 0.5,
            used: Used { server_seconds: Some(0.25), kernel_seconds: 0.25 },
        }
    }

    pub fn runs(name: &str, requests: Result<u64, Error>) -> Runs<Figures> {
        Runs { name: name.into(), samples: requests.map(|requests| vec![figures(requests); 3]) }
    }

    #[test]
    fn figures_of_a_run() {
        let all = figures(1_000_000);
        let value = |figure: Figure| figure.value(&all);
        assert_eq!([Figure::ClientCpu, Figure::BothCpu, Figure::AllCpu].map(value), [500.0, 750.0, 1000.0]);
        assert_eq!(value(Figure::Bandwidth), 512e6);
        assert!(Figure::Latency.value(&Figures::default()).is_nan());
        let (ours, peer) = (runs("o", Ok(8_000_000)), runs("p", Ok(2_000_000)));
        let row = |figure: Figure, goal| figure.metric().row(&Row::default(), &ours, &peer, Some(goal));
        let requests = row(Figure::Requests, 3.0);
        assert_eq!((requests.ratio, requests.met, requests.runs), (Some(4.0), Some(true), 3));
        let latency = row(Figure::Latency, 5.0);
        assert_eq!((latency.ours, latency.peer_value, latency.met), (Some(125.0), Some(500.5), Some(false)));
    }
}
