//! A connection to a device server that all threads of a program share, and its replacement after the server
//! died.
//!
//! Invariant: a connection that has ended is replaced once, however many threads find it ended. Called by
//! programs, and by `volume` for each call that needs a connection.

use crate::calls::Calls;
use crate::direct::DriverSettings;
use crate::error::Error;
use crate::options::{Interrupt, Options, Reconnect};
use crate::queue::Queue;
use crate::session::{Grant, Session, VolumeSource, lock, unexpected};
use crate::volume::Volume;
use bywash_link::socket_pair;
use bywash_protocol::{Access, ControlReply, ControlRequest, report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two attempts to connect again.
const PAUSE: Duration = Duration::from_millis(10);

/// A program's connection to a device server. Clones are the same client, and threads may share it.
///
/// Every call ends within the timeout of the [`Options`]. Where the client connects again, the time allowed
/// for that ([`Reconnect::Within`]) is added.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    socket: PathBuf,
    pub(crate) options: Options,
    attached: Mutex<Arc<Connection>>,
    /// Generation of the connection in `attached`, readable without its lock.
    generation: AtomicU64,
}

/// One connection, and the channel of its synchronous calls once one of them has needed it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: Arc<Session>,
    calls: Mutex<Option<Arc<Calls>>>,
}

impl Client {
    /// Connects to the server that listens at `socket`.
    ///
    /// # Errors
    /// [`Error::Option`] if the client's name is longer than 64 bytes; [`Error::Io`] if the socket cannot be
    /// connected; [`Error::Refused`] if the server does not admit this program; [`Error::TimedOut`] if the
    /// server does not reply in time; [`Error::Gone`] or [`Error::ProtocolViolation`] if it closes the
    /// connection or breaks the protocol.
    pub fn connect(socket: impl Into<PathBuf>, options: Options) -> Result<Client, Error> {
        let socket = socket.into();
        let end = Instant::now() + options.timeout;
        let session = Arc::new(Session::connect(&socket, &options, 0, end)?);
        let attached = Mutex::new(Arc::new(Connection { session, calls: Mutex::default() }));
        Ok(Client(Arc::new(Shared { socket, options, attached, generation: AtomicU64::new(0) })))
    }

    /// Opens a volume by its name.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such volume or the program has no right to open it so;
    /// [`Error::NotMapped`] if [`crate::PathChoice::Mapped`] is set and the volume cannot be mapped; and the
    /// errors of [`Client::status`].
    pub fn open(&self, volume: &str, access: Access) -> Result<Volume, Error> {
        Volume::open(self, VolumeSource::Name(volume.into(), access))
    }

    /// Opens a volume over a regular file or a block device that the program has opened. The access mode of
    /// the descriptor decides what the volume may be used for.
    ///
    /// # Errors
    /// Same as [`Client::open`].
    pub fn open_descriptor(&self, file: impl Into<OwnedFd>) -> Result<Volume, Error> {
        Volume::open(self, VolumeSource::Descriptor(file.into()))
    }

    /// Makes a queue of requests, over a connection of its own that has the same options.
    ///
    /// # Errors
    /// Same as [`Queue::connect`].
    pub fn queue(&self) -> Result<Queue, Error> {
        Queue::connect(self.0.socket.clone(), self.0.options.clone())
    }

    /// Returns the number by which the server's reports name this client.
    pub fn number(&self) -> u64 {
        self.0.attached().session.client
    }

    /// Returns the number of times that the client has connected again.
    pub fn reconnects(&self) -> u64 {
        self.0.generation()
    }

    /// Returns the bytes of the current arena that are never reused, because a device that missed its timeout
    /// may still write to them.
    pub fn lost_bytes(&self) -> usize {
        let calls = lock(&self.0.attached().calls).clone();
        calls.map_or(0, |calls| calls.lost_bytes())
    }

    /// Lists the volumes that this client may see.
    ///
    /// # Errors
    /// Same as [`Client::status`].
    pub fn volumes(&self) -> Result<Vec<report::Volume>, Error> {
        self.report(&ControlRequest::Volumes {}, "cannot list the volumes")
    }

    /// Reports the state of the server.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the server does not reply in time; [`Error::Gone`] or
    /// [`Error::ProtocolViolation`] if the connection ends and is not replaced; [`Error::Refused`] if the
    /// server refuses; [`Error::Forked`] in a forked child; [`Error::Interrupted`] if the program ends the
    /// attempts to connect again; [`Error::Io`] if a system call fails.
    pub fn status(&self) -> Result<report::Status, Error> {
        self.report(&ControlRequest::Status {}, "cannot learn what the server does")
    }

    fn report<T: serde::de::DeserializeOwned>(&self, ask: &ControlRequest, what: &str) -> Result<T, Error> {
        self.0.with_reconnect(|attached, end| attached.session.ask_report(ask, end, || what.into()))
    }

    /// Sends an administrator's operation to the server. The operation must not be carried out twice, so it
    /// is not repeated over another connection.
    pub(crate) fn administer(&self, ask: &ControlRequest, what: impl Fn() -> String) -> Result<(), Error> {
        let end = Instant::now() + self.0.options.timeout;
        let attached = self.0.attached();
        let attached = match attached.session.check_server_now() {
            Ok(()) => attached,
            // The server had closed the connection before the operation was sent, so sending it now is no
            // repetition.
            Err(gone) => self.0.reconnect(&attached, gone)?,
        };
        attached.session.ask_done(ask, end, what)
    }
}

