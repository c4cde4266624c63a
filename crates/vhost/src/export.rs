//! A disk that is served at a socket, by a thread of its own, to one frontend after another.
//!
//! ```text
//!            ┌──────────────────────────── the thread ───────────────────────────────┐
//!   listen ──► accept ──► messages, kicks, what is done ──► gone ──► all done ──► accept
//! ```
//!
//! Invariant: the thread sleeps in poll(2) while there is nothing to do, and nowhere else, but for a frontend that has
//! sent a part of a message. A frontend that is gone, or that was cut off, leaves nothing under way behind.
//! Called by whoever serves disks.

use crate::disk::{Disk, Face};
use crate::error::Error;
use crate::layout::{self, NAME_BYTES};
use crate::medium::Medium;
use crate::ring::Ring;
use crate::stats::{Counters, Stats};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use vhost::vhost_user::{BackendReqHandler, Error as Spoken};

/// Queues that a disk can have.
pub const QUEUES_MAX: u16 = 16;
/// How long a thread is waited for that was told to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How long nobody is accepted after that could not be done, for want of descriptors, say.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How a disk is served.
#[derive(Clone, Debug)]
pub struct Options {
    queues: u16,
    name: String,
    memory_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { queues: 1, name: "bywash".into(), memory_bytes_max: 64 << 30 }
    }
}

impl Options {
    /// One queue, and guests of up to 64 GiB.
    pub fn new() -> Options {
        Options::default()
    }

    /// Most queues that a guest can use, up to [`QUEUES_MAX`]. They are served by one thread.
    pub fn queues(mut self, queues: u16) -> Options {
        self.queues = queues;
        self
    }

    /// What the guest is told that the disk is called: up to 20 bytes, of ASCII.
    pub fn name(mut self, name: impl Into<String>) -> Options {
        self.name = name.into();
        self
    }

    /// Most bytes of a guest's memory, which take up address space here.
    pub fn memory_bytes_max(mut self, bytes: u64) -> Options {
        self.memory_bytes_max = bytes;
        self
    }

    fn check(self) -> Result<Face, Error> {
        let Options { queues, name, memory_bytes_max } = self;
        if queues == 0 || queues > QUEUES_MAX {
            let allowed = format!("1 to {QUEUES_MAX}");
            return Err(Error::Option { option: "the number of queues", value: queues.to_string(), allowed });
        }
        if name.len() > NAME_BYTES || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let allowed = format!("up to {NAME_BYTES} letters, digits and signs of ASCII");
            return Err(Error::Option { option: "a disk's name", value: format!("'{name}'"), allowed });
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Face { name: bytes, queues, memory_bytes_max })
    }
}

/// What happens at a disk's socket.
#[derive(Debug)]
pub enum Event {
    /// A frontend has connected.
    Connected,
    /// It has closed the connection.
    Gone,
    /// It was cut off, or could not be accepted.
    Failed(Error),
}

