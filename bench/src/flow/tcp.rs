//! A file over TCP into a file, from process to process on this machine.
//!
//! By value (the receiver gets what the file held when it was read) is compared with senders that read; by reference
//! with those that send pages.

use super::by_hand;
use super::disk::{self, flow_between};
use super::part::{Part, Stage, repeats};
use super::rounds::{self, Frame, Metric, Runs, Side, Work};
use super::route::had;
use super::wires::{
    Files, Receiver, Sender, flow, hand_receiver, hand_sender, nc_receiver, nc_sender, pair, socat,
};
use crate::error::Error;
use crate::place;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_flow::size::Bytes;

const BENCH: &str = "flow/tcp";
const MIB: u64 = 1 << 20;
/// Rounds for each that others have: where the kernel puts two processes makes one run unlike the next.
pub const TURNS: u32 = 3;
/// At most 1.05 times the CPU time of the best pair that was written by hand.
const GOAL_BY_HAND: f64 = 1.0 / 1.05;
/// At most half of what socat takes.
const GOAL_SOCAT: f64 = 2.0;
const BEST: &str = "best pair by hand";
const SOCAT: &str = "socat";

/// What the receiver gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Value,
    Reference,
}

/// The parts of this bench.
pub fn parts(quick: bool) -> Vec<Part> {
    let bytes = if quick { 16 * MIB } else { 256 * MIB };
    let part = |what: &str, by| Part {
        frame: Frame {
            bench: BENCH,
            what: format!("{} from file to file, {what}", Bytes(bytes)),
            place: String::new(),
            bytes,
            note: String::new(),
        },
        kinds: vec![place::Kind::Tmpfs],
        headline: (Metric::Cpu, BEST, Some(GOAL_BY_HAND)),
        measure: Box::new(move |stage, frame| rows(stage, frame, by)),
    };
    vec![part("by value", By::Value), part("by reference", By::Reference)]
}

/// A way to send and a way to receive.
struct Pair {
    name: String,
    send: Sender,
    receive: Receiver,
    kind: Kind,
}

/// Who moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ByHand,
    Program,
    /// Ours, as it was told to.
    Forced,
}

fn pairs_of(by: By) -> Vec<Pair> {
    use by_hand::Part::{ReceiveReadWrite, ReceiveSplice, SendReadWrite, SendSendfile};
    let hand = |name: &str, send, receive| Pair {
        name: name.into(),
        send: hand_sender(send),
        receive: hand_receiver(receive),
        kind: Kind::ByHand,
    };
    match by {
        By::Reference => vec![
            hand("sendfile, splice", SendSendfile, ReceiveSplice),
            hand("sendfile, read and write", SendSendfile, ReceiveReadWrite),
        ],
        By::Value => {
            let mut all = vec![
                hand("read and write, splice", SendReadWrite, ReceiveSplice),
                hand("read and write at both ends", SendReadWrite, ReceiveReadWrite),
            ];
            let with_socat = |name: &str, flags: &'static [&'static str]| Pair {
                name: name.into(),
                send: Box::new(move |file, at| {
                    socat(flags, format!("OPEN:{},rdonly", file.display()), format!("TCP:{at}"))
                }),
                receive: Box::new(move |at, file| {
                    let from = format!("TCP-LISTEN:{},bind={},reuseaddr", at.port(), at.ip());
                    socat(flags, from, format!("CREATE:{}", file.display()))
                }),
                kind: Kind::Program,
            };
            let with_nc = |name: &str, through_pv| Pair {
                name: name.into(),
                send: Box::new(move |file, at| nc_sender(file, at, through_pv)),
                receive: Box::new(nc_receiver),
                kind: Kind::Program,
            };
            all.extend([
                with_socat(SOCAT, &["-u"]),
                with_socat("socat -b 1 MiB", &["-u", "-b", "1048576"]),
                with_nc("nc", false),
                with_nc("pv into nc", true),
            ]);
            all
        }
    }
}

/// Ours, by the planner's choice or by `via`.
fn ours(by: By, via: Option<Mover>) -> Pair {
    let mut flags: Vec<String> = Vec::new();
    flags.extend((by == By::Reference).then_some("--by=reference".into()));
    flags.extend(via.map(|mover| format!("--via={mover}")));
    Pair {
        name: via.map_or("bywash".into(), |mover| mover.to_string()),
        send: Box::new(move |file, at| flow(&flags, format!("file:{}", file.display()), format!("tcp:{at}"))),
        receive: Box::new(|at, file| {
            flow(&[], format!("tcp-listen:{at}"), format!("file:{}", file.display()))
        }),
        kind: Kind::Forced,
    }
}

