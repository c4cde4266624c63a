//! The figures of the FlexIO thesis: over the bytes moved with a fixed buffer, and over the bytes of the buffer.
//!
//! *Copies* (4.7 to 4.15): every mover within a file system, from one to another, and between raw partitions. The flows
//! run in this process, so that the movers alone are measured, down to a mebibyte. The peer is that of the thesis: a loop
//! of read(2) and write(2) with a buffer of the same size.
//!
//! *Datagrams*: a file from disk to network and from network to network, between two hosts and through a third one. Ours
//! finds the rate by itself, which counts into its time. The peer is the user process of the thesis, which sends as fast
//! as it can and reads, sends and receives with the buffer. Throughput is that of the bytes that arrived, from the start of
//! the sender to the last datagram.

use super::Figure::{Arrived, Cpu, Throughput};
use super::by_hand::read_write;
use super::disk::{flow_between, movers};
use super::route::{Ends, Route, equal};
use super::transfer::{Net, Protocol, Transfer, reported};
use super::{Group, KIB, MIB, Needing, Outcome, Peer, Stage, case};
use crate::clock;
use crate::engine::{Runs, Side};
use crate::error::{Attempt, Error};
use crate::place::Kind;
use crate::row::{Point, Row, Unit};
use bywash_flow::plan::{BLOCK_BYTES, Mover};
use bywash_quantity::Bytes;
use rustix::time::ClockId;
use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

/// Greatest number of rounds: the many points of a curve confirm one another.
const ROUNDS_MAX: u32 = 3;
const MB: u64 = 1_000_000;

const ROUTES: [(Route, &str); 3] = [
    (Route::DISK, "same file system"),
    (Route::DISK_TO_XFS, "other file system"),
    (Route::RAW, "raw partitions"),
];
const LOOP: &str = "read and write";

const EXPERIMENTS: [(u8, &str); 2] =
    [(2, "disk to network, two hosts"), (3, "network to network, three hosts")];
/// `bywash flow` in every host, and the user process of the thesis.
const FLOWS: [&str; 3] = [
    "bywash flow --json --rate=auto --block={block} file:{from} udp:{at},sequenced",
    "bywash flow --quiet udp-listen:{at} udp:{next}",
    "bywash flow --json udp-listen:{at},sequenced {to}",
];
const USER_PROCESSES: [&str; 3] = [
    "bywash bench peer flow send-datagrams {from} {at} {block}",
    "bywash bench peer flow forward-datagrams {at} {next} {block}",
    "bywash bench peer flow receive-datagrams {at} {to} {block}",
];
/// Size of the transfer that may lose nothing: the rate that is found has to be held that long.
const HELD: u64 = 400 * MB;
const ALL: &str = "everything";

/// Sizes of one point of every curve of a figure, in bytes.
#[derive(Clone, Copy, Debug)]
struct At {
    is_over_buffers: bool,
    transfer: u64,
    buffer: u64,
}

/// Points over the size of the transfer, with one buffer, and over that of the buffer, with one transfer.
fn points(transfers: &[u64], buffer: u64, buffers: &[u64], transfer: u64) -> Vec<At> {
    let over_transfers = transfers.iter().map(|transfer| (false, *transfer, buffer));
    let over_buffers = buffers.iter().map(|buffer| (true, transfer, *buffer));
    let at = |(is_over_buffers, transfer, buffer)| At { is_over_buffers, transfer, buffer };
    over_transfers.chain(over_buffers).map(at).collect()
}

impl At {
    fn point(self, experiment: &str, line: &str) -> Point {
        let (axis, x, fixed) = match self.is_over_buffers {
            true => ("bytes of the buffer", self.buffer, format!("{} moved", moved(self.transfer))),
            false => ("bytes moved", self.transfer, format!("buffer of {}", Bytes(self.buffer))),
        };
        let figure = format!("{experiment}, {fixed}");
        Point { figure, axis: axis.into(), unit: Unit::Bytes, x, line: line.into() }
    }
}

fn moved(bytes: u64) -> String {
    if bytes.is_multiple_of(MB) { format!("{} MB", bytes / MB) } else { Bytes(bytes).to_string() }
}

