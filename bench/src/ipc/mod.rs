//! `bywash bench ipc`: containers and channels against other transports between two processes.
//!
//! `CASES` is the table: a name, our transport, the messages, and the peers with their goals. `Case::measure` lets all of them
//! do the same work in turns.
//!
//! - `words`: the work that both ends do with every message; `exchange`: the messages of a run and their times
//! - `transport`, `channel`, `bare`: the transports, and what none of them can beat
//! - `processes`: two processes and the messages between them, a third one in the middle, a second pair beside

mod bare;
mod channel;
mod exchange;
mod processes;
mod transport;
mod words;

use crate::campaign::{self, Audience, Choice};
use crate::engine::{self, Rounds};
use crate::error::Error;
use crate::row::{Report, Row};
use exchange::{Exchange, Failure, Spent};
use processes::{Job, Work};
use std::time::Duration;
use transport::Transport::{self, Answers, Checked, Requests, Trusted};
use transport::Waits::{Adaptive, Loop, Sleep, Spin};
use transport::buffers;

/// Name, transport and goal of a peer.
type Peer = (&'static str, Transport, Option<f64>);
type Metric<'a> = engine::Metric<'a, Spent>;

/// One case: its name, our transport, the messages of a run, whose number follows from a trial, and the peers that do the
/// same work.
struct Case {
    name: &'static str,
    ours: Transport,
    exchange: Exchange,
    peers: &'static [Peer],
}

const fn case(name: &'static str, ours: Transport, exchange: Exchange, peers: &'static [Peer]) -> Case {
    Case { name, ours, exchange, peers }
}

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
/// Runs of each number of buffers that is tried.
const TRIES: u32 = 3;

const UNIX: Peer = ("AF_UNIX", Transport::Unix(Sleep, None), None);
const UNIX_POLLED: Peer = ("AF_UNIX, polled", Transport::Unix(Spin, None), None);
const LARGE: Peer = ("AF_UNIX, 4 MiB buffers", Transport::Unix(Sleep, Some(4 * MIB)), None);
const PIPE: Peer = ("pipe", Transport::Pipe(Sleep), None);
const PIPE_POLLED: Peer = ("pipe, polled", Transport::Pipe(Spin), None);
const LINE: Peer = ("a bare cache line", Transport::CacheLine, Some(0.45));
const ICEORYX2: Peer = ("iceoryx2", Transport::Iceoryx2, None);
const FUTEX: Peer = ("bare futex", Transport::Futex, None);
const LOOP: Peer = ("pipe, event loop", Transport::Pipe(Loop), Some(PACED_GOAL));
const IN_PLACE: Peer = bound(false);
const COPIED: Peer = bound(true);

const fn bound(copies: bool) -> Peer {
    ("bound: a bare hand-over", Transport::HandOver { copies, buffers: None }, Some(HAND_OVER_GOAL))
}

const fn goal(peer: Peer, goal: f64) -> Peer {
    (peer.0, peer.1, Some(goal))
}

const fn stream(bytes: usize) -> Exchange {
    Exchange { bytes, messages: 0, answered: false, period: None, cores: [0, 1] }
}

const fn both(bytes: usize) -> Exchange {
    Exchange { answered: true, ..stream(bytes) }
}

const fn paced(exchange: Exchange, hertz: u64) -> Exchange {
    Exchange { period: Some(Duration::from_nanos(1_000_000_000 / hertz)), ..exchange }
}

const SLEEPERS: &[Peer] = &[goal(PIPE, PACED_GOAL), FUTEX, UNIX];
const LOOPS: &[Peer] = &[LOOP, PIPE, FUTEX];
const IN_PLACE_PEERS: &[Peer] =
    &[IN_PLACE, goal(ICEORYX2, 1.0), goal(UNIX, TWO_COPIES_GOAL), LARGE, PIPE, UNIX_POLLED, PIPE_POLLED];
const COPIED_PEERS: &[Peer] = &[COPIED, goal(UNIX, TWO_COPIES_GOAL), LARGE, UNIX_POLLED];
const KERNEL: &[Peer] = &[UNIX, PIPE, UNIX_POLLED, PIPE_POLLED];
const BLOCKING: &[Peer] = &[goal(PIPE, 1.0), UNIX];

/// All cases. Where our ends spin, each rival whose ends sleep in the kernel is there with ends that poll too: otherwise the
/// ratio would be that of spinning to sleeping. An adaptive end does not spin for messages with pauses.
const CASES: &[Case] = &[
    // Two lines go each way, ours and the index behind it; the bare one is of the same run and machine.
    case("64 B, polling", Trusted(Spin), both(64), &[ICEORYX2, LINE]),
    case("64 KiB, polling", Trusted(Spin), both(64 * KIB), &[IN_PLACE, ICEORYX2, UNIX, UNIX_POLLED]),
    case("64 B, blocking", Trusted(Sleep), both(64), BLOCKING),
    case("64 B, adaptive", Trusted(Adaptive), both(64), &[goal(PIPE, 1.0), UNIX, PIPE_POLLED, UNIX_POLLED]),
    case("64 KiB, blocking", Trusted(Sleep), both(64 * KIB), BLOCKING),
    case(
        "4 KiB, trusted",
        Trusted(Spin),
        stream(4 * KIB),
        &[ICEORYX2, UNIX, LARGE, PIPE, UNIX_POLLED, PIPE_POLLED],
    ),
    case("64 KiB, trusted", Trusted(Spin), stream(64 * KIB), IN_PLACE_PEERS),
    case("1 MiB, trusted", Trusted(Spin), stream(MIB), IN_PLACE_PEERS),
    case("4 KiB, checked", Checked, stream(4 * KIB), &[UNIX, LARGE, UNIX_POLLED]),
    case("64 KiB, checked", Checked, stream(64 * KIB), COPIED_PEERS),
    case("1 MiB, checked", Checked, stream(MIB), COPIED_PEERS),
    case("64 B, request and answer, polling", Answers(Spin), both(64), KERNEL),
    case("4 KiB, request and answer, polling", Answers(Spin), both(4 * KIB), KERNEL),
    case("4 KiB, request and answer, blocking", Answers(Sleep), both(4 * KIB), &[UNIX, PIPE]),
    case("64 B, requests at depth 256", Requests, stream(64), KERNEL),
    case("4 KiB, requests at depth 256", Requests, stream(4 * KIB), KERNEL),
    case("64 B at 1 kHz, blocking", Trusted(Sleep), paced(stream(64), 1000), SLEEPERS),
    case("64 B at 1 kHz, adaptive", Trusted(Adaptive), paced(stream(64), 1000), SLEEPERS),
    case("64 B at 1 kHz, event loop", Trusted(Loop), paced(stream(64), 1000), LOOPS),
    case("64 B and an answer at 1 kHz, event loop", Trusted(Loop), paced(both(64), 1000), LOOPS),
    case("64 B at 100 Hz, blocking", Trusted(Sleep), paced(stream(64), 100), SLEEPERS),
    case("64 B at 100 Hz, adaptive", Trusted(Adaptive), paced(stream(64), 100), SLEEPERS),
    case("64 B at 10 kHz, blocking", Trusted(Sleep), paced(stream(64), 10_000), SLEEPERS),
    case("64 B at 10 kHz, adaptive", Trusted(Adaptive), paced(stream(64), 10_000), SLEEPERS),
    case("64 B and an answer at 1 kHz, blocking", Trusted(Sleep), paced(both(64), 1000), SLEEPERS),
    case("64 B and an answer at 1 kHz, adaptive", Trusted(Adaptive), paced(both(64), 1000), SLEEPERS),
    case("64 B, request and answer at 1 kHz, blocking", Answers(Sleep), paced(both(64), 1000), SLEEPERS),
    case("64 B, request and answer at 1 kHz, adaptive", Answers(Adaptive), paced(both(64), 1000), SLEEPERS),
    case("exchange of 32 MiB", Trusted(Spin), both(32 * MIB), &[UNIX, LARGE, UNIX_POLLED]),
];

impl Case {
    fn metric(&self) -> Metric<'_> {
        match self.exchange {
            Exchange { period: Some(_), .. } => {
                Metric::cost("CPU time a message", "us", |spent| spent.cpu * 1e6)
            }
            Exchange { answered: true, .. } => {
                Metric::cost("one-way latency", "ns", |spent| spent.wall * 1e9 / 2.0)
            }
            Exchange { bytes, .. } => {
                Metric::rate("throughput", "B/s", move |spent| bytes as f64 / spent.wall)
            }
        }
    }

    fn run(&self, transport: Transport, messages: u64) -> Result<Spent, Error> {
        let spent = Work { transport, exchange: Exchange { messages, ..self.exchange } }.run()?;
        Ok(Spent { wall: spent.wall / messages as f64, cpu: spent.cpu / messages as f64 })
    }

    /// The side itself, or the bound with the number of buffers of which the median run is the fastest: bytes that the other
    /// core has just touched are dear to fetch from its nearest caches, and those of many buffers have to come from memory.
    fn settle(&self, side: Transport, trial: u64) -> Result<Transport, Error> {
        let Transport::HandOver { copies, buffers: None } = side else { return Ok(side) };
        let quarters = std::iter::successors(Some(buffers(self.exchange.bytes)), |count| Some(count / 4));
        let tried = quarters.take_while(|count| *count > 0);
        let tried: Vec<_> = tried.map(|count| Transport::HandOver { copies, buffers: Some(count) }).collect();
        let sides = tried.iter().map(|side| engine::Side::new("bound", || self.run(*side, trial)));
        let runs = Rounds::new(TRIES).run(sides.collect())?;
        let walls =
            runs.iter().zip(tried).filter_map(|(runs, side)| Some((runs.median(|run| run.wall)?, side)));
        let fastest = walls.min_by(|one, other| one.0.total_cmp(&other.0));
        fastest.map(|fastest| fastest.1).ok_or_else(|| broken("no number of buffers can be handed over"))
    }

    /// Messages of a run of a side that takes `own` seconds for one, beside others of which the slowest takes `slowest`: as
    /// many as that one has time for, and more where this side would be done before its run says anything.
    fn messages(&self, own: f64, slowest: f64, quick: bool) -> u64 {
        let wanted = if quick { SECONDS.1 } else { SECONDS.0 };
        let messages = match self.exchange.period {
            Some(period) => wanted / period.as_secs_f64(),
            None => (wanted / slowest).max(wanted / 4.0 / own),
        };
        (messages as u64).clamp(4, 5_000_000)
    }

    fn declared(&self) -> Vec<Row> {
        self.peers.iter().map(|(name, _, goal)| self.metric().head(&head(self.name), name, *goal)).collect()
    }

    /// A side and the seconds that it takes for a message. Paced messages take as long as they are told to. The bound is
    /// tried four trials long: their figures decide.
    fn tried(&self, side: Transport) -> Result<(Transport, f64), Error> {
        let trial = if self.exchange.bytes >= MIB { TRIAL / 16 } else { TRIAL };
        if let Some(period) = self.exchange.period {
            return Ok((side, period.as_secs_f64()));
        }
        let side = self.settle(side, 4 * trial)?;
        Ok((side, self.run(side, trial)?.wall))
    }

    /// Measures the case: a trial of each side finds out how many messages its runs need, then all take turns.
    fn measure(&self, quick: bool, rounds: Rounds) -> Result<Vec<Row>, Error> {
        let (mut sides, mut tried) = (vec![("bywash", self.ours, None)], Vec::new());
        sides.extend(self.peers);
        for (_, side, _) in &sides {
            tried.push(engine::uninterrupted(self.tried(*side))?);
        }
        let slowest = tried.iter().flatten().map(|side| side.1).fold(0.0, f64::max);
        let note_of = |side: &Result<(Transport, f64), Error>| {
            side.as_ref().map_or(String::new(), |side| note(self.ours, side.0))
        };
        let notes: Vec<String> = tried.iter().map(note_of).collect();
        let turn = |((name, ..), tried): (&Peer, Result<(Transport, f64), Error>)| match tried {
            Err(error) => engine::Side::absent(*name, error),
            Ok((side, own)) => {
                let messages = self.messages(own, slowest, quick);
                engine::Side::new(*name, move || self.run(side, messages))
            }
        };
        let runs = rounds.run(sides.iter().zip(tried).map(turn).collect())?;
        let cpu = |runs: &engine::Runs<Spent>| runs.median(|spent| spent.cpu);
        let row = |((peer, side), note): ((&engine::Runs<Spent>, &Peer), String)| {
            let row = self.metric().row(&head(self.name), &runs[0], peer, side.2);
            match row.ratio {
                None => row,
                Some(_) => {
                    Row { note, ours_cpu_per_message: cpu(&runs[0]), peer_cpu_per_message: cpu(peer), ..row }
                }
            }
        };
        Ok(runs.iter().zip(&sides).zip(notes).skip(1).map(row).collect())
    }
}

