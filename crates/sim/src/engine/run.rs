//! Jobs going through their scripts.
//!
//! A job is in one of three places: its event is in the queue (it has a server, or it delays), it waits at a station, or it
//! waits for what it has forked. When something happens to it, it goes on through its script until it is in one of
//! those places again; others that this sets free go on after it, at the same moment, in the order in which they were
//! set free.
//!
//! Invariant: a station that has a free server has nobody waiting. One event costs a push and a pop of the queue and some
//! twenty instructions; nothing is allocated once the largest number of jobs has been seen.

use super::measure::Sample;
use super::net::{Net, Op};
use super::queue::{Queue, WHO_MAX};
use super::random::Random;
use super::time::Time;
use serde::Serialize;

const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Job {
    /// Of the next operation in all of the net's.
    at: u32,
    /// Where its script ends.
    end: u32,
    /// Behind it in a queue of waiting or of forgotten jobs.
    next: u32,
    /// Who forked it.
    parent: u32,
    /// Forked and not ended.
    children: u32,
    /// Whether it has the server of the operation that it is at.
    served: bool,
    /// Whether it waits for its children.
    joins: bool,
    /// When its request began.
    began: Time,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    head: u32,
    tail: u32,
}

const EMPTY: Line = Line { head: NOBODY, tail: NOBODY };

#[derive(Clone, Debug)]
struct Place {
    servers: u32,
    busy: u32,
    waiting: u32,
    /// Those in front, and the others.
    lines: [Line; 2],
    /// Time integrals of `busy` and `waiting` until `since`.
    busy_time: u128,
    waiting_time: u128,
    since: Time,
    served: u64,
}

impl Place {
    fn note(&mut self, now: Time) {
        let past = u128::from((now - self.since).0);
        self.busy_time += past * u128::from(self.busy);
        self.waiting_time += past * u128::from(self.waiting);
        self.since = now;
    }

    fn forget(&mut self, now: Time) {
        (self.busy_time, self.waiting_time, self.served, self.since) = (0, 0, 0, now);
    }
}

/// A net that runs.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    net: &'a Net,
    now: Time,
    queue: Queue,
    random: Random,
    jobs: Vec<Job>,
    /// Jobs that have ended, to be used again.
    ended: u32,
    places: Vec<Place>,
    /// Those that go on at this moment, in order.
    ready: std::collections::VecDeque<u32>,
    response: Sample,
    finished: u64,
    events: u64,
    measured_since: Time,
}

/// How a station was used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StationUse {
    /// Its name.
    pub name: String,
    /// The share of its servers that was busy on the average, 0 to 1.
    pub utilisation: f64,
    /// Jobs that waited for one, on the average.
    pub waiting: f64,
    /// Jobs that were served.
    pub served: u64,
}

/// What came of a run, from the end of its warm-up on.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Simulated seconds.
    pub seconds: f64,
    /// Requests that finished.
    pub finished: u64,
    /// Seconds from the beginning to the end of a request.
    pub response: Sample,
    /// The stations, in the order in which they were made.
    pub stations: Vec<StationUse>,
    /// Events, those of the warm-up too.
    pub events: u64,
    /// Whether it came to the end that was asked for: nothing was left to happen before.
    pub is_whole: bool,
}

