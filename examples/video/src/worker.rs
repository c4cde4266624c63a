//! One thread of the server: its ring, its counts, and what it shares with the others.

use crate::admission::{Admission, Report};
use crate::counters::Counters;
use crate::delays::Delays;
use crate::options::Options;
use crate::rates::Rates;
use crate::reads::Reads;
use bywash_example_http::{Folder, Memory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// State that all threads share.
#[derive(Debug)]
pub struct Shared {
    /// Options of the server.
    pub options: Options,
    /// Folder whose files are served.
    pub folder: Folder,
    /// Rates of files.
    pub rates: Rates,
    /// Arena of all streams' containers.
    pub memory: Memory,
    /// Rates that are given out.
    pub admission: Arc<Admission>,
    /// Time that all times of [`Admission`] are counted from.
    pub started: Instant,
}

/// Counts of one thread.
#[derive(Debug, Default)]
pub struct Counted {
    /// Counts.
    pub counters: Counters,
    /// Delays of its chunks.
    pub delays: Delays,
}

/// One thread of the server.
#[derive(Debug)]
pub struct Worker {
    /// State that all threads share.
    pub shared: Arc<Shared>,
    /// Engine of the thread's reads.
    pub reads: Arc<Reads>,
    /// Counts of the thread.
    pub counted: Arc<Counted>,
    number: u16,
    read: AtomicU64,
    slow_reads: AtomicU64,
}

impl Worker {
    /// Makes the state of thread `number`, in the context of its runtime.
    pub fn new(shared: Arc<Shared>, number: u16) -> Worker {
        let reads = Arc::new(Reads::new());
        Worker { shared, reads, counted: Arc::default(), number, read: 0.into(), slow_reads: 0.into() }
    }

    /// Returns the thread's counts.
    pub fn counters(&self) -> &Counters {
        &self.counted.counters
    }

    /// Notes that a chunk was read; `is_slow` if that took more than half of a period.
    pub fn note_read(&self, bytes: u64, is_slow: bool) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
        self.slow_reads.fetch_add(u64::from(is_slow), Ordering::Relaxed);
    }

    /// Notes that a chunk was handed over, so long after its time.
    pub fn note_sent(&self, bytes: u64, delay: Duration, is_late: bool) {
        self.counted.counters.chunks.add(1);
        self.counted.counters.bytes.add(bytes);
        self.counted.counters.late.add(u64::from(is_late));
        self.counted.delays.add(delay);
    }

    /// Reports once a second what the thread did.
    pub async fn report(&self) {
        let mut ticks = tokio::time::interval(REPORTS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut at, mut times) = (Instant::now(), thread_times());
        let mut counts = (0, 0);
        loop {
            ticks.tick().await;
            let (now, new) = (Instant::now(), thread_times());
            let next = (self.counted.counters.bytes.get(), self.counted.counters.late.get());
            let report = Report {
                thread: self.number,
                time: now - at,
                sent: next.0 - counts.0,
                read: self.read.swap(0, Ordering::Relaxed),
                ran: new.0.saturating_sub(times.0),
                waited: new.1.saturating_sub(times.1),
                late: next.1 - counts.1,
                slow_reads: self.slow_reads.swap(0, Ordering::Relaxed),
            };
            self.shared.admission.report(&report, self.shared.started.elapsed());
            (at, times, counts) = (now, new, next);
        }
    }
}

/// Returns the time for which this thread ran, and the time for which it could have run and waited for a processor; zeros
/// if the kernel does not tell them.
pub fn thread_times() -> (Duration, Duration) {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut numbers = text.split(' ').map(|number| number.trim().parse().unwrap_or(0));
    let mut next = || Duration::from_nanos(numbers.next().unwrap_or(0));
    (next(), next())
}

/// Interval between the reports of a thread.
const REPORTS: Duration = Duration::from_secs(1);
