//! `bywash bench ipc`: containers against the other ways between two processes.
//!
//! - `wire`: the ways, behind the same calls
//! - `run`: two processes and the work that they do
//! - `forward`: a third one in the middle
//! - [`measure`] and the table of cases, here

mod forward;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod run;
mod wire;

use crate::campaign::Audience;
use crate::error::Error;
use crate::machine::Machine;
use crate::row::{Report, Row};
use crate::statistics::Summary;
use bywash_container::Wait;
use run::{Pattern, Work};
use wire::Way;

/// Against what, and the ratio asked for.
type Peer = (&'static str, Way, Option<f64>);

/// What is read off a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    /// Nanoseconds one way.
    Latency,
    /// Bytes a second.
    Throughput,
}

/// One case: the same work by us and by each peer.
struct Case {
    name: &'static str,
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
    vec![("iceoryx2", Way::Iceoryx2, goal)]
}

#[cfg(not(feature = "iceoryx2"))]
fn iceoryx2(_goal: Option<f64>) -> Vec<Peer> {
    Vec::new()
}

fn cases() -> Vec<Case> {
    let unix: Peer = ("AF_UNIX", Way::Unix(None), None);
    let large: Peer = ("AF_UNIX, 4 MiB buffers", Way::Unix(Some(4 * MIB)), None);
    let pipe: Peer = ("pipe", Way::Pipe, None);
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
        latency("64 B, polling", TRUSTED, 64, iceoryx2(None), Some(120.0)),
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
        latency("exchange of 32 MiB", TRUSTED, 32 * MIB, vec![unix, large], None),
    ]
}

/// Measures everything, in `pairs` rounds in which each side has its turn.
///
/// # Errors
/// None: what failed becomes the note of its rows, and after an interruption what is there so far is answered
/// with it.
pub fn measure(quick: bool, pairs: u32, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let mut report =
        Report { machine: Machine::this(), version: env!("CARGO_PKG_VERSION").into(), rows: Vec::new() };
    let cases = cases();
    let all = cases.len() as u64 + 1;
    for (number, case) in cases.iter().enumerate() {
        audience.progress(number as u64, all, case.name);
        let rows = match case.measure(quick, pairs) {
            Err(Error::Interrupted) => return Ok((report, true)),
            Err(error) => vec![case.failed(&error)],
            Ok(rows) => rows,
        };
        for row in rows {
            audience.row(&row);
            report.rows.push(row);
        }
    }
    audience.progress(all - 1, all, "forwarding");
    let rows = match forwarding(quick, pairs) {
        Err(Error::Interrupted) => return Ok((report, true)),
        Err(error) => vec![Row {
            failed: true,
            met: Some(false),
            note: format!("failed: {error}"),
            ..empty("forwarding")
        }],
        Ok(rows) => rows,
    };
    for row in rows {
        audience.row(&row);
        report.rows.push(row);
    }
    Ok((report, false))
}

/// The part of another process; `what` is what `Work::run` or `forward::run` called it.
///
/// # Errors
/// What failed.
pub fn peer(what: &str, bytes: usize, messages: u64, service: &str) -> Result<(), Error> {
    match what {
        forward::MIDDLE => forward::middle(bytes, messages, false),
        forward::MIDDLE_MAPPED => forward::middle(bytes, messages, true),
        forward::SINK => forward::sink(messages),
        _ => match Work::parse(what, bytes, messages) {
            Some(work) => work.second(service),
            None => Err(Error::Usage(format!("{what} is no part of this bench"))),
        },
    }
}

impl Case {
    fn work(&self, way: Way, messages: u64) -> Work {
        let pattern = match self.metric {
            Metric::Latency => Pattern::PingPong,
            Metric::Throughput => Pattern::Stream,
        };
        Work { way, pattern, bytes: self.bytes, messages }
    }

    /// What a run's seconds mean.
    fn value(&self, seconds: f64, messages: u64) -> f64 {
        match self.metric {
            Metric::Latency => seconds * 1e9 / (2.0 * messages as f64),
            Metric::Throughput => (self.bytes as u64 * messages) as f64 / seconds,
        }
    }

