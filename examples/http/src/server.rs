//! The server: threads that accept connections and serve them.
//!
//! Each thread has a runtime and a listening socket of its own at the same port (SO_REUSEPORT), among which the kernel
//! divides the clients. A connection stays on its thread.

use crate::connection::Connection;
use crate::folder::Folder;
use crate::listening::Listening;
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
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
    /// There is no memory for the contents of responses.
    #[error("no arena for the contents of files: {0}")]
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

/// One thread's part of a server: from requests to responses, and counts.
pub trait Handler: Send + Sync + 'static {
    /// Contents of a response.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    /// Returns the response to a request.
    fn respond(
        self: &Arc<Self>,
        request: &Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Notes that a connection was accepted.
    fn connected(&self);

    /// Notes that a connection was refused, since there are too many.
    fn refused(&self);

    /// Does what the thread has to do besides its connections, as long as it runs.
    fn attend(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Threads that accept connections and serve them. Dropping them stops them.
#[derive(Debug)]
pub struct Threads {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// State that all threads share.
#[derive(Debug)]
struct Shared {
    options: Listening,
    /// Time for which responses that have begun are sent on when the server stops.
    stop_timeout: Duration,
    connections: AtomicU32,
}

impl Threads {
    /// Opens the folder of a server.
    ///
    /// # Errors
    /// [`Error::Folder`] if it cannot be opened.
    pub fn folder(options: &Listening) -> Result<Folder, Error> {
        Folder::open(&options.folder, options.links)
            .map_err(|error| Error::Folder { folder: options.folder.clone(), error })
    }

    /// Starts the threads, which listen when this function returns. `handler` makes the handler of each; it is called with
    /// the thread's number in the context of the thread's runtime. When the server stops, responses that have begun are
    /// sent on for `stop_timeout`. All handlers together keep at most `files` files open besides one for each connection.
    ///
    /// # Errors
    /// A variant of [`Error`] for each thing that threads need and that cannot be had, or the error of `handler`.
    pub fn start<H: Handler>(
        options: Listening,
        stop_timeout: Duration,
        files: u32,
        mut handler: impl FnMut(u16) -> Result<Arc<H>, Error>,
    ) -> Result<Threads, Error> {
        allow_descriptors(options.connections, files)?;
        let (stop, stopped) = watch::channel(false);
        let mut threads = Threads { address: options.listen, stop, threads: Vec::new() };
        let shared = Arc::new(Shared { options, stop_timeout, connections: AtomicU32::new(0) });
        for number in 0..shared.options.threads {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(BLOCKING_THREADS_MAX)
                .build()
                .map_err(Error::Thread)?;
            let address = threads.address;
            let listener = listen(&runtime, address).map_err(|error| Error::Listen { address, error })?;
            threads.address = listener.local_addr().map_err(|error| Error::Listen { address, error })?;
            let handler = {
                let _context = runtime.enter();
                handler(number)?
            };
            let (shared, stopped) = (shared.clone(), stopped.clone());
            let thread = thread::Builder::new()
                .name(format!("http-{number}"))
                .spawn(move || runtime.block_on(serve(listener, shared, handler, stopped)))
                .map_err(Error::Thread)?;
            threads.threads.push(thread);
        }
        Ok(threads)
    }

    /// Returns the address at which the threads listen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more connections, and waits until the responses that have begun are sent, at most for the time that was
    /// given at the start.
    pub fn stop(mut self) {
        self.end();
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

impl Drop for Threads {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end();
        }
    }
}

/// Raises the limit of descriptors to what the connections need, each one a socket and a file, and `files` more.
fn allow_descriptors(connections: u32, files: u32) -> Result<(), Error> {
    let needed = 2 * u64::from(connections) + u64::from(files) + OTHER_DESCRIPTORS;
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

async fn serve<H: Handler>(
    listener: TcpListener,
    shared: Arc<Shared>,
    handler: Arc<H>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut tasks = tokio::task::JoinSet::new();
    let mut attending = tokio::task::JoinSet::new();
    attending.spawn(handler.clone().attend());
    let told = stopped.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    handler.connected();
                    if shared.connections.fetch_add(1, Ordering::Relaxed) < shared.options.connections {
                        tasks.spawn(connection(socket, shared.clone(), handler.clone(), told.clone()));
                    } else {
                        shared.connections.fetch_sub(1, Ordering::Relaxed);
                        handler.refused();
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
    let _ = tokio::time::timeout(shared.stop_timeout, all).await;
}

/// Serves one client until the connection ends.
async fn connection<H: Handler>(
    socket: TcpStream,
    shared: Arc<Shared>,
    handler: Arc<H>,
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
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler.respond(&request).await) }
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
