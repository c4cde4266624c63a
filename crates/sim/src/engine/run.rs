//! Execution of jobs, which run through their scripts.
//!
//! A job is in one of three states: its event is in the queue (the job occupies a server or delays), it waits
//! at a station, or it waits for the jobs that it forked. After its event, a job executes its script until it
//! reaches one of these states again. Jobs that this releases execute next, at the same simulated moment, in
//! the order of their release.
//!
//! Invariant: no job waits at a station that has a free server. An event costs one push and one pop of the
//! queue and some twenty instructions. Nothing is allocated once the largest number of simultaneous jobs has
//! been reached.

mod line;
mod outside;

use super::arm::Arm;
use super::coherence::{Caches, Coherence, Moves};
use super::controller::{Command, Controller};
use super::measure::Sample;
use super::net::{ARRIVALS_MAX, Net, Op, Register, Registers, ServiceTime};
use super::queue::{Queue, WHO_MAX};
use super::random::Random;
use super::time::Time;
use super::timeline::Timeline;
use line::{EMPTY, WaitingLine, append, take_by_arm, take_first};
use serde::Serialize;
use std::ops::Deref;

const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Job {
    /// Index of the next operation in the net's `ops`.
    at: u32,
    /// Index behind the last operation of the job's script.
    end: u32,
    /// Next job in the same line of waiting jobs, or in the list of ended jobs; `NOBODY` at the end.
    next: u32,
    /// Job that forked this one and has to join it; `NOBODY` for an independent job.
    parent: u32,
    /// Number of jobs that this one forked and that have not ended.
    children: u32,
    /// True while the job occupies the server of its current operation.
    served: bool,
    /// True while the job waits for the jobs that it forked.
    joins: bool,
    /// Start of the job's request.
    began: Time,
    /// Start of the job's stall.
    stalled: Time,
    registers: Registers,
}

#[derive(Clone, Debug)]
struct StationState {
    servers: u32,
    busy: u32,
    waiting: u32,
    /// Lines of waiting jobs: first those of `UseFirst`, then all others.
    lines: [WaitingLine; 2],
    /// Time integrals of `busy` and `waiting` up to `since`, in picoseconds times jobs.
    busy_time: u128,
    waiting_time: u128,
    work_time: u128,
    stall_time: u128,
    since: Time,
    served: u64,
    arm: Option<Arm>,
    controller: Option<Controller>,
    /// Numbers of the free servers, if the servers are numbered.
    free: Option<Vec<u32>>,
}

impl StationState {
    fn note(&mut self, now: Time) {
        let past = u128::from((now - self.since).0);
        self.busy_time += past * u128::from(self.busy);
        self.waiting_time += past * u128::from(self.waiting);
        self.since = now;
    }

    fn forget(&mut self, now: Time) {
        (self.busy_time, self.waiting_time, self.work_time, self.stall_time) = (0, 0, 0, 0);
        (self.served, self.since) = (0, now);
    }
}

/// Condition that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCondition {
    /// Ends after a number of finished requests.
    Requests {
        /// Requests of the warm-up, which is not measured.
        warm_up: u64,
        /// Requests that are measured after the warm-up.
        requests: u64,
    },
    /// Ends after a simulated time.
    Time {
        /// Duration of the warm-up, which is not measured.
        warm_up: Time,
        /// Duration of the measurement after the warm-up.
        time: Time,
    },
}

