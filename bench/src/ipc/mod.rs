//! `bywash bench ipc`: containers and channels against other transports between two processes.
//!
//! `cases` is the table: a name, a metric, our transport, and the peers with their goals. `Case::measure` lets all of them
//! do the same work in turns.
//!
//! - `words`: the work that both ends do with every message
//! - `wire`: the calls that all transports have; `transport`, `channel`, `futex`: the transports
//! - `bounds`: what no transport can beat
//! - `iceoryx2`: the same work by a program that is built apart
//! - `pair`: two processes and the messages between them; `several`: a third one in the middle, a second pair beside

mod bounds;
mod channel;
mod futex;
mod iceoryx2;
mod pair;
mod several;
mod transport;
mod wire;
mod words;

use crate::campaign::{self, Audience, Choice};
use crate::engine::{self, Rounds};
use crate::error::Error;
use crate::row::{Report, Row};
use bounds::Reading;
use pair::{PERIOD, Pattern, Spent, Work};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use transport::{Transport, buffers};
use wire::Wait;

/// Name, side and goal of a peer.
type Peer = (&'static str, Side, Option<f64>);
/// Metric of a message's times.
type Metric<'a> = engine::Metric<'a, Spent>;

/// One of the sides of a case.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// A transport between two processes.
    Transport(Transport),
    /// iceoryx2, publish and subscribe, in a program that is built apart.
    Iceoryx2,
    /// A cache line that goes there and back.
    CacheLine,
    /// Memory that one core writes and the other one sums, in so many buffers; `None`: in the fastest number up to as many
    /// as a path has.
    HandOver { reading: Reading, buffers: Option<usize> },
}

/// Figure that is read off a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Nanoseconds one way.
    Latency,
    /// Bytes a second.
    Throughput,
    /// Processor time of both processes for a message, or for a request and its answer, in microseconds.
    Cpu,
}

/// One case: the same work by us and by each peer.
struct Case {
    name: &'static str,
    figure: Figure,
    pattern: Pattern,
    ours: Transport,
    bytes: usize,
    peers: Vec<Peer>,
    /// Time from one paced message to the next.
    period: Duration,
}

const TRUSTED: Transport = Transport::Trusted(Wait::Spin);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Ratio to a pipe's processor time that paced messages are to reach: at most 1.1 times as much.
const PACED_GOAL: f64 = 1.0 / 1.1;
/// Ratio to a bare hand-over of the same memory that a transport of large messages is to reach: at most a quarter more time.
const HAND_OVER_GOAL: f64 = 0.8;
/// Ratio to AF_UNIX that follows from its copies: it copies into the kernel and out again, so that each core goes over
/// the bytes twice where a container has them gone over once.
const TWO_COPIES_GOAL: f64 = 2.0;
/// Seconds that the slowest side of a round takes, about; every other one takes a quarter of them at least.
const SECONDS: (f64, f64) = (0.4, 0.05);
/// Messages of the run that finds out how many are needed.
const TRIAL: u64 = 128;

