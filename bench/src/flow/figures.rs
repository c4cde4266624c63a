//! Every mover over the transfer size and over the buffer size: figures 4.7 to 4.15 of the FlexIO thesis, within a file
//! system, from one to another, and between raw partitions.
//!
//! The flows run in this process, so that the movers alone are measured, down to a mebibyte. The peer is that of the
//! thesis: a loop of read(2) and write(2) with a buffer of the same size.

use super::by_hand;
use super::disk::{flow_between, movers};
use super::route::{Ends, Route};
use super::{KIB, MIB, Needing, Outcome, Stage, cpu, throughput};
use crate::campaign::Declared;
use crate::clock;
use crate::engine::Runs;
use crate::error::Error;
use crate::row::{Point, Row, Unit};
use bywash_flow::plan::{BLOCK_BYTES, Mover};
use bywash_quantity::Bytes;
use rustix::time::ClockId;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

const ROUTES: [(Route, &str); 3] = [
    (Route::Disk, "same file system"),
    (Route::DiskToXfs, "other file system"),
    (Route::Raw, "raw partitions"),
];
const TRANSFERS: [u64; 6] = [MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 << 30];
const TRANSFERS_QUICK: [u64; 2] = [MIB, 16 * MIB];
const BUFFERS: [u64; 6] = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];
const BUFFERS_QUICK: [u64; 2] = [4 * KIB, MIB];
/// Size of the buffer while the transfer varies.
const BUFFER: u64 = MIB;
/// Size of the transfer while the buffer varies.
const TRANSFER: u64 = 128 * MIB;
const TRANSFER_QUICK: u64 = 16 * MIB;
/// Greatest number of rounds: the many points of a curve confirm one another.
const ROUNDS_MAX: u32 = 3;
const BY_HAND: &str = "read and write";

/// Sizes of one point of every curve of a figure, in bytes.
#[derive(Clone, Copy, Debug)]
struct At {
    is_over_buffers: bool,
    transfer: u64,
    buffer: u64,
}

pub(super) fn cases(folder: &Path, quick: bool) -> Vec<Needing> {
    let (transfers, buffers) =
        if quick { (&TRANSFERS_QUICK[..], &BUFFERS_QUICK[..]) } else { (&TRANSFERS[..], &BUFFERS[..]) };
    let fixed = if quick { TRANSFER_QUICK } else { TRANSFER };
    let transfers =
        transfers.iter().map(|bytes| At { is_over_buffers: false, transfer: *bytes, buffer: BUFFER });
    let buffers = buffers.iter().map(|bytes| At { is_over_buffers: true, transfer: fixed, buffer: *bytes });
    let points: Vec<At> = transfers.chain(buffers).collect();
    let mut cases: Vec<Needing> = Vec::new();
    for (route, called) in ROUTES {
        let place = match route {
            Route::Raw => called.to_owned(),
            route => format!("{called} ({})", route.name(folder)),
        };
        for at in points.iter().copied() {
            let what = match at.is_over_buffers {
                true => format!("buffer of {}", Bytes(at.buffer)),
                false => format!("{}, buffer fixed", Bytes(at.transfer)),
            };
            let head = throughput(at.transfer).head(&Row::head("flow/figures", &what, &place), BY_HAND, None);
            let case = Declared::new(head, move |stage, head| measure(stage, head, route, at));
            cases.push((route.kinds().to_vec(), case));
        }
    }
    cases
}

fn measure(stage: &Stage, head: &Row, route: Route, at: At) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(route, &stage.places, at.transfer)?;
    let movers = movers(&ends)?;
    let mut sides = vec![ends.side(BY_HAND, || by_hand(&ends, at.buffer))];
    for mover in &movers {
        let ends = &ends;
        sides.push(ends.side(mover.to_string(), move || by_library(ends, *mover, at.buffer)));
    }
    let runs = stage.run(sides, at.transfer, stage.rounds.min(ROUNDS_MAX))?;
    Ok(runs[1..].iter().flat_map(|mover| rows_of(head, at, mover, &runs[0])).collect())
}

