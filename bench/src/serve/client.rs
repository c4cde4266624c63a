//! Clients: processes of their own, each with one thread that keeps one engine busy.
//!
//! Start, opening and mapping are not timed, and all clients of a run begin together. What was moved is checked after the
//! clock has stopped ([`super::moved`]).

use super::contest::{CLIENTS_MAX, Contender, Home, run_on};
use super::figure::Figures;
use super::file::{Uring, calls, open};
use super::moved;
use super::nbd::Nbd;
use super::process::{Crew, Job, TIMEOUT, ready};
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

/// Duration of the work before the clock starts, so that nothing is done for the first time afterwards.
const WARM_UP: Duration = Duration::from_millis(50);

/// One of the clients of a run.
#[derive(Serialize, Deserialize)]
pub struct Client {
    side: Contender,
    /// File, or socket of a server.
    at: PathBuf,
    workload: Workload,
    /// Cores that the client runs on; none: any.
    cores: Vec<usize>,
    /// Number of the client, and of its volume.
    number: usize,
    /// Number of clients of the run.
    clients: usize,
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
    pub fn work(&self) -> Result<Report, Error> {
        let workload = &self.workload;
        run_on(&self.cores)?;
        let mut engine = self.engine()?;
        let engine = engine.as_mut();
        // The warm-up, too, writes what differs from an untouched medium.
        moved::prepare(engine, workload)?;
        drive(engine, &Workload { time: WARM_UP, requests: u64::MAX, ..workload.clone() })?;
        moved::prepare(engine, workload)?;
        ready()?;
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
        let (at, workload) = (&self.at, &self.workload);
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
            Contender::Nbd(_) => Box::new(Nbd::connect(at, workload)?),
            Contender::Ours(home, path) => path.open(at, &home.volume(self.number), wait, workload)?,
            Contender::Bound(bound) => bound.open(at, &Home::Fast.volume(self.number), workload)?,
        })
    }
}

/// Returns the times that half of all times and 99 % of them do not exceed.
fn quantiles(times: &mut [u32]) -> Option<[u32; 2]> {
    let last = times.len().checked_sub(1)?;
    let mut of = |percent: usize| *times.select_nth_unstable(last * percent / 100).1;
    Some([of(50), of(99)])
}

/// Carries `workload` out at once by a client for each file or socket of `places`; `server` is the process that serves them.
pub fn run(
    side: Contender,
    places: &[PathBuf],
    workload: &Workload,
    server: Option<u32>,
    cores: &[usize],
) -> Result<Figures, Error> {
    let job = |(number, at): (usize, &PathBuf)| {
        // The same work, with other random offsets.
        let seed = workload.seed.map(|seed| seed.wrapping_add(number as u64));
        let workload = Workload { seed, ..workload.clone() };
        let (at, cores) = (at.clone(), cores.to_vec());
        Job::Client(Client { side, at, workload, cores, number, clients: places.len() })
    };
    let jobs: Vec<Job> = places.iter().enumerate().map(job).collect();
    let mut clients = Crew::start("a client", &jobs)?;
    let before = Snapshot::take(server)?;
    clients.go()?;
    let reports = clients.reports(workload.time.saturating_add(TIMEOUT).min(child::LIMIT))?;
    let (server_seconds, kernel_seconds) = Snapshot::take(server)?.since(&before);
    clients.finish()?;
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
        server_seconds,
        kernel_seconds,
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