/// All cases.
fn cases() -> Vec<Case> {
    let unix: Peer = ("AF_UNIX", Side::Transport(Transport::Unix(None)), None);
    let large: Peer = ("AF_UNIX, 4 MiB buffers", Side::Transport(Transport::Unix(Some(4 * MIB))), None);
    let pipe: Peer = ("pipe", Side::Transport(Transport::Pipe), None);
    let line: Peer = ("a bare cache line", Side::CacheLine, Some(0.45));
    let iceoryx2: Peer = ("iceoryx2", Side::Iceoryx2, None);
    let futex: Peer = ("bare futex", Side::Transport(Transport::Futex), None);
    let looped: Peer = ("pipe, event loop", Side::Transport(Transport::PipeLoop), Some(PACED_GOAL));
    let goal = |peer: Peer, goal: f64| (peer.0, peer.1, Some(goal));
    let bound = |reading| -> Peer {
        ("bound: a bare hand-over", Side::HandOver { reading, buffers: None }, Some(HAND_OVER_GOAL))
    };
    let (in_place, copied) = (bound(Reading::InPlace), bound(Reading::Copied));
    let case = |figure, pattern, name, ours, bytes, peers: &[Peer]| Case {
        name,
        figure,
        pattern,
        ours,
        bytes,
        peers: peers.to_vec(),
        period: PERIOD,
    };
    let latency = |name, ours, bytes, peers: &[Peer]| {
        case(Figure::Latency, Pattern::PingPong, name, ours, bytes, peers)
    };
    let throughput = |name, ours, bytes, peers: &[Peer]| {
        case(Figure::Throughput, Pattern::Stream, name, ours, bytes, peers)
    };
    let every = |period, pattern, name, ours, peers: &[Peer]| Case {
        period,
        ..case(Figure::Cpu, pattern, name, ours, 64, peers)
    };
    let paced = |name, ours, peers: &[Peer]| every(PERIOD, Pattern::PacedStream, name, ours, peers);
    let paced_requests =
        |name, ours, peers: &[Peer]| every(PERIOD, Pattern::PacedPingPong, name, ours, peers);
    let sleepers = [goal(pipe, PACED_GOAL), futex, unix];
    let loops = [looped, pipe, futex];
    let containers = [goal(iceoryx2, 1.0), goal(unix, TWO_COPIES_GOAL), large, pipe];
    let (sleep, adaptive) = (Transport::Trusted(Wait::Sleep), Transport::Trusted(Wait::Adaptive));
    let checked = Transport::Checked(Wait::Spin);
    let (answers, requests) = (Transport::Answers, Transport::Requests(Wait::Spin));
    let large_ones = [in_place, containers[0], containers[1], large, pipe];
    let checked_ones = [copied, goal(unix, TWO_COPIES_GOAL), large];
    let mut cases = vec![
        // Two lines go each way, ours and the index behind it; the bare one is of the same run and machine.
        latency("64 B, polling", TRUSTED, 64, &[iceoryx2, line]),
        latency("64 KiB, polling", TRUSTED, 64 * KIB, &[in_place, iceoryx2, unix]),
        latency("64 B, blocking", sleep, 64, &[goal(pipe, 1.0), unix]),
        latency("64 B, adaptive", adaptive, 64, &[goal(pipe, 1.0), unix]),
        latency("64 KiB, blocking", sleep, 64 * KIB, &[goal(pipe, 1.0), unix]),
        throughput("4 KiB, trusted", TRUSTED, 4 * KIB, &[iceoryx2, unix, large, pipe]),
        throughput("64 KiB, trusted", TRUSTED, 64 * KIB, &large_ones),
        throughput("1 MiB, trusted", TRUSTED, MIB, &large_ones),
        throughput("4 KiB, checked", checked, 4 * KIB, &[unix, large]),
        throughput("64 KiB, checked", checked, 64 * KIB, &checked_ones),
        throughput("1 MiB, checked", checked, MIB, &checked_ones),
        latency("64 B, request and answer, polling", answers(Wait::Spin), 64, &[unix, pipe]),
        latency("4 KiB, request and answer, polling", answers(Wait::Spin), 4 * KIB, &[unix, pipe]),
        latency("4 KiB, request and answer, blocking", answers(Wait::Sleep), 4 * KIB, &[unix, pipe]),
        throughput("64 B, requests at depth 256", requests, 64, &[unix, pipe]),
        throughput("4 KiB, requests at depth 256", requests, 4 * KIB, &[unix, pipe]),
        paced("64 B at 1 kHz, blocking", sleep, &sleepers),
        paced("64 B at 1 kHz, adaptive", adaptive, &sleepers),
        paced("64 B at 1 kHz, event loop", Transport::TrustedLoop, &loops),
        paced_requests("64 B and an answer at 1 kHz, event loop", Transport::TrustedLoop, &loops),
        every(10 * PERIOD, Pattern::PacedStream, "64 B at 100 Hz, blocking", sleep, &sleepers),
        every(10 * PERIOD, Pattern::PacedStream, "64 B at 100 Hz, adaptive", adaptive, &sleepers),
        every(PERIOD / 10, Pattern::PacedStream, "64 B at 10 kHz, blocking", sleep, &sleepers),
        every(PERIOD / 10, Pattern::PacedStream, "64 B at 10 kHz, adaptive", adaptive, &sleepers),
        paced_requests("64 B and an answer at 1 kHz, blocking", sleep, &sleepers),
        paced_requests("64 B and an answer at 1 kHz, adaptive", adaptive, &sleepers),
        paced_requests("64 B, request and answer at 1 kHz, blocking", answers(Wait::Sleep), &sleepers),
        paced_requests("64 B, request and answer at 1 kHz, adaptive", answers(Wait::Adaptive), &sleepers),
        latency("exchange of 32 MiB", TRUSTED, 32 * MIB, &[unix, large]),
    ];
    cases.iter_mut().for_each(Case::add_polled_rivals);
    cases
}