    fn measure(&self, quick: bool, pairs: u32) -> Result<Vec<Row>, Error> {
        let ways: Vec<Way> = std::iter::once(self.ours).chain(self.peers.iter().map(|peer| peer.1)).collect();
        let trial = if self.bytes >= MIB { TRIAL / 16 } else { TRIAL };
        let mut slowest = 0f64;
        for way in &ways {
            slowest = slowest.max(self.work(*way, trial).run()? / trial as f64);
        }
        let wanted = if quick { SECONDS_QUICK } else { SECONDS };
        let messages = ((wanted / slowest) as u64).clamp(4, 5_000_000);
        let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
        for pair in 0..pairs {
            for turn in 0..ways.len() {
                let turn = if pair % 2 == 0 { turn } else { ways.len() - 1 - turn };
                seconds[turn].push(self.work(ways[turn], messages).run()?);
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
            ..with_ratio(empty(self.name), summary, goal)
        }
    }

    fn failed(&self, error: &Error) -> Row {
        Row { failed: true, met: Some(false), note: format!("failed: {error}"), ..empty(self.name) }
    }
}

fn with_ratio(row: Row, summary: Option<Summary>, goal: Option<f64>) -> Row {
    Row {
        ratio: summary.map(|summary| summary.median),
        spread: summary.map(|summary| summary.spread()),
        ratio_low: summary.map(|summary| summary.low),
        ratio_high: summary.map(|summary| summary.high),
        met: goal.zip(summary).map(|(goal, summary)| summary.median >= goal),
        goal,
        ..row
    }
}

fn empty(case: &str) -> Row {
    Row {
        bench: "ipc".into(),
        case: case.into(),
        metric: "throughput".into(),
        unit: "B/s".into(),
        peer: "-".into(),
        ..Row::default()
    }
}

/// Bytes of a message that is forwarded.
const FORWARDED_BYTES: usize = 64 * KIB;

/// Unmapped against mapped: from end to end, and the time that the one in the middle takes.
fn forwarding(quick: bool, pairs: u32) -> Result<Vec<Row>, Error> {
    let messages = if quick { 500 } else { 10_000 };
    let (mut unmapped, mut mapped) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        for turn in [pair % 2 == 0, pair % 2 != 0] {
            let runs = if turn { &mut unmapped } else { &mut mapped };
            runs.push(forward::run(FORWARDED_BYTES, messages, !turn)?);
        }
    }
    let row = |case: &str,
               metric: &str,
               unit: &str,
               goal,
               seconds: fn(&forward::Forwarded) -> f64,
               value: &dyn Fn(f64) -> f64| {
        let all = |runs: &[forward::Forwarded]| runs.iter().map(seconds).collect::<Vec<f64>>();
        let (ours, theirs) = (all(&unmapped), all(&mapped));
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
        let median = |seconds: &[f64]| Summary::of(seconds).map(|summary| value(summary.median));
        Row {
            metric: metric.into(),
            unit: unit.into(),
            ours: median(&ours),
            peer: "forwarding mapped".into(),
            peer_value: median(&theirs),
            runs: pairs,
            ..with_ratio(empty(case), Summary::of(&ratios), goal)
        }
    };
    let bytes = (FORWARDED_BYTES as u64 * messages) as f64;
    Ok(vec![
        row(
            "64 KiB forwarded unmapped",
            "time in the middle",
            "ns",
            Some(5.0),
            |run| run.seconds_in_the_middle,
            &|seconds| seconds * 1e9,
        ),
        row("64 KiB forwarded unmapped", "throughput", "B/s", None, |run| run.seconds, &|seconds| {
            bytes / seconds
        }),
    ])
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
        let work = Work { way: TRUSTED, pattern: Pattern::Stream, bytes: 64, messages: 3 };
        let parsed = Work::parse("trusted-spin/stream", 64, 3).unwrap();
        assert_eq!((parsed.way, parsed.pattern), (work.way, work.pattern));
        assert!(Work::parse("trusted-spin", 64, 3).is_none());
        assert!(Work::parse("x/stream", 64, 3).is_none());
    }
}
