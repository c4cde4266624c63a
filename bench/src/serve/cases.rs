//! Cases in which sides carry the same workload out: with goals, by size, direction, depth and number of clients, on slow
//! memory and the disk, and as the figures of Caulfield et al.
//!
//! A ratio to the kernel's path is a goal where a paper promises it: to a file system on a device. How many times longer than a
//! copy pwrite(2) to a tmpfs takes, and qemu-storage-daemon, depends on the machine. There the goals are against bounds of
//! the same run, and the ratios stand beside them.

use super::bound::Bound;
use super::contest::{CLIENTS_MAX, Contender, Home, SLOW_NS, STREAMS, Setup, cores};
use super::figure::{
    ALL_CPU, BANDWIDTH, BOTH_CPU, CLIENT_CPU, EFFICIENCY, Figure, Figures, LATENCY, LATENCY_99, REQUESTS,
    SERVER_CPU, cpu_of,
};
use super::medium::Medium;
use super::nbd::NbdServer;
use super::ours::Path;
use super::server::{Device, Server};
use super::workload::{Direction, Workload};
use crate::campaign::Declared;
use crate::engine::{Runs, Side};
use crate::error::Error;
use crate::number;
use crate::row::{Point, Row, Unit};
use Against::{BestBound, BestPeer, EachPeer, Peer};
use Direction::{Read, Write};
use std::time::Duration;

const EXT4: Contender = Contender::Calls(Medium::LoopExt4);
const EXT4_URING: Contender = Contender::Uring(Medium::LoopExt4);
const TMPFS: Contender = Contender::Calls(Medium::Tmpfs);
const TMPFS_URING: Contender = Contender::Uring(Medium::Tmpfs);
const DAEMON: Contender = Contender::Daemon(Medium::Tmpfs);
const DISK: [Contender; 4] = [
    Contender::Ours(Home::Disk, Path::Channel),
    Contender::Calls(Medium::Disk),
    Contender::Uring(Medium::Disk),
    Contender::Daemon(Medium::Disk),
];
const MAPPED_CALLS: Contender = Contender::Ours(Home::Fast, Path::MappedCalls);
const MAPPED_QUEUE: Contender = Contender::Ours(Home::Fast, Path::MappedQueue);
const CHANNEL_CALLS: Contender = Contender::Ours(Home::Fast, Path::ChannelCalls);
const CHANNEL: Contender = Contender::Ours(Home::Fast, Path::Channel);
const CHANNEL_COPIED: Contender = Contender::Ours(Home::Fast, Path::ChannelCopied);
const EXPORT: Contender = Contender::Export;
const NBD: Contender = Contender::Nbd(NbdServer::Ours);
const NBD_DAEMON: Contender = Contender::Nbd(NbdServer::Daemon);
const NBDKIT: Contender = Contender::Nbd(NbdServer::Nbdkit);
const NBD_BARE: Contender = Contender::Nbd(NbdServer::Bare);
const COPY: Contender = Contender::Bound(Bound::Copy);
const HAND_OVER: Contender = Contender::Bound(Bound::HandOver);
const STAGED: Contender = Contender::Bound(Bound::StagedHandOver);
/// Bounds of mapped streams, and of streams through a server, whose one core copies everything.
const COPIES: [Contender; 2] = [COPY, Contender::Bound(Bound::CopyPastCaches)];
const COPIES_ON_ONE_CORE: [Contender; 2] =
    [Contender::Bound(Bound::CopyOnOneCore), Contender::Bound(Bound::CopyPastCachesOnOneCore)];

/// Goal of a path that only copies: at most a quarter more than a bare copy.
const COPYING: f64 = 1.0 / 1.25;
/// Goal of the channel: at most twice a bare hand-over. An entry and its index are two lines each way where the hand-over has
/// one, and both copy.
const HANDING_OVER: f64 = 0.5;
/// Goal against qemu-storage-daemon, which ours may replace.
const NO_SLOWER: f64 = 1.0;
/// Goal of our NBD server's CPU time against other servers: half of it.
const HALF_THE_CPU: f64 = 2.0;
/// Goal of our NBD server against one that does nothing but to receive, copy and send.
const AS_A_BARE_SERVER: f64 = 0.9;
/// Goal of the clients' CPU time at equal bandwidth: 98 % less.
const CPU_OF_STREAMS: f64 = 50.0;