pub(super) fn cases_of_copies(folder: &Path, quick: bool) -> Vec<Needing> {
    let sizes = [1, 4, 16, 64, 256, 1024];
    let points = match quick {
        true => points(&[MIB, 16 * MIB], MIB, &[4 * KIB, MIB], 16 * MIB),
        false => points(&sizes.map(|size| size * MIB), MIB, &sizes.map(|size| size * KIB), 128 * MIB),
    };
    let mut cases: Vec<Needing> = Vec::new();
    for (route, called) in ROUTES {
        let place = match route.is_raw {
            true => called.to_owned(),
            false => format!("{called} ({})", route.name(folder)),
        };
        for at in points.iter().copied() {
            let what = match at.is_over_buffers {
                true => format!("buffer of {}", Bytes(at.buffer)),
                false => format!("{}, buffer fixed", Bytes(at.transfer)),
            };
            let head = Row::head("flow/figures", &what, &place);
            cases.push(case(&route.kinds, &head, (LOOP, Throughput, None), move |stage, head| {
                copies(stage, head, at, &Ends::make(route, &stage.places, at.transfer)?)
            }));
        }
    }
    cases
}

/// Both metrics of every mover at one point, against the loop.
fn copies(stage: &Stage, head: &Row, at: At, ends: &Ends) -> Result<Vec<Row>, Error> {
    let mut peers: Vec<Peer> = vec![(Group::ByHand, ends.side(LOOP, || by_loop(ends, at.buffer)))];
    for mover in movers(ends)? {
        let side = ends.side(mover.to_string(), move || by_library(ends, mover, at.buffer));
        peers.push((Group::Movers, side));
    }
    let contest = stage.contest(stage.rounds.min(ROUNDS_MAX), at.transfer, peers)?;
    let rows_of = |mover: &Runs<Outcome>| {
        let point = Some(at.point(&head.place, &mover.name));
        let head = Row { case: format!("{}, {}", mover.name, head.case), point, ..head.clone() };
        [Throughput, Cpu].map(|figure| figure.metric().row(&head, mover, contest.ours(), None))
    };
    Ok(contest.0[1..].iter().flat_map(|peer| rows_of(&peer.1)).collect())
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
    timed(ends.bytes, || {
        let report = flow.start().map_err(failed)?.wait();
        report.map(drop).map_err(|cut_short| failed(cut_short.error))
    })
}

/// A loop of read(2) and write(2), in this process.
fn by_loop(ends: &Ends, buffer: u64) -> Result<Outcome, Error> {
    timed(ends.bytes, || {
        let mut source = File::open(&ends.source).doing("open", &ends.source)?;
        let mut sink = File::create(&ends.sink).doing("open", &ends.sink)?;
        read_write(&mut source, &mut sink, buffer as usize).doing("write", &ends.sink)
    })
}

fn timed(bytes: u64, work: impl FnOnce() -> Result<(), Error>) -> Result<Outcome, Error> {
    let process_seconds = || clock::seconds(ClockId::ProcessCPUTime);
    let (begin, before) = (Instant::now(), process_seconds());
    work()?;
    let cpu_seconds = process_seconds() - before;
    Ok(Outcome { bytes: bytes as f64, seconds: begin.elapsed().as_secs_f64(), cpu_seconds, lost: 0.0 })
}

pub(super) fn cases_of_datagrams(quick: bool) -> Vec<Needing> {
    let points = match quick {
        true => points(&[MB, 4 * MB], 8 * KIB, &[KIB, 50 * KIB], 4 * MB),
        false => {
            points(&[MB, 20 * MB, 100 * MB, HELD], 8 * KIB, &[1, 5, 20, 50].map(|size| size * KIB), 100 * MB)
        }
    };
    let mut cases: Vec<Needing> = Vec::new();
    for (hosts, experiment) in EXPERIMENTS {
        for at in points.iter().copied() {
            let what = match at.is_over_buffers {
                true => format!("UDP, buffer of {}", Bytes(at.buffer)),
                false => format!("UDP, {}", moved(at.transfer)),
            };
            let head = Row::head("flow/datagram", &what, experiment);
            let head = Row { note: "bywash: --rate auto".into(), ..head };
            let measure = move |stage: &Stage, head: &Row| datagrams(stage, head, hosts, at);
            cases.push(case(&[Kind::DiskLarge, Kind::Tmpfs], &head, (ALL, Arrived, Some(1.0)), measure));
        }
    }
    cases
}

