//! A disk that is served at a socket, by a thread of its own, to one frontend after another.
//!
//! ```text
//!            ┌──────────── the export's thread ────────────┐
//!   listen ──► accept ──► waits ──► the disk is back ──► accept
//!                 └──► the frontend's thread: messages, kicks, what is done ──► gone ──► all done ──► closes, unmaps
//! ```
//!
//! A frontend has the disk as long as it is connected. While another one waits, it is cut off when it says nothing, or only
//! a part of a message, or when its thread is stuck with something that it has passed: then the disk is taken back, and the
//! thread is left to itself.
//!
//! Invariant: the export's thread sleeps in poll(2), and touches nothing that a frontend has passed. A frontend that is
//! gone, or that was cut off, leaves nothing under way behind. Called by whoever serves disks.

use crate::disk::{Disk, Face};
use crate::error::Error;
use crate::frontend::{Frontend, Outcome, drop_aside};
use crate::layout::{self, NAME_BYTES};
use crate::medium::Medium;
use crate::stats::{Counters, Stats};
use bywash_sync::{AtomicUsize, Ordering};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Queues that a disk can have.
pub const QUEUES_MAX: u16 = 16;
/// Most threads of frontends that have gone or were cut off; with more, nobody is accepted.
pub const STUCK_MAX: usize = 16;
/// How long a thread is waited for that was told to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How long nobody is accepted after that could not be done, for want of descriptors, say; and how often a frontend is
/// looked at while another one waits.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Longest time that a frontend may hold up its thread with something that it has passed, or with the rest of a
/// message, while another frontend waits.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest time that it may do so when the export ends.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);
/// Longest time that a frontend may send nothing while another one waits.
const GREETING: Duration = Duration::from_secs(10);

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

/// State that the threads of an export share with its owner.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Readable from when it is time to stop.
    pub(crate) stop: OwnedFd,
    pub(crate) thread_name: String,
    /// Threads of frontends that are there, of those that have gone and of those that were cut off.
    pub(crate) threads: AtomicUsize,
    counters: Arc<Counters>,
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
        let thread_name = format!("vhost {}", options.name);
        let face = options.check()?;
        listener.set_nonblocking(true).map_err(|error| Error::io("prepare a socket", error))?;
        // Until a frontend is served, none of its descriptors is to be in a queue that is closed here. Linux before 6.16
        // lets them in.
        bywash_link::let_descriptors_in(&listener, false)
            .map_err(|error| Error::io("keep descriptors out", io::Error::other(error)))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("make an event counter", error))?;
        let counters = Arc::new(Counters::default());
        let threads = AtomicUsize::new(0);
        let shared = Arc::new(Shared { stop, thread_name, threads, counters: counters.clone() });
        let (end, ended) = channel();
        let theirs = shared.clone();
        let serve = move || {
            let mut disk = Some(Box::new(Disk::new(medium, face, counters)));
            while let Some(free) = disk.take() {
                let Some(socket) = accept(&listener, &theirs, &mut report) else { break };
                disk = serve(socket, free, &listener, &theirs, &mut report);
            }
            drop((disk, end));
        };
        let thread = thread::Builder::new().name(shared.thread_name.clone()).spawn(serve);
        let thread = thread.map_err(|error| Error::io("start a thread", error))?;
        Ok(Export { shared, ended, thread: Some(thread) })
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// A handle for those who ask what it has done from other threads, or after it has ended.
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }
}

/// Asks a disk what it has done.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }
}

impl Shared {
    fn stats(&self) -> Stats {
        let serving = self.counters.is_serving.load(Ordering::Relaxed);
        let threads = self.threads.load(Ordering::Relaxed) as u64;
        Stats { leaving: threads.saturating_sub(serving), ..self.counters.read() }
    }
}

impl Drop for Export {
    /// Cuts off the frontend and waits until all that is under way is done: for ten seconds at most, after which the
    /// thread is left to end when the medium lets it. A frontend's thread that is stuck is not waited for.
    fn drop(&mut self) {
        // It cannot be full: this is the only time that it is written to.
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
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
    let mut is_told = false;
    loop {
        if shared.threads.load(Ordering::Relaxed) >= STUCK_MAX {
            if !std::mem::replace(&mut is_told, true) {
                report(Event::Failed(Error::Stuck { threads: STUCK_MAX }));
            }
            if is_time_to_stop(shared, &PAUSE) {
                return None;
            }
            continue;
        }
        let mut waiting = [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.stop, PollFlags::IN)];
        let waited = poll(&mut waiting, None);
        if !waiting[1].revents().is_empty() {
            return None;
        }
        if waited.is_err() {
            continue;
        }
        let failure = match listener.accept() {
            Ok((socket, _)) => match socket.set_nonblocking(false) {
                Ok(()) => return Some(socket),
                Err(error) => error,
            },
            // It has gone again, or somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => error,
        };
        report(Event::Failed(Error::io("accept a frontend", failure)));
        // It would go on like that.
        if is_time_to_stop(shared, &PAUSE) {
            return None;
        }
    }
}

