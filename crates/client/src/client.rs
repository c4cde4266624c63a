//! A connection to a device server, for all threads of a program.

use crate::calls::Calls;
use crate::error::Error;
use crate::options::{Interrupt, Options, Reconnect};
use crate::queue::Queue;
use crate::session::{Grant, Origin, Session, lock, unexpected};
use crate::volume::Volume;
use bywash_link::socket_pair;
use bywash_protocol::{Access, Answer, Ask, report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two attempts to connect again.
const PAUSE: Duration = Duration::from_millis(10);

/// A program's connection to a device server. Clones are the same client; threads may share it.
///
/// Every call ends within the limit of the [`Options`], and where the client connects again within that and the time
/// given for it.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    socket: PathBuf,
    pub(crate) options: Options,
    attached: Mutex<Arc<Attached>>,
    /// Of what is in `attached`, to be looked at without the lock.
    generation: AtomicU64,
}

/// One connection, and the channel of synchronous calls once there is one.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) session: Arc<Session>,
    calls: Mutex<Option<Arc<Calls>>>,
}

impl Client {
    /// Connects to the server that listens at `socket`.
    ///
    /// # Errors
    /// What the kernel says, or why the server does not let this program in.
    pub fn connect(socket: impl Into<PathBuf>, options: Options) -> Result<Client, Error> {
        let socket = socket.into();
        let end = Instant::now() + options.limit;
        let session = Arc::new(Session::connect(&socket, &options, 0, end)?);
        let attached = Mutex::new(Arc::new(Attached { session, calls: Mutex::default() }));
        Ok(Client(Arc::new(Shared { socket, options, attached, generation: AtomicU64::new(0) })))
    }

    /// Opens a volume by its name.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none, or it may not be opened so; [`Error::NotMapped`] if it must be mapped and
    /// cannot be; what became of the server.
    pub fn open(&self, volume: &str, access: Access) -> Result<Volume, Error> {
        Volume::open(self, Origin::Name(volume.into(), access))
    }

    /// Opens a regular file or a block device that the program has opened: what may be done with it is what the
    /// descriptor's access mode is.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn open_descriptor(&self, file: impl Into<OwnedFd>) -> Result<Volume, Error> {
        Volume::open(self, Origin::Descriptor(file.into()))
    }

    /// A queue of requests over a connection of its own, with the same options.
    ///
    /// # Errors
    /// As [`Queue::connect`].
    pub fn queue(&self) -> Result<Queue, Error> {
        Queue::connect(self.0.socket.clone(), self.0.options.clone())
    }

    /// The client's number, as reports name it.
    pub fn number(&self) -> u64 {
        self.0.attached().session.client
    }

    /// How often the client has connected again.
    pub fn reconnects(&self) -> u64 {
        self.0.generation()
    }

    /// Bytes of the arena that are not used again, since a device that did not answer in time may still write there.
    pub fn lost_bytes(&self) -> usize {
        let calls = lock(&self.0.attached().calls).clone();
        calls.map_or(0, |calls| calls.lost_bytes())
    }

    /// The volumes that this client may see.
    ///
    /// # Errors
    /// What became of the server.
    pub fn volumes(&self) -> Result<Vec<report::Volume>, Error> {
        self.report(&Ask::Volumes {}, "cannot list the volumes")
    }

    /// What the server does.
    ///
    /// # Errors
    /// What became of the server.
    pub fn status(&self) -> Result<report::Status, Error> {
        self.report(&Ask::Status {}, "cannot learn what the server does")
    }

    fn report<T: serde::de::DeserializeOwned>(&self, ask: &Ask, what: &str) -> Result<T, Error> {
        self.0.again(|attached, end| attached.session.ask_report(ask, end, || what.into()))
    }

    /// Asks the server, as its administrator, to do something that may not be done twice: it is not asked again.
    pub(crate) fn administer(&self, ask: &Ask, what: impl Fn() -> String) -> Result<(), Error> {
        let end = Instant::now() + self.0.options.limit;
        let attached = self.0.attached();
        let attached = match attached.session.look_now() {
            Ok(()) => attached,
            // It was gone before anything was asked.
            Err(gone) => self.0.reconnect(&attached, gone)?,
        };
        attached.session.ask_done(ask, end, what)
    }
}

