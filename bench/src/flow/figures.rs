//! Every mover over the transfer size and over the buffer size: the experiments of the FlexIO thesis, its figures 4.7 to
//! 4.15, within a file system, from one to another, and between raw partitions.
//!
//! The flows run in this process, so that the movers alone are measured, down to a mebibyte. What they are compared with
//! is what the thesis compared with: a loop of read(2) and write(2) with a buffer of the same size.

use super::by_hand;
use super::disk::{flow_of, movers};
use super::part::{Part, Stage, repeats};
use super::rounds::{self, Frame, Metric, Outcome, Runs, Side, Work};
use super::route::{Ends, Route};
use crate::error::Error;
use crate::row::{Point, Row, Unit};
use bywash_flow::plan::{BLOCK_BYTES, Mover};
use bywash_flow::size::Bytes;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::path::Path;
use std::time::Instant;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BENCH: &str = "flow/figures";
const ROUTES: [(Route, &str); 3] = [
    (Route::Disk, "same file system"),
    (Route::DiskToXfs, "other file system"),
    (Route::Raw, "raw partitions"),
];
const TRANSFERS: [u64; 6] = [MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 << 30];
const TRANSFERS_QUICK: [u64; 2] = [MIB, 16 * MIB];
const BUFFERS: [u64; 6] = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];
const BUFFERS_QUICK: [u64; 2] = [4 * KIB, MIB];
/// The buffer, while the transfer varies.
const BUFFER: u64 = MIB;
/// The transfer, while the buffer varies.
const TRANSFER: u64 = 128 * MIB;
const TRANSFER_QUICK: u64 = 16 * MIB;
/// A curve has many points, which bear one another out.
const PAIRS_MAX: u32 = 3;
const BY_HAND: &str = "read and write";

/// What varies along a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Transfer,
    Buffer,
}

impl Axis {
    fn title(self) -> &'static str {
        match self {
            Axis::Transfer => "bytes moved",
            Axis::Buffer => "bytes of the buffer",
        }
    }
}

/// One point of every curve of a figure.
#[derive(Clone, Copy, Debug)]
struct At {
    route: Route,
    axis: Axis,
    transfer: u64,
    buffer: u64,
}

/// The parts of this bench: one for each place along an axis.
pub fn parts(folder: &Path, quick: bool) -> Vec<Part> {
    let (transfers, buffers) =
        if quick { (&TRANSFERS_QUICK[..], &BUFFERS_QUICK[..]) } else { (&TRANSFERS[..], &BUFFERS[..]) };
    let transfer = if quick { TRANSFER_QUICK } else { TRANSFER };
    let mut parts = Vec::new();
    for (route, called) in ROUTES {
        let along = transfers.iter().map(|bytes| (Axis::Transfer, *bytes, BUFFER));
        let along = along.chain(buffers.iter().map(|bytes| (Axis::Buffer, transfer, *bytes)));
        for (axis, transfer, buffer) in along {
            let at = At { route, axis, transfer, buffer };
            let what = match axis {
                Axis::Transfer => format!("{}, buffer fixed", Bytes(transfer)),
                Axis::Buffer => format!("buffer of {}", Bytes(buffer)),
            };
            let place = match route {
                Route::Raw => called.to_owned(),
                route => format!("{called} ({})", route.name(folder)),
            };
            parts.push(Part {
                frame: Frame { bench: BENCH, what, place, bytes: transfer, note: String::new() },
                kinds: route.places().to_vec(),
                headline: (Metric::Throughput, BY_HAND, None),
                measure: Box::new(move |stage, frame| points(stage, frame, at)),
            });
        }
    }
    parts
}

fn points(stage: &Stage<'_>, frame: &Frame, at: At) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(at.route, stage.places, at.transfer)?;
    let movers = movers(&ends)?;
    let mut sides = vec![Side::new(BY_HAND, || by_hand(&ends, at.buffer))];
    for mover in &movers {
        let ends = &ends;
        sides.push(Side::new(mover.to_string(), move || by_library(ends, *mover, at.buffer)));
    }
    let work =
        Work { state: &ends, repeats: repeats(at.transfer, stage.quick), pairs: stage.pairs.min(PAIRS_MAX) };
    let runs = rounds::run(sides, &work)?;
    let (hand, movers) = (&runs[0], &runs[1..]);
    Ok(movers.iter().flat_map(|mover| rows_of(frame, at, mover, hand)).collect())
}