/// Greatest duration of a point of a curve.
const TIME_OF_POINT: Duration = Duration::from_millis(120);
/// Queue depth of cases with many requests.
const DEPTH: usize = 32;
/// Bytes of a stream that are in flight; its client waits for half of them at a time, and the others keep the medium busy.
const STREAM_IN_FLIGHT: usize = 4 << 20;
const STREAM_DEPTH_MAX: usize = 16;
const DIRECTIONS: [(Direction, &str); 2] = [(Read, "reads"), (Write, "writes")];

/// Peers of a row.
#[derive(Clone, Copy)]
enum Against {
    /// A side of the case.
    Peer(Contender),
    /// The best peer by the row's figure.
    BestPeer,
    /// Each peer, a row for each.
    EachPeer,
    /// The best of the bounds of our path, with the goal of that path.
    BestBound,
    /// The slow device without a path to it, which has this figure.
    Device(f64),
}

/// A row of each of our sides: another name of the case if it has one, the figure, the peers, the goal.
type Rule = (Option<&'static str>, Figure, Against, Option<f64>);
/// A side and its runs.
type Measured<'a> = (Contender, &'a Runs<Figures>);

/// Workload and sides of a case, and the rules by which its rows are made.
struct Contest {
    bench: &'static str,
    case: String,
    /// Direction, size and number at a time of the requests.
    work: (Direction, usize, usize),
    clients: usize,
    sides: Vec<Contender>,
    rules: Vec<Rule>,
}

impl Contest {
    fn new(
        bench: &'static str,
        case: impl Into<String>,
        work: (Direction, usize, usize),
        sides: &[Contender],
        rules: &[Rule],
    ) -> Contest {
        Contest { bench, case: case.into(), work, clients: 1, sides: sides.to_vec(), rules: rules.to_vec() }
    }

    fn declared(self) -> Declared<Setup> {
        Declared::new(Row::head(self.bench, &self.case, ""), move |setup: &Setup, head: &Row| {
            let (direction, block, depth) = self.work;
            let has_goal = self.rules.iter().any(|rule| rule.3.is_some() || matches!(rule.2, BestBound));
            let mut workload = setup.workload(direction, block, depth);
            let is_stream = self.clients == STREAMS;
            if is_stream {
                workload = Workload { seed: None, batch: depth / 2, ..workload };
            }
            let runs = setup.hold(&self.sides, &workload, self.clients, has_goal)?;
            let mut rows = self.rows(head, &runs);
            if is_stream {
                rows.extend(at_equal_bandwidth(setup, &workload, head, self.best_peer(BANDWIDTH, &runs))?);
            }
            Ok(rows)
        })
    }

    fn rows(&self, head: &Row, runs: &[Runs<Figures>]) -> Vec<Row> {
        let all: Vec<Measured> = self.sides.iter().copied().zip(runs).collect();
        let find = |side: Contender| *all.iter().find(|other| other.0 == side).expect("a side of the case");
        let mut rows = Vec::new();
        for ours in all.iter().copied().filter(|(side, _)| side.is_ours()) {
            for &(case, figure, against, goal) in &self.rules {
                let head = case.map_or_else(|| head.clone(), |case| Row::head(self.bench, case, ""));
                match against {
                    Peer(peer) => rows.push(row(&head, figure, ours, find(peer), goal)),
                    BestPeer => rows.push(row(&head, figure, ours, self.best_peer(figure, runs), goal)),
                    EachPeer => {
                        let peers = all.iter().filter(|(side, _)| side.is_peer());
                        rows.extend(peers.map(|peer| row(&head, figure, ours, *peer, goal)));
                    }
                    BestBound => {
                        let (bounds, goal) = bounds_of(ours.0, self.clients);
                        let bounds: Vec<Measured> = bounds.iter().map(|bound| find(*bound)).collect();
                        rows.push(row(&head, figure, ours, best(figure, &bounds), Some(goal)));
                    }
                    Against::Device(value) => {
                        let head = Row { case: format!("{}: {}", head.case, ours.1.name), ..head };
                        let row = figure.metric().row_of_limit(&head, ours.1, "the device alone", value, 1.0);
                        rows.push(row.without_goal());
                    }
                }
            }
        }
        rows
    }