/// A disk that is being served; until this is dropped.
///
/// One frontend has it at a time. Others that connect wait until that one is gone.
#[derive(Debug)]
pub struct Export {
    shared: Arc<Shared>,
    ended: Receiver<()>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the thread shares with whoever has started it.
#[derive(Debug)]
struct Shared {
    stop: OwnedFd,
    /// The connection, to be shut down when a frontend is waited for to say the rest of a message.
    connection: Mutex<Connection>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Connection {
    socket: Option<UnixStream>,
    stopping: bool,
}

impl Shared {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Export {
    /// Serves `medium` to whoever connects to `listener`; `report` hears what happens, in the disk's own thread.
    ///
    /// Who may connect is what the permissions of the socket's name say.
    ///
    /// # Errors
    /// What the kernel says, or why this cannot be a disk.
    pub fn start<M: Medium + 'static>(
        listener: UnixListener,
        medium: M,
        options: Options,
        mut report: impl FnMut(Event) + Send + 'static,
    ) -> Result<Export, Error> {
        layout::check(&medium.geometry())?;
        // The kernel keeps 15 bytes of it.
        let thread = thread::Builder::new().name(format!("vhost {}", options.name));
        let face = options.check()?;
        listener.set_nonblocking(true).map_err(|error| Error::io("prepare a socket", error))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("make an event counter", error))?;
        let counters = Arc::new(Counters::default());
        let shared = Arc::new(Shared { stop, connection: Mutex::default(), counters: counters.clone() });
        let (end, ended) = channel();
        let theirs = shared.clone();
        let serve = move || {
            let disk = Arc::new(Mutex::new(Disk::new(medium, face, counters)));
            while let Some(socket) = accept(&listener, &theirs, &mut report) {
                serve(socket, &disk, &theirs, &mut report);
            }
            drop(end);
        };
        let thread = thread.spawn(serve).map_err(|error| Error::io("start a thread", error))?;
        Ok(Export { shared, ended, thread: Some(thread) })
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }
}

impl Drop for Export {
    /// Cuts off the frontend and waits until all that is under way is done: for ten seconds at most, after which the
    /// thread is left to end when the medium lets it.
    fn drop(&mut self) {
        // It cannot be full: this is the only time that it is written to.
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        let mut connection = self.shared.connection();
        connection.stopping = true;
        if let Some(socket) = connection.socket.take() {
            // It fails if the frontend has gone already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        drop(connection);
        // Nothing is ever sent: the thread drops its end.
        let left = self.ended.recv_timeout(STOP_LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if let Some(thread) = self.thread.take().filter(|_| !left) {
            // A panic of the thread was printed where it happened.
            let _ = thread.join();
        }
    }
}

/// The next frontend. None: it is time to stop.
fn accept(listener: &UnixListener, shared: &Shared, report: &mut impl FnMut(Event)) -> Option<UnixStream> {
    loop {
        let mut waiting = [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.stop, PollFlags::IN)];
        let waited = poll(&mut waiting, None);
        if !waiting[1].revents().is_empty() {
            return None;
        }
        if waited.is_err() {
            continue;
        }
        let failure = match listener.accept().map(|(socket, _)| socket) {
            Ok(socket) => match socket.set_nonblocking(false).and_then(|()| socket.try_clone()) {
                Ok(clone) => {
                    let mut connection = shared.connection();
                    if connection.stopping {
                        return None;
                    }
                    connection.socket = Some(clone);
                    return Some(socket);
                }
                Err(error) => error,
            },
            // It has gone again, or somebody else was faster.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => error,
        };
        report(Event::Failed(Error::io("accept a frontend", failure)));
        // It would go on like that.
        let _ = poll(&mut [PollFd::new(&shared.stop, PollFlags::IN)], Some(&PAUSE));
    }
}

/// Serves one frontend until it has gone.
fn serve<M: Medium>(
    socket: UnixStream,
    disk: &Arc<Mutex<Disk<M>>>,
    shared: &Shared,
    report: &mut impl FnMut(Event),
) {
    report(Event::Connected);
    Counters::add(&shared.counters.frontends, 1);
    let end = converse(socket, disk, shared);
    shared.connection().socket = None;
    lock(disk).forget_guest();
    report(match end {
        Ok(()) => Event::Gone,
        Err(error) => Event::Failed(error),
    });
}

/// Only the disk's thread ever takes it, so nobody can have left it half done.
fn lock<M>(disk: &Mutex<Disk<M>>) -> MutexGuard<'_, Disk<M>> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn converse<M: Medium>(socket: UnixStream, disk: &Arc<Mutex<Disk<M>>>, shared: &Shared) -> Result<(), Error> {
    let heard = socket.try_clone().map_err(|error| Error::io("copy a descriptor", error))?;
    let mut frontend = BackendReqHandler::from_stream(socket, disk.clone());
    loop {
        let again = lock(disk).turn();
        let (spoken, stop) = sleep(&mut lock(disk), &heard, shared, again)?;
        if stop {
            return Ok(());
        }
        if spoken {
            match frontend.handle_request() {
                Ok(()) => {}
                Err(Spoken::Disconnected | Spoken::SocketBroken(_) | Spoken::PartialMessage) => return Ok(()),
                Err(error) => return Err(Error::Frontend(error.to_string())),
            }
        }
    }
}

/// Waits until there is something to do. Answers whether the frontend has spoken, and whether it is time to stop.
fn sleep<M: Medium>(
    disk: &mut Disk<M>,
    frontend: &UnixStream,
    shared: &Shared,
    again: bool,
) -> Result<(bool, bool), Error> {
    let under_way = disk.medium.under_way() > 0;
    let at_once = again || (under_way && disk.medium.arm());
    let mut waiting = Vec::with_capacity(3 + disk.rings.len());
    waiting.push(PollFd::new(frontend, PollFlags::IN));
    waiting.push(PollFd::new(&shared.stop, PollFlags::IN));
    let kicks = disk.rings.iter().filter_map(Ring::kick);
    let descriptors = kicks.chain(disk.medium.descriptor().filter(|_| under_way));
    waiting.extend(descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
    match poll(&mut waiting, at_once.then_some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(Error::io("wait for a frontend", error)),
    }
    let (spoken, stop) = (!waiting[0].revents().is_empty(), !waiting[1].revents().is_empty());
    let kicked = disk.rings.iter().filter(|ring| ring.kick().is_some()).zip(&waiting[2..]);
    kicked.filter(|(_, kick)| !kick.revents().is_empty()).for_each(|(ring, _)| ring.hear());
    Ok((spoken, stop))
}