impl Side {
    /// The reason for which this side cannot be measured here.
    fn absence(self) -> Option<Error> {
        match self {
            Side::Iceoryx2 => iceoryx2::program().err(),
            Side::Transport(_) | Side::CacheLine | Side::HandOver { .. } => None,
        }
    }

    /// Manner in which this side waits, for notes.
    fn waits(self) -> &'static str {
        match self {
            Side::Transport(transport) => transport.waits(),
            Side::Iceoryx2 | Side::CacheLine | Side::HandOver { .. } => "spins",
        }
    }

    /// The note of a row whose peer is this side.
    fn note(self, ours: Transport) -> String {
        let waits = ours.waits();
        let Side::HandOver { reading, buffers } = self else {
            return format!("bywash {waits}; the rival {}", self.waits());
        };
        let takes = match reading {
            Reading::InPlace => "sums them where they are",
            Reading::Copied => "copies them out and sums the copy",
        };
        let tried = buffers.map_or(String::new(), |count| format!(" in {count} buffers, the fastest number"));
        format!("one core writes the words{tried}, the other one {takes}; bywash {waits}")
    }
}

impl Case {
    /// Adds the same rival with ends that poll for each whose ends sleep in the kernel, where ours spin: or the ratio
    /// would be that of spinning to sleeping. An adaptive end does not spin for messages with pauses.
    fn add_polled_rivals(&mut self) {
        if !self.ours.waits().starts_with("spins") || self.figure == Figure::Cpu {
            return;
        }
        let polled = self.peers.iter().filter_map(|peer| match peer.1 {
            Side::Transport(transport) => transport.polled(),
            Side::Iceoryx2 | Side::CacheLine | Side::HandOver { .. } => None,
        });
        let polled: Vec<Peer> = polled.map(|(name, way)| (name, Side::Transport(way), None)).collect();
        self.peers.extend(polled);
    }

