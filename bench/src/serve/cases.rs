//! Cases in which sides carry the same workload out: with goals, by size, direction, depth and number of clients, on slow
//! memory and the disk, and as the figures of Caulfield et al.
//!
//! A ratio to the kernel's path is a goal where a paper promises it: to a file system on a device. How many times longer than a
//! copy pwrite(2) to a tmpfs takes, and qemu-storage-daemon, depends on the machine. There the goals are against bounds of
//! the same run, and the ratios stand beside them.

use super::bound::Bound;
use super::client::Figures;
use super::contest::{
    CLIENTS_MAX, Contender, Figure, Home, SLOW_NS, STREAMS, Setup, cores, medium_bytes, run_ours, server_core,
};
use super::medium::Medium;
use super::ours::Path;
use super::server::{Device, Server};
use super::workload::{Direction, Order, Workload};
use crate::campaign::Declared;
use crate::engine::{Runs, Side};
use crate::error::Error;
use crate::number;
use crate::row::{Point, Row, Unit};
use Direction::{Read, Write};
use Figure::{Bandwidth, Efficiency, Latency, Latency99, Requests};

const EXT4: Contender = Contender::Calls(Medium::LoopExt4);
const EXT4_URING: Contender = Contender::Uring(Medium::LoopExt4);
const TMPFS: Contender = Contender::Calls(Medium::Tmpfs);
const TMPFS_URING: Contender = Contender::Uring(Medium::Tmpfs);
const DAEMON: Contender = Contender::Daemon(Medium::Tmpfs);
const MAPPED_CALLS: Contender = Contender::Ours(Home::Fast, Path::MappedCalls);
const MAPPED_QUEUE: Contender = Contender::Ours(Home::Fast, Path::MappedQueue);
const CHANNEL_CALLS: Contender = Contender::Ours(Home::Fast, Path::ChannelCalls);
const CHANNEL: Contender = Contender::Ours(Home::Fast, Path::Channel);
const CHANNEL_COPIED: Contender = Contender::Ours(Home::Fast, Path::ChannelCopied);
const EXPORT: Contender = Contender::Export;

/// Bound of mapped paths.
const COPY: Bound = Bound::Copy { past_caches: false, on_one_core: false };
/// Bound of paths through a server, from shared memory and from the client's own.
const HAND_OVER: Bound = Bound::HandOver { is_staged: false };
const STAGED: Bound = Bound::HandOver { is_staged: true };
const BOUNDS: [Contender; 3] =
    [Contender::Bound(COPY), Contender::Bound(HAND_OVER), Contender::Bound(STAGED)];
/// Bounds of mapped streams, and of streams through a server, whose one core copies everything.
const COPIES: [Bound; 2] = [COPY, Bound::Copy { past_caches: true, on_one_core: false }];
const COPIES_ON_ONE_CORE: [Bound; 2] = [
    Bound::Copy { past_caches: false, on_one_core: true },
    Bound::Copy { past_caches: true, on_one_core: true },
];
/// Goal of a path that only copies: at most a quarter more than a bare copy.
const COPYING: f64 = 1.0 / 1.25;
/// Goal of the channel: at most twice a bare hand-over. An entry and its index are two lines each way where the hand-over has
/// one, and both copy.
const HANDING_OVER: f64 = 0.5;
/// Goal against qemu-storage-daemon, which ours may replace.
const NO_SLOWER: f64 = 1.0;
/// Goal of the clients' CPU time at equal bandwidth: 98 % less.
const CPU_OF_STREAMS: f64 = 50.0;

/// Queue depth of cases with many requests.
const DEPTH: usize = 32;
/// Sizes of the requests of streams, in bytes.
const STREAM_BYTES: [usize; 2] = [64 << 10, 1 << 20];
/// Bytes of a stream that are in flight; its client waits for half of them at a time, and the others keep the medium busy.
const STREAM_IN_FLIGHT: usize = 4 << 20;
const STREAM_DEPTH_MAX: usize = 16;
const DEPTHS: [usize; 3] = [4, 32, 128];
/// Sizes and depths of the figures, as powers of two.
const SIZES: [u32; 9] = [9, 10, 11, 12, 13, 14, 15, 16, 17];
const SIZES_QUICK: [u32; 2] = [9, 12];
const POINT_DEPTHS: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const POINT_DEPTHS_QUICK: [u32; 2] = [0, 5];

