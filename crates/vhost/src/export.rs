//! A disk that is served at a socket to one frontend after another, by a thread of its own.
//!
//! ```text
//!            ┌──────────── the export's thread ────────────┐
//!   listen ──► accept ──► waits ──► the disk is back ──► accept
//!                 └──► the frontend's thread: messages, kicks, what is done ──► gone ──► all done ──► closes, unmaps
//! ```
//!
//! A frontend has the disk as long as it is connected. While another one waits, a frontend is disconnected if
//! it sends nothing, or only a part of a message, or if its thread blocks on an object that it has passed. In
//! the last case the disk is taken back, and the thread is abandoned.
//!
//! Invariant: the export's thread sleeps only in poll(2), and touches no object that a frontend has passed.
//! After a frontend was disconnected, none of its requests is in flight. Called by programs that serve disks.

use crate::disk::{Disk, DiskProperties};
use crate::frontend::{Frontend, FrontendResult, drop_aside};
use crate::layout::{self, NAME_BYTES};
use crate::stats::{Counters, Stats};
use bywash_device::Device;
use bywash_export::{Error, ExportThread, Signal, prepare_listener};
use bywash_sync::{AtomicUsize, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Greatest number of queues of a disk.
pub const QUEUES_MAX: u16 = 16;
/// Greatest number of threads of disconnected frontends; with more, no frontend is accepted.
pub const STUCK_MAX: usize = 16;
/// Time without accepting after accepting has failed, for want of descriptors, for example; and interval at
/// which a frontend is checked while another one waits.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Greatest time that a frontend's thread may block on an object that the frontend has passed, or on the rest
/// of a message, while another frontend waits.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(3);
/// The same time when the export ends.
const BLOCKED_TIMEOUT_AT_END: Duration = Duration::from_secs(1);
/// Greatest time that a frontend may send nothing while another one waits.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of an export.
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
    /// Returns the default options: one queue, and at most 64 GiB of guest memory.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the greatest number of queues that a guest can use: 1 to [`QUEUES_MAX`]. One thread serves them
    /// all.
    pub fn queues(mut self, queues: u16) -> Options {
        self.queues = queues;
        self
    }

    /// Sets the name of the disk that the guest sees: up to 20 printable characters of ASCII without spaces.
    pub fn name(mut self, name: impl Into<String>) -> Options {
        self.name = name.into();
        self
    }

    /// Sets the greatest size of a guest's memory, in bytes. It takes up address space of this process.
    pub fn memory_bytes_max(mut self, bytes: u64) -> Options {
        self.memory_bytes_max = bytes;
        self
    }

    fn check(self) -> Result<DiskProperties, Error> {
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
        Ok(DiskProperties { name: bytes, queues, memory_bytes_max })
    }
}

/// Event at a disk's socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A frontend has connected.
    Connected,
    /// The frontend has closed the connection.
    Disconnected,
    /// The frontend was disconnected, or could not be accepted.
    CutOff(Error),
}

/// A disk that is being served, until this value is dropped. Dropping it disconnects the frontend, and waits until
/// all requests in flight have completed, for ten seconds at most.
///
/// One frontend has the disk at a time. Others that connect wait until it has disconnected.
#[derive(Debug)]
pub struct Export {
    shared: Arc<Shared>,
    /// Thread that is stopped and waited for when this export is dropped: the frontend is disconnected, and all
    /// requests in flight complete.
    _thread: ExportThread,
}

/// State that the threads of an export share with its owner.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Signal at which all threads must stop.
    pub(crate) stop: Signal,
    /// Signal that the device may have another size. Whoever has the disk takes it.
    pub(crate) changed: Signal,
    pub(crate) thread_name: String,
    /// Number of frontends' threads: of connected and of disconnected frontends.
    pub(crate) threads: AtomicUsize,
    counters: Arc<Counters>,
}

