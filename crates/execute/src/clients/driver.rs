//! Clients of a load, which run a program and talk to it.
//!
//! ```text
//!     timers (thinking, arrivals) ──► exchange: connect ──► send ──► receive ──► complete
//!                                        ▲         │ until there is room, until all has come │
//!                                        │         └──── Execution::run_until ◄──────────────┘
//!                                        └── next request: at once, after thinking, or when one arrives
//! ```
//!
//! Each connection is a slot, which has at most one exchange: a request and its response. In a closed load a slot is a
//! client. Nothing is polled: the execution runs until something has changed at a client, or until the next timer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::error::LoadError;
use super::load::{Arrivals, Load, Span};
use super::report::{Report, Times};
use super::response::{Mismatch, Response};
use crate::clock::Time;
use crate::execution::{Client, Connection, Execution, Progress};
use crate::machine::Machine;
use crate::random::Random;

/// Greatest number of requests that wait for a connection of an open load.
pub const WAITING_MAX: usize = 65_536;
/// Greatest number of responses that a report has.
pub const MEASURED_MAX: usize = 4 << 20;
/// Greatest number of bytes that a program writes to its outputs while clients run.
pub const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Interval at which clients look whether the program listens.
const LISTEN_INTERVAL: Time = Time::from_nanoseconds(100_000);
/// Number of bytes of the program's output that an error shows.
const OUTPUT_SHOWN: usize = 400;

/// Request that is being served.
#[derive(Clone, Debug)]
struct Exchange {
    /// Number of the request in the mix.
    request: usize,
    /// Number of the exchange, from 1.
    number: u64,
    /// Time at which the request arrived.
    arrived: Time,
    /// Time at which the first byte of the response came.
    first_byte: Option<Time>,
    /// Bytes of the request.
    bytes: Vec<u8>,
    /// Number of bytes that were sent.
    sent: usize,
    /// Response.
    response: Response,
}

/// Connection, with what happens at it.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// Client's end, if there is a connection.
    client: Option<Client>,
    /// Exchange, unless the connection is free.
    exchange: Option<Exchange>,
    /// Number in the mix of the latest request.
    latest: usize,
}

/// Event of a load at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The measured part begins.
    Begin,
    /// The measured part ends.
    End,
    /// Requests of an open load arrive.
    Arrival,
    /// A client has thought.
    Thought(usize),
}

/// Moment of a load at which an observer is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The measured part begins.
    Begin,
    /// The measured part ends.
    End,
}

/// State of the measured part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It has not begun.
    Before,
    /// It has begun.
    Measured {
        /// Time.
        time: Time,
        /// Number of retired instructions.
        instructions: u64,
        /// Number of returned calls.
        calls: u64,
    },
    /// It has ended.
    After,
}

/// Clients of a load, with the program that they are connected to.
pub struct Clients<M> {
    /// Program.
    execution: Execution<M>,
    /// Load.
    load: Load,
    /// Time at which the clients were made.
    start: Time,
    /// Time at which they look next whether the program listens.
    next_look: Time,
    /// True if the program listened, and the clients have begun.
    has_begun: bool,
    /// Source of random numbers.
    random: Random,
    /// Connections.
    slots: Vec<Slot>,
    /// Slots by their client's end.
    by_client: BTreeMap<Client, usize>,
    /// Slots of an open load that have no exchange, the one that was used last behind the others.
    free: Vec<usize>,
    /// Requests of an open load that wait for a slot: time of the arrival and number in the mix.
    waiting: VecDeque<(Time, usize)>,
    /// Timers, with a number that makes each unique and keeps those of one time in order.
    timers: BTreeSet<(Time, u64, Timer)>,
    /// Number of the latest timer.
    last_timer: u64,
    /// Number of exchanges that have begun.
    begun: u64,
    /// Number of exchanges that were completed.
    completed: u64,
    /// Number of exchanges in flight.
    in_flight: usize,
    /// Time of the latest begin of an exchange or receipt of bytes.
    progressed: Time,
    /// State of the measured part.
    part: Part,
    /// Report of what was measured, without the times.
    report: Report,
    /// Times to the first byte and to the last one.
    times: (Vec<Time>, Vec<Time>),
    /// Output of the program.
    output: Vec<u8>,
}

