//! Connections that are only forwarded to another address, all of them by a few threads.
//!
//! ```text
//!     admission ───► queue ───► dialers ───► inbox of a worker ───► its epoll
//!                    accepted                pairs of connected
//!                    connections             sockets
//! ```
//!
//! An idle connection is two sockets, a [`Pair`] of some 200 bytes and an epoll entry; it has no thread, pipe
//! or buffer, and costs no processor time. Invariant: workers block only in epoll_wait(2), dialers only in
//! [`Control`], so that all of them end soon after the flow is cancelled. Bounded: connections by
//! [`Admission`], threads by the constants here. Called by [`super::serve`].

use super::admission::Admission;
use super::pair::{Pair, Progress, TransferBuffers};
use super::totals::Totals;
use crate::control::Control;
use crate::description::Description;
use crate::end::{Connected, PEER_CHECK_INTERVAL};
use crate::endpoint::{Listening, StreamEndpoint};
use crate::error::Error;
use crate::facts::Kind;
use crate::mover;
use crate::movers::Mover;
use crate::plan::Plan;
use crate::report::Piece;
use crate::sys;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::Instant;

/// Default of the greatest number of connections at a time.
const CONNECTIONS_MAX: u64 = 16_384;
/// Number of descriptors of a connection.
const DESCRIPTORS: u64 = 2;
/// Greatest number of worker threads, which forward bytes.
const WORKERS_MAX: usize = 8;
/// Greatest number of dialer threads, which connect to the target. A target that does not answer occupies one
/// of them for 10 seconds.
const DIALERS_MAX: usize = 32;
/// Greatest number of events taken from the kernel at a time.
const EVENTS: usize = 256;
/// Keys in a worker's epoll besides those of sockets: its eventfd, and the cancellation of the flow.
const WAKE: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;

/// Returns the stream socket that connections are passed on to; `None` if the flow does more than pass them
/// on.
pub(super) fn target<'a>(flow: &'a Description, plans: &[Plan]) -> Option<&'a dyn StreamEndpoint> {
    let plain = |stream: &&dyn StreamEndpoint| !stream.settings().whole;
    flow.source.kind.stream().filter(plain)?;
    let moves = matches!(plans[0].movers[0].mover, Mover::Splice | Mover::Buffer);
    let target = flow.sink.kind.stream().filter(plain)?;
    (target.listening() == Listening::Connects && moves && flow.stages.is_empty()).then_some(target)
}

/// State that all threads of a forwarder share.
struct Forwarder<'a> {
    flow: &'a Description,
    target: &'a dyn StreamEndpoint,
    plan: &'a Plan,
    totals: &'a Totals,
    control: &'a Control,
    workers: Vec<Worker>,
    /// Accepted connections that are not connected to the target yet, oldest first.
    queue: Mutex<VecDeque<Connected>>,
    queued: Condvar,
    /// Number of dialers that wait for a connection.
    idle: AtomicU64,
    /// Number of accepted connections that have not ended.
    live: AtomicU64,
    stopped: AtomicBool,
}

/// A thread that forwards bytes.
struct Worker {
    epoll: OwnedFd,
    bell: OwnedFd,
    inbox: Mutex<Vec<Pair>>,
    /// Number of pairs of this worker, those in the inbox included.
    pairs: AtomicU64,
}

