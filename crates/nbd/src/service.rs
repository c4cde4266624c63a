//! The thread that serves all clients of a listener, and uses all its devices.
//!
//! ```text
//!      ┌──────────────────────────── one turn ─────────────────────────────┐
//!   poll ──► accept ──► receive and submit, each client ──► reap ──► send, each client
//! ```
//!
//! One thread for all, since a device has one user: a thread for each client would need a lock around each
//! device, and would have to hand completions to the threads of other clients, with a wake-up for each. One
//! thread finds the requests of all clients and the completions of all devices with a single poll(2), and a
//! flush on one connection covers what was completed on the others. What takes most of the time is copying
//! between sockets and buffers, in the kernel; whoever has more processors than that needs serves more exports,
//! each at a listener of its own.
//!
//! Invariant: the thread waits for clients only in poll(2) (`waiter`), and no client can make it wait. Called by `export`.

use crate::connection::{Connection, Received};
use crate::engine::{Engine, Finished};
use crate::event::Event;
use crate::order::{Order, OrderReceiver};
use crate::pace::Pace;
use crate::socket::{Closing, Listener};
use crate::tls::Tls;
use crate::waiter::Waiter;
use bywash_export::{Error, PollList, Signal};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::thread::{nanosleep, set_current_timer_slack};
use slab::Slab;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Greatest number of clients accepted in a turn.
const ACCEPTED_MAX: usize = 16;
/// Interval between checks of what clients owe.
const CHECK: Duration = Duration::from_secs(1);
/// Greatest time to sleep while a client owes something.
const UNTIL_CHECK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Time without accepting after accepting has failed, for want of descriptors, for example.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for a client to receive its last replies when the server stops.
const TIMEOUT_AT_END: Duration = Duration::from_secs(1);
/// Greatest time to sleep while requests are in flight, if the descriptor of a device fails to become readable.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Everything that the thread of a listener uses.
pub(crate) struct Service<R> {
    listener: Listener,
    closing: Closing,
    engine: Engine,
    /// Signal at which the thread must stop.
    stop: Signal,
    orders: OrderReceiver,
    /// True while a withdrawn disk has requests in flight.
    is_withdrawing: bool,
    limits: Limits,
    report: R,
    connections: Slab<Connection>,
    /// Number of the next connection.
    number: u64,
    /// Time until which no client is accepted.
    accepts_from: Option<Instant>,
    /// Time by which clients must have received their last replies, once the server stops.
    stopping: Option<Instant>,
    pace: Pace,
    waiter: Waiter,
    /// Number of requests before the last turn.
    requests: u64,
    /// Keys of the connections that have something to receive; empty between turns.
    ready: Vec<usize>,
    /// Keys of the connections whose clients are gone; empty between turns.
    gone: Vec<usize>,
    /// Results of poll(2) for each connection; empty between turns.
    states: Vec<PollFlags>,
    /// Memory of the list for poll(2).
    polled: PollList,
    /// Time of the next check of what clients owe.
    checks_at: Instant,
}

/// Limits of what clients can make the server do, and what they must.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Greatest number of clients that are connected.
    pub(crate) clients: usize,
    /// Interval in which a client has to go on.
    pub(crate) progress_timeout: Duration,
    /// Certificates, if clients must use TLS.
    pub(crate) tls: Option<Tls>,
}

/// Results of poll(2) besides those for connections.
struct Found {
    /// True if the server has to stop.
    stop: bool,
    /// True if a client waits to be accepted.
    client: bool,
    /// True if an order of the owner has come.
    order: bool,
}

impl<R: FnMut(Event)> Service<R> {
    /// Prepares a listener.
    pub(crate) fn new(
        listener: Listener,
        closing: Closing,
        engine: Engine,
        limits: Limits,
        stop: Signal,
        orders: OrderReceiver,
        report: R,
    ) -> Service<R> {
        Service {
            listener,
            closing,
            engine,
            stop,
            orders,
            is_withdrawing: false,
            limits,
            report,
            connections: Slab::new(),
            number: 0,
            accepts_from: None,
            stopping: None,
            pace: Pace::default(),
            waiter: Waiter::default(),
            requests: 0,
            ready: Vec::new(),
            gone: Vec::new(),
            states: Vec::new(),
            polled: PollList::default(),
            checks_at: Instant::now(),
        }
    }

    /// Serves until the order to stop, and until all requests in flight have completed.
    pub(crate) fn run(mut self) {
        // Pauses are short; by default the kernel may make each of them longer by as much. If that cannot be changed,
        // they gather more requests.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut again = false;
        while !(self.stopping.is_some() && self.connections.is_empty() && !self.engine.is_busy()) {
            let found = self.wait(again);
            if found.stop && self.stopping.is_none() {
                self.stop();
            }
            if found.order {
                self.carry_out_orders();
            }
            if found.client {
                self.accept();
            }
            again = self.turn();
            self.pause(again);
        }
    }