/// Execution of a net, with the state of all jobs and stations, and with the processors' caches `C`. `N` is a
/// reference to the net, or owns it.
#[derive(Clone, Debug)]
pub struct Run<N, C = Caches> {
    net: N,
    now: Time,
    queue: Queue,
    random: Random,
    jobs: Vec<Job>,
    /// First of the list of ended jobs, whose entries are reused; `NOBODY` if the list is empty.
    ended: u32,
    places: Vec<StationState>,
    caches: Option<C>,
    /// Notes of jobs that the caller has not taken, in order.
    notes: std::collections::VecDeque<u32>,
    /// Released jobs that continue at this moment, in order.
    ready: std::collections::VecDeque<u32>,
    /// Times of the arrivals that no job has taken yet, at most [`ARRIVALS_MAX`].
    arrivals: std::collections::VecDeque<Time>,
    /// Jobs that wait for an arrival, in order.
    awaiting: WaitingLine,
    /// For each record of the net, true if it has started; empty until the first has.
    started: Vec<bool>,
    /// Jobs that wait for a record to start, by its number.
    blocked: std::collections::HashMap<u32, Vec<u32>>,
    /// True if more arrivals than [`ARRIVALS_MAX`] waited; the run has stopped then.
    is_flooded: bool,
    response: Sample,
    /// Seconds between the ends of consecutive requests.
    gaps: Sample,
    last_finish: Time,
    finished: u64,
    bytes: u64,
    events: u64,
    measured_since: Time,
    timeline: Option<Box<Timeline>>,
}

/// Utilisation of one station.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StationUse {
    /// Name of the station.
    pub name: String,
    /// Number of servers.
    pub servers: u32,
    /// Mean share of the servers that were occupied, 0 to 1.
    pub utilisation: f64,
    /// Mean share of the servers that worked, 0 to 1. It is below `utilisation` if jobs kept a server while
    /// they waited for something else.
    pub working: f64,
    /// Mean share of the servers whose jobs stalled, 0 to 1.
    pub stalled: f64,
    /// Mean number of jobs that waited for a server.
    pub waiting: f64,
    /// Number of jobs that were given a server.
    pub served: u64,
}

/// Result of a run, measured from the end of its warm-up.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Measured time, in simulated seconds.
    pub seconds: f64,
    /// Number of requests that finished.
    pub finished: u64,
    /// Sum of these requests' sizes, in bytes.
    pub bytes: u64,
    /// Response times: seconds from the beginning to the end of a request.
    pub response: Sample,
    /// Seconds between the ends of consecutive requests.
    pub gaps: Sample,
    /// Utilisation of the stations, in the order of creation.
    pub stations: Vec<StationUse>,
    /// Number of events, including those of the warm-up.
    pub events: u64,
    /// True if the run reached its end: the watcher did not stop it, events did not run out before the
    /// requests finished, and no flood of arrivals ended it.
    pub is_whole: bool,
    /// True if the run stopped because too many arrivals waited.
    pub is_flooded: bool,
    /// Record of the jobs that occupied the stations, if one was requested.
    pub timeline: Option<Box<Timeline>>,
}