fn datagrams(stage: &Stage, head: &Row, hosts: u8, at: At) -> Result<Vec<Row>, Error> {
    let net = &Net::hosts(hosts)?;
    let (disk, memory) = (stage.places.find(Kind::DiskLarge)?, stage.places.find(Kind::Tmpfs)?);
    let (source, sink) = (disk.root.join("flow-datagrams"), memory.root.join("flow-datagrams-arrived"));
    disk.write_file(&source, at.transfer, 1)?;
    let run = |lines: &[&str; 3], to: &str, is_told| {
        let (block, from) = (at.buffer.to_string(), source.display().to_string());
        let values = vec![("{block}", block), ("{from}", from), ("{to}", to.into())];
        let lines = [lines[0], if hosts > 2 { lines[1] } else { "" }, lines[2]];
        net.run(&Transfer { protocol: Protocol::Udp, lines, is_told, values })
    };
    let outcome = |arrived: f64, seconds: f64| {
        let bytes = at.transfer as f64;
        Outcome { bytes, seconds: seconds.max(1e-6), cpu_seconds: 0.0, lost: 1.0 - arrived / bytes }
    };
    let by_flow = |to: &str| {
        let done = run(&FLOWS, to, true)?;
        let received = |member| reported::<f64>(&done.told[1], member);
        let missing = received("/pieces/0/datagrams/0/missing_bytes")?;
        Ok(outcome(received("/bytes")? - missing, done.seconds))
    };
    let by_user_process = || {
        let done = run(&USER_PROCESSES, "/dev/null", false)?;
        done.cpu_seconds?;
        let (arrived, silence): (f64, f64) = reported(&done.told[1], "")?;
        Ok(outcome(arrived, done.seconds - silence))
    };
    let ours = Side::new("bywash", || by_flow("null:")).warm_up(|| {
        // The bytes are compared here; the rounds do not write them.
        let outcome = by_flow(&sink.display().to_string())?;
        let compared = if outcome.lost == 0.0 { equal(&source, &sink) } else { Ok(()) };
        // The files of a run are removed with their folders at its end; memory is short before that.
        let _ = fs::remove_file(&sink);
        compared
    });
    let by_hand = Side::new("by hand", by_user_process).warm_up(move || by_user_process().map(drop));
    let peers: Vec<Peer> = vec![(Group::Ours, ours), (Group::Programs, by_hand)];
    let contest = stage.contest(stage.rounds.min(ROUNDS_MAX), u64::MAX, peers)?;
    let point = Row { point: Some(at.point(&head.place, "bywash")), ..head.clone() };
    let mut rows = contest.rows(&point, &[Throughput, Arrived], &[]);
    rows.push(row_of_all(head, at, contest.ours()));
    Ok(rows)
}

/// The row against everything, with a goal if the transfer is long enough.
fn row_of_all(head: &Row, at: At, ours: &Runs<Outcome>) -> Row {
    let all = Arrived.metric().row_of_limit(head, ours, ALL, 100.0, 1.0);
    if at.transfer == HELD { all } else { all.without_goal() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::runs;
    use super::*;
    use crate::place::Places;

    #[test]
    fn every_mover_moves_equal_bytes_with_buffers_of_any_size() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::DiskLarge], "").unwrap();
        let Ok(ends) = Ends::make(Route::DISK, &places, 3 * MIB) else { return };
        let programs = folder.path().to_path_buf();
        let stage = Stage { places, programs, quick: true, rounds: 1 };
        let head = Row::head("flow/figures", "3 MiB", "disk");
        for buffer in [4 * KIB, MIB] {
            let at = At { is_over_buffers: true, transfer: 3 * MIB, buffer };
            let rows = copies(&stage, &head, at, &ends).unwrap();
            assert_eq!(rows.len(), movers(&ends).unwrap().len() * 2);
            assert!(
                rows.iter().all(|row| !row.failed && row.ours.is_some() && row.point.is_some()),
                "{rows:?}"
            );
        }
    }

    #[test]
    fn four_hundred_megabytes_may_lose_nothing() {
        let at = At { is_over_buffers: false, transfer: HELD, buffer: 8 * KIB };
        for (lost, met) in [(0.0, true), (1e-6, false)] {
            let ours = runs("bywash", 1.0, lost);
            assert_eq!(row_of_all(&Row::default(), at, &ours).met, Some(met));
            let shorter = At { transfer: HELD / 2, ..at };
            assert_eq!(row_of_all(&Row::default(), shorter, &ours).met, None);
        }
    }
}
