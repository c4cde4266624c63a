//! One case: the same work by us and by each peer, and the table of all of them.

use super::handed::{self, Taking};
use super::line;
use super::run::{PERIOD, Pattern, Spent, Work};
use super::wire::{Way, buffers};
use crate::error::Error;
use crate::row::Row;
use crate::statistics::Summary;
use bywash_container::Wait;
use std::time::Duration;

/// Against what, and the ratio asked for.
type Peer = (&'static str, Side, Option<f64>);

/// What is compared.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// A way between two processes.
    Way(Way),
    /// iceoryx2, publish and subscribe, in a program that is built apart.
    Iceoryx2,
    /// A cache line that goes there and back.
    BareLine,
    /// Memory that one core writes and the other one sums, in so many buffers; none: in the fastest number up to as many as
    /// a path has.
    Handed { taking: Taking, buffers: Option<usize> },
}

/// What is read off a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    /// Nanoseconds one way.
    Latency,
    /// Bytes a second.
    Throughput,
    /// Processor time of both processes for a message, or for a request and its answer, in microseconds.
    Cpu,
}

/// One case: the same work by us and by each peer.
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    metric: Metric,
    pattern: Pattern,
    ours: Way,
    bytes: usize,
    peers: Vec<Peer>,
    /// Time from one paced message to the next.
    period: Duration,
}

const TRUSTED: Way = Way::Trusted(Wait::Spin);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Ratio to a pipe's processor time that paced messages are to reach: at most 1.1 times as much.
const PACED_GOAL: f64 = 1.0 / 1.1;
/// Ratio to a bare hand-over of the same memory that a transport of large messages is to reach: at most a quarter more time.
const HANDED_GOAL: f64 = 0.8;
/// Ratio to AF_UNIX that follows from what is copied: it copies into the kernel and out again, so that each core goes over
/// the bytes twice where a container has them gone over once.
const TWO_COPIES_GOAL: f64 = 2.0;
/// Seconds that the slowest side of a pair takes, about; every other one takes a quarter of them at least.
const SECONDS: f64 = 0.4;
const SECONDS_QUICK: f64 = 0.05;
/// Messages of the run that finds out how many are needed.
const TRIAL: u64 = 128;