    fn best_peer<'a>(&self, figure: Figure, runs: &'a [Runs<Figures>]) -> Measured<'a> {
        let all = self.sides.iter().copied().zip(runs);
        best(figure, &all.filter(|(side, _)| side.is_peer()).collect::<Vec<_>>())
    }
}

/// The side with the best median; one that has failed comes first, so that its reason is shown.
fn best<'a>(figure: Figure, sides: &[Measured<'a>]) -> Measured<'a> {
    let has_failed = |side: &&Measured| side.1.samples.as_ref().is_err_and(|error| !error.is_absence());
    let best = figure.metric().best(sides.iter().map(|side| side.1)).map(|runs| &runs.name);
    let best = sides.iter().find(|side| Some(&side.1.name) == best);
    *sides.iter().find(has_failed).or(best).unwrap_or(&sides[0])
}

/// The bounds of a side of ours, and the goal against the best of them.
fn bounds_of(ours: Contender, clients: usize) -> (&'static [Contender], f64) {
    match (clients, ours) {
        (1, _) if ours.is_mapped() => (&[COPY], COPYING),
        (1, CHANNEL | EXPORT) => (&[HAND_OVER], HANDING_OVER),
        (1, _) => (&[STAGED], HANDING_OVER),
        _ if ours.is_mapped() => (&COPIES, COPYING),
        _ => (&COPIES_ON_ONE_CORE, COPYING),
    }
}

/// A row of one of our sides; its note is what binds it, and the CPU time of a request.
fn row(head: &Row, figure: Figure, ours: Measured, peer: Measured, goal: Option<f64>) -> Row {
    let head = Row { case: format!("{}: {}", head.case, ours.1.name), ..head.clone() };
    let row = figure.metric().row(&head, ours.1, peer.1, goal);
    if row.ratio.is_none() {
        return row;
    }
    let mut note = String::new();
    if let Contender::Bound(bound) = peer.0 {
        note = format!("{}; ", bound.texts().1);
    }
    // A test compares this with the library's choice.
    note.push_str(if ours.0.is_mapped() { "the library's own choice; " } else { "" });
    Row { note: format!("{note}CPU a request: {}; it: {}", cpu_of(ours.1), cpu_of(peer.1)), ..row }
}

/// Our channel at no more than the best peer's bandwidth, so that the CPU time for the same bytes can be compared.
fn at_equal_bandwidth(
    setup: &Setup,
    workload: &Workload,
    head: &Row,
    (peer, measured): Measured,
) -> Result<Vec<Row>, Error> {
    let Some(bandwidth) = BANDWIDTH.median(measured).map(|bandwidth| bandwidth as u64) else {
        return Ok(Vec::new());
    };
    let kind = format!("mem:{},bandwidth={bandwidth}/s", STREAMS as u64 * workload.medium_bytes);
    let devices = [Device { home: Home::Fast, kind, volumes: STREAMS }];
    let server = Server::start(&setup.folder, "even", &devices, workload.medium_bytes, cores() > 1)?;
    let sides = vec![
        Side::new(CHANNEL.name(), || CHANNEL.run_at(&server, workload, STREAMS)),
        Side::new(peer.name(), || peer.run(setup, workload, STREAMS)),
    ];
    let runs = setup.rounds(true).run(sides)?;
    let case = format!("{}, at most {}/s", head.case, number::bytes(bandwidth as f64));
    let head = Row { case, ..head.clone() };
    let goals = [(BANDWIDTH, None), (CLIENT_CPU, Some(CPU_OF_STREAMS)), (BOTH_CPU, None), (ALL_CPU, None)];
    Ok(goals.map(|(figure, goal)| row(&head, figure, (CHANNEL, &runs[0]), (peer, &runs[1]), goal)).into())
}

pub(super) fn with_goals() -> Vec<Declared<Setup>> {
    contests_with_goals().into_iter().map(Contest::declared).collect()
}