/// Peer of a row.
#[derive(Clone, Copy, Debug)]
enum Against {
    /// A side of the case.
    Side(Contender),
    /// The best peer by the row's figure.
    BestPeer,
    /// Each peer, a row for each.
    EachPeer,
    /// The bound of our path, with the goal of that path.
    Bound,
}

/// A row of each of our sides: another name of the case if it has one, the figure, the peer, the goal.
type Rule = (Option<&'static str>, Figure, Against, Option<f64>);

/// Workload and sides of a case, and the rules by which its rows are made.
struct Contest {
    bench: &'static str,
    case: String,
    direction: Direction,
    block: usize,
    depth: usize,
    clients: usize,
    sides: Vec<Contender>,
    rules: Vec<Rule>,
}

impl Contest {
    fn new(
        bench: &'static str,
        case: String,
        work: (Direction, usize, usize),
        sides: &[Contender],
    ) -> Contest {
        let (direction, block, depth) = work;
        Contest { bench, case, direction, block, depth, clients: 1, sides: sides.to_vec(), rules: Vec::new() }
    }

    /// Adds a row of each of our sides.
    fn row(mut self, figure: Figure, against: Against, goal: Option<f64>) -> Contest {
        self.rules.push((None, figure, against, goal));
        self
    }

    /// Adds a row of each of our sides under another name than the case's.
    fn row_as(mut self, case: &'static str, figure: Figure, against: Against, goal: f64) -> Contest {
        self.rules.push((Some(case), figure, against, Some(goal)));
        self
    }

    fn has_goal(&self) -> bool {
        self.rules.iter().any(|rule| rule.3.is_some() || matches!(rule.2, Against::Bound))
    }

    fn declared(self) -> Declared<Setup> {
        Declared::new(Row::head(self.bench, &self.case, ""), move |setup: &Setup, head: &Row| {
            let workload = setup.workload(self.direction, self.block, self.depth);
            let runs = setup.hold(&self.sides, &workload, self.clients, setup.rounds(self.has_goal()))?;
            Ok(self.rows(head, &runs))
        })
    }

    fn rows(&self, head: &Row, runs: &[Runs<Figures>]) -> Vec<Row> {
        let all = || self.sides.iter().copied().zip(runs);
        let mut rows = Vec::new();
        for (ours, mine) in all().filter(|(side, _)| side.is_ours()) {
            for (case, figure, against, goal) in &self.rules {
                let head = case.map_or_else(|| head.clone(), |case| Row::head(self.bench, case, ""));
                let row = |peer: &Runs<Figures>| row(&head, *figure, mine, peer, *goal);
                match against {
                    Against::Side(peer) => rows.push(row(find(all(), *peer))),
                    Against::BestPeer => rows.push(row(best_peer(*figure, all()))),
                    Against::EachPeer => {
                        rows.extend(all().filter(|(side, _)| side.is_peer()).map(|(_, peer)| row(peer)));
                    }
                    Against::Bound => {
                        let (bounds, goal) = bounds_of(ours, self.clients);
                        rows.push(row_of_bound(&head, *figure, mine, all(), bounds, goal));
                    }
                }
            }
        }
        rows
    }
}

fn find<'a>(
    mut all: impl Iterator<Item = (Contender, &'a Runs<Figures>)>,
    side: Contender,
) -> &'a Runs<Figures> {
    all.find(|other| other.0 == side).map(|(_, runs)| runs).expect("the case has the side that its rows name")
}

