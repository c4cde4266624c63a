//! Without goals: sizes, directions, depths, clients; memory that takes its time; a file on the disk.

use super::contest::{CLIENTS_MAX, Contender, Home, House, SLOW_NS, hold, row};
use super::goals::{
    CHANNEL, CHANNEL_CALLS, CHANNEL_COPIED, DAEMON, EXT4, MAPPED_CALLS, MAPPED_QUEUE, TMPFS, TMPFS_URING,
    each,
};
use super::medium::Medium;
use super::ours::Way;
use super::part::Part;
use super::peer::{Peer, Way as PeerWay};
use super::sides::Metric;
use super::workload::Direction;
use crate::error::Error;
use crate::row::Row;

const DIRECTIONS: [(Direction, &str); 2] = [(Direction::Read, "reads"), (Direction::Write, "writes")];
const SIZES: [(usize, &str); 2] = [(4096, "4 KiB"), (512, "512 B")];
const DEPTHS: [usize; 3] = [4, 32, 128];
/// The only one of a quick run.
const DEPTH_QUICK: usize = 32;
const DISK: [PeerWay; 3] = [PeerWay::Calls, PeerWay::Uring, PeerWay::VhostUser];

/// All of them.
pub fn parts() -> Vec<Part> {
    let mut parts = Vec::new();
    for (block, size) in SIZES {
        for (direction, what) in DIRECTIONS {
            let case = format!("{size} {what}");
            parts.push(Part::new("serve/requests", case.clone() + ", one at a time", move |house| {
                one_at_a_time(house, &case, direction, block)
            }));
            for depth in DEPTHS {
                let case = format!("{size} {what}, {depth} at a time");
                parts.push(Part::new("serve/requests", case.clone(), move |house| {
                    many(house, &case, direction, block, depth)
                }));
            }
        }
    }
    for clients in [2, 4, CLIENTS_MAX] {
        let case = format!("{clients} clients, 4 KiB writes, 32 at a time");
        parts.push(Part::new("serve/clients", case.clone(), move |house| several(house, &case, clients)));
    }
    for (direction, what) in DIRECTIONS {
        for depth in [1, 32] {
            let case = format!("4 KiB {what} that take {} us, {depth} at a time", SLOW_NS / 1000);
            parts.push(Part::new("serve/slow", case.clone(), move |house| {
                slow(house, &case, direction, depth)
            }));
            let case = format!("4 KiB {what}, {depth} at a time");
            parts.push(Part::new("serve/disk", case.clone(), move |house| {
                disk(house, &case, direction, depth)
            }));
        }
    }
    parts
}

fn one_at_a_time(
    house: &House<'_>,
    case: &str,
    direction: Direction,
    block: usize,
) -> Result<Vec<Row>, Error> {
    let case = format!("{case}, one at a time");
    let all = [MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, TMPFS];
    let contest = hold(house, &house.workload(direction, block, 1), 1, &all, house.few())?;
    Ok(each(&contest, |ours| vec![row(&case, Metric::Latency, ours, contest.of(TMPFS), None)]))
}

fn many(
    house: &House<'_>,
    case: &str,
    direction: Direction,
    block: usize,
    depth: usize,
) -> Result<Vec<Row>, Error> {
    if house.quick && depth != DEPTH_QUICK {
        return Ok(Vec::new());
    }
    let all = [MAPPED_QUEUE, CHANNEL, CHANNEL_COPIED, TMPFS, TMPFS_URING];
    let contest = hold(house, &house.workload(direction, block, depth), 1, &all, house.few())?;
    let best = contest.best_peer(Metric::Requests).unwrap_or_else(|| contest.of(TMPFS));
    Ok(each(&contest, |ours| vec![row(case, Metric::Requests, ours, best, None)]))
}

fn several(house: &House<'_>, case: &str, clients: usize) -> Result<Vec<Row>, Error> {
    let all = [MAPPED_QUEUE, CHANNEL, TMPFS, EXT4, DAEMON];
    let contest = hold(house, &house.workload(Direction::Write, 4096, 32), clients, &all, house.few())?;
    Ok(each(&contest, |ours| {
        contest.peers().map(|peer| row(case, Metric::Requests, ours, peer, None)).collect()
    }))
}

/// Against the same device's own time: what the way to it adds.
fn slow(house: &House<'_>, case: &str, direction: Direction, depth: usize) -> Result<Vec<Row>, Error> {
    let ways =
        if depth == 1 { [Way::Channel, Way::ChannelCalls] } else { [Way::Channel, Way::ChannelCopied] };
    let all = ways.map(|way| Contender::Ours(Home::Slow, way));
    let contest = hold(house, &house.workload(direction, 4096, depth), 1, &all, house.few())?;
    let (metric, unit) = if depth == 1 { (Metric::Latency, "ns") } else { (Metric::Requests, "op/s") };
    Ok(each(&contest, |runs| {
        let device = if depth == 1 { SLOW_NS as f64 } else { depth as f64 * 1e9 / SLOW_NS as f64 };
        let empty = Row {
            case: format!("{case}: {}", runs.name),
            metric: metric.name().into(),
            unit: unit.into(),
            peer: "the device alone".into(),
            peer_value: Some(device),
            ..Row::default()
        };
        vec![match &runs.figures {
            Err(error) => empty.without_numbers("", error),
            Ok(figures) => {
                let ratio = |value: f64| if depth == 1 { device / value } else { value / device };
                let ratios: Vec<f64> = runs.values(metric).into_iter().map(ratio).collect();
                let summary = crate::statistics::Summary::of(&ratios);
                Row { ours: runs.median(metric), runs: figures.len() as u32, ..empty }
                    .with_ratio(summary, None)
            }
        }]
    }))
}

fn disk(house: &House<'_>, case: &str, direction: Direction, depth: usize) -> Result<Vec<Row>, Error> {
    let peers = DISK.map(|way| Contender::Peer(Peer { medium: Medium::Disk, way }));
    let mut all = vec![Contender::Ours(Home::Disk, Way::Channel)];
    all.extend(peers);
    let contest = hold(house, &house.workload(direction, 4096, depth), 1, &all, house.few())?;
    let metric = if depth == 1 { Metric::Latency } else { Metric::Requests };
    Ok(each(&contest, |ours| contest.peers().map(|peer| row(case, metric, ours, peer, None)).collect()))
}
