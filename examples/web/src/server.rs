//! The server: threads that share the cache.

use crate::body::{Body, Worker};
use crate::cache::Cache;
use crate::counters::{Counters, Totals};
use crate::options::Options;
use crate::response::respond;
use bywash_container::HugePages;
use bywash_example_http::{Error, Handler, Memory, Service, Threads};
use hyper::body::Incoming;
use hyper::{Request, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    threads: Threads,
    cache: Arc<Cache>,
    counters: Vec<Arc<Counters>>,
}

impl Server {
    /// Starts the threads, which listen when this function returns.
    ///
    /// # Errors
    /// A variant of [`Error`] for each thing that a server needs and that cannot be had.
    pub fn start(options: Options) -> Result<Server, Error> {
        if let Some(fault) = options.fault() {
            return Err(Error::Options(fault));
        }
        let folder = Threads::folder(&options.listening)?;
        let memory = Memory::new(usize::try_from(options.cache).unwrap_or(usize::MAX), HugePages::No)?;
        let (files_max, open_max) = (options.files as usize, options.open as usize);
        let cache = Cache::new(folder, memory, options.part, options.check, files_max, open_max);
        let (cache, mut counters) = (Arc::new(cache), Vec::new());
        let threads = Threads::start(options.listening, STOP_TIMEOUT, options.open, |_| {
            let worker =
                Arc::new(Worker { cache: cache.clone(), counters: Arc::default(), check: options.check });
            counters.push(worker.counters.clone());
            Ok(worker)
        })?;
        Ok(Server { threads, cache, counters })
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.threads.address()
    }

    /// Returns the counts of all threads since the start.
    pub fn totals(&self) -> Totals {
        totals(&self.counters)
    }

    /// Returns the counts of each thread since the start.
    pub fn totals_by_thread(&self) -> Vec<Totals> {
        self.counters.iter().map(|counters| totals(std::slice::from_ref(counters))).collect()
    }

    /// Returns the size of the cache's arena, and the part of it that is in containers, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        self.cache.usage()
    }

    /// Accepts no more connections, and waits until the responses that have begun are sent, at most 5 s. Returns the
    /// counts.
    pub fn stop(self) -> Totals {
        self.threads.stop();
        totals(&self.counters)
    }
}

fn totals(counters: &[Arc<Counters>]) -> Totals {
    let mut totals = Totals::default();
    for counters in counters {
        totals.add(counters);
    }
    totals
}

impl Handler for Worker {
    type Body = Body;

    async fn respond(self: &Arc<Worker>, request: &Request<Incoming>) -> Response<Body> {
        respond(self, request).await
    }

    fn connected(&self) {
        self.counters.connections.add(1);
    }

    fn refused(&self) {
        self.counters.refused.add(1);
    }

    async fn attend(self: Arc<Worker>) {
        loop {
            tokio::time::sleep(self.check.max(CLOSING)).await;
            self.cache.close_old();
        }
    }
}

impl Service for Server {
    fn address(&self) -> SocketAddr {
        Server::address(self)
    }

    fn state(&self) -> String {
        let (size, used) = self.memory();
        format!("{}, memory {used} of {size}", self.totals())
    }

    fn stop(self) -> String {
        Server::stop(self).to_string()
    }
}

/// Least interval between looks for files that are kept open and not used.
const CLOSING: Duration = Duration::from_secs(1);
/// Time for which the responses that have begun may take when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