/// The peer with the best median; one that has failed comes first, so that its reason is shown.
fn best_peer<'a>(
    figure: Figure,
    all: impl Iterator<Item = (Contender, &'a Runs<Figures>)>,
) -> &'a Runs<Figures> {
    let peers: Vec<&Runs<Figures>> = all.filter(|(side, _)| side.is_peer()).map(|(_, runs)| runs).collect();
    let has_failed = |runs: &&&Runs<Figures>| runs.samples.as_ref().is_err_and(|error| !error.is_absence());
    let best = peers.iter().find(has_failed).copied();
    best.or_else(|| figure.metric().best(peers.iter().copied())).unwrap_or(peers[0])
}

/// The bounds of a side of ours, and the goal against the best of them.
fn bounds_of(ours: Contender, clients: usize) -> (&'static [Bound], f64) {
    let is_mapped = matches!(ours, Contender::Ours(_, path) if path.is_mapped());
    match (clients, ours) {
        (1, _) if is_mapped => (&[COPY], COPYING),
        (1, CHANNEL | EXPORT) => (&[HAND_OVER], HANDING_OVER),
        (1, _) => (&[STAGED], HANDING_OVER),
        _ if is_mapped => (&COPIES, COPYING),
        _ => (&COPIES_ON_ONE_CORE, COPYING),
    }
}

/// A row of one of our sides, with the CPU time of a request as its note.
fn row(head: &Row, figure: Figure, ours: &Runs<Figures>, peer: &Runs<Figures>, goal: Option<f64>) -> Row {
    let head = Row { case: format!("{}: {}", head.case, ours.name), ..head.clone() };
    let row = figure.metric().row(&head, ours, peer, goal);
    if row.ratio.is_none() {
        return row;
    }
    // A test compares this with the library's choice.
    let is_own_choice = [Path::MappedCalls, Path::MappedQueue].iter().any(|path| path.name() == ours.name);
    let choice = if is_own_choice { "the library's own choice; " } else { "" };
    Row { note: format!("{choice}CPU a request: {}; it: {}", cpu_of(ours), cpu_of(peer)), ..row }
}

/// A row against the best of `bounds`; one that could not be run comes first, so that its reason is shown.
fn row_of_bound<'a>(
    head: &Row,
    figure: Figure,
    ours: &Runs<Figures>,
    all: impl Iterator<Item = (Contender, &'a Runs<Figures>)> + Clone,
    bounds: &[Bound],
    goal: f64,
) -> Row {
    let of = |bound: &Bound| (*bound, find(all.clone(), Contender::Bound(*bound)));
    let absent = bounds.iter().map(of).find(|(_, runs)| runs.samples.is_err());
    let best = figure.metric().best(bounds.iter().map(|bound| of(bound).1)).map(|runs| runs.name.clone());
    let best = bounds.iter().map(of).find(|(_, runs)| Some(&runs.name) == best.as_ref());
    let (bound, runs) = absent.or(best).expect("a case with a bound names it");
    let row = row(head, figure, ours, runs, Some(goal));
    match row.ratio {
        Some(_) => Row { note: format!("{}; {}", bound.note(), row.note), ..row },
        None => row,
    }
}

/// CPU time of a request, of each process that has a part in it.
fn cpu_of(runs: &Runs<Figures>) -> String {
    let [client, both, all] =
        [Figure::ClientCpu, Figure::BothCpu, Figure::AllCpu].map(|figure| figure.median(runs));
    let ns = |value: f64| number::quantity(value, "ns");
    let mut text = format!("client {}", client.map_or("-".into(), ns));
    for (name, more, less) in [("server", both, client), ("kernel threads", all, both)] {
        let difference = more.zip(less).map(|(more, less)| more - less);
        if let Some(difference) = difference.filter(|value| *value >= 1.0) {
            text.push_str(&format!(", {name} {}", ns(difference)));
        }
    }
    text
}

pub(super) fn cases() -> Vec<Declared<Setup>> {
    let mut cases: Vec<Declared<Setup>> = with_goals().into_iter().map(Contest::declared).collect();
    for bytes in STREAM_BYTES {
        let size =
            if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
        let head = Row::head("serve/ext4", &format!("{STREAMS} streams of {size} writes"), "");
        cases.push(Declared::new(head, move |setup, head| streams(setup, head, bytes)));
    }
    cases
}