impl<M: Machine> Clients<M> {
    /// Makes the clients of a load.
    ///
    /// # Errors
    ///
    /// [`LoadError::Impossible`]: the load has no requests or clients, or one of its numbers is out of range.
    pub fn new(execution: Execution<M>, load: Load) -> Result<Clients<M>, LoadError> {
        if let Some(fault) = load.fault() {
            return Err(LoadError::Impossible(fault));
        }
        Ok(Clients {
            start: execution.time(),
            next_look: execution.time(),
            has_begun: false,
            execution,
            random: Random::new(load.seed),
            load,
            slots: Vec::new(),
            by_client: BTreeMap::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            timers: BTreeSet::new(),
            last_timer: 0,
            begun: 0,
            completed: 0,
            in_flight: 0,
            progressed: Time::ZERO,
            part: Part::Before,
            report: Report::default(),
            times: (Vec::new(), Vec::new()),
            output: Vec::new(),
        })
    }

    /// Runs the program with its clients until the load was measured or its requests are all served. Returns the report,
    /// and the execution without connections of these clients.
    ///
    /// Standard input of the program is at its end.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: the program does not listen, cannot be executed, ends or serves nothing; a response is wrong; or
    /// a limit is reached.
    pub fn run(self) -> Result<(Report, Execution<M>), LoadError> {
        self.run_observed(|_, _| {})
    }

    /// Runs the program as [`Clients::run`], and calls an observer when the measured part begins and when it ends: with
    /// what the machine has counted until then, the observer can tell what happened in between.
    ///
    /// # Errors
    ///
    /// As [`Clients::run`].
    pub fn run_observed(
        mut self,
        mut observe: impl FnMut(Moment, &mut Execution<M>),
    ) -> Result<(Report, Execution<M>), LoadError> {
        while !self.run_for(Time::MAX, u64::MAX, &mut observe)? {}
        Ok(self.finish(&mut observe))
    }

    /// Runs the program as [`Clients::run_observed`], until a time has come or about `instructions` were executed, as
    /// [`Execution::run_for`] counts them. Returns true if the load was measured or its requests are all served; after
    /// false the next call goes on. Pauses for the number of instructions do not change the run.
    ///
    /// # Errors
    ///
    /// As [`Clients::run`].
    pub fn run_for(
        &mut self,
        limit: Time,
        mut instructions: u64,
        observe: &mut impl FnMut(Moment, &mut Execution<M>),
    ) -> Result<bool, LoadError> {
        if !self.has_begun {
            if !self.wait_for_listener(limit, &mut instructions)? {
                return Ok(false);
            }
            self.has_begun = true;
            self.begin(observe)?;
        }
        while !self.is_done() {
            if self.execution.time() >= limit || instructions == 0 {
                return Ok(false);
            }
            let progress = self.execution.run_for(self.limit().min(limit), &mut instructions)?;
            for client in self.execution.client_events() {
                if let Some(&slot) = self.by_client.get(&client)
                    && !self.is_done()
                {
                    self.advance(slot)?;
                    self.measure(observe);
                }
            }
            self.take_output()?;
            match progress {
                Progress::Input => self.execution.input(b"", true),
                Progress::Ended(end) if !self.is_done() => {
                    let (in_flight, output) = (self.in_flight, self.shown_output());
                    return Err(LoadError::ProgramEnded { end, in_flight, output });
                }
                Progress::Idle if !self.is_done() => return Err(self.timeout()),
                _ => {}
            }
            self.fire_timers(observe)?;
            if self.in_flight > 0 && self.waited() >= self.load.timeout && !self.is_done() {
                return Err(self.timeout());
            }
        }
        self.end(observe);
        Ok(true)
    }

