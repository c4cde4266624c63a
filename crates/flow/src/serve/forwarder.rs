//! Connections that are only passed on to another address: all of them by a few threads.
//!
//! ```text
//!     admission ─► queue ───► dialers ───► inbox of a worker ───► its epoll
//!               of who is let in        pairs of sockets
//! ```
//!
//! An idle connection is two sockets, a [`Pair`] of some 200 bytes and an entry of an epoll; it has no
//! thread, no pipe and no buffer, and nobody looks at it. Invariant: workers never wait but in epoll, dialers
//! wait in their [`Control`]; so both end as soon as the flow is cancelled. Bounded: connections by
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

/// Connections at a time, where nothing else is said.
const CONNECTIONS_MAX: u64 = 16_384;
/// Descriptors of a connection.
const DESCRIPTORS: u64 = 2;
/// Threads that pass bytes on, at the most.
const WORKERS_MAX: usize = 8;
/// Threads that connect to the address, at the most; one that does not answer costs 10 seconds of one of
/// them.
const DIALERS_MAX: usize = 32;
/// Events that are taken from the kernel at a time.
const EVENTS: usize = 256;
/// Keys of a worker's epoll beside those of sockets: its bell, and the end of the flow.
const BELL: u64 = u64::MAX;
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

/// What all threads share.
struct Forwarder<'a> {
    flow: &'a Description,
    target: &'a dyn StreamEndpoint,
    plan: &'a Plan,
    totals: &'a Totals,
    control: &'a Control,
    workers: Vec<Worker>,
    /// Who was let in and is not connected yet.
    queue: Mutex<VecDeque<Connected>>,
    queued: Condvar,
    /// Dialers that wait for somebody.
    idle: AtomicU64,
    /// Connections that were let in and have not ended.
    live: AtomicU64,
    stopped: AtomicBool,
}

/// A thread that passes bytes on.
struct Worker {
    epoll: OwnedFd,
    bell: OwnedFd,
    inbox: Mutex<Vec<Pair>>,
    /// Pairs that it has, inbox included.
    pairs: AtomicU64,
}

/// Serves until the flow is cancelled.
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
                // One more would only be faster, unless there is none yet.
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
        epoll::add(&epoll, &bell, key(BELL), epoll::EventFlags::IN)?;
        epoll::add(&epoll, control.cancel_fd(), key(END), epoll::EventFlags::IN)?;
        Ok(Worker { epoll, bell, inbox: Mutex::default(), pairs: AtomicU64::new(0) })
    }

    fn ring(&self) {
        // The counter cannot be full: it is set back whenever it is heard.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Watches both sockets of a pair, for every change.
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
    /// Ends all threads; what was connected is reset.
    fn stop(&self) {
        self.stopped.store(true, Relaxed);
        // A dialer looks at the flag with the queue locked, so that it is waiting or has seen it.
        drop(lock(&self.queue));
        self.queued.notify_all();
        self.workers.iter().for_each(Worker::ring);
        lock(&self.queue).clear();
    }

    fn has_stopped(&self) -> bool {
        self.stopped.load(Relaxed) || self.control.check().is_err()
    }

    /// A connection has ended, in order or not.
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

    /// Connects those who were let in, one after the other.
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
                // Who came in has been closed by a reset.
                Err(error) => self.ended(Some(error), [0, 0]),
            }
        }
        self.totals.spent((sys::thread_time() - before).as_secs_f64());
    }

    /// The next one to be connected; none when it is over.
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

    /// Passes bytes on until it is over.
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

/// A worker at work.
struct WorkerLoop<'a> {
    exchange: &'a Forwarder<'a>,
    worker: &'a Worker,
    buffers: TransferBuffers,
    pairs: Vec<Option<Pair>>,
    /// Places in `pairs` that nobody has.
    free: Vec<usize>,
    /// Pairs that wait for a peer to take something.
    stalled: usize,
}

impl WorkerLoop<'_> {
    fn go(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut ready = VecDeque::new();
        let mut looked = Instant::now();
        while !self.exchange.has_stopped() {
            // Somebody who takes nothing is looked at now and then; nobody else is.
            let is_stalled = self.stalled > 0;
            let timeout = match (ready.is_empty(), is_stalled) {
                (false, _) => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
                (true, true) => Timespec::try_from(PEER_CHECK_INTERVAL).ok(),
                (true, false) => None,
            };
            events.clear();
            // Interrupted or not: what there is is looked at.
            let _ = epoll::wait(&self.worker.epoll, spare_capacity(&mut events), timeout.as_ref());
            for event in events.drain(..) {
                match event.data.u64() {
                    BELL => self.take_in(&mut ready),
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
                self.bury_the_dead();
            }
        }
    }

    /// Takes pairs that were connected.
    fn take_in(&mut self, ready: &mut VecDeque<usize>) {
        // It holds 8 bytes or nothing.
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

    /// Something has happened to a socket.
    fn note(&mut self, key: usize, flags: epoll::EventFlags, ready: &mut VecDeque<usize>) {
        let (index, side) = (key / 2, key % 2);
        let Some(pair) = self.pairs.get_mut(index).and_then(Option::as_mut) else { return };
        if flags.contains(epoll::EventFlags::ERR) {
            // Whichever direction is waited for: a connection that is broken has no use.
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
        let is_stalled = pair.holds_something();
        let was_stalled = std::mem::replace(&mut pair.is_stalled, is_stalled);
        self.stalled = self.stalled + usize::from(is_stalled) - usize::from(was_stalled);
        match progress {
            Ok(Progress::More) => ready.push_back(index),
            Ok(Progress::Waits) => {}
            Ok(Progress::Over) => self.close(index, None),
            Err(error) => self.close(index, Some(error)),
        }
    }

    fn bury_the_dead(&mut self) {
        for index in 0..self.pairs.len() {
            let stalled = self.pairs[index].as_ref().filter(|pair| pair.is_stalled);
            if let Some(side) = stalled.and_then(Pair::dead) {
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

    /// The whole is over, and with it every connection.
    fn end(&mut self) {
        let left = std::mem::take(&mut *lock(&self.worker.inbox));
        self.pairs.extend(left.into_iter().map(Some));
        for index in 0..self.pairs.len() {
            self.close(index, Some(Error::Cancelled));
        }
    }
}
