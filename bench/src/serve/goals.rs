//! The cases that have goals: against the kernel's ways to the same memory, qemu-storage-daemon, and bounds.
//!
//! A ratio to the kernel's way is a goal where a paper has promised it: to a file system on a device. How much dearer than a
//! copy pwrite(2) to a tmpfs is, and qemu-storage-daemon, is a matter of the machine; there the goals are against
//! bounds of the same run, and the ratios stand beside them.

use super::bound::Bound;
use super::contest::{
    Contender, Contest, Home, House, STREAMS, core, hold, medium_bytes, row, row_against, run_ours,
};
use super::medium::Medium;
use super::ours::Way;
use super::part::Part;
use super::peer::{Peer, Way as PeerWay, cores};
use super::server::{Device, Server};
use super::sides::{self, Metric, Runs, Side};
use super::workload::{Direction, Order, Workload};
use crate::error::Error;
use crate::number;
use crate::row::Row;

/// pwrite(2) past the page cache, to a file system on a loop device over memory.
pub const EXT4: Contender = Contender::Peer(Peer { medium: Medium::LoopExt4, way: PeerWay::Calls });
/// io_uring to the same.
pub const EXT4_URING: Contender = Contender::Peer(Peer { medium: Medium::LoopExt4, way: PeerWay::Uring });
/// pwrite(2) to a tmpfs.
pub const TMPFS: Contender = Contender::Peer(Peer { medium: Medium::Tmpfs, way: PeerWay::Calls });
/// io_uring to the same.
pub const TMPFS_URING: Contender = Contender::Peer(Peer { medium: Medium::Tmpfs, way: PeerWay::Uring });
/// qemu-storage-daemon over a file of a tmpfs.
pub const DAEMON: Contender = Contender::Peer(Peer { medium: Medium::Tmpfs, way: PeerWay::VhostUser });
/// Our memory, mapped, by calls.
pub const MAPPED_CALLS: Contender = Contender::Ours(Home::Fast, Way::MappedCalls);
/// The same, by a queue.
pub const MAPPED_QUEUE: Contender = Contender::Ours(Home::Fast, Way::MappedQueue);
/// Our memory, by the channel, by calls.
pub const CHANNEL_CALLS: Contender = Contender::Ours(Home::Fast, Way::ChannelCalls);
/// The same, by a queue, from buffers of the arena.
pub const CHANNEL: Contender = Contender::Ours(Home::Fast, Way::Channel);
/// The same, from the program's own memory.
pub const CHANNEL_COPIED: Contender = Contender::Ours(Home::Fast, Way::ChannelCopied);

/// Our memory by vhost-user-blk, from the client that the daemon has.
pub const EXPORT: Contender = Contender::Export;

/// Bound of mapped ways.
const COPY: Bound = Bound::Copy { past_caches: false, on_one_core: false };
/// Bound of ways through a server from memory that both see.
const HAND_OVER: Bound = Bound::HandOver { is_staged: false };
/// Bound of ways through a server from memory of the client's own.
const STAGED: Bound = Bound::HandOver { is_staged: true };
/// Bounds of mapped streams.
const COPIES: [Bound; 2] = [COPY, Bound::Copy { past_caches: true, on_one_core: false }];
/// Bounds of streams through a server, whose one core copies everything.
const COPIES_ON_ONE_CORE: [Bound; 2] = [
    Bound::Copy { past_caches: false, on_one_core: true },
    Bound::Copy { past_caches: true, on_one_core: true },
];
/// Goal of what only copies, against a bare copy: at most a quarter more.
const COPYING: f64 = 1.0 / 1.25;
/// Goal of requests through the channel, against a bare hand-over: at most twice as much. An entry and the index behind it
/// are two lines each way where the bare one has one, and copies are in both.
const HANDING_OVER: f64 = 0.5;
/// Goal against a rival: whoever takes us instead loses nothing.
const NO_SLOWER: f64 = 1.0;

/// Requests under way where many are: of what is sustained, and of what is asynchronous.
const DEPTH: usize = 32;
/// Bytes of a request of a stream, and what rows call that.
const STREAM_BYTES: [(usize, &str); 2] = [(64 << 10, "64 KiB"), (1 << 20, "1 MiB")];
/// Bytes of the requests of a stream that are under way; its client waits for half of them at a time, and the others keep
/// the medium busy.
const STREAM_UNDER_WAY: usize = 4 << 20;
const STREAM_DEPTH_MAX: usize = 16;

