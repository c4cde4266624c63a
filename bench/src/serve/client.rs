//! Clients: processes of their own, each with one thread that keeps one engine busy.
//!
//! Start, opening and mapping are not timed, and all clients of a run begin together. What was moved is checked after the
//! clock has stopped ([`super::moved`]).

use super::bound::Bound;
use super::file::{Calls, Uring, open};
use super::histogram::Histogram;
use super::moved::Sample;
use super::ours::Ours;
use super::processor::{Snapshot, Used};
use super::talk::{self, TIMEOUT, Talk};
use super::vhost::VhostUser;
use super::workload::{Engine, Until, Workload, drive};
use crate::clock;
use crate::error::Error;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Number of clients that are started together: a server limits the connections that are being made by one user.
const AT_A_TIME: usize = 8;

/// Destination of a client's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Target {
    /// A file by pread(2) and pwrite(2).
    Calls { path: PathBuf, is_direct: bool },
    /// A file by io_uring.
    Uring { path: PathBuf, is_direct: bool },
    /// A vhost-user-blk server.
    VhostUser { socket: PathBuf },
    /// A volume of our server.
    Ours(Ours),
    /// A volume of our server, by nothing more than a bound consists of.
    Bound { socket: PathBuf, volume: String, bound: Bound },
}

impl Target {
    fn open(&self, workload: &Workload) -> Result<Box<dyn Engine>, Error> {
        Ok(match self {
            Target::Calls { path, is_direct } => Box::new(Calls::new(open(path, *is_direct)?, workload)),
            Target::Uring { path, is_direct } => Box::new(Uring::open(path, *is_direct, workload)?),
            Target::VhostUser { socket } => Box::new(VhostUser::connect(socket, workload)?),
            Target::Ours(ours) => ours.open(workload)?,
            Target::Bound { socket, volume, bound } => bound.open(socket, volume, workload)?,
        })
    }
}

/// Job of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub target: Target,
    pub workload: Workload,
    /// Cores that the client runs on; none: any.
    pub cores: Vec<usize>,
}

/// Report of a client; times in seconds.
#[derive(Serialize, Deserialize)]
pub struct Report {
    requests: u64,
    /// Begin and end on a clock that all processes share.
    begin: f64,
    end: f64,
    cpu_seconds: f64,
    latency: Histogram,
}

/// Figures of all clients of a run together.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub requests: u64,
    pub bytes: u64,
    /// Requests a second of each client.
    pub rates: Vec<f64>,
    /// Time from the first client's begin to the last one's end.
    pub seconds: f64,
    /// Latencies of the requests, at depth 1.
    pub latency: Histogram,
    /// CPU time of the clients.
    pub client_seconds: f64,
    /// CPU time of the server and the kernel's threads.
    pub used: Used,
}

/// Does the job of a client in this process.
///
/// # Errors
/// [`Error::Interrupted`] if the bench ends, or the engine's error.
pub fn work(job: &Job) -> Result<Report, Error> {
    let Job { target, workload, cores } = job;
    run_on(cores)?;
    let mut engine = target.open(workload)?;
    // The warm-up, too, writes what differs from an untouched medium.
    Sample::prepare(engine.as_mut(), workload)?;
    drive(engine.as_mut(), &workload.warm_up())?;
    let sample = Sample::prepare(engine.as_mut(), workload)?;
    if !talk::ready()? {
        return Err(Error::Interrupted);
    }
    let now = || clock::seconds(ClockId::Monotonic);
    let cpu = || clock::seconds(ClockId::ProcessCPUTime);
    let (begin, cpu_before) = (now(), cpu());
    let driven = drive(engine.as_mut(), workload)?;
    let (end, cpu_seconds) = (now(), cpu() - cpu_before);
    sample.confirm(engine.as_mut(), driven.requests)?;
    Ok(Report { requests: driven.requests, begin, end, cpu_seconds, latency: driven.latency })
}

/// Restricts this process to `cores`, if there are some.
///
/// # Errors
/// [`Error::Unavailable`] if the process may not run there.
pub fn run_on(cores: &[usize]) -> Result<(), Error> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set)
        .map_err(|errno| Error::Unavailable(format!("the cores {cores:?} cannot be used: {errno}")))
}

/// Carries `workload` out at all `targets` at once, by a client each; `server` is the process that serves them.
///
/// # Errors
/// The error of the first client that failed.
pub fn run(
    targets: &[Target],
    workload: &Workload,
    server: Option<u32>,
    cores: &[usize],
) -> Result<Figures, Error> {
    let mut clients: Vec<Talk> = Vec::with_capacity(targets.len());
    let numbered: Vec<(u64, &Target)> = (0..).zip(targets).collect();
    for some in numbered.chunks(AT_A_TIME) {
        let begun = clients.len();
        for (number, target) in some {
            let (target, workload) = ((*target).clone(), workload.of_client(*number));
            let job = Job { target, workload, cores: cores.to_vec() };
            clients.push(Talk::start("a client", &talk::Job::Client(job))?);
        }
        clients[begun..].iter_mut().try_for_each(Talk::ready)?;
    }
    let timeout = match workload.until {
        Until::Time(time) => time + TIMEOUT,
        Until::Requests(_) => crate::child::LIMIT,
    };
    let before = Snapshot::take(server)?;
    clients.iter_mut().try_for_each(Talk::go)?;
    let mut figures = Figures::default();
    let (mut begin, mut end) = (f64::INFINITY, 0f64);
    for client in &mut clients {
        let report = client.report(timeout)?;
        figures.requests += report.requests;
        figures.client_seconds += report.cpu_seconds;
        figures.latency.merge(&report.latency);
        figures.rates.push(report.requests as f64 / (report.end - report.begin));
        (begin, end) = (begin.min(report.begin), end.max(report.end));
    }
    figures.used = Snapshot::take(server)?.since(&before);
    figures.bytes = figures.requests * workload.block as u64;
    figures.seconds = end - begin;
    clients.into_iter().try_for_each(Talk::finish)?;
    Ok(figures)
}