    fn metric(&self) -> Metric<'_> {
        match self.figure {
            Figure::Latency => Metric::cost("one-way latency", "ns", |spent| spent.wall * 1e9 / 2.0),
            Figure::Throughput => Metric::rate("throughput", "B/s", |spent| self.bytes as f64 / spent.wall),
            Figure::Cpu => Metric::cost("CPU time a message", "us", |spent| spent.cpu * 1e6),
        }
    }

    fn work(&self, transport: Transport, messages: u64) -> Work {
        let Case { pattern, bytes, period, .. } = *self;
        Work { transport, pattern, bytes, messages, period, cores: [0, 1] }
    }

    fn run(&self, side: Side, messages: u64) -> Result<Spent, Error> {
        let spent = match side {
            Side::Transport(transport) => self.work(transport, messages).run(),
            Side::Iceoryx2 => iceoryx2::run(&self.work(self.ours, messages)),
            Side::CacheLine => bounds::cache_line(messages),
            Side::HandOver { reading, buffers: count } => {
                let count = count.unwrap_or_else(|| buffers(self.bytes));
                bounds::hand_over(self.pattern, self.bytes, messages, count, reading)
            }
        };
        Ok(spent?.of_one(messages))
    }

    /// The side itself, or the bound with the number of buffers that a trial found the fastest.
    fn settle(&self, side: Side, trial: u64) -> Result<Side, Error> {
        let Side::HandOver { reading, buffers: None } = side else { return Ok(side) };
        let count = bounds::fastest(self.pattern, self.bytes, trial, buffers(self.bytes), reading)?;
        Ok(Side::HandOver { reading, buffers: Some(count) })
    }

    /// Messages of a run of a side that takes `own` seconds for one, beside others of which the slowest takes `slowest`: as
    /// many as that one has time for, and more where this side would be done before its run says anything.
    fn messages(&self, own: f64, slowest: f64, quick: bool) -> u64 {
        let wanted = if quick { SECONDS.1 } else { SECONDS.0 };
        let messages = match self.figure {
            Figure::Cpu => wanted / self.period.as_secs_f64(),
            Figure::Latency | Figure::Throughput => (wanted / slowest).max(wanted / 4.0 / own),
        };
        (messages as u64).clamp(4, 5_000_000)
    }

    /// The rows without figures.
    fn declared(&self) -> Vec<Row> {
        self.peers.iter().map(|(name, _, goal)| self.metric().head(&head(self.name), name, *goal)).collect()
    }

    /// Measures the case: a trial of each side finds out how many messages its runs need, then all take turns.
    fn measure(&self, quick: bool, rounds: Rounds) -> Result<Vec<Row>, Error> {
        let trial = if self.bytes >= MIB { TRIAL / 16 } else { TRIAL };
        let mut tried = Vec::new();
        for (name, side, _) in [("bywash", Side::Transport(self.ours), None)].iter().chain(&self.peers) {
            let own = match side.absence() {
                Some(error) => Err(error),
                // Paced messages take as long as they are told to.
                None if self.figure == Figure::Cpu => Ok((*side, self.period.as_secs_f64())),
                // Four trials long: their figures decide.
                None => engine::uninterrupted(
                    self.settle(*side, 4 * trial).and_then(|side| Ok((side, self.run(side, trial)?.wall))),
                )?,
            };
            tried.push((*name, own));
        }
        let times = tried.iter().filter_map(|(_, own)| Some(own.as_ref().ok()?.1));
        let slowest = times.fold(0.0, f64::max);
        let settled: Vec<Side> = tried
            .iter()
            .zip(std::iter::once(Side::Transport(self.ours)).chain(self.peers.iter().map(|peer| peer.1)))
            .map(|((_, own), declared)| own.as_ref().map_or(declared, |own| own.0))
            .collect();
        let sides = tried.into_iter().map(|(name, own)| match own {
            Err(error) => engine::Side::absent(name, error),
            Ok((side, own)) => {
                let messages = self.messages(own, slowest, quick);
                engine::Side::new(name, move || self.run(side, messages))
            }
        });
        let runs = rounds.run(sides.collect())?;
        let cpu = |spent: &Spent| spent.cpu;
        let row = |((peer, side), (_, _, goal)): ((&engine::Runs<Spent>, &Side), &Peer)| {
            let row = self.metric().row(&head(self.name), &runs[0], peer, *goal);
            match row.ratio {
                None => row,
                Some(_) => Row {
                    note: side.note(self.ours),
                    ours_cpu_per_message: runs[0].median(cpu),
                    peer_cpu_per_message: peer.median(cpu),
                    ..row
                },
            }
        };
        Ok(runs[1..].iter().zip(&settled[1..]).zip(&self.peers).map(row).collect())
    }
}

/// A row of this bench without figures.
fn head(case: &str) -> Row {
    Row { metric: "throughput".into(), unit: "B/s".into(), peer: "-".into(), ..Row::head("ipc", case, "") }
}

/// An error of a transport, as one of the two processes.
fn broken(error: impl std::fmt::Display) -> Error {
    Error::failed("two processes", error.to_string())
}

#[expect(unsafe_code, reason = "to trust the peer is the caller's promise")]
fn trusted(options: bywash_container::Options) -> bywash_container::Options {
    // SAFETY: the peer is this program, which does not reach around the library.
    unsafe { options.trusted() }
}