fn with_goals() -> Vec<Contest> {
    use Against::{BestPeer, Bound, Side};
    let with_bounds = |sides: &[Contender]| [sides, &BOUNDS].concat();
    let one_at_a_time = || "4 KiB writes, one at a time".to_owned();
    let mut contests = vec![
        Contest::new(
            "serve/ext4",
            one_at_a_time(),
            (Write, 4096, 1),
            &[MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, EXT4, EXT4_URING],
        )
        .row(Latency, Side(EXT4), Some(10.0))
        .row(Latency, Side(EXT4_URING), None)
        .row(Latency99, Side(EXT4), None),
        Contest::new(
            "serve/ext4",
            "4 KiB writes, 32 at a time".into(),
            (Write, 4096, DEPTH),
            &[MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, EXT4, EXT4_URING],
        )
        .row_as("4 KiB writes, sustained", Bandwidth, Side(EXT4), 7.2)
        .row_as("4 KiB writes, asynchronous on one thread", Requests, BestPeer, 5.5),
        Contest::new(
            "serve/tmpfs",
            one_at_a_time(),
            (Write, 4096, 1),
            &with_bounds(&[MAPPED_CALLS, MAPPED_QUEUE, CHANNEL, CHANNEL_CALLS, CHANNEL_COPIED, TMPFS]),
        )
        .row(Latency, Bound, None)
        .row(Latency, Side(TMPFS), None)
        .row(Latency99, Side(TMPFS), None),
        Contest::new(
            "serve/tmpfs",
            "512 B writes, asynchronous on one thread".into(),
            (Write, 512, DEPTH),
            &with_bounds(&[MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, TMPFS, TMPFS_URING]),
        )
        .row(Requests, Bound, None)
        .row(Requests, BestPeer, None)
        .row(Efficiency, Bound, None)
        .row(Efficiency, BestPeer, None),
    ];
    for (direction, what) in [(Write, "writes"), (Read, "reads")] {
        let case = format!("4 KiB {what}, 32 at a time, one core each");
        let sides = [EXPORT, CHANNEL, CHANNEL_COPIED, DAEMON, BOUNDS[1], BOUNDS[2]];
        contests.push(
            Contest::new("serve/qemu", case, (direction, 4096, DEPTH), &sides)
                .row(Requests, Bound, None)
                .row(Requests, Side(DAEMON), Some(NO_SLOWER)),
        );
    }
    contests
}

/// Cases without goals.
pub(super) fn cases_without_goals(quick: bool) -> Vec<Declared<Setup>> {
    let mut cases = Vec::new();
    for (block, size) in [(4096, "4 KiB"), (512, "512 B")] {
        for (direction, what) in [(Read, "reads"), (Write, "writes")] {
            let case = format!("{size} {what}, one at a time");
            let sides = [MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, TMPFS];
            let contest = Contest::new("serve/requests", case, (direction, block, 1), &sides);
            cases.push(contest.row(Latency, Against::Side(TMPFS), None).declared());
            for depth in DEPTHS.into_iter().filter(|depth| !quick || *depth == DEPTH) {
                let case = format!("{size} {what}, {depth} at a time");
                let sides = [MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, TMPFS, TMPFS_URING];
                let contest = Contest::new("serve/requests", case, (direction, block, depth), &sides);
                cases.push(contest.row(Requests, Against::BestPeer, None).declared());
            }
        }
    }
    for clients in [2, 4, CLIENTS_MAX] {
        let case = format!("{clients} clients, 4 KiB writes, 32 at a time");
        let sides = [MAPPED_QUEUE, CHANNEL, TMPFS, EXT4, DAEMON];
        let contest = Contest::new("serve/clients", case, (Write, 4096, DEPTH), &sides);
        cases.push(Contest { clients, ..contest.row(Requests, Against::EachPeer, None) }.declared());
    }
    for (direction, what) in [(Read, "reads"), (Write, "writes")] {
        for depth in [1, DEPTH] {
            let case = format!("4 KiB {what} that take {} us, {depth} at a time", SLOW_NS / 1000);
            let head = Row::head("serve/slow", &case, "");
            cases.push(Declared::new(head, move |setup, head| slow(setup, head, direction, depth)));
            let case = format!("4 KiB {what}, {depth} at a time");
            let disk = Medium::Disk;
            let peers = [Contender::Calls(disk), Contender::Uring(disk), Contender::Daemon(disk)];
            let sides = [&[Contender::Ours(Home::Disk, Path::Channel)], &peers[..]].concat();
            let figure = if depth == 1 { Latency } else { Requests };
            let contest = Contest::new("serve/disk", case, (direction, 4096, depth), &sides);
            cases.push(contest.row(figure, Against::EachPeer, None).declared());
        }
    }
    cases.extend(figures(quick));
    cases
}