impl Export {
    /// Serves `device` to the frontends that connect to `listener`. Calls `report` for each event, on the
    /// export's thread.
    ///
    /// The permissions of the socket's name decide which users may connect.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the device's geometry allows no disk; [`Error::Option`] if an option has an
    /// invalid value; [`Error::Io`] if a system call fails.
    pub fn start<D: Device + 'static>(
        listener: UnixListener,
        device: D,
        options: Options,
        mut report: impl FnMut(Event) + Send + 'static,
    ) -> Result<Export, Error> {
        layout::check(&device.geometry())?;
        let thread_name = format!("vhost {}", options.name);
        let face = options.check()?;
        prepare_listener(&listener)?;
        let counters = Arc::new(Counters::default());
        let (stop, changed, threads) = (Signal::new()?, Signal::new()?, AtomicUsize::new(0));
        let shared = Arc::new(Shared { stop, changed, thread_name, threads, counters: counters.clone() });
        let theirs = shared.clone();
        let serve = move || {
            let mut disk = Some(Box::new(Disk::new(device, face, counters)));
            while let Some(free) = disk.take() {
                let Some(socket) = accept(&listener, &theirs, &mut report) else { break };
                disk = serve(socket, free, &listener, &theirs, &mut report);
            }
        };
        let thread = ExportThread::start(&shared.thread_name, &shared.stop, serve)?;
        Ok(Export { shared, _thread: thread })
    }

    /// Returns the disk's counters.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Has the device looked at again, whose size may have changed ([`Device::refresh`]). A frontend that is connected is
    /// notified, and tells its guest; others see the size when they connect.
    pub fn refresh(&self) {
        self.shared.changed.give();
    }

    /// Returns a handle that reads the counters from other threads, and even after the export has ended.
    pub fn watch(&self) -> StatsHandle {
        StatsHandle(self.shared.clone())
    }
}

/// Handle that reads a disk's counters.
#[derive(Clone, Debug)]
pub struct StatsHandle(Arc<Shared>);

impl StatsHandle {
    /// Returns the disk's counters.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }
}

impl Shared {
    fn stats(&self) -> Stats {
        let serving = self.counters.is_serving.get();
        let threads = self.threads.load(Ordering::Relaxed) as u64;
        Stats { leaving: threads.saturating_sub(serving), ..self.counters.read() }
    }
}

/// Accepts the next frontend. Returns `None` when the export has to stop.
fn accept(listener: &UnixListener, shared: &Shared, report: &mut impl FnMut(Event)) -> Option<UnixStream> {
    let mut is_told = false;
    loop {
        if shared.threads.load(Ordering::Relaxed) >= STUCK_MAX {
            if !std::mem::replace(&mut is_told, true) {
                report(Event::CutOff(stuck(STUCK_MAX)));
            }
            if shared.stop.wait(&PAUSE) {
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
            // The frontend has disconnected, or another process that shares the listener has accepted it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => error,
        };
        report(Event::CutOff(Error::io("accept a frontend", failure)));
        // Without a pause the same failure would repeat at once.
        if shared.stop.wait(&PAUSE) {
            return None;
        }
    }
}

/// Serves one frontend until it is disconnected. Returns the disk, or `None` if the frontend's thread has
/// panicked.
fn serve<D: Device + 'static>(
    socket: UnixStream,
    mut disk: Box<Disk<D>>,
    listener: &UnixListener,
    shared: &Arc<Shared>,
    report: &mut impl FnMut(Event),
) -> Option<Box<Disk<D>>> {
    report(Event::Connected);
    if shared.changed.take() {
        disk.refresh();
    }
    shared.counters.frontends.add(1);
    let FrontendResult { disk, end } = match Frontend::start(socket, disk, shared) {
        Ok(frontend) => {
            shared.counters.is_serving.set(1);
            let outcome = Supervision::new(&frontend, listener, shared).wait();
            shared.counters.is_serving.set(0);
            outcome?
        }
        Err(outcome) => outcome,
    };
    report(match end {
        Ok(()) => Event::Disconnected,
        Err(error) => Event::CutOff(error),
    });
    Some(disk)
}

/// Makes the error for threads that are stuck with what frontends have passed.
fn stuck(threads: usize) -> Error {
    Error::Stuck { threads, most: STUCK_MAX }
}