    /// Returns the program that the clients are connected to.
    pub fn execution(&self) -> &Execution<M> {
        &self.execution
    }

    /// Returns what the program has written, standard output and standard error.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Returns the number of responses that were completed, those before the measured part included.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Runs the program until it listens, a time has come, or the instructions are used up. Returns true if it listens.
    fn wait_for_listener(&mut self, limit: Time, instructions: &mut u64) -> Result<bool, LoadError> {
        let deadline = self.start + self.load.timeout;
        loop {
            let now = self.execution.time();
            // Looking after a pause, too, would let the clients begin earlier.
            if now >= self.next_look {
                if self.execution.is_listening(self.load.port) {
                    return Ok(true);
                }
                if now >= deadline {
                    return Err(LoadError::NothingListens {
                        port: self.load.port,
                        milliseconds: now.since(self.start).nanoseconds() / 1_000_000,
                        output: self.shown_output(),
                    });
                }
                self.next_look = deadline.min(now + LISTEN_INTERVAL);
            }
            if now >= limit || *instructions == 0 {
                return Ok(false);
            }
            match self.execution.run_for(self.next_look.min(limit), instructions)? {
                Progress::Time | Progress::Paused => {}
                Progress::Ended(end) => {
                    self.take_output()?;
                    return Err(LoadError::ProgramEnded { end, in_flight: 0, output: self.shown_output() });
                }
                other => {
                    match other {
                        Progress::Input => self.execution.input(b"", true),
                        Progress::Clients => drop(self.execution.client_events()),
                        _ => {}
                    }
                    self.next_look = self.execution.time();
                }
            }
            self.take_output()?;
        }
    }

    /// Lets the clients begin.
    fn begin(&mut self, observe: &mut impl FnMut(Moment, &mut Execution<M>)) -> Result<(), LoadError> {
        let now = self.execution.time();
        self.progressed = now;
        if let Span::Time(time) = self.load.warm_up {
            self.set_timer(now + time, Timer::Begin);
        }
        self.measure(observe);
        match self.load.arrivals {
            Arrivals::Closed { clients, .. } => {
                self.slots = vec![Slot::default(); clients];
                for slot in 0..clients {
                    self.think(slot, now)?;
                }
            }
            Arrivals::Open { rate, burst, .. } => self.set_next_arrival(now, rate, burst),
        }
        Ok(())
    }

    /// Returns whether all that should be measured is, or all requests are served.
    fn is_done(&self) -> bool {
        let is_idle = self.in_flight == 0 && self.waiting.is_empty();
        self.part == Part::After || (is_idle && self.load.mix.is_exhausted())
    }

    /// Returns the time until which the program may run if nothing changes at a client.
    fn limit(&self) -> Time {
        let timer = self.timers.first().map_or(Time::MAX, |&(at, ..)| at);
        if self.in_flight > 0 { timer.min(self.progressed + self.load.timeout) } else { timer }
    }

    /// Adds a timer.
    fn set_timer(&mut self, at: Time, timer: Timer) {
        self.last_timer += 1;
        self.timers.insert((at, self.last_timer, timer));
    }

    /// Carries out what timers say whose time has come.
    fn fire_timers(&mut self, observe: &mut impl FnMut(Moment, &mut Execution<M>)) -> Result<(), LoadError> {
        let now = self.execution.time();
        while let Some(&first) = self.timers.first().filter(|&&(at, ..)| at <= now)
            && !self.is_done()
        {
            self.timers.remove(&first);
            let (at, _, timer) = first;
            match timer {
                Timer::Begin => self.begin_part(observe),
                Timer::End => self.end(observe),
                Timer::Arrival => self.arrive(at)?,
                Timer::Thought(slot) => self.send_next(slot, at)?,
            }
        }
        Ok(())
    }