impl Outcome {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.finished as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

impl<'a> Run<'a> {
    /// `net` at the beginning of time.
    ///
    /// # Panics
    /// If it begins with more jobs than there can be events.
    pub fn new(net: &'a Net, seed: u64) -> Run<'a> {
        assert!((net.first.len() as u32) < WHO_MAX, "too many jobs");
        let place = |(_, servers): &(String, u32)| Place {
            servers: *servers,
            busy: 0,
            waiting: 0,
            lines: [EMPTY; 2],
            busy_time: 0,
            waiting_time: 0,
            since: Time(0),
            served: 0,
        };
        let mut run = Run {
            net,
            now: Time(0),
            queue: Queue::default(),
            random: Random::new(seed),
            jobs: Vec::new(),
            ended: NOBODY,
            places: net.stations.iter().map(place).collect(),
            ready: std::collections::VecDeque::new(),
            response: Sample::default(),
            finished: 0,
            events: 0,
            measured_since: Time(0),
        };
        for script in &net.first {
            let job = run.make(script.0, NOBODY);
            run.ready.push_back(job);
        }
        run.settle();
        run
    }

    /// Lets `warm_up` requests finish, forgets what was measured, and lets `requests` more finish.
    pub fn until_finished(mut self, warm_up: u64, requests: u64) -> Outcome {
        self.go(Time::MAX, warm_up);
        self.forget();
        let is_whole = self.go(Time::MAX, requests);
        self.outcome(is_whole)
    }

    /// Lets `warm_up` pass, forgets what was measured, and lets `time` pass.
    pub fn until_time(mut self, warm_up: Time, time: Time) -> Outcome {
        self.go(warm_up, u64::MAX);
        self.now = warm_up;
        self.forget();
        let end = warm_up + time;
        self.go(end, u64::MAX);
        self.now = end;
        self.outcome(true)
    }

    /// Goes on until `end` or until so many requests have finished; answers whether it came to either.
    fn go(&mut self, end: Time, requests: u64) -> bool {
        while self.finished < requests {
            match self.queue.first() {
                Some((at, _)) if at > end => return true,
                Some((at, job)) => {
                    self.now = at;
                    self.events += 1;
                    self.happen(job);
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
        (self.response, self.finished, self.measured_since) = (Sample::default(), 0, self.now);
    }

    fn outcome(mut self, is_whole: bool) -> Outcome {
        let seconds = (self.now - self.measured_since).seconds();
        let all = ((self.now - self.measured_since).0 as f64).max(1.0);
        let now = self.now;
        let stations = self.places.iter_mut().zip(&self.net.stations).map(|(place, (name, _))| {
            place.note(now);
            StationUse {
                name: name.clone(),
                utilisation: place.busy_time as f64 / all / f64::from(place.servers),
                waiting: place.waiting_time as f64 / all,
                served: place.served,
            }
        });
        Outcome {
            seconds,
            finished: self.finished,
            stations: stations.collect(),
            response: self.response,
            events: self.events,
            is_whole,
        }
    }

    /// The event of `job`, which is the first of the queue, happens.
    fn happen(&mut self, job: u32) {
        // Its next event takes the place of this one, if it has one at once.
        let mut next = None;
        let at = self.jobs[job as usize].at;
        if let Op::Use { station, .. } | Op::UseFirst { station, .. } = self.net.ops[at as usize] {
            self.jobs[job as usize].served = false;
            self.leave(station.0);
        }
        self.jobs[job as usize].at += 1;
        self.go_on(job, &mut next);
        match next {
            Some(when) => self.queue.replace(when, job),
            None => self.queue.pop(),
        }
        self.settle();
    }

    /// Lets those go on that something has set free.
    fn settle(&mut self) {
        while let Some(job) = self.ready.pop_front() {
            let mut next = None;
            self.go_on(job, &mut next);
            if let Some(when) = next {
                self.queue.push(when, job);
            }
        }
    }

    /// Goes through the script of `job` until it waits; `next` is when its event happens, if it has one then.
    fn go_on(&mut self, job: u32, next: &mut Option<Time>) {
        loop {
            let Job { at, end, .. } = self.jobs[job as usize];
            if at >= end {
                return self.end(job);
            }
            let mut to = at + 1;
            match self.net.ops[at as usize] {
                Op::Use { station, time } => return self.serve(job, station.0, time, 1, next),
                Op::UseFirst { station, time } => return self.serve(job, station.0, time, 0, next),
                Op::Seize(station) => {
                    if !std::mem::take(&mut self.jobs[job as usize].served) && !self.enter(job, station.0, 1)
                    {
                        return;
                    }
                }
                Op::Free(station) => self.leave(station.0),
                Op::Delay(time) => {
                    *next = Some(self.now + time.draw(&mut self.random));
                    return;
                }
                Op::Maybe { chance, to: there } => {
                    if self.random.unit() <= chance {
                        to = self.start_of(job) + there;
                    }
                }
                Op::Jump { to: there } => to = self.start_of(job) + there,
                Op::Send { script } => {
                    let made = self.make(script.0, NOBODY);
                    self.ready.push_back(made);
                }
                Op::Fork { script } => {
                    self.jobs[job as usize].children += 1;
                    let made = self.make(script.0, job);
                    self.ready.push_back(made);
                }
                Op::Join => {
                    if self.jobs[job as usize].children > 0 {
                        self.jobs[job as usize].joins = true;
                        return;
                    }
                }
                Op::Begin => self.jobs[job as usize].began = self.now,
                Op::Finish => {
                    self.finished += 1;
                    self.response.add((self.now - self.jobs[job as usize].began).seconds());
                }
            }
            self.jobs[job as usize].at = to;
        }
    }

    /// Has `job` served at once or lets it wait.
    fn serve(
        &mut self,
        job: u32,
        station: u32,
        time: super::net::Draw,
        line: usize,
        next: &mut Option<Time>,
    ) {
        let has_it = std::mem::replace(&mut self.jobs[job as usize].served, true);
        if has_it || self.enter(job, station, line) {
            *next = Some(self.now + time.draw(&mut self.random));
        } else {
            self.jobs[job as usize].served = false;
        }
    }

    /// Takes a server of the station (true), or waits in line.
    fn enter(&mut self, job: u32, station: u32, line: usize) -> bool {
        let now = self.now;
        let place = &mut self.places[station as usize];
        place.note(now);
        if place.busy < place.servers {
            place.busy += 1;
            place.served += 1;
            return true;
        }
        place.waiting += 1;
        let line = &mut place.lines[line];
        let last = std::mem::replace(&mut line.tail, job);
        if last == NOBODY {
            line.head = job;
        } else {
            self.jobs[last as usize].next = job;
        }
        self.jobs[job as usize].next = NOBODY;
        false
    }

    /// Leaves a server of the station to the next in line.
    fn leave(&mut self, station: u32) {
        let now = self.now;
        let place = &mut self.places[station as usize];
        place.note(now);
        let Some(line) = place.lines.iter_mut().find(|line| line.head != NOBODY) else {
            place.busy -= 1;
            return;
        };
        let first = line.head;
        line.head = self.jobs[first as usize].next;
        if line.head == NOBODY {
            line.tail = NOBODY;
        }
        place.waiting -= 1;
        place.served += 1;
        self.jobs[first as usize].served = true;
        self.ready.push_back(first);
    }

    fn make(&mut self, script: u32, parent: u32) -> u32 {
        let (at, end) = self.net.scripts[script as usize];
        let job =
            Job { at, end, next: NOBODY, parent, children: 0, served: false, joins: false, began: self.now };
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

    fn end(&mut self, job: u32) {
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

    /// Of the script that `job` is in.
    fn start_of(&self, job: u32) -> u32 {
        let end = self.jobs[job as usize].end;
        // Scripts lie one behind the other.
        let number = self.net.scripts.partition_point(|script| script.1 < end);
        self.net.scripts[number].0
    }
}

#[cfg(test)]
mod tests {
    use super::super::net::Draw;
    use super::*;

    /// Open arrivals at `rate` to one station with so many servers.
    fn open(rate: f64, servers: u32, time: Draw, seed: u64) -> Outcome {
        let mut net = Net::new();
        let station = net.station("server", servers);
        let request = net.script(vec![Op::Begin, Op::Use { station, time }, Op::Finish]);
        let source = net.script(vec![
            Op::Delay(Draw::exponential(1.0 / rate)),
            Op::Send { script: request },
            Op::Jump { to: 0 },
        ]);
        net.start(source, 1);
        Run::new(&net, seed).until_finished(50_000, 600_000)
    }

    /// Within the confidence of a run, allowing for the one in twenty that is not.
    fn holds(outcome: &Outcome, wanted: f64) {
        let interval = outcome.response.mean_interval();
        let wide = super::super::Interval { half_width: 1.6 * interval.half_width, ..interval };
        assert!(wide.holds(wanted) && interval.half_width < 0.1 * wanted, "{interval:?}, wanted {wanted}");
    }

    #[test]
    fn one_server_without_memory() {
        for load in [0.3, 0.7, 0.9] {
            let outcome = open(load, 1, Draw::exponential(1.0), 11);
            holds(&outcome, 1.0 / (1.0 - load));
            assert!((outcome.stations[0].utilisation - load).abs() < 0.01);
        }
    }

    #[test]
    fn several_servers_without_memory() {
        // Erlang's C for 4 servers at a load of 0.8 each.
        let (servers, load) = (4u32, 0.8);
        let offered = f64::from(servers) * load;
        let term = |n: u32| (1..=n).fold(1.0, |term, at| term * offered / f64::from(at));
        let waits = term(servers) / (1.0 - load);
        let waits = waits / ((0..servers).map(term).sum::<f64>() + waits);
        let outcome = open(offered, servers, Draw::exponential(1.0), 12);
        holds(&outcome, 1.0 + waits / (f64::from(servers) * (1.0 - load)));
    }

    #[test]
    fn one_server_with_any_memory() {
        // Pollaczek and Khinchine: W = 1 + rho (1 + c^2) / (2 (1 - rho)) for a mean of 1.
        let load = 0.7;
        for (time, variance) in [
            (Draw::fixed(1.0), 0.0),
            (Draw::Uniform(0.0, 2.0), 1.0 / 3.0),
            (Draw::LogNormal((-0.5f64).exp(), 1.0), std::f64::consts::E - 1.0),
        ] {
            holds(&open(load, 1, time, 13), 1.0 + load * (1.0 + variance) / (2.0 * (1.0 - load)));
        }
    }

    #[test]
    fn a_seed_is_a_run() {
        let one = |seed| {
            let outcome = open(0.5, 2, Draw::exponential(1.0), seed);
            (outcome.seconds.to_bits(), outcome.response.mean_interval().mean.to_bits(), outcome.events)
        };
        assert_eq!(one(1), one(1));
        assert_ne!(one(1), one(2));
    }

    #[test]
    fn interrupts_go_first_and_forks_are_joined() {
        let mut net = Net::new();
        let cpu = net.station("cpu", 1);
        let second = Draw::fixed(1.0);
        let interrupt = net.script(vec![
            Op::Delay(Draw::fixed(0.5)),
            Op::Begin,
            Op::UseFirst { station: cpu, time: second },
            Op::Finish,
        ]);
        let other = net.script(vec![Op::Use { station: cpu, time: second }]);
        let main = net.script(vec![
            Op::Begin,
            Op::Fork { script: interrupt },
            Op::Fork { script: other },
            Op::Fork { script: other },
            Op::Join,
            Op::Finish,
        ]);
        net.start(main, 1);
        let outcome = Run::new(&net, 1).until_finished(0, 2);
        // One of the others has it until 1, then the interrupt, then the other: the interrupt took 1.5.
        assert_eq!((outcome.finished, outcome.seconds), (2, 3.0));
        assert!((outcome.response.mean_interval().mean - 2.25).abs() < 1e-9);
        assert!(outcome.is_whole);
    }

    #[test]
    fn what_is_seized_is_kept_until_it_is_freed() {
        let mut net = Net::new();
        let (bus, bank) = (net.station("bus", 1), net.station("bank", 2));
        let second = Draw::fixed(1.0);
        let transfer = net.script(vec![
            Op::Begin,
            Op::Seize(bus),
            Op::Use { station: bank, time: second },
            Op::Use { station: bank, time: second },
            Op::Free(bus),
            Op::Finish,
        ]);
        net.start(transfer, 3);
        let outcome = Run::new(&net, 1).until_time(Time(0), Time::of_seconds(10.0));
        assert_eq!((outcome.finished, outcome.seconds), (3, 10.0));
        let bus = &outcome.stations[0];
        assert!((bus.utilisation - 0.6).abs() < 1e-9 && (bus.waiting - 0.6).abs() < 1e-9);
        assert!((outcome.stations[1].utilisation - 0.3).abs() < 1e-9);
    }

    #[test]
    fn closed_networks_follow_mean_value_analysis() {
        // Two balanced stations and 8 jobs: X(n) = n / (n + 1) / D.
        let mut net = Net::new();
        let stations = [net.station("a", 1), net.station("b", 1)];
        let time = Draw::exponential(1.0);
        let round = net.script(vec![
            Op::Begin,
            Op::Use { station: stations[0], time },
            Op::Use { station: stations[1], time },
            Op::Finish,
            Op::Jump { to: 0 },
        ]);
        net.start(round, 8);
        let outcome = Run::new(&net, 5).until_finished(20_000, 400_000);
        assert!((outcome.rate() / (8.0 / 9.0) - 1.0).abs() < 0.01, "{}", outcome.rate());
        holds(&outcome, 9.0);
    }

    #[test]
    fn a_net_that_comes_to_rest_says_so() {
        let mut net = Net::new();
        let once = net.script(vec![Op::Begin, Op::Delay(Draw::fixed(1.0)), Op::Finish]);
        net.start(once, 2);
        let outcome = Run::new(&net, 1).until_finished(0, 3);
        assert!(!outcome.is_whole && outcome.finished == 2);
    }
}