/// All cases.
pub fn cases() -> Vec<Case> {
    let unix: Peer = ("AF_UNIX", Side::Way(Way::Unix(None)), None);
    let large: Peer = ("AF_UNIX, 4 MiB buffers", Side::Way(Way::Unix(Some(4 * MIB))), None);
    let pipe: Peer = ("pipe", Side::Way(Way::Pipe), None);
    let line: Peer = ("a bare cache line", Side::BareLine, None);
    let iceoryx2 = |goal: Option<f64>| vec![("iceoryx2", Side::Iceoryx2, goal)];
    let goal = |peer: Peer, goal: f64| (peer.0, peer.1, Some(goal));
    let with = |mut first: Vec<Peer>, rest: &[Peer]| {
        first.extend_from_slice(rest);
        first
    };
    let bound = |taking| -> Peer {
        ("bound: a bare hand-over", Side::Handed { taking, buffers: None }, Some(HANDED_GOAL))
    };
    let in_place = bound(Taking::InPlace);
    let copied = bound(Taking::Copied);
    let bounded = |bound: Peer, rest: Vec<Peer>| with(vec![bound], &rest);
    let case = |metric, pattern| {
        move |name, ours, bytes, peers| Case { name, metric, pattern, ours, bytes, peers, period: PERIOD }
    };
    let latency = case(Metric::Latency, Pattern::PingPong);
    let throughput = case(Metric::Throughput, Pattern::Stream);
    let paced = case(Metric::Cpu, Pattern::PacedStream);
    let paced_requests = case(Metric::Cpu, Pattern::PacedPingPong);
    let every = |period, case: Case| Case { period, ..case };
    let futex: Peer = ("bare futex", Side::Way(Way::Futex), None);
    let sleepers = vec![goal(pipe, PACED_GOAL), futex, unix];
    let looped: Peer = ("pipe, event loop", Side::Way(Way::PipeLoop), Some(PACED_GOAL));
    let loops = vec![looped, pipe, futex];
    let sleep = Way::Trusted(Wait::Sleep);
    let adaptive = Way::Trusted(Wait::Adaptive);
    let checked = Way::Checked(Wait::Spin);
    let mut cases = vec![
        // Two lines go each way, ours and the index behind it; the bare one is of the same run and machine.
        latency("64 B, polling", TRUSTED, 64, with(iceoryx2(None), &[goal(line, 0.45)])),
        latency("64 KiB, polling", TRUSTED, 64 * KIB, bounded(in_place, with(iceoryx2(None), &[unix]))),
        latency("64 B, blocking", sleep, 64, vec![goal(pipe, 1.0), unix]),
        latency("64 B, adaptive", adaptive, 64, vec![goal(pipe, 1.0), unix]),
        latency("64 KiB, blocking", sleep, 64 * KIB, vec![goal(pipe, 1.0), unix]),
        throughput("4 KiB, trusted", TRUSTED, 4 * KIB, with(iceoryx2(None), &[unix, large, pipe])),
        throughput(
            "64 KiB, trusted",
            TRUSTED,
            64 * KIB,
            bounded(in_place, with(iceoryx2(Some(1.0)), &[goal(unix, TWO_COPIES_GOAL), large, pipe])),
        ),
        throughput(
            "1 MiB, trusted",
            TRUSTED,
            MIB,
            bounded(in_place, with(iceoryx2(Some(1.0)), &[goal(unix, TWO_COPIES_GOAL), large, pipe])),
        ),
        throughput("4 KiB, checked", checked, 4 * KIB, vec![unix, large]),
        throughput("64 KiB, checked", checked, 64 * KIB, bounded(copied, vec![goal(unix, 2.0), large])),
        throughput("1 MiB, checked", checked, MIB, bounded(copied, vec![goal(unix, 2.0), large])),
        latency("64 B, request and answer, polling", Way::Answers(Wait::Spin), 64, vec![unix, pipe]),
        latency("4 KiB, request and answer, polling", Way::Answers(Wait::Spin), 4 * KIB, vec![unix, pipe]),
        latency("4 KiB, request and answer, blocking", Way::Answers(Wait::Sleep), 4 * KIB, vec![unix, pipe]),
        throughput("64 B, requests at depth 256", Way::Requests(Wait::Spin), 64, vec![unix, pipe]),
        throughput("4 KiB, requests at depth 256", Way::Requests(Wait::Spin), 4 * KIB, vec![unix, pipe]),
        paced("64 B at 1 kHz, blocking", sleep, 64, sleepers.clone()),
        paced("64 B at 1 kHz, adaptive", adaptive, 64, sleepers.clone()),
        paced("64 B at 1 kHz, event loop", Way::TrustedLoop, 64, loops.clone()),
        paced_requests("64 B and an answer at 1 kHz, event loop", Way::TrustedLoop, 64, loops),
        every(10 * PERIOD, paced("64 B at 100 Hz, blocking", sleep, 64, sleepers.clone())),
        every(10 * PERIOD, paced("64 B at 100 Hz, adaptive", adaptive, 64, sleepers.clone())),
        every(PERIOD / 10, paced("64 B at 10 kHz, blocking", sleep, 64, sleepers.clone())),
        every(PERIOD / 10, paced("64 B at 10 kHz, adaptive", adaptive, 64, sleepers.clone())),
        paced_requests("64 B and an answer at 1 kHz, blocking", sleep, 64, sleepers.clone()),
        paced_requests("64 B and an answer at 1 kHz, adaptive", adaptive, 64, sleepers.clone()),
        paced_requests(
            "64 B, request and answer at 1 kHz, blocking",
            Way::Answers(Wait::Sleep),
            64,
            sleepers.clone(),
        ),
        paced_requests(
            "64 B, request and answer at 1 kHz, adaptive",
            Way::Answers(Wait::Adaptive),
            64,
            sleepers,
        ),
        latency("exchange of 32 MiB", TRUSTED, 32 * MIB, vec![unix, large]),
    ];
    cases.iter_mut().for_each(Case::add_polled_rivals);
    cases
}

/// The name of a way whose ends poll.
fn polled_name(way: Way) -> &'static str {
    match way {
        Way::PipePolled => "pipe, polled",
        _ => "AF_UNIX, polled",
    }
}

impl Side {
    /// The reason for which this side cannot be measured here.
    fn absence(self) -> Option<Error> {
        match self {
            Side::Iceoryx2 => super::iceoryx2::program().err(),
            Side::Way(_) | Side::BareLine | Side::Handed { .. } => None,
        }
    }

