//! A file as datagrams: the experiments of the FlexIO thesis from disk to network and from network to network, over the
//! size of the transfer and over that of the buffer, between two hosts and through a third one.
//!
//! Ours finds the rate by itself, which counts into its time; the user process of the thesis sends as fast as it can
//! and reads, sends and receives with the buffer. Throughput is that of what arrived, from the start of the sender to
//! the last datagram.

use super::super::by_hand::Part as Hand;
use super::super::part::{Part, Stage};
use super::super::process::Door;
use super::super::rounds::{self, Frame, Metric, Outcome, Runs, Side, State, Work};
use super::super::route::{equal, had};
use super::super::wires::{Net, Station};
use super::BENCH;
use super::station::{Account, Telling, by_hand, flow};
use crate::error::Error;
use crate::place::Kind;
use crate::row::{Point, Row, Unit};
use bywash_flow::size::Bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const KIB: u64 = 1 << 10;
const MB: u64 = 1_000_000;
const TRANSFERS: [u64; 4] = [MB, 20 * MB, 100 * MB, 400 * MB];
const TRANSFERS_QUICK: [u64; 2] = [MB, 4 * MB];
const BUFFERS: [u64; 4] = [KIB, 5 * KIB, 20 * KIB, 50 * KIB];
const BUFFERS_QUICK: [u64; 2] = [KIB, 50 * KIB];
/// The buffer, while the transfer varies.
const BUFFER: u64 = 8 * KIB;
/// The transfer, while the buffer varies.
const TRANSFER: u64 = 100 * MB;
const TRANSFER_QUICK: u64 = 4 * MB;
/// The one for which nothing may be lost.
const HELD: u64 = 400 * MB;
const PAIRS_MAX: u32 = 3;
const BY_HAND: &str = "by hand";
const ALL: &str = "everything";

/// One point of every curve of a figure.
#[derive(Clone, Copy, Debug)]
struct At {
    hosts: u8,
    is_over_buffers: bool,
    transfer: u64,
    buffer: u64,
}

impl At {
    fn experiment(self) -> &'static str {
        if self.hosts == 2 { "disk to network, two hosts" } else { "network to network, three hosts" }
    }

    fn point(self, line: &str) -> Point {
        let (axis, x, fixed) = match self.is_over_buffers {
            true => ("bytes of the buffer", self.buffer, format!("{} moved", decimal(self.transfer))),
            false => ("bytes moved", self.transfer, format!("buffer of {}", Bytes(self.buffer))),
        };
        let figure = format!("{}, {fixed}", self.experiment());
        Point { figure, axis: axis.into(), unit: Unit::Bytes, x, line: line.into() }
    }
}

fn decimal(bytes: u64) -> String {
    format!("{} MB", bytes / MB)
}

/// The parts: one for each number of hosts along an axis.
pub fn parts(quick: bool) -> Vec<Part> {
    let (transfers, buffers) =
        if quick { (&TRANSFERS_QUICK[..], &BUFFERS_QUICK[..]) } else { (&TRANSFERS[..], &BUFFERS[..]) };
    let transfer = if quick { TRANSFER_QUICK } else { TRANSFER };
    let mut parts = Vec::new();
    for hosts in [2, 3] {
        let along = transfers.iter().map(|bytes| (false, *bytes, BUFFER));
        for (is_over_buffers, transfer, buffer) in
            along.chain(buffers.iter().map(|bytes| (true, transfer, *bytes)))
        {
            let at = At { hosts, is_over_buffers, transfer, buffer };
            let what = match is_over_buffers {
                true => format!("UDP, buffer of {}", Bytes(buffer)),
                false => format!("UDP, {}", decimal(transfer)),
            };
            parts.push(Part {
                frame: Frame {
                    bench: BENCH,
                    what,
                    place: at.experiment().into(),
                    bytes: transfer,
                    note: "bywash: --rate auto".into(),
                },
                kinds: vec![Kind::DiskLarge, Kind::Tmpfs],
                headline: (Metric::Arrived, ALL, Some(1.0)),
                measure: Box::new(move |stage, frame| points(stage, frame, at)),
            });
        }
    }
    parts
}

/// A file, removed when dropped.
struct Temporary(PathBuf);

impl State for Temporary {
    fn clear(&self) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn points(stage: &Stage<'_>, frame: &Frame, at: At) -> Result<Vec<Row>, Error> {
    let net = Net::hosts(at.hosts)?;
    let (disk, memory) = (had(stage.places, Kind::DiskLarge)?, had(stage.places, Kind::Tmpfs)?);
    let source = Temporary(disk.root.join("flow-datagrams"));
    disk.write_file(&source.0, at.transfer, 1)?;
    let way = Way { net: &net, at, source: &source.0 };
    // What came is what was sent; measured is without writing it.
    let arrived = Temporary(memory.root.join("flow-datagrams-arrived"));
    let outcome = way.ours(&arrived.0.display().to_string())?;
    if outcome.lost == 0.0 {
        equal(&source.0, &arrived.0)?;
    }
    drop(arrived);
    let sides = vec![Side::new("bywash", || way.ours("null:")), Side::new(BY_HAND, || way.by_hand())];
    let work = Work { state: &source, repeats: 1, pairs: stage.pairs.min(PAIRS_MAX) };
    let runs = rounds::run(sides, &work)?;
    Ok(rows_of(frame, at, &runs))
}

fn rows_of(frame: &Frame, at: At, runs: &[Runs]) -> Vec<Row> {
    let [ours, hand] = runs else { return Vec::new() };
    let both = [Metric::Throughput, Metric::Arrived]
        .map(|metric| Row { point: Some(at.point("bywash")), ..frame.row(metric, ours, hand, None) });
    let count = ours.outcomes.as_ref().map_or(0, Vec::len);
    let all =
        Runs { name: ALL.into(), outcomes: Ok(vec![Outcome { seconds: 1.0, ..Outcome::default() }; count]) };
    // What is found must be held for so long.
    let goal = (at.transfer == HELD).then_some(1.0);
    both.into_iter().chain([frame.row(Metric::Arrived, ours, &all, goal)]).collect()
}

/// From the first host to the last.
struct Way<'a> {
    net: &'a Net,
    at: At,
    source: &'a Path,
}