/// Waits for a while, or until it is time to stop.
fn is_time_to_stop(shared: &Shared, limit: &Timespec) -> bool {
    poll(&mut [PollFd::new(&shared.stop, PollFlags::IN)], Some(limit)).is_ok_and(|count| count > 0)
}

/// Serves one frontend until it has gone or was cut off; answers the disk, or none if the frontend's thread has panicked.
fn serve<M: Medium + 'static>(
    socket: UnixStream,
    disk: Box<Disk<M>>,
    listener: &UnixListener,
    shared: &Arc<Shared>,
    report: &mut impl FnMut(Event),
) -> Option<Box<Disk<M>>> {
    report(Event::Connected);
    Counters::add(&shared.counters.frontends, 1);
    let Outcome { disk, end } = match Frontend::start(socket, disk, shared) {
        Ok(frontend) => {
            shared.counters.is_serving.store(1, Ordering::Relaxed);
            let outcome = Turn::new(&frontend, listener, shared).wait();
            shared.counters.is_serving.store(0, Ordering::Relaxed);
            outcome?
        }
        Err(outcome) => outcome,
    };
    report(match end {
        Ok(()) => Event::Gone,
        Err(error) => Event::Failed(error),
    });
    Some(disk)
}

/// A frontend's time with the disk, as the export sees it.
struct Turn<'a, M> {
    frontend: &'a Arc<Frontend<M>>,
    listener: &'a UnixListener,
    shared: &'a Arc<Shared>,
    began: Instant,
    /// Moment of the frontend's thread, and since when it has been that.
    moment: (u64, Instant),
    stopping: bool,
    /// Why the frontend is cut off.
    cut_off: Option<Error>,
}

impl<'a, M: Medium + 'static> Turn<'a, M> {
    fn new(
        frontend: &'a Arc<Frontend<M>>,
        listener: &'a UnixListener,
        shared: &'a Arc<Shared>,
    ) -> Turn<'a, M> {
        let began = Instant::now();
        Turn { frontend, listener, shared, began, moment: (0, began), stopping: false, cut_off: None }
    }

    /// Waits until the disk is back; answers it and how the frontend has ended.
    fn wait(mut self) -> Option<Outcome<M>> {
        let mut is_wanted = false;
        loop {
            let (ended, stop, waiting) = self.look(is_wanted);
            if ended {
                let Outcome { disk, end } = self.frontend.outcome()?;
                return Some(Outcome { disk, end: self.cut_off.map_or(end, Err) });
            }
            if stop && !self.stopping {
                self.stopping = true;
                self.frontend.shut_down();
            }
            let was_wanted = std::mem::replace(&mut is_wanted, waiting || self.stopping);
            if !was_wanted {
                self.moment.1 = Instant::now();
            } else if let Some(mut disk) = self.press() {
                Counters::add(&self.shared.counters.stuck, 1);
                drop_aside(disk.forget_guest(), self.shared);
                let threads = self.shared.threads.load(Ordering::Relaxed);
                return Some(Outcome { disk, end: Err(Error::Stuck { threads }) });
            }
        }
    }

    /// Waits for the end, for the time to stop, or for another frontend to come; where one is there already, for a moment.
    /// Answers which of these there is.
    fn look(&self, is_wanted: bool) -> (bool, bool, bool) {
        let stop = if self.stopping { PollFlags::empty() } else { PollFlags::IN };
        let mut waiting = [
            PollFd::new(&**self.frontend, PollFlags::IN),
            PollFd::new(&self.shared.stop, stop),
            PollFd::new(self.listener, if is_wanted { PollFlags::empty() } else { PollFlags::IN }),
        ];
        // What cannot be waited for is looked at again.
        let _ = poll(&mut waiting, is_wanted.then_some(&PAUSE));
        let [ended, stop, another] = waiting.each_ref().map(|waiting| !waiting.revents().is_empty());
        let is_there = || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(self.listener, PollFlags::IN)], Some(&now)).is_ok_and(|count| count > 0)
        };
        (ended, stop, another || (is_wanted && is_there()))
    }

    /// Cuts the frontend off if it has taken too long while others wait; answers the disk if that does not help.
    fn press(&mut self) -> Option<Box<Disk<M>>> {
        let (moment, now) = (self.frontend.moment(), Instant::now());
        if moment != self.moment.0 {
            self.moment = (moment, now);
        }
        let patience = if self.stopping { PATIENCE_AT_END } else { PATIENCE };
        let is_held_up = moment % 2 == 1 && now.duration_since(self.moment.1) > patience;
        let is_silent = !self.frontend.has_spoken() && now.duration_since(self.began) > GREETING;
        if !is_held_up && !is_silent {
            return None;
        }
        if self.cut_off.is_none() && !self.stopping {
            let what = if is_held_up { "the rest of a message" } else { "its first message" };
            self.cut_off =
                Some(Error::Frontend(format!("{what} did not come in time, and another frontend waits")));
            self.frontend.shut_down();
            // As long as it takes to see that.
            self.moment.1 = now - patience.saturating_sub(PATIENCE_AT_END);
            return None;
        }
        is_held_up.then(|| self.frontend.take_back()).flatten()
    }
}