impl Shared {
    /// The connection that there is now.
    pub(crate) fn attached(&self) -> Arc<Attached> {
        lock(&self.attached).clone()
    }

    /// Which connection there is now.
    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Calls `attempt` with a connection and the time until when it must be done; if the server goes meanwhile, connects
    /// again and calls it again, should the options say so.
    pub(crate) fn again<R>(
        &self,
        mut attempt: impl FnMut(&Arc<Attached>, Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let limit = self.options.limit;
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

    /// Another connection in place of one that has ended with `why`, if the options say so: one for all who ask.
    fn reconnect(&self, ended: &Arc<Attached>, why: Error) -> Result<Arc<Attached>, Error> {
        let Reconnect::Within(within) = self.options.reconnect else { return Err(why) };
        let mut current = lock(&self.attached);
        if !Arc::ptr_eq(&current, ended) {
            return Ok(current.clone());
        }
        let generation = ended.session.generation + 1;
        let session = connect_again(&self.socket, &self.options, generation, within, &why)?;
        let attached = Arc::new(Attached { session: Arc::new(session), calls: Mutex::default() });
        *current = attached.clone();
        self.generation.store(generation, Ordering::Release);
        Ok(attached)
    }
}

/// Connects until that works or the time is over; else the error says what kept it from that.
pub(crate) fn connect_again(
    socket: &std::path::Path,
    options: &Options,
    generation: u64,
    within: Duration,
    why: &Error,
) -> Result<Session, Error> {
    let end = Instant::now() + within;
    loop {
        let limit = end.min(Instant::now() + options.limit);
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

impl Attached {
    /// The channel of synchronous calls, which is made when it is first needed.
    pub(crate) fn calls(&self, options: &Options, end: Instant) -> Result<Arc<Calls>, Error> {
        let mut calls = lock(&self.calls);
        if let Some(calls) = &*calls {
            return Ok(calls.clone());
        }
        let channel = make_channel(&self.session, options, end)?;
        let made = Arc::new(Calls::over(channel, options.limit, options.interrupt.clone()));
        Ok(calls.insert(made).clone())
    }
}

/// Makes the channel of a connection.
pub(crate) fn make_channel(
    session: &Session,
    options: &Options,
    end: Instant,
) -> Result<bywash_channel::Client, Error> {
    const WHAT: &str = "the channel's greeting";
    let link = |error| Error::of_link(error, WHAT, options.limit);
    let left = || end.saturating_duration_since(Instant::now());
    let (here, there) = socket_pair().map_err(link)?;
    let channel = options.channel(session.depth_max, session.arena_bytes_max)?.greeting_limit(left());
    // Both ends wait for each other's hello, and the server shall find this one's when it gets the socket.
    let greeting = thread::Builder::new()
        .name("bywash-greeting".into())
        .spawn(move || bywash_channel::Client::over(here, &channel))
        .map_err(|error| Error::io("start a thread", error))?;
    let limit = left();
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // Or until it is seen that there will be none.
    let heard = poll(&mut [PollFd::new(&there, PollFlags::IN)], Some(&limit));
    let (ask, what) = (Ask::Channel {}, || "cannot make a channel".to_owned());
    let asked = match heard {
        Ok(_) => session.ask(&ask, &[there.as_fd()], end, what),
        Err(error) => Err(Error::io("wait for a greeting", error)),
    };
    // If nobody has taken it, the greeting ends here.
    drop(there);
    let greeted = greeting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(link);
    match (asked, greeted) {
        (Ok((Answer::Done {}, _)), greeted) => greeted,
        // What was wrong with the options says more than that the server has heard nothing.
        (_, Err(error @ Error::Option { .. })) => Err(error),
        (Ok((other, _)), _) => Err(unexpected(&ask, other, what)),
        (Err(error), _) => Err(error),
    }
}

impl Shared {
    /// Opens a grant, over the connection that there is.
    pub(crate) fn open(
        &self,
        attached: &Arc<Attached>,
        origin: &Origin,
        end: Instant,
    ) -> Result<Arc<Grant>, Error> {
        attached.session.open(origin, self.options.choice, end).map(Arc::new)
    }
}