    /// Returns the note of a row whose rival is a bound, which says what work binds, or `None` for another rival.
    fn binds(self) -> Option<String> {
        let Side::Handed { taking, buffers } = self else { return None };
        let takes = match taking {
            Taking::InPlace => "sums them where they are",
            Taking::Copied => "copies them out and sums the copy",
        };
        let tried = buffers.map_or(String::new(), |count| format!(" in {count} buffers, the fastest number"));
        Some(format!("one core writes the words{tried}, the other one {takes}"))
    }

    /// Manner in which this side waits, for notes.
    fn waits(self) -> &'static str {
        match self {
            Side::Way(way) => way.waits(),
            Side::Iceoryx2 | Side::BareLine | Side::Handed { .. } => "spins",
        }
    }
}

impl Case {
    /// Puts the same rival with ends that poll behind each whose ends sleep in the kernel, where ours spin: or the ratio
    /// would be that of spinning to sleeping. An adaptive end does not spin for messages with pauses.
    fn add_polled_rivals(&mut self) {
        if !self.ours.waits().starts_with("spins") || self.metric == Metric::Cpu {
            return;
        }
        let polled = self.peers.iter().filter_map(|peer| match peer.1 {
            Side::Way(way) => way.polled(),
            Side::Iceoryx2 | Side::BareLine | Side::Handed { .. } => None,
        });
        let polled: Vec<Peer> = polled.map(|way| (polled_name(way), Side::Way(way), None)).collect();
        self.peers.extend(polled);
    }

    fn work(&self, way: Way, messages: u64) -> Work {
        Work { way, pattern: self.pattern, bytes: self.bytes, messages, period: self.period, cores: [0, 1] }
    }

    fn run(&self, side: Side, messages: u64) -> Result<Spent, Error> {
        match side {
            Side::Way(way) => self.work(way, messages).run(),
            Side::Iceoryx2 => super::iceoryx2::run(&self.work(self.ours, messages)),
            Side::BareLine => Ok(line::run(messages)),
            Side::Handed { taking, buffers: count } => {
                let count = count.unwrap_or_else(|| buffers(self.bytes));
                handed::run(self.pattern, self.bytes, messages, count, taking)
            }
        }
    }

    /// The side itself, or the bound with the number of buffers that a trial found the fastest.
    fn settle(&self, side: Side, trial: u64) -> Result<Side, Error> {
        let Side::Handed { taking, buffers: None } = side else { return Ok(side) };
        let count = handed::fastest(self.pattern, self.bytes, trial, buffers(self.bytes), taking)?;
        Ok(Side::Handed { taking, buffers: Some(count) })
    }

    /// The time that counts of a run's.
    fn seconds(&self, spent: &Spent) -> f64 {
        match self.metric {
            Metric::Latency | Metric::Throughput => spent.wall,
            Metric::Cpu => spent.cpu,
        }
    }

    /// The figure that follows from the seconds of a message, or of one and its answer.
    fn value(&self, seconds: f64) -> f64 {
        match self.metric {
            Metric::Latency => seconds * 1e9 / 2.0,
            Metric::Throughput => self.bytes as f64 / seconds,
            Metric::Cpu => seconds * 1e6,
        }
    }

    /// Messages of a run of a side that takes `own` seconds for one, beside others of which the slowest takes `slowest`: as
    /// many as that one has time for, and more where this side would be done before its run says anything.
    fn messages(&self, own: f64, slowest: f64, quick: bool) -> u64 {
        let (wanted, least) =
            if quick { (SECONDS_QUICK, SECONDS_QUICK / 4.0) } else { (SECONDS, SECONDS / 4.0) };
        let messages = match self.metric {
            Metric::Cpu => wanted / self.period.as_secs_f64(),
            Metric::Latency | Metric::Throughput => (wanted / slowest).max(least / own),
        };
        (messages as u64).clamp(4, 5_000_000)
    }