/// Both metrics of one mover at one point.
fn rows_of(head: &Row, at: At, mover: &Runs<Outcome>, by_hand: &Runs<Outcome>) -> [Row; 2] {
    let (fixed, axis, x) = match at.is_over_buffers {
        true => (format!("{} moved", Bytes(at.transfer)), "bytes of the buffer", at.buffer),
        false => (format!("buffer of {}", Bytes(at.buffer)), "bytes moved", at.transfer),
    };
    let point = Point {
        figure: format!("{}, {fixed}", head.place),
        axis: axis.into(),
        unit: Unit::Bytes,
        x,
        line: mover.name.clone(),
    };
    let head = Row { case: format!("{}, {}", mover.name, head.case), point: Some(point), ..head.clone() };
    [throughput(at.transfer), cpu(at.transfer)].map(|metric| metric.row(&head, mover, by_hand, None))
}

/// A flow by `mover`, in this process.
fn by_library(ends: &Ends, mover: Mover, buffer: u64) -> Result<Outcome, Error> {
    let block = usize::try_from(buffer).unwrap_or(usize::MAX).clamp(*BLOCK_BYTES.start(), *BLOCK_BYTES.end());
    let [source, sink] = ends.words();
    let flow = flow_between(&source, &sink)?.via(mover).block(block);
    let failed = |error: bywash_flow::Error| match error {
        bywash_flow::Error::Unfit { .. } => Error::Unavailable(error.to_string()),
        error => Error::failed("a flow", format!("failed: {error}")),
    };
    timed(|| {
        let report = flow.start().map_err(failed)?.wait();
        report.map(drop).map_err(|cut_short| failed(cut_short.error))
    })
}

/// A loop of read(2) and write(2), in this process.
fn by_hand(ends: &Ends, buffer: u64) -> Result<Outcome, Error> {
    let new = !ends.is_raw();
    timed(|| {
        let mut source = File::open(&ends.source).map_err(|error| Error::io("open", &ends.source, error))?;
        let sink = File::options().create(new).truncate(new).write(true).open(&ends.sink);
        let mut sink = sink.map_err(|error| Error::io("open", &ends.sink, error))?;
        let moved = by_hand::read_write(&mut source, &mut sink, buffer as usize);
        moved.map_err(|error| Error::io("write", &ends.sink, error))
    })
}

fn timed(work: impl FnOnce() -> Result<(), Error>) -> Result<Outcome, Error> {
    let process_seconds = || clock::seconds(ClockId::ProcessCPUTime);
    let (begin, before) = (Instant::now(), process_seconds());
    work()?;
    let cpu_seconds = process_seconds() - before;
    Ok(Outcome::new(begin.elapsed().as_secs_f64(), cpu_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rounds;
    use crate::place::{Kind, Places};

    #[test]
    fn every_mover_moves_equal_bytes_with_buffers_of_any_size() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::DiskLarge], "").unwrap();
        let Ok(ends) = Ends::make(Route::Disk, &places, 3 * MIB) else { return };
        let movers = movers(&ends).unwrap();
        let head = Row::head("flow/figures", "3 MiB", "disk");
        let mut rows: Vec<Row> = Vec::new();
        for buffer in [4 * KIB, MIB] {
            let at = At { is_over_buffers: true, transfer: 3 * MIB, buffer };
            let mut sides = vec![ends.side(BY_HAND, || by_hand(&ends, buffer))];
            for mover in &movers {
                let ends = &ends;
                sides.push(ends.side(mover.to_string(), move || by_library(ends, *mover, buffer)));
            }
            let runs = Rounds::new(1).run(sides).unwrap();
            rows.extend(runs[1..].iter().flat_map(|run| rows_of(&head, at, run, &runs[0])));
        }
        assert_eq!(rows.len(), movers.len() * 4);
        for row in &rows {
            assert!(!row.failed && row.point.is_some(), "{row:?}");
        }
    }

    #[test]
    fn a_quick_run_has_two_points_a_curve() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(cases(folder.path(), true).len(), ROUTES.len() * 4);
        assert_eq!(cases(folder.path(), false).len(), ROUTES.len() * 12);
    }
}