fn contests_with_goals() -> Vec<Contest> {
    let one_at_a_time = "4 KiB writes, one at a time";
    let mut contests = vec![
        Contest::new(
            "serve/ext4",
            one_at_a_time,
            (Write, 4096, 1),
            &[MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, EXT4, EXT4_URING],
            &[
                (None, LATENCY, Peer(EXT4), Some(10.0)),
                (None, LATENCY, Peer(EXT4_URING), None),
                (None, LATENCY_99, Peer(EXT4), None),
            ],
        ),
        Contest::new(
            "serve/ext4",
            "4 KiB writes, 32 at a time",
            (Write, 4096, DEPTH),
            &[MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, EXT4, EXT4_URING],
            &[
                (Some("4 KiB writes, sustained"), BANDWIDTH, Peer(EXT4), Some(7.2)),
                (Some("4 KiB writes, asynchronous on one thread"), REQUESTS, BestPeer, Some(5.5)),
            ],
        ),
        Contest::new(
            "serve/tmpfs",
            one_at_a_time,
            (Write, 4096, 1),
            &[
                [MAPPED_CALLS, MAPPED_QUEUE, CHANNEL, CHANNEL_CALLS, CHANNEL_COPIED].as_slice(),
                &[TMPFS, COPY, HAND_OVER, STAGED],
            ]
            .concat(),
            &[
                (None, LATENCY, BestBound, None),
                (None, LATENCY, Peer(TMPFS), None),
                (None, LATENCY_99, Peer(TMPFS), None),
            ],
        ),
        Contest::new(
            "serve/tmpfs",
            "512 B writes, asynchronous on one thread",
            (Write, 512, DEPTH),
            &[MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, TMPFS, TMPFS_URING, COPY, HAND_OVER, STAGED],
            &[
                (None, REQUESTS, BestBound, None),
                (None, REQUESTS, BestPeer, None),
                (None, EFFICIENCY, BestBound, None),
                (None, EFFICIENCY, BestPeer, None),
            ],
        ),
    ];
    for (direction, what) in DIRECTIONS.into_iter().rev() {
        contests.push(Contest::new(
            "serve/qemu",
            format!("4 KiB {what}, 32 at a time, one core each"),
            (direction, 4096, DEPTH),
            &[EXPORT, CHANNEL, CHANNEL_COPIED, DAEMON, HAND_OVER, STAGED],
            &[(None, REQUESTS, BestBound, None), (None, REQUESTS, Peer(DAEMON), Some(NO_SLOWER))],
        ));
    }
    for (direction, what) in DIRECTIONS {
        let sides = [NBD, NBD_DAEMON, NBDKIT, NBD_BARE];
        contests.push(Contest::new(
            "serve/nbd",
            format!("4 KiB {what}, 32 at a time"),
            (direction, 4096, DEPTH),
            &sides,
            &[
                (None, SERVER_CPU, Peer(NBD_DAEMON), Some(HALF_THE_CPU)),
                (None, SERVER_CPU, Peer(NBDKIT), Some(HALF_THE_CPU)),
                (None, REQUESTS, Peer(NBD_BARE), Some(AS_A_BARE_SERVER)),
                (None, REQUESTS, Peer(NBD_DAEMON), None),
                (None, REQUESTS, Peer(NBDKIT), None),
            ],
        ));
        contests.push(Contest::new(
            "serve/nbd",
            format!("4 KiB {what}, one at a time"),
            (direction, 4096, 1),
            &sides,
            &[
                (None, LATENCY, Peer(NBD_DAEMON), Some(NO_SLOWER)),
                (None, LATENCY, Peer(NBDKIT), Some(NO_SLOWER)),
                (None, LATENCY, Peer(NBD_BARE), Some(AS_A_BARE_SERVER)),
                (None, SERVER_CPU, Peer(NBD_DAEMON), None),
                (None, SERVER_CPU, Peer(NBDKIT), None),
            ],
        ));
    }
    for (bytes, size) in [(64 << 10, "64 KiB"), (1 << 20, "1 MiB")] {
        let depth = (STREAM_IN_FLIGHT / bytes).min(STREAM_DEPTH_MAX);
        let streams = Contest::new(
            "serve/ext4",
            format!("{STREAMS} streams of {size} writes"),
            (Write, bytes, depth),
            &[[MAPPED_QUEUE, CHANNEL, EXT4, EXT4_URING].as_slice(), &COPIES, &COPIES_ON_ONE_CORE].concat(),
            &[
                (None, BANDWIDTH, BestBound, None),
                (None, BANDWIDTH, Peer(EXT4), Some(2.0)),
                (None, BANDWIDTH, Peer(EXT4_URING), None),
            ],
        );
        contests.push(Contest { clients: STREAMS, ..streams });
    }
    contests
}

