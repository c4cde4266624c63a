//! One case: the same work by us and by each peer, and the table of all of them.

use super::line;
use super::run::{Pattern, Work};
use super::wire::Way;
use crate::error::Error;
use crate::row::Row;
use crate::statistics::Summary;
use bywash_container::Wait;

/// Against what, and the ratio asked for.
type Peer = (&'static str, Side, Option<f64>);

/// What is compared.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// A way between two processes.
    Way(Way),
    /// A cache line that goes there and back.
    BareLine,
}

/// What is read off a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    /// Nanoseconds one way.
    Latency,
    /// Bytes a second.
    Throughput,
}

/// One case: the same work by us and by each peer.
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    metric: Metric,
    ours: Way,
    bytes: usize,
    peers: Vec<Peer>,
    /// The longest that a latency may be, in ns.
    limit_ns: Option<f64>,
}

const TRUSTED: Way = Way::Trusted(Wait::Spin);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Seconds that the slowest side of a pair takes, about.
const SECONDS: f64 = 0.4;
const SECONDS_QUICK: f64 = 0.05;
/// Messages of the run that finds out how many are needed.
const TRIAL: u64 = 128;

#[cfg(feature = "iceoryx2")]
fn iceoryx2(goal: Option<f64>) -> Vec<Peer> {
    vec![("iceoryx2", Side::Way(Way::Iceoryx2), goal)]
}

#[cfg(not(feature = "iceoryx2"))]
fn iceoryx2(_goal: Option<f64>) -> Vec<Peer> {
    Vec::new()
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let unix: Peer = ("AF_UNIX", Side::Way(Way::Unix(None)), None);
    let large: Peer = ("AF_UNIX, 4 MiB buffers", Side::Way(Way::Unix(Some(4 * MIB))), None);
    let pipe: Peer = ("pipe", Side::Way(Way::Pipe), None);
    let line: Peer = ("a bare cache line", Side::BareLine, None);
    let goal = |peer: Peer, goal: f64| (peer.0, peer.1, Some(goal));
    let with = |mut first: Vec<Peer>, rest: &[Peer]| {
        first.extend_from_slice(rest);
        first
    };
    let latency = |name, ours, bytes, peers, limit_ns| Case {
        name,
        metric: Metric::Latency,
        ours,
        bytes,
        peers,
        limit_ns,
    };
    let throughput = |name, ours, bytes, peers| Case {
        name,
        metric: Metric::Throughput,
        ours,
        bytes,
        peers,
        limit_ns: None,
    };
    let sleep = Way::Trusted(Wait::Sleep);
    let adaptive = Way::Trusted(Wait::Adaptive);
    let checked = Way::Checked(Wait::Spin);
    vec![
        latency("64 B, polling", TRUSTED, 64, with(iceoryx2(None), &[line]), Some(120.0)),
        latency("64 KiB, polling", TRUSTED, 64 * KIB, with(iceoryx2(None), &[unix]), None),
        latency("64 B, blocking", sleep, 64, vec![goal(pipe, 1.0), unix], None),
        latency("64 B, adaptive", adaptive, 64, vec![goal(pipe, 1.0), unix], None),
        latency("64 KiB, blocking", sleep, 64 * KIB, vec![goal(pipe, 1.0), unix], None),
        throughput("4 KiB, trusted", TRUSTED, 4 * KIB, with(iceoryx2(None), &[unix, large, pipe])),
        throughput(
            "64 KiB, trusted",
            TRUSTED,
            64 * KIB,
            with(iceoryx2(Some(1.0)), &[goal(unix, 8.0), large, pipe]),
        ),
        throughput(
            "1 MiB, trusted",
            TRUSTED,
            MIB,
            with(iceoryx2(Some(1.0)), &[goal(unix, 8.0), large, pipe]),
        ),
        throughput("4 KiB, checked", checked, 4 * KIB, vec![unix, large]),
        throughput("64 KiB, checked", checked, 64 * KIB, vec![goal(unix, 2.0), large]),
        throughput("1 MiB, checked", checked, MIB, vec![goal(unix, 2.0), large]),
        latency("64 B, request and answer, polling", Way::Answers(Wait::Spin), 64, vec![unix, pipe], None),
        latency(
            "4 KiB, request and answer, polling",
            Way::Answers(Wait::Spin),
            4 * KIB,
            vec![unix, pipe],
            None,
        ),
        latency(
            "4 KiB, request and answer, blocking",
            Way::Answers(Wait::Sleep),
            4 * KIB,
            vec![unix, pipe],
            None,
        ),
        throughput("64 B, requests at depth 256", Way::Requests(Wait::Spin), 64, vec![unix, pipe]),
        throughput("4 KiB, requests at depth 256", Way::Requests(Wait::Spin), 4 * KIB, vec![unix, pipe]),
        latency("exchange of 32 MiB", TRUSTED, 32 * MIB, vec![unix, large], None),
    ]
}