/// Streams: at first as fast as each side can, then ours through the channel at no more than the best peer's bandwidth, so
/// that the CPU time for the same bytes can be compared.
fn streams(setup: &Setup, head: &Row, bytes: usize) -> Result<Vec<Row>, Error> {
    use Against::{Bound, Side};
    let depth = (STREAM_IN_FLIGHT / bytes).min(STREAM_DEPTH_MAX);
    let bounds = COPIES.into_iter().chain(COPIES_ON_ONE_CORE).map(Contender::Bound);
    let sides: Vec<Contender> = [MAPPED_QUEUE, CHANNEL, EXT4, EXT4_URING].into_iter().chain(bounds).collect();
    let contest = Contest::new("serve/ext4", head.case.clone(), (Write, bytes, depth), &sides);
    let contest = Contest { clients: STREAMS, ..contest }
        .row(Bandwidth, Bound, None)
        .row(Bandwidth, Side(EXT4), Some(2.0))
        .row(Bandwidth, Side(EXT4_URING), None);
    let workload = setup.workload(Write, bytes, depth);
    let workload = Workload { order: Order::Sequential, batch: depth / 2, ..workload };
    let runs = setup.hold(&sides, &workload, STREAMS, setup.rounds(true))?;
    let mut rows = contest.rows(head, &runs);
    let best = best_peer(Bandwidth, sides.iter().copied().zip(&runs));
    if let Some(bandwidth) = Bandwidth.median(best) {
        let peer = if best.name == EXT4.name() { EXT4 } else { EXT4_URING };
        rows.extend(at_equal_bandwidth(setup, &workload, head, peer, bandwidth as u64)?);
    }
    Ok(rows)
}

fn at_equal_bandwidth(
    setup: &Setup,
    workload: &Workload,
    head: &Row,
    peer: Contender,
    bandwidth: u64,
) -> Result<Vec<Row>, Error> {
    let bytes = medium_bytes(setup.quick);
    let spec = format!("even=mem:{},bandwidth={bandwidth}/s", STREAMS as u64 * bytes);
    let device = Device { spec, volumes: STREAMS, volume_bytes: bytes };
    let server = Server::start(&setup.folder, "even", &[device], cores() > 1, server_core())?;
    let ours = || run_ours(&server, "even", Path::Channel, workload, STREAMS);
    let sides = vec![
        Side::new(Path::Channel.name(), ours),
        Side::new(peer.name(), || peer.run(setup, workload, STREAMS)),
    ];
    let runs = setup.rounds(true).run(sides)?;
    let case = format!("{}, at most {}/s", head.case, number::bytes(bandwidth as f64));
    let head = Row { case, ..head.clone() };
    let goals = [
        (Bandwidth, None),
        (Figure::ClientCpu, Some(CPU_OF_STREAMS)),
        (Figure::BothCpu, None),
        (Figure::AllCpu, None),
    ];
    Ok(goals.map(|(figure, goal)| row(&head, figure, &runs[0], &runs[1], goal)).into())
}