/// Measures what was chosen. Returns the report, and whether it was interrupted.
///
/// # Errors
/// [`Error::Usage`] for a name that chooses nothing.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let (quick, rounds) = (choice.quick, choice.rounds());
    let cores = crate::machine::Machine::this().cores;
    let table = cases();
    let mut cases: Vec<campaign::Case<'_>> = table
        .iter()
        .map(|case| {
            campaign::Case::new(format!("ipc: {}", case.name), case.declared(), move || {
                case.measure(quick, rounds)
            })
        })
        .collect();
    cases.push(campaign::Case::new("ipc: forwarding", vec![head("forwarding")], move || {
        several::forwarding(quick, rounds)
    }));
    cases.push(campaign::Case::new(
        "ipc: beside a second pair",
        vec![head("beside a second pair")],
        move || several::two_pairs(quick, rounds, cores),
    ));
    let cases = campaign::choose(cases, &choice.names, |case| &case.name)?;
    Ok(campaign::run(cases, audience))
}

/// The part of another process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Job {
    /// The second one of a pair.
    Second(Work),
    /// The one in the middle.
    Middle { messages: u64, copies: bool },
    /// The one behind it.
    Sink { messages: u64 },
    /// A neighbour of the first pair.
    Neighbour { moves: bool, cores: usize, messages: u64 },
}