/// Serves connections until the flow is cancelled.
///
/// # Errors
/// [`Error::Cancelled`] when the flow is cancelled; [`Error::Io`] if no thread or epoll can be created or
/// accept(2) fails for good.
pub(super) fn serve(
    admission: &mut Admission<'_>,
    flow: &Description,
    target: &dyn StreamEndpoint,
    plan: &Plan,
    totals: &Totals,
    control: &Control,
) -> Result<(), Error> {
    let room = admission.room(CONNECTIONS_MAX, DESCRIPTORS);
    let count = thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
    let workers = (0..count).map(|_| Worker::new(control)).collect::<Result<Vec<_>, _>>();
    let workers = workers.map_err(|error| Error::io("watch connections", error))?;
    let exchange = Forwarder {
        flow,
        target,
        plan,
        totals,
        control,
        workers,
        queue: Mutex::default(),
        queued: Condvar::new(),
        idle: AtomicU64::new(0),
        live: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
    };
    let shared = &exchange;
    thread::scope(|scope| {
        for worker in &shared.workers {
            let works = || shared.work(worker);
            let begun = Builder::new().name("flow-exchange".into()).spawn_scoped(scope, works);
            if let Err(error) = begun {
                shared.stop();
                return Err(Error::io("start a thread that passes connections on", error));
            }
        }
        let mut dialers = 0;
        let outcome = loop {
            match admission.next(room, || shared.live.load(Relaxed)) {
                Ok(connected) => {
                    shared.live.fetch_add(1, Relaxed);
                    lock(&shared.queue).push_back(connected);
                    shared.queued.notify_one();
                }
                Err(error) => break Err(error),
            }
            let waiting = lock(&shared.queue).len() as u64;
            if dialers < DIALERS_MAX && waiting > shared.idle.load(Relaxed) {
                let dials = Builder::new().name("flow-dial".into()).spawn_scoped(scope, || shared.dial());
                // With at least one dialer, the lack of another one only slows connecting down.
                match dials {
                    Ok(_) => dialers += 1,
                    Err(error) if dialers == 0 => {
                        break Err(Error::io("start a thread that connects", error));
                    }
                    Err(_) => {}
                }
            }
        };
        shared.stop();
        outcome
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    fn new(control: &Control) -> Result<Worker, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let key = epoll::EventData::new_u64;
        epoll::add(&epoll, &bell, key(WAKE), epoll::EventFlags::IN)?;
        epoll::add(&epoll, control.cancel_fd(), key(END), epoll::EventFlags::IN)?;
        Ok(Worker { epoll, bell, inbox: Mutex::default(), pairs: AtomicU64::new(0) })
    }

    fn ring(&self) {
        // The counter cannot overflow, since the worker resets it at each wake-up.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Watches both sockets of a pair for all events, edge-triggered.
    fn watch(&self, pair: &Pair, index: usize) -> Result<(), Errno> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        for (side, socket) in pair.sockets().iter().enumerate() {
            let key = epoll::EventData::new_u64((index * 2 + side) as u64);
            epoll::add(&self.epoll, socket.as_fd(), key, flags)?;
        }
        Ok(())
    }
}

impl Forwarder<'_> {
    /// Ends all threads, and resets the connections that wait to be connected.
    fn stop(&self) {
        self.stopped.store(true, Relaxed);
        // A dialer checks the flag with the queue locked, so that it either sees the flag or is already
        // waiting.
        drop(lock(&self.queue));
        self.queued.notify_all();
        self.workers.iter().for_each(Worker::ring);
        lock(&self.queue).clear();
    }

    fn has_stopped(&self) -> bool {
        self.stopped.load(Relaxed) || self.control.check().is_err()
    }

    /// Records that a connection has ended, in order if `error` is `None`.
    fn ended(&self, error: Option<Error>, moved: [u64; 2]) {
        let Plan { source, sink, movers, block, .. } = self.plan;
        let mover = movers[0].mover;
        let piece = |source: &str, sink: &str, bytes| Piece {
            source: source.into(),
            sink: sink.into(),
            mover,
            block: *block,
            bytes,
            holes: 0,
            copies: mover::copies(mover, Kind::Stream, Kind::Stream),
            zerocopy_sends: 0,
            zerocopy_copied: 0,
            datagrams: Vec::new(),
            shares: Vec::new(),
            fallbacks: Vec::new(),
        };
        let mut pieces = vec![piece(source, sink, moved[0])];
        if !self.flow.one_way {
            pieces.push(piece(sink, source, moved[1]));
        }
        self.totals.count(error, 0.0, pieces);
        self.live.fetch_sub(1, Relaxed);
    }

    /// Connects accepted connections to the target, one after the other.
    fn dial(&self) {
        sys::block_sigpipe();
        let before = sys::thread_time();
        while let Some(here) = self.next() {
            let pair = self.target.connect(&self.plan.sink, self.control).and_then(|there| {
                Pair::new(here, there, self.flow.one_way).map_err(|error| Error::io("set up a socket", error))
            });
            let Some(worker) = self.workers.iter().min_by_key(|worker| worker.pairs.load(Relaxed)) else {
                break;
            };
            match pair {
                Ok(pair) => {
                    worker.pairs.fetch_add(1, Relaxed);
                    lock(&worker.inbox).push(pair);
                    worker.ring();
                }
                // The accepted connection was dropped, which resets it.
                Err(error) => self.ended(Some(error), [0, 0]),
            }
        }
        self.totals.spent((sys::thread_time() - before).as_secs_f64());
    }

    /// Waits for the next accepted connection; `None` when the forwarder has stopped.
    fn next(&self) -> Option<Connected> {
        let mut queue = lock(&self.queue);
        loop {
            if self.has_stopped() {
                return None;
            }
            if let Some(connected) = queue.pop_front() {
                return Some(connected);
            }
            self.idle.fetch_add(1, Relaxed);
            queue = self.queued.wait(queue).unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Relaxed);
        }
    }

    /// Forwards the bytes of a worker's pairs until the forwarder has stopped.
    fn work(&self, worker: &Worker) {
        sys::block_sigpipe();
        let before = sys::thread_time();
        let buffers = TransferBuffers::new(self.plan.movers[0].mover == Mover::Splice, self.plan.block);
        let mut worker =
            WorkerLoop { exchange: self, worker, buffers, pairs: Vec::new(), free: Vec::new(), stalled: 0 };
        worker.go();
        worker.end();
        self.totals.spent((sys::thread_time() - before).as_secs_f64());
    }
}

/// State of a worker while it runs.
struct WorkerLoop<'a> {
    exchange: &'a Forwarder<'a>,
    worker: &'a Worker,
    buffers: TransferBuffers,
    pairs: Vec<Option<Pair>>,
    /// Unused indices of `pairs`.
    free: Vec<usize>,
    /// Number of pairs with bytes pending for a peer.
    stalled: usize,
}