    /// Carries out the orders of the owner.
    #[cold]
    fn carry_out_orders(&mut self) {
        self.orders.signal.take();
        while let Ok(order) = self.orders.orders.try_recv() {
            match order {
                Order::Add { disk, reply } => {
                    self.engine.add(disk);
                    reply.send(Ok(()));
                }
                Order::Refresh { name } => self.engine.refresh(&name),
                Order::Remove { name, reply } => match self.engine.withdraw(&name, reply) {
                    Ok(disk) => self.withdraw(disk),
                    // The owner withdraws no disk twice.
                    Err(reply) => reply.send(Err(Error::Ended)),
                },
            }
        }
    }

    /// Disconnects the clients that use a disk.
    fn withdraw(&mut self, disk: usize) {
        for key in self.keys() {
            if self.connections.get_mut(key).is_some_and(|connection| connection.withdraw(disk)) {
                self.disconnect(key);
            }
        }
        self.is_withdrawing = true;
    }

    /// Lets requests come together, if that has been found to pay and nothing else waits.
    #[inline]
    fn pause(&mut self, again: bool) {
        let requests = self.engine.counters.requests.get();
        let pause = self.pace.after(requests - std::mem::replace(&mut self.requests, requests));
        if let Some(pause) = pause.filter(|_| !again && !self.engine.is_busy() && self.stopping.is_none()) {
            // An interrupted pause is over.
            let _ = nanosleep(&pause);
        }
    }

    /// Receives, submits, reaps and sends. Returns true if the next turn must follow at once.
    fn turn(&mut self) -> bool {
        let mut again = false;
        let mut ready = std::mem::take(&mut self.ready);
        for key in ready.drain(..) {
            again |= self.receive(key);
        }
        self.ready = ready;
        self.reap();
        let returns = self.engine.pool.returns();
        // Completions and sent replies let paused connections go on.
        for key in self.keys() {
            again |= self.send(key);
            self.close_if_over(key);
        }
        let now = Instant::now();
        if now >= self.checks_at || self.stopping.is_some() {
            self.checks_at = now + CHECK;
            self.check(now);
        }
        if self.is_withdrawing {
            self.is_withdrawing = self.engine.remove_withdrawn();
        }
        self.publish();
        // A connection that waits for memory has been looked at before one behind it gave some back.
        let is_any_paused = || self.connections.iter().any(|(_, connection)| connection.is_paused());
        again || (self.engine.pool.returns() != returns && is_any_paused())
    }