/// Slow memory against its own latency, which shows what the path to it adds.
fn slow(setup: &Setup, head: &Row, direction: Direction, depth: usize) -> Result<Vec<Row>, Error> {
    let is_alone = depth == 1;
    let paths = [Path::Channel, if is_alone { Path::ChannelCalls } else { Path::ChannelCopied }];
    let sides = paths.map(|path| Contender::Ours(Home::Slow, path));
    let runs = setup.hold(&sides, &setup.workload(direction, 4096, depth), 1, setup.rounds(false))?;
    let figure = if is_alone { Latency } else { Requests };
    let device = if is_alone { SLOW_NS as f64 } else { depth as f64 * 1e9 / SLOW_NS as f64 };
    let row = |runs: &Runs<Figures>| {
        let head = Row { case: format!("{}: {}", head.case, runs.name), ..head.clone() };
        figure.metric().row_of_limit(&head, runs, "the device alone", device, 1.0).without_goal()
    };
    Ok(runs.iter().map(row).collect())
}

/// Figures of Caulfield et al.: time and bandwidth by the size of an access, asynchronous beside synchronous requests on one
/// thread, and what a CPU second carries out of small requests.
fn figures(quick: bool) -> Vec<Declared<Setup>> {
    const CALLS: [Contender; 6] = [MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, TMPFS, EXT4, EXT4_URING];
    const QUEUES: [Contender; 6] = [MAPPED_QUEUE, CHANNEL, TMPFS, TMPFS_URING, EXT4, EXT4_URING];
    const BOTH: [Contender; 7] = [MAPPED_CALLS, MAPPED_QUEUE, CHANNEL, TMPFS, TMPFS_URING, EXT4, EXT4_URING];
    let sizes = || if quick { &SIZES_QUICK[..] } else { &SIZES }.iter().map(|power| 1usize << power);
    let depths =
        || if quick { &POINT_DEPTHS_QUICK[..] } else { &POINT_DEPTHS }.iter().map(|power| 1usize << power);
    let over_sizes = |depth| sizes().map(|size| (size, depth, size as u64)).collect();
    let over_depths = |block| depths().map(|depth| (block, depth, depth as u64)).collect();
    let case = |case, figure: &str, unit, sides: &'static [Contender], metrics: &'static [Figure], points| {
        let axis = if unit == Unit::Bytes { "bytes of a request" } else { "requests at a time" };
        let at = Point { figure: figure.into(), axis: axis.into(), unit, ..Point::default() };
        let points: Vec<(usize, usize, u64)> = points;
        Declared::new(Row::head("serve/paper", case, ""), move |setup: &Setup, _: &Row| {
            let mut rows = Vec::new();
            for (block, depth, x) in &points {
                let runs = setup.hold(sides, &setup.point(*block, *depth), 1, setup.rounds(false))?;
                rows.extend(points_of(sides, &runs, metrics, &Point { x: *x, ..at.clone() }));
            }
            Ok(rows)
        })
    };
    let (bytes, count) = (Unit::Bytes, Unit::Count);
    let requests = &[Requests, Efficiency];
    vec![
        case("write latency by size", "writes, one at a time", bytes, &CALLS, &[Latency], over_sizes(1)),
        case(
            "write bandwidth by size",
            "writes on one thread, 32 at a time",
            bytes,
            &QUEUES,
            &[Bandwidth],
            over_sizes(DEPTH),
        ),
        case(
            "4 KiB writes on one thread by depth",
            "4 KiB writes on one thread",
            count,
            &BOTH,
            &[Requests],
            over_depths(4096),
        ),
        case(
            "512 B writes on one thread by depth",
            "512 B writes on one thread",
            count,
            &BOTH,
            requests,
            over_depths(512),
        ),
    ]
}