/// Does the part of another process, as `pair::start` says it.
///
/// # Errors
/// [`Error::Usage`] if the words are no such part, and [`Error::Failed`].
pub fn peer(words: &[&str]) -> Result<(), Error> {
    match serde_json::from_str(&words.join(" ")) {
        Ok(Job::Second(work)) => work.second(),
        Ok(Job::Middle { messages, copies }) => several::middle(messages, copies),
        Ok(Job::Sink { messages }) => several::sink(messages),
        Ok(Job::Neighbour { moves, cores, messages }) => several::neighbour(moves, cores, messages),
        Err(error) => {
            Err(Error::Usage(format!("'{}' is no process of this bench: {error}", words.join(" "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_something_to_be_compared_with() {
        let cases = cases();
        for (number, case) in cases.iter().enumerate() {
            assert!(!case.peers.is_empty() && case.declared().len() == case.peers.len(), "{}", case.name);
            assert!(cases[..number].iter().all(|other| other.name != case.name), "{} twice", case.name);
        }
    }

    #[test]
    fn no_case_compares_spinning_with_sleeping_alone() {
        let mut polled = 0;
        let spins = |case: &&Case| case.ours.waits().starts_with("spins") && case.figure != Figure::Cpu;
        for case in cases().iter().filter(spins) {
            let has = |waits: &str| case.peers.iter().any(|peer| peer.1.waits() == waits);
            if has("sleeps in the kernel") {
                assert!(has("polls by system calls"), "{}", case.name);
                polled += 1;
            }
        }
        assert!(polled > 10, "{polled}");
        let blocking = cases().into_iter().find(|case| case.name == "64 B, blocking").unwrap();
        assert!(blocking.peers.iter().all(|peer| peer.1.waits() == "sleeps in the kernel"));
    }

    /// A goal against AF_UNIX follows from its copies; the other goals are against what the same machine can do.
    #[test]
    fn large_messages_have_a_bound_of_the_same_run() {
        let cases = cases();
        for name in
            ["64 KiB, polling", "64 KiB, trusted", "1 MiB, trusted", "64 KiB, checked", "1 MiB, checked"]
        {
            let case = cases.iter().find(|case| case.name == name).unwrap();
            let copies = matches!(case.ours, Transport::Checked(_));
            let wanted = if copies { Reading::Copied } else { Reading::InPlace };
            let is_bound =
                |peer: &&Peer| matches!(peer.1, Side::HandOver { reading, .. } if reading == wanted);
            let bound = case.peers.iter().find(is_bound);
            assert_eq!(bound.and_then(|peer| peer.2), Some(HAND_OVER_GOAL), "{name}");
            let unix = case.peers.iter().find(|peer| peer.0 == "AF_UNIX").unwrap();
            assert!(unix.2.is_none_or(|goal| goal <= TWO_COPIES_GOAL), "{name}");
        }
        let case = cases.iter().find(|case| case.name == "64 KiB, trusted").unwrap();
        let bound = case.settle(case.peers[0].1, 20).unwrap();
        assert!(bound.note(TRUSTED).contains("the fastest number"), "{bound:?}");
        assert!(case.run(bound, 20).unwrap().wall > 0.0);
    }

    #[test]
    fn paced_messages_come_at_more_than_one_rate() {
        for period in [10 * PERIOD, PERIOD, PERIOD / 10] {
            for ours in [Transport::Trusted(Wait::Sleep), Transport::Trusted(Wait::Adaptive)] {
                let is_that = |case: &&Case| case.period == period && case.ours == ours;
                assert!(cases().iter().filter(is_that).any(|case| case.figure == Figure::Cpu), "{period:?}");
            }
        }
    }

    /// Each mode that sleeps, and each kind of end.
    #[test]
    fn paced_messages_are_compared_with_a_pipe_wherever_somebody_sleeps() {
        let cases = cases();
        let paced: Vec<&Case> = cases.iter().filter(|case| case.figure == Figure::Cpu).collect();
        for ours in [
            Transport::Trusted(Wait::Sleep),
            Transport::Trusted(Wait::Adaptive),
            Transport::TrustedLoop,
            Transport::Answers(Wait::Sleep),
            Transport::Answers(Wait::Adaptive),
        ] {
            assert!(paced.iter().any(|case| case.ours == ours), "{ours:?}");
        }
        for case in paced {
            let rival = if case.ours == Transport::TrustedLoop { "pipe, event loop" } else { "pipe" };
            let is_wanted = |peer: &Peer| peer.0 == rival && peer.2 == Some(PACED_GOAL);
            assert!(case.peers.iter().any(is_wanted), "{}", case.name);
            assert!(case.peers.iter().any(|peer| peer.0 == "bare futex"), "{}", case.name);
        }
    }

    /// A side that takes a thousandth of the slowest one's time is not measured by what it does in a thousandth of a run.
    #[test]
    fn a_fast_side_has_more_messages_than_a_slow_one() {
        let cases = cases();
        let case = cases.iter().find(|case| case.name == "64 KiB, trusted").unwrap();
        assert_eq!(case.messages(1e-3, 1e-3, false), 400);
        assert_eq!(case.messages(1e-6, 1e-3, false), 100_000);
        assert_eq!(case.messages(1e-12, 1.0, false), 5_000_000);
        assert_eq!(Spent { wall: 3.0, cpu: 6.0 }.of_one(300), Spent { wall: 0.01, cpu: 0.02 });
        let runs = engine::Runs { name: "it".into(), samples: Ok(vec![Spent { wall: 0.01, cpu: 0.02 }]) };
        let row = case.metric().row(&head("x"), &runs, &runs, None);
        assert_eq!((row.ours, row.ratio), (Some((64 << 10) as f64 / 0.01), Some(1.0)));
        let paced = cases.iter().find(|case| case.name == "64 B at 100 Hz, blocking").unwrap();
        assert_eq!(paced.messages(1e-6, 1e-3, false), 40);
    }

    /// The tests' own program has nothing beside it.
    #[test]
    fn a_peer_that_is_not_there_has_a_row_that_says_what_to_do() {
        let error = Side::Iceoryx2.absence().unwrap();
        assert!(error.is_absence() && error.to_string().contains("make bench-peers"), "{error}");
        let polling = cases().into_iter().find(|case| case.name == "64 B, polling").unwrap();
        assert!(polling.peers.iter().any(|peer| peer.0 == "iceoryx2"));
    }

    #[test]
    fn the_second_process_learns_what_to_do() {
        for case in cases() {
            let job = Job::Second(case.work(case.ours, 3));
            let text = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
        }
        for wrong in ["", "{}", "{\"Second\":{}}"] {
            assert!(matches!(peer(&[wrong]), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