fn note(ours: Transport, peer: Transport) -> String {
    let waits = ours.waits();
    let Transport::HandOver { copies, buffers } = peer else {
        return format!("bywash {waits}; the rival {}", peer.waits());
    };
    let takes = if copies { "copies them out and sums the copy" } else { "sums them where they are" };
    let tried = buffers.map_or(String::new(), |count| format!(" in {count} buffers, the fastest number"));
    format!("one core writes the words{tried}, the other one {takes}; bywash {waits}")
}

fn head(case: &str) -> Row {
    Row { metric: "throughput".into(), unit: "B/s".into(), peer: "-".into(), ..Row::head("ipc", case, "") }
}

/// An error of the bench, or one of a transport as that of the two processes.
fn broken(error: impl Into<Failure>) -> Error {
    let failed = |error: Failure| Error::failed("two processes", error.to_string());
    error.into().downcast::<Error>().map_or_else(failed, |error| *error)
}

pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let (quick, rounds) = (choice.quick, choice.rounds());
    let cores = crate::machine::Machine::this().cores;
    let declared = |case: &'static Case| {
        let measure = move || case.measure(quick, rounds);
        campaign::Case::new(format!("ipc: {}", case.name), case.declared(), measure)
    };
    let mut cases: Vec<campaign::Case<'_>> = CASES.iter().map(declared).collect();
    cases.push(campaign::Case::new("ipc: forwarding", vec![head("forwarding")], move || {
        processes::forwarding(quick, rounds)
    }));
    let beside = "beside a second pair";
    cases.push(campaign::Case::new(format!("ipc: {beside}"), vec![head(beside)], move || {
        processes::two_pairs(quick, rounds, cores)
    }));
    let cases = campaign::choose(cases, &choice.names, |case| &case.name)?;
    Ok(campaign::run(cases, audience))
}