    /// Lets a client of a closed load think, and then send its next request.
    fn think(&mut self, slot: usize, now: Time) -> Result<(), LoadError> {
        let Arrivals::Closed { think, .. } = self.load.arrivals else { return Ok(()) };
        if think == Time::ZERO {
            return self.send_next(slot, now);
        }
        let time = self.exponential(think.picoseconds() as f64);
        self.set_timer(now + time, Timer::Thought(slot));
        Ok(())
    }

    /// Returns a time of an exponential distribution with a mean in picoseconds.
    fn exponential(&mut self, mean: f64) -> Time {
        // A conversion to an integer takes the greatest one instead of a greater number.
        Time::from_picoseconds((self.random.exponential() * mean) as u64)
    }

    /// Sets the timer of an open load's next burst.
    fn set_next_arrival(&mut self, after: Time, rate: f64, burst: f64) {
        let gap = self.exponential(burst / rate * 1e12);
        self.set_timer(after + gap, Timer::Arrival);
    }

    /// Lets a burst of an open load arrive.
    fn arrive(&mut self, at: Time) -> Result<(), LoadError> {
        let Arrivals::Open { rate, burst, .. } = self.load.arrivals else { return Ok(()) };
        while let Some(request) = self.load.mix.choose(&mut self.random) {
            if self.waiting.len() >= WAITING_MAX {
                return Err(LoadError::Overloaded(WAITING_MAX));
            }
            self.waiting.push_back((at, request));
            self.assign()?;
            if self.random.unit_interval() <= 1.0 / burst {
                break;
            }
        }
        if !self.load.mix.is_exhausted() {
            self.set_next_arrival(at, rate, burst);
        }
        Ok(())
    }

    /// Gives waiting requests of an open load to free slots, or to new ones.
    fn assign(&mut self) -> Result<(), LoadError> {
        let Arrivals::Open { connections, .. } = self.load.arrivals else { return Ok(()) };
        while !self.waiting.is_empty() {
            let slot = match self.free.pop() {
                Some(slot) => slot,
                None if self.slots.len() < connections => {
                    self.slots.push(Slot::default());
                    self.slots.len() - 1
                }
                None => return Ok(()),
            };
            if let Some((arrived, request)) = self.waiting.pop_front() {
                self.exchange(slot, request, arrived)?;
            }
        }
        Ok(())
    }

    /// Lets a client of a closed load send the mix's next request, if there is one.
    fn send_next(&mut self, slot: usize, arrived: Time) -> Result<(), LoadError> {
        match self.load.mix.choose(&mut self.random) {
            Some(request) => self.exchange(slot, request, arrived),
            None => Ok(()),
        }
    }

    /// Begins an exchange at a slot that has none.
    fn exchange(&mut self, slot: usize, request: usize, arrived: Time) -> Result<(), LoadError> {
        let wanted = self.load.mix.request(request);
        self.begun += 1;
        self.in_flight += 1;
        self.progressed = self.execution.time();
        self.slots[slot].latest = request;
        self.slots[slot].exchange = Some(Exchange {
            request,
            number: self.begun,
            arrived,
            first_byte: None,
            bytes: wanted.encoded(!self.load.keeps_connections),
            sent: 0,
            response: Response::new(wanted),
        });
        if self.slots[slot].client.is_some() {
            return self.advance(slot);
        }
        let client = self.execution.connect(self.load.port)?;
        self.slots[slot].client = Some(client);
        self.by_client.insert(client, slot);
        self.report.connections += 1;
        Ok(())
    }