/// All of them.
pub fn parts() -> Vec<Part> {
    let mut parts = vec![
        Part::new("serve/ext4", "4 KiB writes, one at a time", ext4_latency),
        Part::new("serve/ext4", "4 KiB writes, 32 at a time", ext4_sustained),
        Part::new("serve/tmpfs", "4 KiB writes, one at a time", tmpfs_latency),
        Part::new("serve/tmpfs", "512 B writes, 32 at a time", tmpfs_small),
        Part::new("serve/qemu", "4 KiB, 32 at a time", daemon),
    ];
    parts.extend(STREAM_BYTES.map(|(bytes, size)| {
        let case = format!("{STREAMS} streams of {size} writes");
        Part::new("serve/ext4", case.clone(), move |house| streams(house, bytes, &case))
    }));
    parts
}

fn ext4_latency(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let workload = house.workload(Direction::Write, 4096, 1);
    let all = [MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, EXT4, EXT4_URING];
    let contest = hold(house, &workload, 1, &all, house.pairs)?;
    let case = "4 KiB writes, one at a time";
    // A tenth of the time, whichever way; io_uring is beside it.
    Ok(each(&contest, |ours| {
        vec![
            row(case, Metric::Latency, ours, contest.of(EXT4), Some(10.0)),
            row(case, Metric::Latency, ours, contest.of(EXT4_URING), None),
            row(case, Metric::Latency99, ours, contest.of(EXT4), None),
        ]
    }))
}

fn ext4_sustained(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let workload = house.workload(Direction::Write, 4096, DEPTH);
    let all = [MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, EXT4, EXT4_URING];
    let contest = hold(house, &workload, 1, &all, house.pairs)?;
    let best = contest.best_peer(Metric::Requests).unwrap_or_else(|| contest.of(EXT4));
    Ok(each(&contest, |ours| {
        vec![
            row("4 KiB writes, sustained", Metric::Bandwidth, ours, contest.of(EXT4), Some(7.2)),
            row("4 KiB writes, asynchronous on one thread", Metric::Requests, ours, best, Some(5.5)),
        ]
    }))
}

fn tmpfs_latency(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let workload = house.workload(Direction::Write, 4096, 1);
    let mut all = vec![MAPPED_CALLS, MAPPED_QUEUE, CHANNEL, CHANNEL_CALLS, CHANNEL_COPIED, TMPFS];
    all.extend([COPY, HAND_OVER, STAGED].map(Contender::Bound));
    let contest = hold(house, &workload, 1, &all, house.pairs)?;
    let case = "4 KiB writes, one at a time";
    Ok(each(&contest, |ours| {
        vec![
            bounded(case, Metric::Latency, ours, &contest),
            row(case, Metric::Latency, ours, contest.of(TMPFS), None),
            row(case, Metric::Latency99, ours, contest.of(TMPFS), None),
        ]
    }))
}

fn tmpfs_small(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let workload = house.workload(Direction::Write, 512, DEPTH);
    let mut all = vec![MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, TMPFS, TMPFS_URING];
    all.extend([COPY, HAND_OVER, STAGED].map(Contender::Bound));
    let contest = hold(house, &workload, 1, &all, house.pairs)?;
    let case = "512 B writes, asynchronous on one thread";
    let best = |metric| contest.best_peer(metric).unwrap_or_else(|| contest.of(TMPFS));
    Ok(each(&contest, |ours| {
        let rows =
            |metric| [bounded(case, metric, ours, &contest), row(case, metric, ours, best(metric), None)];
        [Metric::Requests, Metric::Efficiency].into_iter().flat_map(rows).collect()
    }))
}

fn daemon(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (direction, what) in [(Direction::Write, "writes"), (Direction::Read, "reads")] {
        let workload = house.workload(direction, 4096, DEPTH);
        let mut all = vec![EXPORT, CHANNEL, CHANNEL_COPIED, DAEMON];
        all.extend([HAND_OVER, STAGED].map(Contender::Bound));
        let contest = hold(house, &workload, 1, &all, house.pairs)?;
        let case = format!("4 KiB {what}, 32 at a time, one core each");
        rows.extend(each(&contest, |ours| {
            vec![
                bounded(&case, Metric::Requests, ours, &contest),
                row(&case, Metric::Requests, ours, contest.of(DAEMON), Some(NO_SLOWER)),
            ]
        }));
    }
    Ok(rows)
}

