//! The server: threads with a ring each, and what they share.

use crate::admission::{Admission, Capacities};
use crate::calibration::calibrate;
use crate::counters::Totals;
use crate::delays::DelayTotals;
use crate::options::Options;
use crate::rates::{Rates, told};
use crate::response::respond;
use crate::stream::Body;
use crate::worker::{Counted, Shared, Worker};
use bywash_container::HugePages;
use bywash_example_http::{Error, Handler, Memory, Service, Threads};
use hyper::body::Incoming;
use hyper::{Request, Response};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    threads: Threads,
    shared: Arc<Shared>,
    workers: Vec<Arc<Counted>>,
    /// Engine of the reads, in words.
    engine: String,
}

impl Server {
    /// Measures the disk and the processor, and starts the threads, which listen when this function returns.
    ///
    /// # Errors
    /// A variant of [`Error`] for each thing that a server needs and that cannot be had.
    pub fn start(options: Options) -> Result<Server, Error> {
        if let Some(fault) = options.fault() {
            return Err(Error::Options(fault));
        }
        let folder = Threads::folder(&options.listening)?;
        let rates = Rates::new(options.rates.as_deref(), options.rate, options.rate_max);
        let rates = rates.map_err(Error::Options)?;
        let bytes = usize::try_from(options.memory).unwrap_or(usize::MAX);
        let memory = Memory::new(bytes, HugePages::Collapse)?;
        let measured = calibrate(&options, &memory).map_err(Error::Thread)?;
        let capacities = Capacities {
            disk: measured.disk,
            network: options.network,
            nanoseconds_per_byte: measured.nanoseconds_per_byte,
            threads: options.listening.threads,
            share: f64::from(options.share) / 100.0,
        };
        let admission = Arc::new(Admission::new(capacities));
        let listening = options.listening.clone();
        let shared = Arc::new(Shared { options, folder, rates, memory, admission, started: Instant::now() });
        let (mut workers, mut engine) = (Vec::new(), String::new());
        let threads = Threads::start(listening, Duration::ZERO, 0, |number| {
            let worker = Arc::new(Worker::new(shared.clone(), number));
            workers.push(worker.counted.clone());
            engine = worker.reads.description();
            Ok(worker)
        })?;
        Ok(Server { threads, shared, workers, engine })
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.threads.address()
    }

    /// Returns the counts of all threads since the start.
    pub fn totals(&self) -> Totals {
        totals(&self.workers)
    }

    /// Returns the delays of all chunks since the start.
    pub fn delays(&self) -> DelayTotals {
        delays(&self.workers)
    }

    /// Returns the size of the arena, and the part of it that is in containers, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        self.shared.memory.usage()
    }

    /// Returns the number of streams, the sum of their rates in bytes per second, and the capacities as they are known now.
    pub fn admitted(&self) -> (u32, u64, Capacities) {
        self.shared.admission.state()
    }

    /// Stops the server; streams are broken off. Returns the counts.
    pub fn stop(self) -> (Totals, DelayTotals) {
        self.threads.stop();
        (totals(&self.workers), delays(&self.workers))
    }

    fn capacities(&self) -> String {
        let (streams, given, capacities) = self.admitted();
        let (size, used) = self.memory();
        let mut text = format!("streams now {streams}, {} given out, memory {used} of {size}", told(given));
        let or_unknown = |known: Option<String>| known.unwrap_or_else(|| "unknown".to_owned());
        let _ = write!(text, ", disk {}", or_unknown(capacities.disk.map(told)));
        let cost = capacities.nanoseconds_per_byte.map(|cost| format!("{cost:.3} ns/byte"));
        let _ = write!(text, ", processor {}, reads by {}", or_unknown(cost), self.engine);
        text
    }
}

fn totals(workers: &[Arc<Counted>]) -> Totals {
    let mut totals = Totals::default();
    workers.iter().for_each(|worker| totals.add(&worker.counters));
    totals
}

fn delays(workers: &[Arc<Counted>]) -> DelayTotals {
    let mut totals = DelayTotals::default();
    workers.iter().for_each(|worker| totals.add(&worker.delays));
    totals
}

impl Service for Server {
    fn address(&self) -> SocketAddr {
        Server::address(self)
    }

    fn state(&self) -> String {
        format!("{}, {}; {}", self.totals(), self.delays(), self.capacities())
    }

    fn stop(self) -> String {
        let (totals, delays) = Server::stop(self);
        format!("{totals}, {delays}")
    }
}

impl Handler for Worker {
    type Body = Body;

    async fn respond(self: &Arc<Worker>, request: &Request<Incoming>) -> Response<Body> {
        respond(self, request).await
    }

    fn connected(&self) {
        self.counters().connections.add(1);
    }

    fn refused(&self) {
        self.counters().refused.add(1);
    }

    async fn attend(self: Arc<Worker>) {
        tokio::join!(self.reads.attend(), self.report());
    }
}
