//! Admission: a stream that the machine cannot carry beside those that it carries already is refused.
//!
//! Four resources are given out. Memory is exact: a stream has all of its containers before it begins (`containers`). The
//! other three are rates, of which `share` is given out:
//!
//! - **network**: a limit that the user states.
//! - **disk**: bytes per second that reads of this length reached together when the server started (`calibration`), or
//!   more, if the streams have read more since.
//! - **processor**: the time for a byte, times the bytes per second of all streams, is compared with the time that the
//!   threads get. The former is measured at the start, and then from the threads' own time and the bytes that they sent;
//!   the latter is what they ran, of the time that they wanted to run.
//!
//! What was measured at the start may be wrong later: another program may use the disk. So there is a *gate*: each thread
//! reports once a second how late its chunks were. While chunks are late, or reads take more than half of the time that
//! they have, nobody is admitted, nor for a while after that.
//!
//! Everything here is computed from numbers and times that callers pass in.

use crate::rates::told;
use crate::spread::{Phase, Spread};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Resource of which there is too little for a further stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Containers of the arena.
    Memory,
    /// Bytes per second of the disk.
    Disk,
    /// Time of the threads.
    Processor,
    /// Bytes per second of the network, as the user stated them.
    Network,
}

/// Refusal of a stream, with the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Resource of which there is too little.
    pub resource: Resource,
    /// What is given out and what there is.
    pub reason: String,
}

/// Capacities, as they are known when the server starts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacities {
    /// Bytes per second that the disk delivers; `None` if nothing could be measured.
    pub disk: Option<u64>,
    /// Bytes per second that the network may carry; `None` without a limit.
    pub network: Option<u64>,
    /// Time of a thread for a byte, in nanoseconds; `None` if it is not known yet.
    pub nanoseconds_per_byte: Option<f64>,
    /// Number of threads.
    pub threads: u16,
    /// Share of disk and processor that is given out, above 0 and at most 1.
    pub share: f64,
}

/// One thread's report of the last second or so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Number of the thread.
    pub thread: u16,
    /// Time since the last report.
    pub time: Duration,
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that were read.
    pub read: u64,
    /// Time for which the thread ran.
    pub ran: Duration,
    /// Time for which the thread could have run, and others ran.
    pub waited: Duration,
    /// Number of chunks that were late by the server's fault.
    pub late: u64,
    /// Number of chunks whose reading took more than half of a period.
    pub slow_reads: u64,
}

/// Rates that are given out, and what there is of them. Shared by all threads.
#[derive(Debug)]
pub struct Admission(Mutex<State>);

#[derive(Debug)]
struct State {
    capacities: Capacities,
    /// Sum of the rates of all streams, in bytes per second.
    given: u64,
    streams: u32,
    spread: Spread,
    /// Share of the time that a thread wants that it gets.
    granted: f64,
    /// Bytes per second that each thread read lately.
    reading: Vec<u64>,
    /// Resource that was short lately, and the time until which nobody is admitted.
    gate: Option<(Resource, Duration)>,
}

/// Right to send at a rate, which is given back when it is dropped.
#[derive(Debug)]
pub struct Ticket {
    admission: Arc<Admission>,
    rate: u64,
    phase: Phase,
}

impl Admission {
    /// Begins with no stream.
    pub fn new(capacities: Capacities) -> Admission {
        Admission(Mutex::new(State {
            capacities,
            given: 0,
            streams: 0,
            spread: Spread::default(),
            granted: 1.0,
            reading: vec![0; usize::from(capacities.threads)],
            gate: None,
        }))
    }

    /// Admits a stream of `rate` bytes per second that sends a chunk each `period`. `now` is the time since any origin, the
    /// same for all calls.
    ///
    /// # Errors
    /// The [`Refusal`] for the first resource of which there is too little.
    pub fn admit(self: &Arc<Self>, rate: u64, period: Duration, now: Duration) -> Result<Ticket, Refusal> {
        let mut state = self.lock();
        state.check(rate, now)?;
        state.given += rate;
        state.streams += 1;
        let phase = state.spread.take(period, now);
        Ok(Ticket { admission: self.clone(), rate, phase })
    }

    /// Takes a thread's report into account.
    pub fn report(&self, report: &Report, now: Duration) {
        self.lock().report(report, now);
    }