/// Both metrics of one mover at one point.
fn rows_of(frame: &Frame, at: At, mover: &Runs, hand: &Runs) -> [Row; 2] {
    let fixed = match at.axis {
        Axis::Transfer => format!("buffer of {}", Bytes(at.buffer)),
        Axis::Buffer => format!("{} moved", Bytes(at.transfer)),
    };
    let point = Point {
        figure: format!("{}, {fixed}", frame.place),
        axis: at.axis.title().into(),
        unit: Unit::Bytes,
        x: match at.axis {
            Axis::Transfer => at.transfer,
            Axis::Buffer => at.buffer,
        },
        line: mover.name.clone(),
    };
    let frame = Frame { what: format!("{}, {}", mover.name, frame.what), ..frame.clone() };
    [Metric::Throughput, Metric::Cpu]
        .map(|metric| Row { point: Some(point.clone()), ..frame.row(metric, mover, hand, None) })
}

/// The flow by `mover`, in this process.
fn by_library(ends: &Ends, mover: Mover, buffer: u64) -> Result<Outcome, Error> {
    let block = usize::try_from(buffer).unwrap_or(usize::MAX).clamp(*BLOCK_BYTES.start(), *BLOCK_BYTES.end());
    let flow = flow_of(ends)?.via(mover).block(block);
    let failed = |error: bywash_flow::Error| match error {
        bywash_flow::Error::Unfit { .. } => Error::Unavailable(error.to_string()),
        error => Error::failed("a flow", format!("failed: {error}")),
    };
    timed(|| {
        let report = flow.start().map_err(failed)?.wait();
        report.map(drop).map_err(|cut_short| failed(cut_short.error))
    })
}

/// The same with read(2) and write(2), in this process.
fn by_hand(ends: &Ends, buffer: u64) -> Result<Outcome, Error> {
    let new = !ends.is_raw();
    timed(|| {
        let mut source = File::open(&ends.source).map_err(|error| Error::io("open", &ends.source, error))?;
        let sink = File::options().create(new).truncate(new).write(true).open(&ends.sink);
        let mut sink = sink.map_err(|error| Error::io("open", &ends.sink, error))?;
        let moved = by_hand::read_write(&mut source, &mut sink, buffer as usize);
        moved.map(drop).map_err(|error| Error::io("write", &ends.sink, error))
    })
}

fn timed(work: impl FnOnce() -> Result<(), Error>) -> Result<Outcome, Error> {
    let (begin, before) = (Instant::now(), process_seconds());
    work()?;
    let cpu_seconds = process_seconds() - before;
    Ok(Outcome { seconds: begin.elapsed().as_secs_f64(), cpu_seconds, lost: 0.0 })
}

/// CPU seconds of all threads of this process, those that have ended too.
fn process_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Places;

    #[test]
    fn every_mover_moves_equal_bytes_with_buffers_of_any_size() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &Route::Disk.places()[..1], "").unwrap();
        let Ok(ends) = Ends::make(Route::Disk, &places, 3 * MIB) else { return };
        let movers = movers(&ends).unwrap();
        let frame = parts(folder.path(), true).remove(0).frame;
        let mut rows: Vec<Row> = Vec::new();
        for buffer in [4 * KIB, MIB] {
            let at = At { route: Route::Disk, axis: Axis::Buffer, transfer: 3 * MIB, buffer };
            let mut sides = vec![Side::new(BY_HAND, || by_hand(&ends, buffer))];
            for mover in &movers {
                let ends = &ends;
                sides.push(Side::new(mover.to_string(), move || by_library(ends, *mover, buffer)));
            }
            let runs = rounds::run(sides, &Work { state: &ends, repeats: 1, pairs: 1 }).unwrap();
            rows.extend(runs[1..].iter().flat_map(|run| rows_of(&frame, at, run, &runs[0])));
        }
        assert_eq!(rows.len(), movers.len() * 4);
        for row in &rows {
            assert!(!row.failed && row.point.is_some(), "{row:?}");
        }
    }

    #[test]
    fn a_quick_run_has_two_points_a_curve() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(parts(folder.path(), true).len(), ROUTES.len() * 4);
        assert_eq!(parts(folder.path(), false).len(), ROUTES.len() * 12);
    }
}