impl Way<'_> {
    /// Ours at every host.
    fn ours(&self, sink: &str) -> Result<Outcome, Error> {
        let net = self.net;
        let last = net.last()?;
        let listen = format!("udp-listen:{last},sequenced");
        let mut receiver =
            Telling::start(flow(&[], &listen, sink)?, |command| net.start(Station::Last, command))?;
        receiver.process().listens(Door::Udp, last.port())?;
        let mut first = last;
        let mut middle = None;
        if self.at.hosts > 2 {
            first = net.middle()?;
            let relay = flow(&[], &format!("udp-listen:{first}"), &format!("udp:{last}"))?;
            let mut relay = Telling::start(relay, |command| net.start(Station::Middle, command))?;
            relay.process().listens(Door::Udp, first.port())?;
            middle = Some(relay);
        }
        let flags = ["--rate=auto".to_owned(), format!("--block={}", self.at.buffer)];
        let from = format!("file:{}", self.source.display());
        let command = flow(&flags, &from, &format!("udp:{first},sequenced"))?;
        let begin = Instant::now();
        let sender = Telling::start(command, |command| net.start(Station::First, command))?;
        let received = Account::of(&receiver.told()?)?;
        let seconds = begin.elapsed().as_secs_f64();
        sender.told()?;
        middle.map(Telling::end).transpose()?;
        let lost = (received.bytes_missing + self.at.transfer.saturating_sub(received.bytes)) as f64;
        Ok(Outcome { seconds, cpu_seconds: 0.0, lost: lost / self.at.transfer as f64 })
    }

    /// The user process of the thesis at every host.
    fn by_hand(&self) -> Result<Outcome, Error> {
        let net = self.net;
        let last = net.last()?;
        let part = |part, from: &str, to: &str| by_hand(part, from, to, self.at.buffer);
        let receiver = part(Hand::ReceiveDatagrams, &last.to_string(), "/dev/null")?;
        let mut receiver = Telling::start(receiver, |command| net.start(Station::Last, command))?;
        receiver.process().listens(Door::Udp, last.port())?;
        let mut first = last;
        let mut middle = None;
        if self.at.hosts > 2 {
            first = net.middle()?;
            let mut relay = net.start(
                Station::Middle,
                part(Hand::ForwardDatagrams, &first.to_string(), &last.to_string())?,
            )?;
            relay.listens(Door::Udp, first.port())?;
            middle = Some(relay);
        }
        let command = part(Hand::SendDatagrams, &self.source.display().to_string(), &first.to_string())?;
        let begin = Instant::now();
        let sender = net.start(Station::First, command)?;
        let told = receiver.told()?;
        let seconds = begin.elapsed().as_secs_f64();
        sender.finish()?;
        middle.map(|relay| relay.finish()).transpose()?;
        let (bytes, silence) = arrived(&told)?;
        let lost = 1.0 - bytes as f64 / self.at.transfer as f64;
        Ok(Outcome { seconds: (seconds - silence).max(1e-6), cpu_seconds: 0.0, lost })
    }
}

/// Bytes that came, and the seconds of waiting for more.
fn arrived(told: &str) -> Result<(u64, f64), Error> {
    let mut words = told.split_whitespace();
    let bytes = words.next().and_then(|word| word.parse().ok());
    let silence = words.next().and_then(|word| word.parse().ok());
    bytes.zip(silence).ok_or_else(|| Error::failed("the receiver by hand", format!("said '{}'", told.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_receiver_by_hand_says() {
        assert_eq!(arrived("12 0.5\n").unwrap(), (12, 0.5));
        assert!(arrived("").is_err());
    }

    #[test]
    fn four_hundred_megabytes_may_lose_nothing() {
        let all: Vec<Part> = parts(false);
        assert_eq!(all.len(), 2 * (TRANSFERS.len() + BUFFERS.len()));
        let at = At { hosts: 3, is_over_buffers: false, transfer: HELD, buffer: BUFFER };
        let runs = |name: &str, lost| Runs {
            name: name.into(),
            outcomes: Ok(vec![Outcome { seconds: 1.0, cpu_seconds: 0.0, lost }; 3]),
        };
        for (lost, met) in [(0.0, true), (1e-6, false)] {
            let rows = rows_of(&all[0].frame, at, &[runs("bywash", lost), runs(BY_HAND, 0.5)]);
            let goals: Vec<Option<bool>> = rows.iter().map(|row| row.met).collect();
            assert_eq!(goals, [None, None, Some(met)]);
        }
    }
}
