//! The server: threads that accept connections and serve them.
//!
//! Each thread has a runtime and a listening socket of its own at the same port (SO_REUSEPORT), among which the kernel
//! divides the clients. A connection stays on its thread. All threads share the cache.

use crate::body::Worker;
use crate::cache::Cache;
use crate::connection::Connection;
use crate::counters::{Counters, Totals};
use crate::folder::Folder;
use crate::memory::Memory;
use crate::options::Options;
use crate::response::respond;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// Failure to start the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The folder cannot be opened.
    #[error("{}: {error}", folder.display())]
    Folder {
        /// Path of the folder.
        folder: PathBuf,
        /// Reason that the kernel gives.
        error: io::Error,
    },
    /// There is no memory for the cache.
    #[error("no arena for the cache: {0}")]
    Memory(#[from] bywash_container::Error),
    /// Nobody can listen at the address.
    #[error("{address}: {error}")]
    Listen {
        /// Address that was to be listened at.
        address: SocketAddr,
        /// Reason that the kernel gives.
        error: io::Error,
    },
    /// The process may not have enough descriptors.
    #[error(
        "--connections {connections} needs {needed} descriptors, and this process may have {limit}; raise the limit \
             (ulimit -Hn) or allow fewer connections"
    )]
    Descriptors {
        /// Number of connections that were to be allowed.
        connections: u32,
        /// Number of descriptors that they can take.
        needed: u64,
        /// Number of descriptors that the process may have.
        limit: u64,
    },
    /// No thread can be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    cache: Arc<Cache>,
    counters: Vec<Arc<Counters>>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// State that all threads share.
#[derive(Debug)]
struct Shared {
    options: Options,
    connections: AtomicU32,
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
        allow_descriptors(options.connections)?;
        let folder = Folder::open(&options.folder, options.links)
            .map_err(|error| Error::Folder { folder: options.folder.clone(), error })?;
        let memory = Memory::new(usize::try_from(options.cache).unwrap_or(usize::MAX))?;
        let files_max = options.files as usize;
        let cache = Arc::new(Cache::new(folder, memory, options.part, options.check, files_max));
        let (stop, stopped) = watch::channel(false);
        let mut server = Server {
            address: options.listen,
            cache: cache.clone(),
            counters: Vec::new(),
            stop,
            threads: Vec::new(),
        };
        let shared = Arc::new(Shared { options, connections: AtomicU32::new(0) });
        for number in 0..shared.options.threads {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(BLOCKING_THREADS_MAX)
                .build()
                .map_err(Error::Thread)?;
            let address = server.address;
            let listener = listen(&runtime, address).map_err(|error| Error::Listen { address, error })?;
            server.address = listener.local_addr().map_err(|error| Error::Listen { address, error })?;
            let worker = Arc::new(Worker { cache: cache.clone(), counters: Arc::default() });
            server.counters.push(worker.counters.clone());
            let (shared, stopped) = (shared.clone(), stopped.clone());
            let thread = thread::Builder::new()
                .name(format!("web-{number}"))
                .spawn(move || runtime.block_on(serve(listener, shared, worker, stopped)))
                .map_err(Error::Thread)?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts of all threads since the start.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in &self.counters {
            totals.add(counters);
        }
        totals
    }

    /// Returns the counts of each thread since the start.
    pub fn totals_by_thread(&self) -> Vec<Totals> {
        let total = |counters: &Arc<Counters>| {
            let mut totals = Totals::default();
            totals.add(counters);
            totals
        };
        self.counters.iter().map(total).collect()
    }

    /// Returns the size of the cache's arena, and the part of it that is in containers, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        self.cache.usage()
    }

    /// Accepts no more connections, and waits until the responses that have begun are sent, at most 5 s. Returns the
    /// counts.
    pub fn stop(mut self) -> Totals {
        self.end();
        self.totals()
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end();
        }
    }
}

/// Raises the limit of descriptors to what the connections need: each one a socket and a file.
fn allow_descriptors(connections: u32) -> Result<(), Error> {
    let needed = 2 * u64::from(connections) + OTHER_DESCRIPTORS;
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(maximum.map_or(needed, |maximum| maximum.min(needed))), maximum };
    let is_raised = rustix::process::setrlimit(Resource::Nofile, raised).is_ok();
    match maximum {
        Some(limit) if limit < needed => Err(Error::Descriptors { connections, needed, limit }),
        _ if !is_raised => Err(Error::Descriptors { connections, needed, limit: current.unwrap_or(0) }),
        _ => Ok(()),
    }
}

fn listen(runtime: &Runtime, address: SocketAddr) -> io::Result<TcpListener> {
    let _context = runtime.enter();
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut tasks = tokio::task::JoinSet::new();
    let told = stopped.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    worker.counters.connections.add(1);
                    if shared.connections.fetch_add(1, Ordering::Relaxed) < shared.options.connections {
                        tasks.spawn(connection(socket, shared.clone(), worker.clone(), told.clone()));
                    } else {
                        shared.connections.fetch_sub(1, Ordering::Relaxed);
                        worker.counters.refused.add(1);
                        // It fits into the socket's buffer; if not, there is nothing else to tell.
                        let _ = socket.try_write(REFUSAL);
                    }
                }
                // No descriptors or no memory: connections that end give some back.
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            },
            Some(ended) = tasks.join_next() => drop(ended),
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    drop(listener);
    let all = async { while tasks.join_next().await.is_some() {} };
    // Who is not done by then is disconnected.
    let _ = tokio::time::timeout(STOP_TIMEOUT, all).await;
}

/// Serves one client until the connection ends.
async fn connection(
    socket: TcpStream,
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    mut stopped: watch::Receiver<bool>,
) {
    let _place = Occupied(&shared.connections);
    let options = &shared.options;
    // Without this, the end of a response waits for the acknowledgement of its beginning.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    let io = TokioIo::new(Connection::new(socket, options.stalled));
    let service = service_fn(|request| {
        let worker = worker.clone();
        async move { Ok::<_, Infallible>(respond(&worker, &request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.idle)
        // For requests the limit of a header; for responses, the number of bytes below which the next part is taken.
        .max_buf_size(usize::try_from(options.header).unwrap_or(usize::MAX))
        .serve_connection(io, service);
    tokio::pin!(connection);
    // An error is the client's, or is counted as a broken response.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// One of the connections that are allowed, which is given back when it is dropped.
struct Occupied<'a>(&'a AtomicU32);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Response to a client that is one too many.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
/// Greatest number of clients that wait to be accepted.
const BACKLOG: u32 = 4096;
/// Greatest number of files that wait for a device at a time, for each thread.
const BLOCKING_THREADS_MAX: usize = 32;
/// Number of descriptors besides those of connections: of the arena, of runtimes, of standard streams.
const OTHER_DESCRIPTORS: u64 = 1024;
/// Interval between attempts to accept while there are no descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);
/// Time for which the responses that have begun may take when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