    /// Continues what happens at a slot's connection, after something has changed there.
    fn advance(&mut self, slot: usize) -> Result<(), LoadError> {
        let Some(client) = self.slots[slot].client else { return Ok(()) };
        match self.execution.connection(client) {
            Connection::Connecting => return Ok(()),
            Connection::Refused => {
                return Err(LoadError::Refused { request: self.named(slot), port: self.load.port });
            }
            Connection::Open | Connection::Ended => {}
        }
        self.send(slot, client);
        let bytes = self.execution.receive(client);
        let is_ended = self.execution.connection(client) == Connection::Ended;
        let now = self.execution.time();
        let Some(exchange) = &mut self.slots[slot].exchange else {
            return self.rest(slot, bytes.len(), is_ended);
        };
        let request = self.load.mix.request(exchange.request);
        if !bytes.is_empty() {
            exchange.first_byte.get_or_insert(now);
            self.progressed = now;
        }
        let taken = exchange.response.take(request, &bytes);
        let taken = taken.and_then(|count| {
            if is_ended && !exchange.response.is_complete() {
                exchange.response.end(request)?;
            }
            Ok(count)
        });
        match taken {
            Ok(count) => self.report.bytes += count,
            Err(mismatch) => return Err(self.wrong(slot, mismatch)),
        }
        // A complete response to a part of the request is as good: the program has refused the rest.
        let is_complete =
            self.slots[slot].exchange.as_ref().is_some_and(|exchange| exchange.response.is_complete());
        if is_complete { self.complete(slot, client, is_ended, now) } else { Ok(()) }
    }

    /// Sends what there is room for of a slot's request. A connection that takes no more shows in what it receives.
    fn send(&mut self, slot: usize, client: Client) {
        let Some(exchange) = &mut self.slots[slot].exchange else { return };
        while exchange.sent < exchange.bytes.len() {
            match self.execution.send(client, &exchange.bytes[exchange.sent..]) {
                Ok(0) | Err(_) => return,
                Ok(count) => exchange.sent += count,
            }
        }
    }

    /// Looks at a connection without an exchange: it may end, but nothing may come.
    fn rest(&mut self, slot: usize, bytes: usize, is_ended: bool) -> Result<(), LoadError> {
        if bytes > 0 {
            let before = format!("\"{}\"", self.load.mix.request(self.slots[slot].latest).name());
            return Err(LoadError::Unrequested { client: slot, bytes, before });
        }
        if is_ended {
            self.disconnect(slot);
        }
        Ok(())
    }

    /// Counts a complete response, and lets the client go on.
    fn complete(&mut self, slot: usize, client: Client, is_ended: bool, now: Time) -> Result<(), LoadError> {
        debug_assert_eq!(self.by_client.get(&client), Some(&slot));
        let Some(exchange) = self.slots[slot].exchange.take() else { return Ok(()) };
        self.in_flight -= 1;
        self.completed += 1;
        if let Part::Measured { .. } = self.part {
            if self.times.1.len() >= MEASURED_MAX {
                return Err(LoadError::TooMany(MEASURED_MAX));
            }
            self.times.0.push(exchange.first_byte.unwrap_or(now).since(exchange.arrived));
            self.times.1.push(now.since(exchange.arrived));
            *self.report.statuses.entry(exchange.response.status()).or_default() += 1;
        }
        let is_cut = exchange.sent < exchange.bytes.len();
        if is_ended || is_cut || exchange.response.is_last() || !self.load.keeps_connections {
            self.disconnect(slot);
        }
        match self.load.arrivals {
            Arrivals::Closed { .. } => self.think(slot, now),
            Arrivals::Open { .. } => {
                self.free.push(slot);
                self.assign()
            }
        }
    }

    /// Closes a slot's connection.
    fn disconnect(&mut self, slot: usize) {
        if let Some(client) = self.slots[slot].client.take() {
            self.by_client.remove(&client);
            self.execution.close(client);
        }
    }