impl Case {
    fn work(&self, way: Way, messages: u64) -> Work {
        let pattern = match self.metric {
            Metric::Latency => Pattern::PingPong,
            Metric::Throughput => Pattern::Stream,
        };
        Work { way, pattern, bytes: self.bytes, messages, cores: [0, 1] }
    }

    fn run(&self, side: Side, messages: u64) -> Result<f64, Error> {
        match side {
            Side::Way(way) => self.work(way, messages).run(),
            Side::BareLine => Ok(line::run(messages)),
        }
    }

    /// What a run's seconds mean.
    fn value(&self, seconds: f64, messages: u64) -> f64 {
        match self.metric {
            Metric::Latency => seconds * 1e9 / (2.0 * messages as f64),
            Metric::Throughput => (self.bytes as u64 * messages) as f64 / seconds,
        }
    }

    /// Measures it, in `pairs` rounds in which each side has its turn.
    ///
    /// # Errors
    /// What failed.
    pub fn measure(&self, quick: bool, pairs: u32) -> Result<Vec<Row>, Error> {
        let own = std::iter::once(Side::Way(self.ours));
        let sides: Vec<Side> = own.chain(self.peers.iter().map(|peer| peer.1)).collect();
        let trial = if self.bytes >= MIB { TRIAL / 16 } else { TRIAL };
        let mut slowest = 0f64;
        for side in &sides {
            slowest = slowest.max(self.run(*side, trial)? / trial as f64);
        }
        let wanted = if quick { SECONDS_QUICK } else { SECONDS };
        let messages = ((wanted / slowest) as u64).clamp(4, 5_000_000);
        let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
        for pair in 0..pairs {
            for turn in 0..sides.len() {
                let turn = if pair % 2 == 0 { turn } else { sides.len() - 1 - turn };
                seconds[turn].push(self.run(sides[turn], messages)?);
            }
        }
        let (ours, others) = seconds.split_at(1);
        let mut rows: Vec<Row> = self
            .peers
            .iter()
            .zip(others)
            .map(|((name, _, goal), theirs)| {
                let ratios: Vec<f64> =
                    ours[0].iter().zip(theirs).map(|(ours, theirs)| theirs / ours).collect();
                let value = |seconds: &[f64]| {
                    Summary::of(seconds).map(|summary| self.value(summary.median, messages))
                };
                self.row(name, value(&ours[0]), value(theirs), &ratios, *goal)
            })
            .collect();
        if let Some(limit) = self.limit_ns {
            let values: Vec<f64> = ours[0].iter().map(|seconds| self.value(*seconds, messages)).collect();
            let ratios: Vec<f64> = values.iter().map(|value| limit / value).collect();
            let median = Summary::of(&values).map(|summary| summary.median);
            rows.push(self.row(&format!("a limit of {limit} ns"), median, Some(limit), &ratios, Some(1.0)));
        }
        Ok(rows)
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
            },
            unit: match self.metric {
                Metric::Latency => "ns".into(),
                Metric::Throughput => "B/s".into(),
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
            assert!(!case.peers.is_empty() || case.limit_ns.is_some(), "{}", case.name);
            assert!(cases[..number].iter().all(|other| other.name != case.name), "{} twice", case.name);
        }
    }

    #[test]
    fn the_second_process_learns_what_to_do() {
        let work = Work { way: TRUSTED, pattern: Pattern::Stream, bytes: 64, messages: 3, cores: [0, 1] };
        let parsed = Work::parse("trusted-spin/stream/0/1", 64, 3).unwrap();
        assert_eq!((parsed.way, parsed.pattern, parsed.cores), (work.way, work.pattern, work.cores));
        assert!(Work::parse("trusted-spin", 64, 3).is_none());
        assert!(Work::parse("x/stream/0/1", 64, 3).is_none());
    }
}