pub(super) fn without_goals(quick: bool) -> Vec<Declared<Setup>> {
    let mut contests = Vec::new();
    let mut add = |contest: Contest| contests.push(contest);
    for (block, size) in [(4096, "4 KiB"), (512, "512 B")] {
        for (direction, what) in DIRECTIONS {
            add(Contest::new(
                "serve/requests",
                format!("{size} {what}, one at a time"),
                (direction, block, 1),
                &[MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, TMPFS],
                &[(None, LATENCY, Peer(TMPFS), None)],
            ));
            for depth in if quick { &[DEPTH][..] } else { &[4, DEPTH, 128] } {
                add(Contest::new(
                    "serve/requests",
                    format!("{size} {what}, {depth} at a time"),
                    (direction, block, *depth),
                    &[MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, TMPFS, TMPFS_URING],
                    &[(None, REQUESTS, BestPeer, None)],
                ));
            }
        }
    }
    for clients in [2, 4, CLIENTS_MAX] {
        let case = format!("{clients} clients, 4 KiB writes, 32 at a time");
        let sides = [MAPPED_QUEUE, CHANNEL, TMPFS, EXT4, DAEMON];
        let rules = [(None, REQUESTS, EachPeer, None)];
        let contest = Contest::new("serve/clients", case, (Write, 4096, DEPTH), &sides, &rules);
        add(Contest { clients, ..contest });
    }
    for (direction, what) in DIRECTIONS {
        // Slow memory against its own latency, which shows what the path to it adds.
        let device_requests = DEPTH as f64 * 1e9 / SLOW_NS as f64;
        for (depth, other, figure, device) in [
            (1, Path::ChannelCalls, LATENCY, SLOW_NS as f64),
            (DEPTH, Path::ChannelCopied, REQUESTS, device_requests),
        ] {
            add(Contest::new(
                "serve/slow",
                format!("4 KiB {what} that take {} us, {depth} at a time", SLOW_NS / 1000),
                (direction, 4096, depth),
                &[Path::Channel, other].map(|path| Contender::Ours(Home::Slow, path)),
                &[(None, figure, Against::Device(device), None)],
            ));
            let case = format!("4 KiB {what}, {depth} at a time");
            let rules = [(None, figure, EachPeer, None)];
            add(Contest::new("serve/disk", case, (direction, 4096, depth), &DISK, &rules));
        }
    }
    contests.into_iter().map(Contest::declared).chain(curves()).collect()
}

/// Number along the axis of a figure.
#[derive(Clone, Copy)]
enum Over {
    /// Sizes of a request, so many at a time.
    Sizes(usize),
    /// Numbers of requests of that size at a time.
    Depths(usize),
}

/// Figures of Caulfield et al., each line against pwrite(2) to a tmpfs: time and bandwidth by the size of an access,
/// asynchronous beside synchronous requests on one thread, and what a CPU second carries out of small requests.
fn curves() -> [Declared<Setup>; 4] {
    const CALLS: &[Contender] = &[MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, TMPFS, EXT4, EXT4_URING];
    const QUEUES: &[Contender] = &[MAPPED_QUEUE, CHANNEL, TMPFS, TMPFS_URING, EXT4, EXT4_URING];
    const BOTH: &[Contender] = &[MAPPED_CALLS, MAPPED_QUEUE, CHANNEL, TMPFS, TMPFS_URING, EXT4, EXT4_URING];
    let (whole, small) = ("4 KiB writes on one thread", "512 B writes on one thread");
    let many = "writes on one thread, 32 at a time";
    [
        curve("write latency by size", "writes, one at a time", Over::Sizes(1), CALLS, &[LATENCY]),
        curve("write bandwidth by size", many, Over::Sizes(DEPTH), QUEUES, &[BANDWIDTH]),
        curve(&format!("{whole} by depth"), whole, Over::Depths(4096), BOTH, &[REQUESTS]),
        curve(&format!("{small} by depth"), small, Over::Depths(512), BOTH, &[REQUESTS, EFFICIENCY]),
    ]
}