impl Shared {
    /// Returns the current connection.
    pub(crate) fn attached(&self) -> Arc<Connection> {
        lock(&self.attached).clone()
    }

    /// Returns the generation of the current connection.
    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Calls `attempt` with a connection and a deadline. If the connection ends meanwhile and the options
    /// allow it, connects again and repeats the attempt.
    pub(crate) fn with_reconnect<R>(
        &self,
        mut attempt: impl FnMut(&Arc<Connection>, Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let limit = self.options.timeout;
        let given = match self.options.reconnect {
            Reconnect::No => limit,
            Reconnect::Within(within) => limit + within,
        };
        let last = Instant::now() + given;
        let mut attached = self.attached();
        loop {
            let now = Instant::now();
            match attempt(&attached, last.min(now + limit)) {
                Err(error) if error.is_end() => {
                    if now >= last {
                        return Err(error);
                    }
                    attached = self.reconnect(&attached, error)?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns a connection in place of one that has ended with `why`, if the options allow that. All callers
    /// that find the same connection ended share one new connection.
    fn reconnect(&self, ended: &Arc<Connection>, why: Error) -> Result<Arc<Connection>, Error> {
        let Reconnect::Within(within) = self.options.reconnect else { return Err(why) };
        let mut current = lock(&self.attached);
        if !Arc::ptr_eq(&current, ended) {
            return Ok(current.clone());
        }
        let generation = ended.session.generation + 1;
        let session = connect_again(&self.socket, &self.options, generation, within, &why)?;
        let attached = Arc::new(Connection { session: Arc::new(session), calls: Mutex::default() });
        *current = attached.clone();
        self.generation.store(generation, Ordering::Release);
        Ok(attached)
    }
}

/// Connects, again and again until an attempt succeeds or the time `within` is over. The error then tells
/// both `why` the last connection ended and why the last attempt failed.
pub(crate) fn connect_again(
    socket: &std::path::Path,
    options: &Options,
    generation: u64,
    within: Duration,
    why: &Error,
) -> Result<Session, Error> {
    let end = Instant::now() + within;
    loop {
        let limit = end.min(Instant::now() + options.timeout);
        match Session::connect(socket, options, generation, limit) {
            Ok(session) => return Ok(session),
            Err(error) if Instant::now() >= end => {
                let how = format!("{why}, and for {within:?} it could not be connected to again: {error}");
                return Err(Error::Gone { how });
            }
            Err(_) if options.interrupt.as_ref().is_some_and(Interrupt::ends_it) => {
                return Err(Error::Interrupted);
            }
            Err(_) => thread::sleep(PAUSE.min(end.saturating_duration_since(Instant::now()))),
        }
    }
}

impl Connection {
    /// Returns the channel of synchronous calls, and makes it when it is first needed.
    pub(crate) fn calls(&self, options: &Options, end: Instant) -> Result<Arc<Calls>, Error> {
        let mut calls = lock(&self.calls);
        if let Some(calls) = &*calls {
            return Ok(calls.clone());
        }
        let channel = make_channel(&self.session, options, end)?;
        let made = Arc::new(Calls::over(channel, options.timeout, options.interrupt.clone()));
        Ok(calls.insert(made).clone())
    }
}

/// Makes the channel of a connection: performs its handshake over a socket pair whose other end the server
/// receives.
pub(crate) fn make_channel(
    session: &Session,
    options: &Options,
    end: Instant,
) -> Result<bywash_channel::Client, Error> {
    const WHAT: &str = "the channel's greeting";
    let link = |error| Error::from_link(error, WHAT, options.timeout);
    let left = || end.saturating_duration_since(Instant::now());
    let (here, there) = socket_pair().map_err(link)?;
    let channel = options.channel(session.depth_max, session.arena_bytes_max)?.handshake_timeout(left());
    // Each end waits for the other's hello message. This end's message must have been sent before the server
    // receives the socket, so another thread performs the handshake.
    let greeting = thread::Builder::new()
        .name("bywash-greeting".into())
        .spawn(move || bywash_channel::Client::over(here, &channel))
        .map_err(|error| Error::io("start a thread", error))?;
    let limit = left();
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // Waits for this end's hello message, or for the end of the socket if the handshake has failed.
    let heard = poll(&mut [PollFd::new(&there, PollFlags::IN)], Some(&limit));
    let (ask, what) = (ControlRequest::SetUpChannel {}, || "cannot make a channel".to_owned());
    let asked = match heard {
        Ok(_) => session.ask(&ask, &[there.as_fd()], end, what),
        Err(error) => Err(Error::io("wait for a greeting", error)),
    };
    // If the server has not taken this end of the pair, the handshake fails now instead of waiting for its
    // timeout.
    drop(there);
    let greeted = greeting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(link);
    match (asked, greeted) {
        (Ok((ControlReply::Done {}, _)), greeted) => greeted,
        // An error in the options tells more than the server's complaint that it received no hello message.
        (_, Err(error @ Error::Option { .. })) => Err(error),
        (Ok((other, _)), _) => Err(unexpected(&ask, other, what)),
        (Err(error), _) => Err(error),
    }
}

impl Shared {
    /// Opens a grant over the connection `attached`.
    pub(crate) fn open(
        &self,
        attached: &Arc<Connection>,
        origin: &VolumeSource,
        end: Instant,
    ) -> Result<Arc<Grant>, Error> {
        // Threads take turns with hardware.
        let driver = DriverSettings { depth: 1, timeout: self.options.timeout };
        attached.session.open(origin, self.options.choice, driver, end).map(Arc::new)
    }
}