impl RunResult {
    /// Returns the throughput in requests per second.
    pub fn rate(&self) -> f64 {
        self.finished as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

impl<N: Deref<Target = Net>> Run<N> {
    /// Creates a run of `net` at time 0, with the caches of the net. Equal seeds give equal runs.
    ///
    /// # Panics
    /// If the net begins with more jobs than the queue of events can number.
    pub fn new(net: N, seed: u64) -> Run<N> {
        let caches = net.caches.clone();
        Run::with_caches(net, seed, caches)
    }
}

impl<N: Deref<Target = Net>, C: Coherence> Run<N, C> {
    /// Creates a run of `net` at time 0, in which [`Op::Touch`] uses `caches`. Equal seeds give equal runs.
    ///
    /// # Panics
    /// If the net begins with more jobs than the queue of events can number.
    pub fn with_caches(net: N, seed: u64, caches: Option<C>) -> Run<N, C> {
        assert!((net.first.len() as u32) < WHO_MAX, "too many jobs");
        let place = |(_, servers): &(String, u32)| StationState {
            servers: *servers,
            busy: 0,
            waiting: 0,
            lines: [EMPTY; 2],
            busy_time: 0,
            waiting_time: 0,
            work_time: 0,
            stall_time: 0,
            since: Time(0),
            served: 0,
            arm: None,
            controller: None,
            free: None,
        };
        let mut run = Run {
            now: Time(0),
            queue: Queue::default(),
            random: Random::new(seed),
            jobs: Vec::new(),
            ended: NOBODY,
            places: net.stations.iter().map(place).collect(),
            caches,
            notes: std::collections::VecDeque::new(),
            ready: std::collections::VecDeque::new(),
            arrivals: std::collections::VecDeque::new(),
            awaiting: EMPTY,
            started: Vec::new(),
            blocked: std::collections::HashMap::new(),
            is_flooded: false,
            response: Sample::with_distribution(),
            gaps: Sample::default(),
            last_finish: Time(0),
            finished: 0,
            bytes: 0,
            events: 0,
            measured_since: Time(0),
            timeline: None,
            net,
        };
        for (station, arm, controller) in &run.net.disks {
            let place = &mut run.places[*station as usize];
            (place.arm, place.controller) = (Some(*arm), Some(controller.clone()));
        }
        for station in &run.net.numbered {
            let place = &mut run.places[*station as usize];
            place.free = Some((0..place.servers).rev().collect());
        }
        for number in 0..run.net.first.len() {
            let (script, registers) = run.net.first[number];
            let job = run.make(script.0, NOBODY, registers);
            run.ready.push_back(job);
        }
        run.settle(false);
        run
    }

    /// Records the first `most` spans of occupied servers from the end of the warm-up on.
    pub fn with_timeline(mut self, most: usize) -> Run<N, C> {
        self.timeline = Some(Box::new(Timeline::new(
            self.net.stations.iter().map(|(name, _)| name.clone()).collect(),
            most,
        )));
        self
    }

    /// Returns the record of the occupied servers so far, if there is one.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_deref()
    }

    /// Runs until `warm_up` requests have finished, discards the measurements, and runs until `requests` more
    /// have finished.
    pub fn until_finished(self, warm_up: u64, requests: u64) -> RunResult {
        self.run_until(StopCondition::Requests { warm_up, requests }, &mut |_| true)
    }

    /// Runs for `warm_up`, discards the measurements, and runs for `time`.
    pub fn until_time(self, warm_up: Time, time: Time) -> RunResult {
        self.run_until(StopCondition::Time { warm_up, time }, &mut |_| true)
    }

    /// Runs until `end`. Calls `watch` from time to time with the share that is done, 0 to 1, and stops if
    /// `watch` returns false.
    pub fn run_until(mut self, end: StopCondition, watch: &mut dyn FnMut(f64) -> bool) -> RunResult {
        match end {
            StopCondition::Requests { warm_up, requests } => {
                let all = (warm_up + requests).max(1) as f64;
                let mut share = |run: &Self, before: u64| watch((before + run.finished) as f64 / all);
                let mut is_whole = self.go(Time::MAX, warm_up, &mut |run| share(run, 0));
                if is_whole {
                    self.forget();
                    is_whole = self.go(Time::MAX, requests, &mut |run| share(run, warm_up));
                }
                self.outcome(is_whole)
            }
            StopCondition::Time { warm_up, time } => {
                let end = warm_up + time;
                let mut share = |run: &Self| watch(run.now.seconds() / end.seconds().max(f64::MIN_POSITIVE));
                let mut is_whole = self.go(warm_up, u64::MAX, &mut share);
                if is_whole {
                    self.now = warm_up;
                    self.forget();
                    is_whole = self.go(end, u64::MAX, &mut share);
                }
                if is_whole {
                    self.now = end;
                }
                self.outcome(is_whole)
            }
        }
    }

    /// Runs until `end` or until `requests` requests have finished. Returns false if `watch` stops the run, if
    /// too many arrivals wait, or if the events run out and `end` is [`Time::MAX`].
    fn go(&mut self, end: Time, requests: u64, watch: &mut dyn FnMut(&Self) -> bool) -> bool {
        while self.finished < requests {
            match self.queue.first() {
                Some((at, _)) if at > end => return true,
                Some((at, job)) => {
                    self.now = at;
                    self.events += 1;
                    if self.events.is_multiple_of(EVENTS_UNWATCHED) && !watch(self) {
                        return false;
                    }
                    self.happen(job);
                    if self.is_flooded {
                        return false;
                    }
                }
                None => return end != Time::MAX,
            }
        }
        true
    }

    fn forget(&mut self) {
        for place in &mut self.places {
            place.note(self.now);
            place.forget(self.now);
        }
        (self.response, self.gaps) = (Sample::with_distribution(), Sample::default());
        (self.finished, self.bytes) = (0, 0);
        (self.measured_since, self.last_finish) = (self.now, self.now);
        if let Some(timeline) = &mut self.timeline {
            timeline.spans.clear();
        }
    }

    fn outcome(mut self, is_whole: bool) -> RunResult {
        let seconds = (self.now - self.measured_since).seconds();
        let all = ((self.now - self.measured_since).0 as f64).max(1.0);
        let now = self.now;
        let stations = self.places.iter_mut().zip(&self.net.stations).map(|(place, (name, _))| {
            place.note(now);
            StationUse {
                name: name.clone(),
                servers: place.servers,
                utilisation: place.busy_time as f64 / all / f64::from(place.servers),
                working: place.work_time as f64 / all / f64::from(place.servers),
                stalled: place.stall_time as f64 / all / f64::from(place.servers),
                waiting: place.waiting_time as f64 / all,
                served: place.served,
            }
        });
        RunResult {
            seconds,
            finished: self.finished,
            bytes: self.bytes,
            stations: stations.collect(),
            response: self.response,
            gaps: self.gaps,
            events: self.events,
            is_whole,
            is_flooded: self.is_flooded,
            timeline: self.timeline,
        }
    }

    /// Executes the event of `job`, which must be the first of the queue.
    fn happen(&mut self, job: u32) {
        // If the job's next event is known at once, it replaces this one in the queue.
        let mut next = None;
        let Job { at, registers, .. } = self.jobs[job as usize];
        self.jobs[job as usize].at = match self.net.ops[at as usize] {
            Op::Use { station, .. } | Op::UseFirst { station, .. } => {
                self.jobs[job as usize].served = false;
                self.leave(station.number(&registers), job);
                at + 1
            }
            Op::Record { .. } => self.net.records[registers.records.0 as usize - 1].to,
            _ => at + 1,
        };
        self.go_on(job, &mut next);
        let mut is_over = true;
        if let Some(when) = next {
            self.queue.replace(when, job);
            is_over = false;
        }
        self.settle(is_over);
    }

    /// Continues the released jobs. If `is_over`, the first event of the queue has happened and is replaced
    /// or removed.
    fn settle(&mut self, mut is_over: bool) {
        while let Some(job) = self.ready.pop_front() {
            let mut next = None;
            self.go_on(job, &mut next);
            match next {
                Some(when) if std::mem::take(&mut is_over) => self.queue.replace(when, job),
                Some(when) => self.queue.push(when, job),
                None => {}
            }
        }
        if is_over {
            self.queue.pop();
        }
    }

    /// Executes the script of `job` until the job waits. Sets `next` to the time of the job's next event, if
    /// that is known.
    fn go_on(&mut self, job: u32, next: &mut Option<Time>) {
        loop {
            let Job { at, end, .. } = self.jobs[job as usize];
            if at >= end {
                return self.end_job(job);
            }
            let mut to = at + 1;
            match self.net.ops[at as usize] {
                Op::Use { station, time } => {
                    return self.serve(
                        job,
                        station.number(&self.jobs[job as usize].registers),
                        time,
                        1,
                        next,
                    );
                }
                Op::UseFirst { station, time } => {
                    return self.serve(
                        job,
                        station.number(&self.jobs[job as usize].registers),
                        time,
                        0,
                        next,
                    );
                }
                Op::Seize(station) => {
                    let Job { served, registers, .. } = &mut self.jobs[job as usize];
                    let station = station.number(registers);
                    if !std::mem::take(served) && !self.enter(job, station, 1) {
                        return;
                    }
                }
                Op::Free(station) => {
                    let station = station.number(&self.jobs[job as usize].registers);
                    self.leave(station, job);
                }
                Op::Work { station, time } => {
                    let registers = &self.jobs[job as usize].registers;
                    let time = time.draw(&mut self.random, registers);
                    self.places[station.number(registers) as usize].work_time += u128::from(time.0);
                }
                Op::Delay(time) => {
                    let time = time.draw(&mut self.random, &self.jobs[job as usize].registers);
                    *next = Some(self.now + time);
                    return;
                }
                Op::JumpWithProbability { chance, to: there } => {
                    if self.random.unit_interval() <= chance {
                        to = there;
                    }
                }
                Op::Pick { register, count } => {
                    self.jobs[job as usize].registers.picks[register as usize] =
                        self.random.below(u64::from(count)) as u32;
                }
                Op::Size { bytes, block } => {
                    let registers = &mut self.jobs[job as usize].registers;
                    (registers.bytes, registers.remaining, registers.block) = (bytes, bytes, block);
                }
                Op::NextBlock { to: there } => {
                    let registers = &mut self.jobs[job as usize].registers;
                    if registers.remaining > registers.block {
                        registers.remaining -= registers.block;
                        to = there;
                    } else {
                        registers.remaining = registers.bytes;
                    }
                }
                Op::ReadAhead { most, to: there } => {
                    let Registers { bytes, read_ahead: ahead, .. } = &mut self.jobs[job as usize].registers;
                    if *ahead >= *bytes {
                        *ahead -= *bytes;
                        to = there;
                    } else {
                        *ahead = most.saturating_sub(*bytes);
                    }
                }
                Op::Record { to: there } => {
                    let registers = &mut self.jobs[job as usize].registers;
                    if registers.records.0 >= registers.records.1 {
                        to = there;
                    } else {
                        let record = self.net.records[registers.records.0 as usize];
                        registers.records.0 += 1;
                        (registers.bytes, registers.remaining) = (record.bytes, record.bytes);
                        registers.block = record.block;
                        registers.picks[Register::Disk as usize] = record.disk;
                        registers.picks[Register::Interface as usize] = record.interface;
                        (registers.computed, registers.paused) = (record.computed, record.paused);
                        *next = Some(self.now.max(record.at));
                        return;
                    }
                }
                Op::StartRecord => {
                    let record = self.jobs[job as usize].registers.records.0 - 1;
                    if self.started.is_empty() {
                        self.started = vec![false; self.net.records.len()];
                    }
                    self.started[record as usize] = true;
                    self.ready.extend(self.blocked.remove(&record).into_iter().flatten());
                }
                Op::AwaitRecord => {
                    let record = self.jobs[job as usize].registers.records.0 - 1;
                    if let Some(after) = self.net.records[record as usize].after.checked_sub(1)
                        && !self.started.get(after as usize).is_some_and(|started| *started)
                    {
                        self.blocked.entry(after).or_default().push(job);
                        return;
                    }
                }
                Op::BeginStall => {
                    let job = &mut self.jobs[job as usize];
                    (job.stalled, job.registers.memory_time) = (self.now, Time(0));
                }
                Op::EndStall(station) => {
                    let Job { stalled, registers, .. } = &self.jobs[job as usize];
                    // A stall that began before the measurement counts from the measurement's start.
                    let stalled = self.now - (*stalled).max(self.measured_since);
                    self.places[station.number(registers) as usize].stall_time += u128::from(stalled.0);
                }
                Op::Touch { access, region, buffer, waits } => {
                    let registers = &mut self.jobs[job as usize].registers;
                    if let Some(caches) = &mut self.caches {
                        let size = registers.remaining.min(registers.block);
                        let moves = caches.touch(access, region, buffer, registers);
                        let Moves { written_back, fetched, replaced } = moves;
                        registers.moved = [written_back, fetched, replaced, size - fetched];
                        if waits {
                            registers.memory_time = registers.memory_time + caches.idle_time(moves);
                        }
                    }
                }
                Op::JumpUnlessMoved { movement, to: there } => {
                    if self.jobs[job as usize].registers.moved[movement as usize] == 0 {
                        to = there;
                    }
                }
                Op::NextCommand { bytes_max, to: there } => {
                    let registers = &mut self.jobs[job as usize].registers;
                    registers.commanded = registers.commanded.saturating_add(bytes_max);
                    if registers.commanded < registers.bytes {
                        to = there;
                    } else {
                        registers.commanded = 0;
                    }
                }
                Op::Jump { to: there } => to = there,
                Op::Send { script } => {
                    let made = self.make(script.0, NOBODY, self.jobs[job as usize].registers);
                    self.ready.push_back(made);
                }
                Op::Fork { script } => {
                    self.jobs[job as usize].children += 1;
                    let made = self.make(script.0, job, self.jobs[job as usize].registers);
                    self.ready.push_back(made);
                }
                Op::Join => {
                    if self.jobs[job as usize].children > 0 {
                        self.jobs[job as usize].joins = true;
                        return;
                    }
                }
                Op::Arrive => self.arrive(),
                Op::AwaitArrival => match self.arrivals.pop_front() {
                    Some(arrived) => self.jobs[job as usize].began = arrived,
                    None => return append(&mut self.awaiting, job, &mut self.jobs),
                },
                Op::Note => self.notes.push_back(self.jobs[job as usize].registers.note),
                Op::BeginRequest => self.jobs[job as usize].began = self.now,
                Op::EndRequest => {
                    self.finished += 1;
                    self.bytes += u64::from(self.jobs[job as usize].registers.bytes);
                    self.gaps.add((self.now - self.last_finish).seconds());
                    self.last_finish = self.now;
                    self.response.add((self.now - self.jobs[job as usize].began).seconds());
                }
            }
            self.jobs[job as usize].at = to;
        }
    }

    /// Starts the service of `job` if it has or gets a server, and otherwise leaves it waiting.
    fn serve(&mut self, job: u32, station: u32, time: ServiceTime, line: usize, next: &mut Option<Time>) {
        let has_it = std::mem::replace(&mut self.jobs[job as usize].served, true);
        if has_it || self.enter(job, station, line) {
            let registers = &self.jobs[job as usize].registers;
            let takes = match time {
                ServiceTime::Command { .. } => self.command(job, station, time),
                _ => time.draw(&mut self.random, registers),
            };
            self.places[station as usize].work_time += u128::from(takes.0);
            *next = Some(self.now + takes);
        } else {
            self.jobs[job as usize].served = false;
        }
    }

    /// Has the station's controller serve the next command of `job`, and returns the time that this takes.
    fn command(&mut self, job: u32, station: u32, time: ServiceTime) -> Time {
        let ServiceTime::Command { bytes_max, in_order, writes } = time else { return Time(0) };
        let StationState { arm: Some(arm), controller: Some(controller), .. } =
            &mut self.places[station as usize]
        else {
            return Time(0);
        };
        let registers = &mut self.jobs[job as usize].registers;
        let bytes = u64::from((registers.bytes - registers.commanded).min(bytes_max));
        let command = Command {
            stream: in_order.then_some(registers.picks[Register::Thread as usize]),
            at: if in_order { registers.position } else { 0 },
            bytes,
            track: registers.picks[Register::Other as usize],
            writes,
        };
        if in_order {
            registers.position += bytes;
        }
        controller.serve(arm, command, self.now, self.random.unit_interval())
    }

    /// Returns true if the job gets a server of the station, and otherwise appends the job to `line`.
    fn enter(&mut self, job: u32, station: u32, line: usize) -> bool {
        let now = self.now;
        let place = &mut self.places[station as usize];
        place.note(now);
        if place.busy < place.servers {
            place.busy += 1;
            place.served += 1;
            if let Some(free) = &mut place.free {
                let last = &mut self.jobs[job as usize].registers.picks[Register::Processor as usize];
                // One server is free, since `busy` was below `servers`.
                let number = free.iter().rposition(|number| number == last).unwrap_or(free.len() - 1);
                *last = free.remove(number);
            }
            if let Some(timeline) = &mut self.timeline {
                timeline.begins(station, job, now);
            }
            return true;
        }
        place.waiting += 1;
        append(&mut place.lines[line], job, &mut self.jobs);
        false
    }

    /// Adds an arrival at this moment to the queue, from which the first of the waiting jobs takes one.
    fn arrive(&mut self) {
        if self.arrivals.len() >= ARRIVALS_MAX {
            self.is_flooded = true;
            return;
        }
        self.arrivals.push_back(self.now);
        if self.awaiting.head != NOBODY {
            // The job repeats its operation, and arrivals are taken in the order in which jobs are released.
            self.ready.push_back(take_first(&mut self.awaiting, &self.jobs));
        }
    }

    /// Frees a server of the station and gives it to the next waiting job, if one waits.
    fn leave(&mut self, station: u32, job: u32) {
        let now = self.now;
        let place = &mut self.places[station as usize];
        place.note(now);
        if let Some(timeline) = &mut self.timeline {
            timeline.ends(station, job, now);
        }
        let Some(line) = place.lines.iter_mut().find(|line| line.head != NOBODY) else {
            place.busy -= 1;
            if let Some(free) = &mut place.free {
                free.push(self.jobs[job as usize].registers.picks[Register::Processor as usize]);
            }
            return;
        };
        let first = match &place.arm {
            Some(arm) if arm.is_elevator => take_by_arm(line, arm, &mut self.jobs),
            _ => take_first(line, &self.jobs),
        };
        place.waiting -= 1;
        place.served += 1;
        if let Some(timeline) = &mut self.timeline {
            timeline.begins(station, first, now);
        }
        if place.free.is_some() {
            let number = self.jobs[job as usize].registers.picks[Register::Processor as usize];
            self.jobs[first as usize].registers.picks[Register::Processor as usize] = number;
        }
        self.jobs[first as usize].served = true;
        self.ready.push_back(first);
    }

    fn make(&mut self, script: u32, parent: u32, registers: Registers) -> u32 {
        let (at, end) = self.net.scripts[script as usize];
        let job = Job {
            at,
            end,
            next: NOBODY,
            parent,
            children: 0,
            served: false,
            joins: false,
            began: self.now,
            stalled: self.now,
            registers,
        };
        if self.ended != NOBODY {
            let number = self.ended;
            self.ended = self.jobs[number as usize].next;
            self.jobs[number as usize] = job;
            return number;
        }
        assert!((self.jobs.len() as u32) < WHO_MAX, "more jobs than there can be events: it does not settle");
        self.jobs.push(job);
        self.jobs.len() as u32 - 1
    }

    fn end_job(&mut self, job: u32) {
        let Job { parent, children, .. } = self.jobs[job as usize];
        debug_assert_eq!(children, 0, "a script that forks must join");
        if parent != NOBODY {
            let waits = &mut self.jobs[parent as usize];
            waits.children -= 1;
            if waits.children == 0 && std::mem::take(&mut waits.joins) {
                self.ready.push_back(parent);
            }
        }
        self.jobs[job as usize].next = self.ended;
        self.ended = job;
    }
}

/// Number of events between two calls of the watcher.
const EVENTS_UNWATCHED: u64 = 1 << 16;

#[cfg(test)]
mod tests;