fn curve(
    case: &str,
    figure: &'static str,
    over: Over,
    sides: &'static [Contender],
    metrics: &'static [Figure],
) -> Declared<Setup> {
    Declared::new(Row::head("serve/paper", case, ""), move |setup: &Setup, _: &Row| {
        let mut rows = Vec::new();
        let powers: Vec<u32> = match (over, setup.quick) {
            (Over::Sizes(_), false) => (9..=17).collect(),
            (Over::Sizes(_), true) => vec![9, 12],
            (Over::Depths(_), false) => (0..=7).collect(),
            (Over::Depths(_), true) => vec![0, 5],
        };
        for x in powers.into_iter().map(|power| 1 << power) {
            let (block, depth, axis, unit) = match over {
                Over::Sizes(depth) => (x, depth, "bytes of a request", Unit::Bytes),
                Over::Depths(block) => (block, x, "requests at a time", Unit::Count),
            };
            let mut workload = setup.workload(Write, block, depth);
            workload.time = workload.time.min(TIME_OF_POINT);
            let runs = setup.hold(sides, &workload, 1, false)?;
            let base = sides.iter().position(|side| *side == TMPFS).expect("a side of each figure");
            for metric in metrics {
                for side in runs.iter().filter(|side| side.name != runs[base].name) {
                    let (figure, axis, line, x) =
                        (String::from(figure), axis.into(), side.name.clone(), x as u64);
                    let head = Row::head("serve/paper", &format!("{figure}, {x}: {line}"), "");
                    let row = metric.metric().row(&head, side, &runs[base], None);
                    rows.push(Row { point: Some(Point { figure, axis, unit, x, line }), ..row });
                }
            }
        }
        Ok(rows)
    })
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::runs;
    use super::*;

    /// The row of our channel, by how many requests it and the bounds carried out in a second.
    fn bounded(slow: u64, fast: Result<u64, Error>) -> Row {
        let [slow_bound, fast_bound] = COPIES_ON_ONE_CORE;
        let measured = [
            runs(&CHANNEL.name(), Ok(700)),
            runs(&slow_bound.name(), Ok(slow)),
            runs(&fast_bound.name(), fast),
        ];
        let (sides, rules) = ([CHANNEL, slow_bound, fast_bound], [(None, BANDWIDTH, BestBound, None)]);
        let contest = Contest::new("serve/ext4", "streams", (Write, 512, 8), &sides, &rules);
        Contest { clients: STREAMS, ..contest }.rows(&Row::default(), &measured).remove(0)
    }

    #[test]
    fn the_best_bound_binds_and_one_that_failed_is_shown() {
        let [slow, fast] = COPIES_ON_ONE_CORE.map(Contender::name);
        let row = bounded(800, Ok(1000));
        assert_eq!((&row.peer, row.ratio, row.met), (&fast, Some(0.7), Some(false)));
        assert!(row.note.starts_with("one core copies the bytes of all clients; "), "{}", row.note);
        let row = bounded(800, Ok(600));
        assert_eq!((&row.peer, row.ratio, row.met), (&slow, Some(0.875), Some(true)));
        // Another peer does not take its place.
        let row = bounded(800, Err(Error::failed("a bound", "no memory".into())));
        assert_eq!((&row.peer, row.ratio, row.met, row.failed), (&fast, None, Some(false), true));
        assert!(row.note.contains("no memory"), "{}", row.note);
    }

    #[test]
    fn every_figure_of_a_case_has_its_peers_and_goals() {
        for contest in contests_with_goals() {
            let measured: Vec<_> = contest.sides.iter().map(|side| runs(&side.name(), Ok(1000))).collect();
            let rows = contest.rows(&Row::head(contest.bench, &contest.case, ""), &measured);
            let ours = contest.sides.iter().filter(|side| side.is_ours()).count();
            assert_eq!(rows.len(), ours * contest.rules.len(), "{}", contest.case);
            for row in &rows {
                assert!(row.ratio.is_some() && row.note.contains("CPU a request"), "{row:?}");
                // What memory costs differs between machines: goals against it are bounds, or equality with a rival.
                // NBD servers mostly make system calls, of which ours makes fewer.
                let is_memory = contest.bench != "serve/ext4" && row.metric != "cpu of the server";
                assert!(!is_memory || row.goal.is_none_or(|goal| goal <= 1.0), "{row:?}");
                let is_bound = row.peer.starts_with("bound: ");
                assert!(!is_bound || row.goal.is_some_and(|goal| goal < 1.0), "{row:?}");
            }
        }
    }
}