/// Does the part of another process, as `processes::start` says it.
pub fn peer(words: &[&str]) -> Result<(), Error> {
    let words = words.join(" ");
    let job: Result<Job, _> = serde_json::from_str(&words);
    let job = job.map_err(|error| Error::Usage(format!("'{words}' is no process of this bench: {error}")))?;
    job.run().map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).unwrap()
    }

    /// Spinning is never compared with sleeping alone, and large messages have a bound of the same run.
    #[test]
    fn every_case_has_the_peers_that_make_its_ratios_fair() {
        let names: std::collections::HashSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        for Case { name, ours, exchange, peers } in CASES {
            let spins = ours.waits().starts_with("spins") && exchange.period.is_none();
            for (sleeper, polled) in [(UNIX, UNIX_POLLED), (PIPE, PIPE_POLLED)] {
                let is_there = peers.iter().any(|peer| peer.1 == sleeper.1);
                assert_eq!(peers.contains(&polled), is_there && spins, "{name}");
            }
            if exchange.period.is_some() {
                let rival = if *ours == Trusted(Loop) { LOOP } else { goal(PIPE, PACED_GOAL) };
                assert!(peers.contains(&rival) && peers.contains(&FUTEX), "{name}");
            }
        }
        for name in ["64 KiB, polling", "64 KiB, trusted", "1 MiB, trusted"] {
            assert_eq!(find(name).peers[0], IN_PLACE, "{name}");
        }
        for name in ["64 KiB, checked", "1 MiB, checked"] {
            assert_eq!(find(name).peers[0], COPIED, "{name}");
        }
    }

    #[test]
    fn a_fast_side_has_more_messages_than_a_slow_one_and_what_is_not_there_says_so() {
        let large = find("64 KiB, trusted");
        // A side that takes a thousandth of the slowest one's time is not measured by a thousandth of a run.
        let of = [(1e-3, 1e-3), (1e-6, 1e-3), (1e-12, 1.0)]
            .map(|(own, slowest)| large.messages(own, slowest, false));
        assert_eq!(of, [400, 100_000, 5_000_000]);
        assert_eq!(find("64 B at 100 Hz, blocking").messages(1e-6, 1e-3, false), 40);
        // The tests' own program has no program for iceoryx2 beside it.
        let error = large.run(Transport::Iceoryx2, 1).unwrap_err();
        assert!(error.is_absence() && error.to_string().contains("make bench-peers"), "{error}");
        for wrong in ["", "{}", "{\"Second\":{}}"] {
            assert!(matches!(peer(&[wrong]), Err(Error::Usage(_))), "{wrong}");
        }
        assert!(matches!(broken(Error::Interrupted), Error::Interrupted));
    }
}
