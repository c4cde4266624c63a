//! The experiments of Caulfield et al. as figures: time and bandwidth by the size of an access, asynchronous against
//! synchronous on one thread, and what a processor gets done of small requests. The check by extents is in `check`.

use super::contest::{Contender, Contest, House, hold};
use super::goals::{
    CHANNEL, CHANNEL_CALLS, EXT4, EXT4_URING, MAPPED_CALLS, MAPPED_QUEUE, TMPFS, TMPFS_URING,
};
use super::part::Part;
use super::sides::{self, Metric, Runs};
use super::workload::Direction;
use crate::error::Error;
use crate::row::{Point, Row, Unit};
use std::ops::RangeInclusive;

/// Powers of two: 512 B to 128 KiB.
const SIZES: RangeInclusive<u32> = 9..=17;
const SIZES_QUICK: [u32; 2] = [9, 12];
/// Powers of two: one at a time to 128.
const DEPTHS: RangeInclusive<u32> = 0..=7;
const DEPTHS_QUICK: [u32; 2] = [0, 5];
/// Requests under way where bandwidth is looked for.
const DEPTH: usize = 32;

/// All of them.
pub fn parts() -> Vec<Part> {
    vec![
        Part::new("serve/paper", "write latency by size", latency),
        Part::new("serve/paper", "write bandwidth by size", bandwidth),
        Part::new("serve/paper", "4 KiB writes on one thread by depth", asynchronous),
        Part::new("serve/paper", "512 B writes on one thread by depth", efficiency),
    ]
}

fn powers(house: &House<'_>, all: RangeInclusive<u32>, quick: [u32; 2]) -> Vec<usize> {
    let powers = if house.quick { quick.to_vec() } else { all.collect() };
    powers.into_iter().map(|power| 1 << power).collect()
}

fn latency(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let all = [MAPPED_CALLS, CHANNEL, CHANNEL_CALLS, TMPFS, EXT4, EXT4_URING];
    by_size(house, &all, 1, Metric::Latency, "writes, one at a time")
}

fn bandwidth(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let all = [MAPPED_QUEUE, CHANNEL, TMPFS, TMPFS_URING, EXT4, EXT4_URING];
    by_size(house, &all, DEPTH, Metric::Bandwidth, "writes on one thread, 32 at a time")
}

fn by_size(
    house: &House<'_>,
    all: &[Contender],
    depth: usize,
    metric: Metric,
    figure: &str,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for block in powers(house, SIZES, SIZES_QUICK) {
        let contest = hold(house, &house.short(Direction::Write, block, depth), 1, all, house.few())?;
        let point = Point {
            figure: figure.into(),
            axis: "bytes of a request".into(),
            unit: Unit::Bytes,
            x: block as u64,
            line: String::new(),
        };
        rows.extend(points(&contest, &[metric], &point));
    }
    Ok(rows)
}

/// Calls, which wait, beside what does not.
fn asynchronous(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let all = [MAPPED_CALLS, MAPPED_QUEUE, CHANNEL, TMPFS, TMPFS_URING, EXT4, EXT4_URING];
    by_depth(house, &all, 4096, &[Metric::Requests], "4 KiB writes on one thread")
}

fn efficiency(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let all = [MAPPED_CALLS, MAPPED_QUEUE, CHANNEL, TMPFS, TMPFS_URING, EXT4, EXT4_URING];
    let metrics = [Metric::Requests, Metric::Efficiency];
    by_depth(house, &all, 512, &metrics, "512 B writes on one thread")
}

fn by_depth(
    house: &House<'_>,
    all: &[Contender],
    block: usize,
    metrics: &[Metric],
    figure: &str,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for depth in powers(house, DEPTHS, DEPTHS_QUICK) {
        let contest = hold(house, &house.short(Direction::Write, block, depth), 1, all, house.few())?;
        let point = Point {
            figure: figure.into(),
            axis: "requests at a time".into(),
            unit: Unit::Count,
            x: depth as u64,
            line: String::new(),
        };
        rows.extend(points(&contest, metrics, &point));
    }
    Ok(rows)
}

/// A point of each line, against pwrite(2) to a tmpfs; what could not be run is a row that says so.
fn points(contest: &Contest, metrics: &[Metric], at: &Point) -> Vec<Row> {
    let base = contest.of(TMPFS);
    let mut rows = Vec::new();
    for metric in metrics {
        for runs in contest.runs() {
            let empty = Row {
                case: format!("{}, {}: {}", at.figure, at.x, runs.name),
                point: Some(Point { line: runs.name.clone(), ..at.clone() }),
                ..Row::default()
            };
            rows.push(match &base.figures {
                Ok(_) if runs.name == base.name => continue,
                Ok(_) => sides::row(empty, *metric, runs, base, None),
                Err(_) => alone(empty, *metric, runs),
            });
        }
    }
    rows
}

/// A point that nothing is compared with.
fn alone(empty: Row, metric: Metric, runs: &Runs) -> Row {
    let empty = Row { metric: metric.name().into(), unit: metric.unit().into(), peer: "-".into(), ..empty };
    match &runs.figures {
        Err(error) => empty.without_numbers("", error),
        Ok(figures) => Row { ours: runs.median(metric), runs: figures.len() as u32, ..empty },
    }
}