    /// Measures it, in `pairs` rounds in which each side has its turn.
    ///
    /// # Errors
    /// What failed.
    pub fn measure(&self, quick: bool, pairs: u32) -> Result<Vec<Row>, Error> {
        let (absent, mut peers): (Vec<Peer>, Vec<Peer>) =
            self.peers.iter().partition(|peer| peer.1.absence().is_some());
        let trial = if self.bytes >= MIB { TRIAL / 16 } else { TRIAL };
        for peer in &mut peers {
            // Four trials long: their figures decide.
            peer.1 = self.settle(peer.1, 4 * trial)?;
        }
        let own = std::iter::once(Side::Way(self.ours));
        let sides: Vec<Side> = own.chain(peers.iter().map(|peer| peer.1)).collect();
        let mut times = vec![self.period.as_secs_f64(); sides.len()];
        // Paced messages take as long as they are told to.
        if self.metric != Metric::Cpu {
            for (time, side) in times.iter_mut().zip(&sides) {
                *time = self.run(*side, trial)?.wall / trial as f64;
            }
        }
        let slowest = times.iter().copied().fold(0.0, f64::max);
        let mut runs: Vec<Vec<Spent>> = vec![Vec::new(); sides.len()];
        for pair in 0..pairs {
            for turn in 0..sides.len() {
                let turn = if pair % 2 == 0 { turn } else { sides.len() - 1 - turn };
                let messages = self.messages(times[turn], slowest, quick);
                runs[turn].push(self.run(sides[turn], messages)?.of_one(messages));
            }
        }
        let (ours, others) = runs.split_at(1);
        let left_out = absent.iter().filter_map(|(name, side, goal)| {
            let row = self.row(name, None, None, &[], *goal);
            side.absence().map(|error| row.without_numbers("", &error))
        });
        let measured = peers.iter().zip(others).map(|((name, side, goal), theirs)| {
            let pairs = ours[0].iter().zip(theirs);
            let ratios: Vec<f64> =
                pairs.map(|(ours, theirs)| self.seconds(theirs) / self.seconds(ours)).collect();
            let median = |runs: &[Spent], time: &dyn Fn(&Spent) -> f64| {
                let times: Vec<f64> = runs.iter().map(time).collect();
                Summary::of(&times).map(|summary| summary.median)
            };
            let value = |runs: &[Spent]| {
                median(runs, &|spent| self.seconds(spent)).map(|seconds| self.value(seconds))
            };
            let cpu = |runs: &[Spent]| median(runs, &|spent| spent.cpu);
            let note = match side.binds() {
                Some(what) => format!("{what}; bywash {}", self.ours.waits()),
                None => format!("bywash {}; the rival {}", self.ours.waits(), side.waits()),
            };
            Row {
                note,
                ours_cpu_per_message: cpu(&ours[0]),
                peer_cpu_per_message: cpu(theirs),
                ..self.row(name, value(&ours[0]), value(theirs), &ratios, *goal)
            }
        });
        Ok(measured.chain(left_out).collect())
    }

    fn row(
        &self,
        peer: &str,
        ours: Option<f64>,
        theirs: Option<f64>,
        ratios: &[f64],
        goal: Option<f64>,
    ) -> Row {
        let summary = Summary::of(ratios);
        Row {
            metric: match self.metric {
                Metric::Latency => "one-way latency".into(),
                Metric::Throughput => "throughput".into(),
                Metric::Cpu => "CPU time a message".into(),
            },
            unit: match self.metric {
                Metric::Latency => "ns".into(),
                Metric::Throughput => "B/s".into(),
                Metric::Cpu => "us".into(),
            },
            ours,
            peer: peer.into(),
            peer_value: theirs,
            runs: ratios.len() as u32,
            goal,
            ..empty(self.name).with_ratio(summary, goal)
        }
    }
}

/// The row of a case that failed.
pub fn failed(name: &str, error: &Error) -> Row {
    Row { failed: true, met: Some(false), note: format!("failed: {error}"), ..empty(name) }
}