/// A point of each line, against pwrite(2) to a tmpfs; alone if there is no tmpfs.
fn points_of(sides: &[Contender], runs: &[Runs<Figures>], figures: &[Figure], at: &Point) -> Vec<Row> {
    let base = find(sides.iter().copied().zip(runs), TMPFS);
    let mut rows = Vec::new();
    for figure in figures {
        for runs in runs {
            let head = Row {
                point: Some(Point { line: runs.name.clone(), ..at.clone() }),
                ..Row::head("serve/paper", &format!("{}, {}: {}", at.figure, at.x, runs.name), "")
            };
            match (&base.samples, &runs.samples) {
                (Ok(_), _) if runs.name == base.name => {}
                (Err(_), Ok(samples)) => {
                    let (ours, runs) = (figure.median(runs), samples.len() as u32);
                    rows.push(Row { ours, runs, ..figure.metric().head(&head, "-", None) });
                }
                _ => rows.push(figure.metric().row(&head, runs, base, None)),
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::contest::tests::runs;
    use super::*;

    /// The row of one of our sides, by how many requests it and the bounds carried out in a second.
    fn bounded(ours: u64, slow: u64, fast: Result<u64, Error>) -> Row {
        let [slow_bound, fast_bound] = COPIES_ON_ONE_CORE;
        let measured = [
            runs(&CHANNEL.name(), Ok(ours)),
            runs(slow_bound.name(), Ok(slow)),
            runs(fast_bound.name(), fast),
        ];
        let sides = [CHANNEL, Contender::Bound(slow_bound), Contender::Bound(fast_bound)];
        let contest = Contest::new("serve/ext4", "streams".into(), (Write, 512, 8), &sides);
        let contest = Contest { clients: STREAMS, ..contest.row(Bandwidth, Against::Bound, None) };
        contest.rows(&Row::head("serve/ext4", "streams", ""), &measured).remove(0)
    }

    #[test]
    fn the_best_bound_binds() {
        let fast = COPIES_ON_ONE_CORE[1].name();
        let row = bounded(700, 800, Ok(1000));
        assert_eq!((row.peer.as_str(), row.ratio, row.met), (fast, Some(0.7), Some(false)));
        assert!(row.note.starts_with("one core copies the bytes of all clients; "), "{}", row.note);
        let row = bounded(700, 800, Ok(600));
        assert_eq!(
            (row.peer.as_str(), row.ratio, row.met),
            (COPIES_ON_ONE_CORE[0].name(), Some(0.875), Some(true))
        );
        // A bound that fails is shown, and not replaced by the other.
        let row = bounded(700, 800, Err(Error::failed("a bound", "no memory".into())));
        assert_eq!((row.peer.as_str(), row.ratio, row.met, row.failed), (fast, None, Some(false), true));
        assert!(row.note.contains("no memory"), "{}", row.note);
    }

    #[test]
    fn every_figure_of_a_case_has_its_peers_and_goals() {
        for contest in with_goals() {
            let measured: Vec<_> = contest.sides.iter().map(|side| runs(&side.name(), Ok(1000))).collect();
            let rows = contest.rows(&Row::head(contest.bench, &contest.case, ""), &measured);
            let ours = contest.sides.iter().filter(|side| side.is_ours()).count();
            assert_eq!(rows.len(), ours * contest.rules.len(), "{}", contest.case);
            for row in &rows {
                assert!(row.ratio.is_some() && row.note.contains("CPU a request"), "{row:?}");
                // What memory costs differs between machines: goals against it are bounds, or equality with a rival.
                let is_memory = contest.bench != "serve/ext4";
                assert!(!is_memory || row.goal.is_none_or(|goal| goal <= 1.0), "{row:?}");
                assert!(
                    !row.peer.starts_with("bound: ") || row.goal.is_some_and(|goal| goal < 1.0),
                    "{row:?}"
                );
            }
        }
    }

    #[test]
    fn a_peer_that_failed_comes_before_the_best() {
        let all = [
            (EXT4, runs("a", Ok(5))),
            (EXT4_URING, runs("b", Err(Error::failed("x", "broke".into())))),
            (CHANNEL, runs("c", Ok(9))),
        ];
        let best = |all: &[(Contender, Runs<Figures>)]| {
            best_peer(Requests, all.iter().map(|(side, runs)| (*side, runs))).name.clone()
        };
        assert_eq!((best(&all), best(&all[..1])), ("b".into(), "a".into()));
    }
}