    /// Returns the number of streams, the sum of their rates in bytes per second, and the capacities as they are known now.
    pub fn state(&self) -> (u32, u64, Capacities) {
        let state = self.lock();
        (state.streams, state.given, state.capacities)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Returns the time from the beginning of the stream to its third chunk.
    pub fn phase(&self) -> Duration {
        self.phase.time
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        state.given -= self.rate;
        state.streams -= 1;
        state.spread.give_back(self.phase);
    }
}

impl State {
    fn check(&self, rate: u64, now: Duration) -> Result<(), Refusal> {
        let wanted = self.given + rate;
        let Capacities { disk, network, nanoseconds_per_byte, threads, share } = self.capacities;
        let refuse = |resource, reason| Err(Refusal { resource, reason });
        if let Some(most) = network.filter(|most| wanted > *most) {
            let reason = format!("{} of {} are given out", told(self.given), told(most));
            return refuse(Resource::Network, reason);
        }
        if let Some(disk) = disk
            && wanted as f64 > disk as f64 * share
        {
            let (given, percent) = (told(self.given), 100.0 * share);
            let reason = format!("{given} are given out, and {percent:.0} % of {} can be", told(disk));
            return refuse(Resource::Disk, reason);
        }
        if let Some(cost) = nanoseconds_per_byte {
            let has = f64::from(threads) * self.granted;
            let needs = wanted as f64 * cost / 1e9;
            if needs > has * share {
                let reason = format!(
                    "with this stream {needs:.2} processors would be in use, and {:.0} % of {has:.2} can be",
                    100.0 * share
                );
                return refuse(Resource::Processor, reason);
            }
        }
        match self.gate {
            Some((resource, until)) if now < until => refuse(
                resource,
                "the streams that there are were late, or nearly late, a moment ago".to_owned(),
            ),
            _ => Ok(()),
        }
    }

    fn report(&mut self, report: &Report, now: Duration) {
        if report.time.is_zero() {
            return;
        }
        let follow = |old: f64, new: f64| old + WEIGHT * (new - old);
        let ran = report.ran.as_nanos() as f64;
        if report.sent >= SENT_MIN {
            let cost = ran / report.sent as f64;
            let known = self.capacities.nanoseconds_per_byte;
            self.capacities.nanoseconds_per_byte = Some(known.map_or(cost, |known| follow(known, cost)));
        }
        if report.ran >= RAN_MIN {
            let wanted = ran + report.waited.as_nanos() as f64;
            self.granted = follow(self.granted, ran / wanted);
        }
        let thread = usize::from(report.thread);
        self.reading[thread] = (report.read as f64 / report.time.as_secs_f64()) as u64;
        let reading = self.reading.iter().sum();
        self.capacities.disk = self.capacities.disk.map(|disk| disk.max(reading));
        let short = match (report.slow_reads, report.late) {
            (0, 0) => return,
            (0, _) => Resource::Processor,
            _ => Resource::Disk,
        };
        self.gate = Some((short, now + GATE));
    }
}

impl Refusal {
    /// Returns the refusal of a stream for which `bytes` bytes of memory could not be had.
    pub fn memory(bytes: usize, used: u64, size: u64) -> Refusal {
        let reason = format!("a stream needs {bytes} bytes, and {used} of {size} are in use");
        Refusal { resource: Resource::Memory, reason }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} for another stream: {}", self.resource, self.reason)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Resource::Memory => "not enough memory",
            Resource::Disk => "not enough disk bandwidth",
            Resource::Processor => "not enough processor time",
            Resource::Network => "not enough network bandwidth",
        })
    }
}

