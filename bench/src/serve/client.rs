//! Clients: processes of their own, each with one thread that keeps one engine busy.
//!
//! ```text
//!   bench                      client
//!   starts it with a job  ───► opens its engine, warms up
//!                         ◄─── {"Ready"}
//!   when all are ready: a line ─► carries the workload out
//!                         ◄─── {"Done": what it did, when, with how much CPU time}
//! ```
//!
//! So what starts, opens and maps things is not measured, and all begin together. What was moved is looked at behind it
//! ([`super::moved`]).

use super::bound::Bound;
use super::engine::{Engine, drive};
use super::histogram::Histogram;
use super::moved::Sample;
use super::ours::Ours;
use super::processor::{Snapshot, Used};
use super::talk::{self, PATIENCE, Program, Talk};
use super::vhost::VhostUser;
use super::workload::{Until, Workload};
use super::{calls::Calls, uring::Uring};
use crate::error::Error;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// What makes a process of the bench a client.
pub const CLIENT: &str = "client";

/// What a client's requests go to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Target {
    /// A file by pread(2) and pwrite(2).
    Calls {
        /// Which.
        path: PathBuf,
        /// Past the page cache.
        is_direct: bool,
    },
    /// A file by io_uring.
    Uring {
        /// Which.
        path: PathBuf,
        /// Past the page cache.
        is_direct: bool,
    },
    /// A vhost-user-blk server.
    VhostUser {
        /// Where it listens.
        socket: PathBuf,
    },
    /// Our server.
    Ours(Ours),
    /// A volume of our server, by nothing more than a bound consists of.
    Bound {
        /// Socket that the server listens on.
        socket: PathBuf,
        /// The volume's name.
        volume: String,
        /// The bound.
        bound: Bound,
    },
}

impl Target {
    fn open(&self, workload: &Workload) -> Result<Box<dyn Engine>, Error> {
        Ok(match self {
            Target::Calls { path, is_direct } => Box::new(Calls::open(path, *is_direct, workload)?),
            Target::Uring { path, is_direct } => Box::new(Uring::open(path, *is_direct, workload)?),
            Target::VhostUser { socket } => Box::new(VhostUser::connect(socket, workload)?),
            Target::Ours(ours) => ours.open(workload)?,
            Target::Bound { socket, volume, bound } => bound.open(socket, volume, workload)?,
        })
    }
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// To what.
    pub target: Target,
    /// What.
    pub workload: Workload,
    /// On these cores only; none: anywhere.
    pub cores: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
struct Report {
    requests: u64,
    begin_ns: u64,
    end_ns: u64,
    cpu_seconds: f64,
    latency: Histogram,
}

/// What all clients of a run did together.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests.
    pub requests: u64,
    /// Of those, the bytes.
    pub bytes: u64,
    /// Requests a second of each client.
    pub rates: Vec<f64>,
    /// From the first one's begin to the last one's end.
    pub seconds: f64,
    /// How long each request took, at depth 1.
    pub latency: Histogram,
    /// CPU time of the clients.
    pub client_seconds: f64,
    /// CPU time of whoever serves them.
    pub used: Used,
}

/// The client's part; `job` is what the bench has put on its command line.
///
/// # Errors
/// As [`talk::be`].
pub fn client(job: &str) -> Result<(), Error> {
    talk::be(job, |job: &Job| &job.cores, serve)
}

fn serve(job: &Job) -> Result<Report, Error> {
    let mut engine = job.target.open(&job.workload)?;
    // The warm-up too writes what can be told from nothing.
    Sample::prepare(engine.as_mut(), &job.workload)?;
    drive(engine.as_mut(), &job.workload.warm_up())?;
    let sample = Sample::prepare(engine.as_mut(), &job.workload)?;
    if !talk::ready()? {
        return Err(Error::Interrupted);
    }
    let (begin_ns, cpu) = (now_ns(), cpu_seconds()?);
    let driven = drive(engine.as_mut(), &job.workload)?;
    let (end_ns, cpu_seconds) = (now_ns(), cpu_seconds()? - cpu);
    sample.confirm(engine.as_mut(), driven.requests)?;
    Ok(Report { requests: driven.requests, begin_ns, end_ns, cpu_seconds, latency: driven.latency })
}

/// The same clock in every process.
fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn cpu_seconds() -> Result<f64, Error> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)
        .map_err(|errno| Error::failed("getrusage", io::Error::from(errno).to_string()))?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}

/// Clients that are started together.
const AT_A_TIME: usize = 8;

/// Carries out `workload` at every one of `targets` at once, a client each; `server` is the process that serves them.
///
/// # Errors
/// What failed, in whichever of them.
pub fn run(
    program: &Program,
    targets: &[Target],
    workload: &Workload,
    server: Option<u32>,
    cores: &[usize],
) -> Result<Figures, Error> {
    let jobs = (0u64..).zip(targets).map(|(number, target)| Job {
        target: target.clone(),
        workload: workload.of_client(number),
        cores: cores.to_vec(),
    });
    let jobs: Vec<Job> = jobs.collect();
    let mut clients: Vec<Talk> = Vec::with_capacity(jobs.len());
    // Servers let only so many of one user connect at a time.
    for some in jobs.chunks(AT_A_TIME) {
        let begun = clients.len();
        for job in some {
            clients.push(Talk::start("a client", program, CLIENT, job)?);
        }
        clients[begun..].iter_mut().try_for_each(Talk::ready)?;
    }
    let patience = match workload.until {
        Until::Time(time) => time + PATIENCE,
        Until::Requests(_) => crate::child::LIMIT,
    };
    let before = Snapshot::take(server)?;
    clients.iter_mut().try_for_each(Talk::go)?;
    let mut figures = Figures::default();
    let (mut begin, mut end) = (u64::MAX, 0);
    for client in &mut clients {
        let report: Report = client.done(patience)?;
        figures.requests += report.requests;
        figures.client_seconds += report.cpu_seconds;
        figures.latency.merge(&report.latency);
        let seconds = report.end_ns.saturating_sub(report.begin_ns) as f64 / 1e9;
        figures.rates.push(report.requests as f64 / seconds);
        (begin, end) = (begin.min(report.begin_ns), end.max(report.end_ns));
    }
    figures.used = Snapshot::take(server)?.since(&before);
    figures.bytes = figures.requests * workload.block as u64;
    figures.seconds = end.saturating_sub(begin) as f64 / 1e9;
    clients.into_iter().try_for_each(Talk::finish)?;
    Ok(figures)
}