/// First as much as everybody can; then ours by the channel at no more than the peer's bandwidth, so that what the clients'
/// processors do for the same bytes can be compared.
fn streams(house: &House<'_>, bytes: usize, case: &str) -> Result<Vec<Row>, Error> {
    let workload = stream(house, bytes);
    let mut all = vec![MAPPED_QUEUE, CHANNEL, EXT4, EXT4_URING];
    all.extend(COPIES.into_iter().chain(COPIES_ON_ONE_CORE).map(Contender::Bound));
    let contest = hold(house, &workload, STREAMS, &all, house.pairs)?;
    let peer = contest.best_peer(Metric::Bandwidth).unwrap_or_else(|| contest.of(EXT4));
    let mut rows = each(&contest, |ours| {
        let bounds = if is_mapped(ours) { COPIES } else { COPIES_ON_ONE_CORE };
        vec![
            row_against(case, Metric::Bandwidth, ours, &contest, &bounds, COPYING),
            row(case, Metric::Bandwidth, ours, contest.of(EXT4), Some(2.0)),
            row(case, Metric::Bandwidth, ours, contest.of(EXT4_URING), None),
        ]
    });
    let Some(bandwidth) = peer.median(Metric::Bandwidth) else { return Ok(rows) };
    let peer = if peer.name == contest.of(EXT4).name { EXT4 } else { EXT4_URING };
    rows.extend(at_equal_bandwidth(house, &workload, case, peer, bandwidth as u64)?);
    Ok(rows)
}

fn stream(house: &House<'_>, bytes: usize) -> Workload {
    let workload = house.workload(Direction::Write, bytes, (STREAM_UNDER_WAY / bytes).min(STREAM_DEPTH_MAX));
    Workload { order: Order::Sequential, at_a_time: workload.depth / 2, ..workload }
}

fn at_equal_bandwidth(
    house: &House<'_>,
    workload: &Workload,
    case: &str,
    peer: Contender,
    bandwidth: u64,
) -> Result<Vec<Row>, Error> {
    let bytes = medium_bytes(house.quick);
    let all = STREAMS as u64 * bytes;
    let device = Device {
        spec: format!("even=mem:{all},bandwidth={bandwidth}/s"),
        volumes: STREAMS,
        volume_bytes: bytes,
    };
    let (program, folder) = (house.stage.program, house.stage.folder);
    let server = Server::start(program, folder, "even", &[device], cores() > 1, core())?;
    let sides = vec![
        Side {
            name: Way::Channel.name().into(),
            run: Box::new(|| run_ours(program, &server, "even", Way::Channel, workload, STREAMS)),
        },
        Side { name: peer.name(), run: Box::new(|| peer.run(house, workload, STREAMS)) },
    ];
    let runs = sides::run(sides, house.pairs)?;
    let (ours, theirs) = (&runs[0], &runs[1]);
    let case = format!("{case}, at most {}/s", number::bytes(bandwidth as f64));
    Ok(vec![
        row(&case, Metric::Bandwidth, ours, theirs, None),
        row(&case, Metric::ClientCpu, ours, theirs, Some(50.0)),
        row(&case, Metric::BothCpu, ours, theirs, None),
        row(&case, Metric::AllCpu, ours, theirs, None),
    ])
}

fn is_mapped(ours: &Runs) -> bool {
    [MAPPED_CALLS, MAPPED_QUEUE].iter().any(|mapped| mapped.name() == ours.name)
}

/// One of our ways with one client, against its bound.
fn bounded(case: &str, metric: Metric, ours: &Runs, contest: &Contest) -> Row {
    let has_shared_buffers = [CHANNEL, EXPORT].iter().any(|way| way.name() == ours.name);
    let (bound, goal) = match (is_mapped(ours), has_shared_buffers) {
        (true, _) => (COPY, COPYING),
        (false, true) => (HAND_OVER, HANDING_OVER),
        (false, false) => (STAGED, HANDING_OVER),
    };
    row_against(case, metric, ours, contest, &[bound], goal)
}

/// Rows of each of our ways, one metric after the other.
pub fn each<'a>(contest: &'a Contest, rows: impl Fn(&'a Runs) -> Vec<Row>) -> Vec<Row> {
    contest.ours().flat_map(rows).collect()
}