    /// Receives from a client and handles what has come. Returns true if there may be more.
    #[inline]
    fn receive(&mut self, key: usize) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let received = connection.receive(self.closing.takes_descriptors(), &self.engine.counters);
        let handled = received.and_then(|received| {
            connection.handle(key, &mut self.engine)?;
            Ok(received)
        });
        match handled {
            Ok(received) => received == Received::More,
            Err(error) => {
                self.cut_off(key, error);
                false
            }
        }
    }

    fn reap(&mut self) {
        if self.engine.is_busy() {
            self.engine.reap();
        }
        let mut finished = std::mem::take(&mut self.engine.finished);
        for Finished { connection, reply } in finished.drain(..) {
            // A connection stays while requests of it are in flight.
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.finish(reply, &mut self.engine);
            }
        }
        self.engine.finished = finished;
    }

    /// Sends a client's replies, and handles requests that have waited. Returns true if it went on.
    #[inline]
    fn send(&mut self, key: usize) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let mut result = Ok(false);
        if connection.sends() {
            let sent = connection.send(&mut self.engine);
            result = sent.and_then(|()| connection.start_tls(self.limits.tls.as_ref())).map(|()| false);
        }
        if connection.is_paused() && self.stopping.is_none() {
            result = result.and_then(|_| connection.handle(key, &mut self.engine));
        }
        match result {
            Ok(goes_on) => goes_on,
            Err(error) => {
                self.cut_off(key, error);
                false
            }
        }
    }

    /// Closes a connection that is over, and removes one that was closed and has no request in flight any more.
    #[inline]
    fn close_if_over(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key).filter(|connection| connection.is_over()) else {
            return;
        };
        if connection.socket().is_some() {
            self.disconnect(key);
        } else if connection.in_flight == 0 {
            self.connections.remove(key);
        }
    }

    /// Closes the connections of clients that are late.
    fn check(&mut self, now: Instant) {
        for key in self.keys() {
            let open = |connection: &&mut Connection| connection.socket().is_some();
            let Some(connection) = self.connections.get_mut(key).filter(open) else { continue };
            if self.stopping.is_some_and(|end| now > end) && connection.in_flight == 0 {
                self.disconnect(key);
            } else if let Err(error) = connection.check_progress(now, self.limits.progress_timeout) {
                self.cut_off(key, error);
            }
        }
    }

    /// Returns a range that has the keys of all connections.
    fn keys(&self) -> std::ops::Range<usize> {
        0..self.connections.iter().next_back().map_or(0, |(key, _)| key + 1)
    }

    fn cut_off(&mut self, key: usize, error: Error) {
        let Some(number) = self.connections.get(key).map(|connection| connection.number) else { return };
        self.close(key);
        self.engine.counters.cut_off.add(1);
        (self.report)(Event::CutOff { client: Some(number), error });
    }

    fn disconnect(&mut self, key: usize) {
        let Some(number) = self.connections.get(key).map(|connection| connection.number) else { return };
        self.close(key);
        (self.report)(Event::Disconnected { client: number });
    }

    fn close(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let descriptors = std::mem::take(&mut connection.descriptors);
        if let Some(socket) = connection.close(&mut self.engine) {
            self.closing.close(socket, descriptors);
        }
        if connection.in_flight == 0 {
            self.connections.remove(key);
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            if !self.accepts() {
                return;
            }
            match self.listener.accept() {
                Ok(None) => return,
                Ok(Some(socket)) => {
                    let number = self.number;
                    self.number += 1;
                    self.engine.counters.clients.add(1);
                    self.connections.insert(Connection::new(socket, number, self.limits.tls.is_some()));
                    (self.report)(Event::Connected { client: number });
                }
                Err(source) => {
                    self.accepts_from = Some(Instant::now() + PAUSE);
                    let error = Error::Io { what: "accept a client", source };
                    (self.report)(Event::CutOff { client: None, error });
                    return;
                }
            }
        }
    }

    /// Returns true if clients are accepted now.
    fn accepts(&mut self) -> bool {
        if self.accepts_from.is_some_and(|from| Instant::now() >= from) {
            self.accepts_from = None;
        }
        self.stopping.is_none()
            && self.accepts_from.is_none()
            && self.connections.len() < self.limits.clients
            && !self.closing.is_full()
    }

    /// Accepts and receives nothing more.
    fn stop(&mut self) {
        self.stopping = Some(Instant::now() + TIMEOUT_AT_END);
        self.connections.iter_mut().for_each(|(_, connection)| connection.end());
    }

    /// Waits for clients, for completions or for the order to stop; not at all if `again`. Fills `ready`.
    fn wait(&mut self, again: bool) -> Found {
        let accepts = self.accepts();
        let is_busy = self.engine.is_busy();
        let has_received = self.connections.iter().any(|(_, connection)| connection.has_received());
        let at_once = again || has_received || (is_busy && self.engine.arm());
        let is_pausing = self.accepts_from.is_some() || self.closing.is_full();
        let mut owes = self.stopping.is_some();
        let mut waiting = self.polled.take();
        let stop = if self.stopping.is_some() { PollFlags::empty() } else { PollFlags::IN };
        waiting.push(PollFd::new(&self.stop, stop));
        waiting.push(PollFd::new(&self.listener, if accepts { PollFlags::IN } else { PollFlags::empty() }));
        waiting.push(PollFd::new(&self.orders.signal, PollFlags::IN));
        let open = self
            .connections
            .iter()
            .filter_map(|(key, connection)| Some((key, connection, connection.socket()?)));
        for (_, connection, socket) in open {
            owes |= connection.owes();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.receives());
            flags.set(PollFlags::OUT, connection.sends());
            waiting.push(PollFd::new(socket, flags));
        }
        self.engine.descriptors(&mut waiting);
        let limit = match (at_once, is_pausing || is_busy, owes) {
            (true, ..) => Some(&Timespec { tv_sec: 0, tv_nsec: 0 }),
            (_, true, _) => Some(&LOOK),
            (.., true) => Some(&UNTIL_CHECK),
            _ => None,
        };
        self.waiter.wait(&mut waiting, limit);
        let [stop, client, order] = [0, 1, 2].map(|at| !waiting[at].revents().is_empty());
        let mut states = std::mem::take(&mut self.states);
        states.extend(waiting[3..].iter().map(PollFd::revents));
        self.polled.give_back(waiting);
        self.note(&states);
        states.clear();
        self.states = states;
        Found { stop, client: accepts && client, order }
    }

    /// Takes what poll(2) has found about each client.
    fn note(&mut self, states: &[PollFlags]) {
        let open = self.connections.iter().filter(|(_, connection)| connection.socket().is_some());
        for ((key, connection), state) in open.zip(states) {
            let is_gone = state.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
            if connection.receives() {
                if is_gone || state.contains(PollFlags::IN) || connection.has_received() {
                    self.ready.push(key);
                }
            } else if is_gone {
                self.gone.push(key);
            }
        }
        // Nobody receives the replies of those any more, and poll(2) would return at once each time.
        while let Some(key) = self.gone.pop() {
            self.disconnect(key);
        }
    }

    fn publish(&self) {
        let counters = &self.engine.counters;
        counters.connected.set(self.connections.len() as u64);
        counters.memory_bytes_max.raise(self.engine.pool.used_bytes_max() as u64);
    }
}