    /// Begins or ends the measured part if enough responses have come.
    fn measure(&mut self, observe: &mut impl FnMut(Moment, &mut Execution<M>)) {
        match (self.part, self.load.warm_up, self.load.measured) {
            (Part::Before, Span::Responses(count), _) if self.completed >= count => self.begin_part(observe),
            (Part::Measured { .. }, _, Span::Responses(count)) if self.times.1.len() as u64 >= count => {
                self.end(observe);
            }
            _ => {}
        }
    }

    /// Begins the measured part.
    fn begin_part(&mut self, observe: &mut impl FnMut(Moment, &mut Execution<M>)) {
        let time = self.execution.time();
        self.report = Report::default();
        let (instructions, (calls, _)) = (self.execution.retired(), self.execution.calls());
        self.part = Part::Measured { time, instructions, calls };
        if let Span::Time(length) = self.load.measured {
            self.set_timer(time + length, Timer::End);
        }
        observe(Moment::Begin, &mut self.execution);
    }

    /// Ends the measured part, if it has begun and not ended.
    fn end(&mut self, observe: &mut impl FnMut(Moment, &mut Execution<M>)) {
        let Part::Measured { time, instructions, calls } = self.part else { return };
        self.part = Part::After;
        self.report.duration = self.execution.time().since(time);
        self.report.in_flight = (self.in_flight + self.waiting.len()) as u64;
        self.report.instructions = self.execution.retired() - instructions;
        self.report.calls = self.execution.calls().0 - calls;
        observe(Moment::End, &mut self.execution);
    }

    /// Ends the measured part if it has begun and not ended, closes the connections, and returns the report and the
    /// execution.
    pub fn finish(mut self, observe: &mut impl FnMut(Moment, &mut Execution<M>)) -> (Report, Execution<M>) {
        self.end(observe);
        for slot in 0..self.slots.len() {
            self.disconnect(slot);
        }
        let (first_byte, whole) = (Times::new(self.times.0), Times::new(self.times.1));
        let output = String::from_utf8_lossy(&self.output).into_owned();
        (Report { first_byte, whole, output, ..self.report }, self.execution)
    }

    /// Takes the program's output.
    fn take_output(&mut self) -> Result<(), LoadError> {
        for (_, text) in self.execution.output() {
            self.output.extend(text);
        }
        if self.output.len() > OUTPUT_BYTES_MAX {
            return Err(LoadError::TooMuchOutput(OUTPUT_BYTES_MAX));
        }
        Ok(())
    }

    /// Returns the end of the program's output, with words before it; nothing if the program has written nothing.
    fn shown_output(&self) -> String {
        if self.output.is_empty() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&self.output[self.output.len().saturating_sub(OUTPUT_SHOWN)..]);
        format!("; its output ends with {:?}", text.trim_end())
    }

    /// Returns the time since an exchange has begun or bytes were received.
    fn waited(&self) -> Time {
        self.execution.time().since(self.progressed)
    }

    /// Makes the error that requests are in flight and nothing comes.
    fn timeout(&self) -> LoadError {
        let arrived = |slot: &usize| self.slots[*slot].exchange.as_ref().map(|exchange| exchange.arrived);
        let oldest = (0..self.slots.len()).filter(|slot| arrived(slot).is_some()).min_by_key(arrived);
        LoadError::Timeout {
            milliseconds: self.waited().nanoseconds() / 1_000_000,
            in_flight: self.in_flight,
            request: oldest.map_or("none".into(), |slot| self.named(slot)),
            output: self.shown_output(),
        }
    }

    /// Makes the error of a wrong response.
    fn wrong(&self, slot: usize, mismatch: Mismatch) -> LoadError {
        LoadError::Response { request: self.named(slot), mismatch }
    }

    /// Returns the name of a slot's exchange.
    fn named(&self, slot: usize) -> String {
        match &self.slots[slot].exchange {
            Some(Exchange { request, number, .. }) => {
                format!("request {number}, \"{}\" of client {slot}", self.load.mix.request(*request).name())
            }
            None => format!("client {slot}, without a request"),
        }
    }
}