/// One frontend's time with the disk, as the export's thread sees it.
struct Supervision<'a, D> {
    frontend: &'a Arc<Frontend<D>>,
    listener: &'a UnixListener,
    shared: &'a Arc<Shared>,
    began: Instant,
    /// The last value of [`Frontend::moment`], and the time since which it has not changed.
    moment: (u64, Instant),
    stopping: bool,
    /// Reason why the frontend was disconnected.
    cut_off: Option<Error>,
}

impl<'a, D: Device + 'static> Supervision<'a, D> {
    fn new(
        frontend: &'a Arc<Frontend<D>>,
        listener: &'a UnixListener,
        shared: &'a Arc<Shared>,
    ) -> Supervision<'a, D> {
        let began = Instant::now();
        Supervision { frontend, listener, shared, began, moment: (0, began), stopping: false, cut_off: None }
    }

    /// Waits until the disk is back, and returns it with the frontend's result; `None` if its thread has
    /// panicked.
    fn wait(mut self) -> Option<FrontendResult<D>> {
        let mut is_wanted = false;
        loop {
            let (ended, stop, waiting) = self.look(is_wanted);
            if ended {
                let FrontendResult { disk, end } = self.frontend.outcome()?;
                return Some(FrontendResult { disk, end: self.cut_off.map_or(end, Err) });
            }
            if stop && !self.stopping {
                self.stopping = true;
                self.frontend.shut_down();
            }
            let was_wanted = std::mem::replace(&mut is_wanted, waiting || self.stopping);
            if !was_wanted {
                self.moment.1 = Instant::now();
            } else if let Some(mut disk) = self.disconnect_if_late() {
                self.shared.counters.stuck.add(1);
                drop_aside(disk.forget_guest(), self.shared);
                let threads = self.shared.threads.load(Ordering::Relaxed);
                return Some(FrontendResult { disk, end: Err(stuck(threads)) });
            }
        }
    }

    /// Waits for the frontend's end, for the order to stop, or for another frontend. If another one already
    /// waits, waits only [`PAUSE`]. Returns which of the three has happened.
    fn look(&self, is_wanted: bool) -> (bool, bool, bool) {
        let stop = if self.stopping { PollFlags::empty() } else { PollFlags::IN };
        let mut waiting = [
            PollFd::new(&**self.frontend, PollFlags::IN),
            PollFd::new(&self.shared.stop, stop),
            PollFd::new(self.listener, if is_wanted { PollFlags::empty() } else { PollFlags::IN }),
        ];
        // An error of poll(2) needs no handling: the caller looks again.
        let _ = poll(&mut waiting, is_wanted.then_some(&PAUSE));
        let [ended, stop, another] = waiting.each_ref().map(|waiting| !waiting.revents().is_empty());
        let is_there = || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(self.listener, PollFlags::IN)], Some(&now)).is_ok_and(|count| count > 0)
        };
        (ended, stop, another || (is_wanted && is_there()))
    }

    /// Disconnects the frontend if it has taken too long while others wait. Returns the disk if even that
    /// does not end its thread.
    fn disconnect_if_late(&mut self) -> Option<Box<Disk<D>>> {
        let (moment, now) = (self.frontend.moment(), Instant::now());
        if moment != self.moment.0 {
            self.moment = (moment, now);
        }
        let timeout = if self.stopping { BLOCKED_TIMEOUT_AT_END } else { BLOCKED_TIMEOUT };
        let is_held_up = moment % 2 == 1 && now.duration_since(self.moment.1) > timeout;
        let is_silent = !self.frontend.has_spoken() && now.duration_since(self.began) > FIRST_MESSAGE_TIMEOUT;
        if !is_held_up && !is_silent {
            return None;
        }
        if self.cut_off.is_none() && !self.stopping {
            let what = if is_held_up { "the rest of a message" } else { "its first message" };
            self.cut_off =
                Some(Error::Peer(format!("{what} did not come in time, and another frontend waits")));
            self.frontend.shut_down();
            // The thread gets this much time to notice that it was disconnected.
            self.moment.1 = now - timeout.saturating_sub(BLOCKED_TIMEOUT_AT_END);
            return None;
        }
        is_held_up.then(|| self.frontend.take_back()).flatten()
    }
}
