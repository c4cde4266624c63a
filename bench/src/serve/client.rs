//! Clients: processes of their own, each with one thread that keeps one engine busy.
//!
//! Start, opening and mapping are not timed, and all clients of a run begin together. What was moved is checked after the
//! clock has stopped ([`super::moved`]).

use super::contest::{CLIENTS_MAX, Contender, run_on};
use super::figure::Figures;
use super::file::{Uring, calls, open};
use super::moved;
use super::process::{Bench, Job, Process, TIMEOUT};
use super::processor::Snapshot;
use super::vhost::VhostUser;
use super::workload::{Engine, Workload, drive};
use crate::error::Error;
use crate::{child, clock};
use bywash_client::Wait;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Number of clients that are started together: a server limits the connections that are being made by one user.
const AT_A_TIME: usize = 8;
/// Duration of the work before the clock starts, so that nothing is done for the first time afterwards.
const WARM_UP: Duration = Duration::from_millis(50);

/// Destination of a client's requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// File, or socket of the server.
    pub at: PathBuf,
    /// Volume of our server.
    pub volume: String,
}

impl From<PathBuf> for Target {
    fn from(at: PathBuf) -> Target {
        Target { at, volume: String::new() }
    }
}

/// One of the clients of a run.
#[derive(Serialize, Deserialize)]
pub struct Client {
    pub side: Contender,
    pub target: Target,
    pub workload: Workload,
    /// Cores that the client runs on; none: any.
    pub cores: Vec<usize>,
    /// Number of clients of the run.
    pub clients: usize,
}

/// Report of a client; times in seconds.
#[derive(Serialize, Deserialize)]
pub struct Report {
    requests: u64,
    /// Begin and end on a clock that all processes share.
    begin: f64,
    end: f64,
    cpu_seconds: f64,
    /// As [`Figures::latency`].
    latency: Option<[u32; 2]>,
}

impl Client {
    /// Does the work in this process.
    pub fn work(&self, bench: &Bench) -> Result<Report, Error> {
        let workload = &self.workload;
        run_on(&self.cores)?;
        let mut engine = self.engine()?;
        let engine = engine.as_mut();
        // The warm-up, too, writes what differs from an untouched medium.
        moved::prepare(engine, workload)?;
        drive(engine, &Workload { time: WARM_UP, requests: u64::MAX, ..workload.clone() })?;
        moved::prepare(engine, workload)?;
        if !bench.ready()? {
            return Err(Error::Interrupted);
        }
        let now = || clock::seconds(ClockId::Monotonic);
        let cpu = || clock::seconds(ClockId::ProcessCPUTime);
        let (begin, cpu_before) = (now(), cpu());
        let mut driven = drive(engine, workload)?;
        let (end, cpu_seconds) = (now(), cpu() - cpu_before);
        moved::confirm(engine, workload, driven.requests)?;
        let latency = quantiles(&mut driven.latencies);
        Ok(Report { requests: driven.requests, begin, end, cpu_seconds, latency })
    }

    fn engine(&self) -> Result<Box<dyn Engine>, Error> {
        let (Target { at, volume }, workload) = (&self.target, &self.workload);
        let wait = match self.clients {
            1 if !self.cores.is_empty() => Wait::Spin,
            // A client that spins would only keep the others from the few cores.
            many if many > CLIENTS_MAX => Wait::Sleep,
            _ => Wait::Adaptive,
        };
        Ok(match self.side {
            Contender::Calls(medium) => Box::new(calls(open(at, medium.is_direct())?, workload)),
            Contender::Uring(medium) => Box::new(Uring::open(at, medium.is_direct(), workload)?),
            Contender::Daemon(_) | Contender::Export => Box::new(VhostUser::connect(at, workload)?),
            Contender::Ours(_, path) => path.open(at, volume, wait, workload)?,
            Contender::Bound(bound) => bound.open(at, volume, workload)?,
        })
    }
}

/// Returns the times that half of all times and 99 % of them do not exceed.
fn quantiles(times: &mut [u32]) -> Option<[u32; 2]> {
    let last = times.len().checked_sub(1)?;
    let mut of = |percent: usize| *times.select_nth_unstable(last * percent / 100).1;
    Some([of(50), of(99)])
}

/// Carries `workload` out at all `targets` at once, by a client each; `server` is the process that serves them.
pub fn run(
    side: Contender,
    targets: &[Target],
    workload: &Workload,
    server: Option<u32>,
    cores: &[usize],
) -> Result<Figures, Error> {
    let mut clients: Vec<Process> = Vec::with_capacity(targets.len());
    let numbered: Vec<(u64, &Target)> = (0..).zip(targets).collect();
    for some in numbered.chunks(AT_A_TIME) {
        let begun = clients.len();
        for (number, target) in some {
            // The same work, with other random offsets.
            let seed = workload.seed.map(|seed| seed.wrapping_add(*number));
            let workload = Workload { seed, ..workload.clone() };
            let (target, cores) = ((*target).clone(), cores.to_vec());
            let client = Client { side, target, workload, cores, clients: targets.len() };
            clients.push(Process::start("a client", &Job::Client(client))?);
        }
        clients[begun..].iter_mut().try_for_each(Process::ready)?;
    }
    let timeout = workload.time.saturating_add(TIMEOUT).min(child::LIMIT);
    let before = Snapshot::take(server)?;
    clients.iter_mut().try_for_each(Process::go)?;
    let reports = clients.iter_mut().map(|client| client.report(timeout)).collect::<Result<Vec<_>, _>>()?;
    let used = Snapshot::take(server)?.since(&before);
    clients.into_iter().try_for_each(Process::finish)?;
    let requests = reports.iter().map(|report| report.requests).sum();
    let begin = reports.iter().map(|report| report.begin).fold(f64::INFINITY, f64::min);
    let end = reports.iter().map(|report| report.end).fold(0.0, f64::max);
    let rate = |report: &Report| report.requests as f64 / (report.end - report.begin);
    Ok(Figures {
        requests,
        bytes: requests * workload.block as u64,
        rates: reports.iter().map(rate).collect(),
        seconds: end - begin,
        latency: reports.iter().find_map(|report| report.latency),
        client_seconds: reports.iter().map(|report| report.cpu_seconds).sum(),
        used,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn quantiles_are_times_that_so_many_do_not_exceed() {
        let mut times: Vec<u32> = (1..=100).rev().collect();
        assert_eq!(super::quantiles(&mut times), Some([50, 99]));
        assert_eq!((super::quantiles(&mut [7]), super::quantiles(&mut [])), (Some([7, 7]), None));
    }
}