/// Ours by each mover that can be had to send `files`.
fn forced(by: By, files: &Files) -> Result<Vec<Pair>, Error> {
    let flow = flow_between(&format!("file:{}", files.source.display()), "tcp:127.0.0.1:1")?;
    let flow = flow.by_reference(by == By::Reference);
    let movers = Mover::all().filter(|mover| flow.clone().via(*mover).plan().is_ok());
    Ok(movers.map(|mover| ours(by, Some(mover))).collect())
}

fn rows(stage: &Stage<'_>, frame: &Frame, by: By) -> Result<Vec<Row>, Error> {
    let files = Files::make(had(stage.places, place::Kind::Tmpfs)?, frame.bytes)?;
    let mut peers = pairs_of(by);
    peers.extend(forced(by, &files)?);
    let own = ours(by, None);
    let sides: Vec<Side<'_>> = std::iter::once(&own)
        .chain(&peers)
        .map(|way| {
            let files = &files;
            Side::new(&*way.name, move || pair(&way.send, &way.receive, files))
        })
        .collect();
    let work = Work { state: &files, repeats: repeats(frame.bytes, stage.quick), pairs: stage.pairs * TURNS };
    let runs = rounds::run(sides, &work)?;
    let kinds: Vec<Kind> = peers.iter().map(|peer| peer.kind).collect();
    Ok(rows_of(frame, &runs[0], &runs[1..], &kinds))
}

fn rows_of(frame: &Frame, ours: &Runs, peers: &[Runs], kinds: &[Kind]) -> Vec<Row> {
    let of = |kind| -> Vec<&Runs> {
        peers.iter().zip(kinds).filter_map(|(peer, is)| (*is == kind).then_some(peer)).collect()
    };
    let (hand, movers) = (of(Kind::ByHand), of(Kind::Forced));
    let best = [
        frame.row_of_best(Metric::Cpu, ours, &hand, BEST, Some(GOAL_BY_HAND)),
        frame.row_of_best(Metric::Throughput, ours, &hand, BEST, None),
        frame.row_of_best(Metric::Cpu, ours, &movers, disk::BEST, None),
        frame.row_of_best(Metric::Throughput, ours, &movers, disk::BEST, Some(disk::GOAL_CHOICE)),
    ];
    let mut rows: Vec<Row> = best.into_iter().flatten().collect();
    for (peer, kind) in peers.iter().zip(kinds) {
        let goal = (peer.name == SOCAT).then_some(GOAL_SOCAT);
        let bench = if *kind == Kind::Forced { disk::BENCH_MOVERS } else { frame.bench };
        let frame = Frame { bench, ..frame.clone() };
        rows.push(frame.row(Metric::Cpu, ours, peer, goal));
        rows.push(frame.row(Metric::Throughput, ours, peer, None));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::rounds::Outcome;
    use super::*;

    #[test]
    fn the_goals_are_there() {
        let frame = parts(true).remove(0).frame;
        let runs = |name: &str| Runs {
            name: name.into(),
            outcomes: Ok(vec![Outcome { seconds: 1.0, cpu_seconds: 1.0, lost: 0.0 }; 3]),
        };
        let choice = (disk::BEST, "throughput", disk::GOAL_CHOICE);
        let (hand, socat) = ((BEST, "cpu", GOAL_BY_HAND), (SOCAT, "cpu", GOAL_SOCAT));
        for (by, wanted) in [(By::Value, vec![hand, choice, socat]), (By::Reference, vec![hand, choice])] {
            let mut peers = pairs_of(by);
            peers.push(ours(by, Some(Mover::Buffer)));
            let kinds: Vec<Kind> = peers.iter().map(|peer| peer.kind).collect();
            let measured: Vec<Runs> = peers.iter().map(|peer| runs(&peer.name)).collect();
            let rows = rows_of(&frame, &runs("bywash"), &measured, &kinds);
            let with_goal = rows.iter().filter_map(|row| row.goal.map(|goal| (row, goal)));
            let goals: Vec<(&str, &str, f64)> =
                with_goal.map(|(row, goal)| (row.peer.as_str(), row.metric.as_str(), goal)).collect();
            assert_eq!(goals, wanted);
        }
    }

    #[test]
    fn programs_send_and_receive_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files { source: folder.path().join("source"), sink: folder.path().join("sink") };
        let content: Vec<u8> = (0..3 * MIB + 5).map(|at| (at * 13 + at / 255) as u8).collect();
        std::fs::write(&files.source, content).unwrap();
        // Those by hand are this program, which is the tests' now.
        for way in pairs_of(By::Value).iter().filter(|way| way.kind == Kind::Program) {
            use super::super::rounds::State;
            files.clear().unwrap();
            match pair(&way.send, &way.receive, &files) {
                Ok(outcome) => {
                    files.check().unwrap();
                    assert!(outcome.cpu_seconds > 0.0, "{}", way.name);
                }
                Err(error) => assert!(error.is_absence(), "{}: {error}", way.name),
            }
        }
    }
}