impl WorkerLoop<'_> {
    fn go(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut ready = VecDeque::new();
        let mut looked = Instant::now();
        while !self.exchange.has_stopped() {
            // Peers that accept no data are checked at intervals, since no event reports their death.
            let is_stalled = self.stalled > 0;
            let timeout = match (ready.is_empty(), is_stalled) {
                (false, _) => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
                (true, true) => Timespec::try_from(PEER_CHECK_INTERVAL).ok(),
                (true, false) => None,
            };
            events.clear();
            // Errors are ignored: after an interrupted wait, the loop checks for events and the end anyway.
            let _ = epoll::wait(&self.worker.epoll, spare_capacity(&mut events), timeout.as_ref());
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKE => self.take_in(&mut ready),
                    END => {}
                    key => self.note(key as usize, event.flags, &mut ready),
                }
            }
            for _ in 0..ready.len() {
                if let Some(index) = ready.pop_front() {
                    self.turn(index, &mut ready);
                }
            }
            if is_stalled && looked.elapsed() >= PEER_CHECK_INTERVAL {
                looked = Instant::now();
                self.close_dead();
            }
        }
    }

    /// Takes over the pairs that the dialers have put into the inbox.
    fn take_in(&mut self, ready: &mut VecDeque<usize>) {
        // The read only resets the eventfd; it fails if the counter is 0 already.
        let _ = rustix::io::read(&self.worker.bell, &mut [0u8; 8]);
        let came = std::mem::take(&mut *lock(&self.worker.inbox));
        for pair in came {
            let index = self.free.pop().unwrap_or_else(|| {
                self.pairs.push(None);
                self.pairs.len() - 1
            });
            let watched = self.worker.watch(&pair, index);
            let place = self.pairs[index].insert(pair);
            place.is_queued = true;
            match watched {
                Ok(()) => ready.push_back(index),
                Err(error) => self.close(index, Some(Error::io("watch a connection", error))),
            }
        }
    }

    /// Handles an event of one of the two sockets of a forwarded connection: closes both if the connection is
    /// broken, else queues the connection to be served.
    fn note(&mut self, key: usize, flags: epoll::EventFlags, ready: &mut VecDeque<usize>) {
        let (index, side) = (key / 2, key % 2);
        let Some(pair) = self.pairs.get_mut(index).and_then(Option::as_mut) else { return };
        if flags.contains(epoll::EventFlags::ERR) {
            // A broken connection cannot be used in either direction, so both are closed.
            let error = rustix::net::sockopt::socket_error(&pair.sockets()[side]).and_then(|error| error);
            if let Err(error) = error {
                let name = self.names()[side];
                return self.close(index, Some(Error::io(format!("go on with {name}"), error)));
            }
        }
        if !pair.is_queued {
            pair.is_queued = true;
            ready.push_back(index);
        }
    }

    fn names(&self) -> [&str; 2] {
        [&self.exchange.plan.source, &self.exchange.plan.sink]
    }

    fn turn(&mut self, index: usize, ready: &mut VecDeque<usize>) {
        let names = [self.exchange.plan.source.as_str(), &self.exchange.plan.sink];
        let Some(pair) = self.pairs.get_mut(index).and_then(Option::as_mut) else { return };
        let before = pair.moved()[0];
        let progress = pair.turn(&mut self.buffers, names);
        self.exchange.control.add_moved(pair.moved()[0] - before);
        pair.is_queued = matches!(progress, Ok(Progress::More));
        let is_stalled = pair.has_pending();
        let was_stalled = std::mem::replace(&mut pair.is_stalled, is_stalled);
        self.stalled = self.stalled + usize::from(is_stalled) - usize::from(was_stalled);
        match progress {
            Ok(Progress::More) => ready.push_back(index),
            Ok(Progress::Waits) => {}
            Ok(Progress::Over) => self.close(index, None),
            Err(error) => self.close(index, Some(error)),
        }
    }

    fn close_dead(&mut self) {
        for index in 0..self.pairs.len() {
            let stalled = self.pairs[index].as_ref().filter(|pair| pair.is_stalled);
            if let Some(side) = stalled.and_then(Pair::dead_peer) {
                let name = self.names()[side];
                self.close(index, Some(Error::io(format!("write {name}"), Errno::TIMEDOUT)));
            }
        }
    }

    fn close(&mut self, index: usize, error: Option<Error>) {
        if let Some(pair) = self.pairs[index].take() {
            self.free.push(index);
            self.stalled -= usize::from(pair.is_stalled);
            self.worker.pairs.fetch_sub(1, Relaxed);
            let moved = pair.moved();
            pair.close(error.is_none(), &mut self.buffers);
            self.exchange.ended(error, moved);
        }
    }

    /// Closes all connections when the forwarder has stopped.
    fn end(&mut self) {
        let left = std::mem::take(&mut *lock(&self.worker.inbox));
        self.pairs.extend(left.into_iter().map(Some));
        for index in 0..self.pairs.len() {
            self.close(index, Some(Error::Cancelled));
        }
    }
}