/// A row of this bench without figures.
pub fn empty(case: &str) -> Row {
    Row {
        bench: "ipc".into(),
        case: case.into(),
        metric: "throughput".into(),
        unit: "B/s".into(),
        peer: "-".into(),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_something_to_be_compared_with() {
        let cases = cases();
        for (number, case) in cases.iter().enumerate() {
            assert!(!case.peers.is_empty(), "{}", case.name);
            assert!(cases[..number].iter().all(|other| other.name != case.name), "{} twice", case.name);
        }
    }

    #[test]
    fn no_case_compares_spinning_with_sleeping_alone() {
        let mut polled = 0;
        let spins = |case: &&Case| case.ours.waits().starts_with("spins") && case.metric != Metric::Cpu;
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

    /// A ratio to AF_UNIX that is asked for follows from what is copied; the rest is asked for against what the same machine
    /// can do.
    #[test]
    fn large_messages_have_a_bound_of_the_same_run() {
        let cases = cases();
        for name in
            ["64 KiB, polling", "64 KiB, trusted", "1 MiB, trusted", "64 KiB, checked", "1 MiB, checked"]
        {
            let case = cases.iter().find(|case| case.name == name).unwrap();
            let copies = matches!(case.ours, Way::Checked(_));
            let taking = if copies { Taking::Copied } else { Taking::InPlace };
            let is_bound =
                |peer: &&Peer| matches!(peer.1, Side::Handed { taking: this, .. } if this == taking);
            let bound = case.peers.iter().find(is_bound);
            assert_eq!(bound.and_then(|peer| peer.2), Some(HANDED_GOAL), "{name}");
            let unix = case.peers.iter().find(|peer| peer.0 == "AF_UNIX").unwrap();
            assert!(unix.2.is_none_or(|goal| goal <= TWO_COPIES_GOAL), "{name}");
        }
        let case = cases.iter().find(|case| case.name == "64 KiB, trusted").unwrap();
        let bound = case.settle(case.peers[0].1, 20).unwrap();
        assert!(bound.binds().unwrap().contains("the fastest number"), "{bound:?}");
        assert!(case.run(bound, 20).unwrap().wall > 0.0);
    }

    #[test]
    fn paced_messages_come_at_more_than_one_rate() {
        for period in [10 * PERIOD, PERIOD, PERIOD / 10] {
            for ours in [Way::Trusted(Wait::Sleep), Way::Trusted(Wait::Adaptive)] {
                let is_that = |case: &&Case| case.period == period && case.ours == ours;
                assert!(cases().iter().filter(is_that).any(|case| case.metric == Metric::Cpu), "{period:?}");
            }
        }
    }

    /// Each mode that sleeps, and each kind of end.
    #[test]
    fn paced_messages_are_compared_with_a_pipe_wherever_somebody_sleeps() {
        let cases = cases();
        let paced: Vec<&Case> = cases.iter().filter(|case| case.metric == Metric::Cpu).collect();
        for ours in [
            Way::Trusted(Wait::Sleep),
            Way::Trusted(Wait::Adaptive),
            Way::TrustedLoop,
            Way::Answers(Wait::Sleep),
            Way::Answers(Wait::Adaptive),
        ] {
            assert!(paced.iter().any(|case| case.ours == ours), "{ours:?}");
        }
        for case in paced {
            let rival = if case.ours == Way::TrustedLoop { "pipe, event loop" } else { "pipe" };
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
        let one = Spent { wall: 3.0, cpu: 6.0 }.of_one(300);
        assert_eq!((one.wall, one.cpu, case.value(one.wall)), (0.01, 0.02, (64 << 10) as f64 / 0.01));
        let paced = cases.iter().find(|case| case.name == "64 B at 100 Hz, blocking").unwrap();
        assert_eq!(paced.messages(1e-6, 1e-3, false), 40);
    }

    /// The tests' own program has nothing beside it.
    #[test]
    fn what_is_not_there_has_a_row_that_says_what_to_do() {
        let error = Side::Iceoryx2.absence().unwrap();
        assert!(error.is_absence() && error.to_string().contains("make bench-peers"), "{error}");
        let polling = cases().into_iter().find(|case| case.name == "64 B, polling").unwrap();
        assert!(polling.peers.iter().any(|peer| peer.0 == "iceoryx2"));
    }

    #[test]
    fn the_second_process_learns_what_to_do() {
        let work = Work {
            way: TRUSTED,
            pattern: Pattern::Stream,
            bytes: 64,
            messages: 3,
            period: PERIOD,
            cores: [0, 1],
        };
        let parsed = Work::parse("trusted-spin/stream/0/1", 64, 3).unwrap();
        assert_eq!((parsed.way, parsed.pattern, parsed.cores), (work.way, work.pattern, work.cores));
        assert!(Work::parse("trusted-spin", 64, 3).is_none());
        assert!(Work::parse("x/stream/0/1", 64, 3).is_none());
    }
}