/// Weight of a thread's last report.
const WEIGHT: f64 = 0.3;
/// Number of bytes a report must be about for its cost of a byte to count: of less, the costs of requests are too large.
const SENT_MIN: u64 = 4 << 20;
/// Time for which a thread must have run for the share that it got to count.
const RAN_MIN: Duration = Duration::from_millis(20);
/// Time for which nobody is admitted after a late chunk.
const GATE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(500);
    const NOW: Duration = Duration::from_secs(1000);
    const SECOND: Duration = Duration::from_secs(1);
    const ALL: Capacities =
        Capacities { disk: None, network: None, nanoseconds_per_byte: None, threads: 1, share: 0.8 };

    /// Admits streams of 1 MB/s until one is refused.
    fn fill(admission: &Arc<Admission>, now: Duration) -> (Vec<Ticket>, Option<Refusal>) {
        let mut tickets = Vec::new();
        while tickets.len() < 10_000 {
            match admission.admit(1_000_000, PERIOD, now) {
                Ok(ticket) => tickets.push(ticket),
                Err(refusal) => return (tickets, Some(refusal)),
            }
        }
        (tickets, None)
    }

    #[test]
    fn each_resource_has_its_limit() {
        let cases = [
            (Capacities { network: Some(25_500_000), ..ALL }, 25, Resource::Network),
            (Capacities { disk: Some(100_000_000), ..ALL }, 80, Resource::Disk),
            // 0.2 ns a byte: a core carries 5 GB/s; two threads, of which 80 % are given out.
            (Capacities { nanoseconds_per_byte: Some(0.2), threads: 2, ..ALL }, 8000, Resource::Processor),
        ];
        for (capacities, streams, resource) in cases {
            let admission = Arc::new(Admission::new(capacities));
            let (mut tickets, refusal) = fill(&admission, NOW);
            assert_eq!((tickets.len(), refusal.unwrap().resource), (streams, resource));
            tickets.pop();
            assert_eq!(fill(&admission, NOW).0.len(), 1);
        }
    }

    #[test]
    fn all_is_given_back() {
        let admission = Arc::new(Admission::new(Capacities { network: Some(5_000_000), ..ALL }));
        for _ in 0..3 {
            assert_eq!(fill(&admission, NOW).0.len(), 5);
            assert_eq!((admission.state().0, admission.state().1), (0, 0));
        }
    }

    #[test]
    fn the_cost_of_a_byte_is_learned() {
        let admission = Arc::new(Admission::new(Capacities { nanoseconds_per_byte: Some(0.2), ..ALL }));
        // The thread's time for 100 MB is ten times what was calibrated.
        let report = Report { time: SECOND, sent: 100_000_000, ran: SECOND / 5, ..Report::default() };
        for _ in 0..30 {
            admission.report(&report, NOW);
        }
        let (tickets, refusal) = fill(&admission, NOW);
        assert_eq!(refusal.unwrap().resource, Resource::Processor);
        assert!((395..=405).contains(&tickets.len()), "{}", tickets.len());
        // Others take half of the time that it wants.
        for _ in 0..30 {
            admission.report(&Report { waited: SECOND / 5, ..report }, NOW);
        }
        drop(tickets);
        assert!((195..=205).contains(&fill(&admission, NOW).0.len()));
    }

    #[test]
    fn a_report_about_little_counts_little() {
        let capacities = Capacities { nanoseconds_per_byte: Some(0.2), ..ALL };
        let admission = Arc::new(Admission::new(capacities));
        admission.report(&Report { time: SECOND, sent: 1000, ran: SECOND / 100, ..Report::default() }, NOW);
        assert_eq!(admission.state().2, capacities);
    }

    #[test]
    fn nobody_is_admitted_while_chunks_are_late() {
        let admission = Arc::new(Admission::new(ALL));
        let late = Report { time: SECOND, late: 1, ..Report::default() };
        let slow = Report { time: SECOND, slow_reads: 1, ..late };
        for (report, resource) in [(late, Resource::Processor), (slow, Resource::Disk)] {
            admission.report(&report, NOW);
            let refusal = admission.admit(1000, PERIOD, NOW + 2 * SECOND).unwrap_err();
            assert_eq!(refusal.resource, resource);
            admission.report(&Report { time: SECOND, ..Report::default() }, NOW + 3 * SECOND);
            assert!(admission.admit(1000, PERIOD, NOW + 3 * SECOND).is_ok());
        }
    }

    #[test]
    fn a_disk_that_delivers_more_is_believed() {
        let admission = Arc::new(Admission::new(Capacities { disk: Some(10_000_000), threads: 2, ..ALL }));
        for thread in 0..2 {
            let report = Report { thread, time: SECOND, read: 50_000_000, ..Report::default() };
            admission.report(&report, NOW);
        }
        assert_eq!(admission.state().2.disk, Some(100_000_000));
    }

    #[test]
    fn a_refusal_says_what_there_is() {
        let admission = Arc::new(Admission::new(Capacities { disk: Some(2_000_000), ..ALL }));
        let _one = admission.admit(1_000_000, PERIOD, NOW).unwrap();
        let refusal = admission.admit(1_000_000, PERIOD, NOW).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "not enough disk bandwidth for another stream: 8.0 Mbit/s are given out, and 80 % of 16.0 Mbit/s can be"
        );
    }
}
