//! A file as datagrams: experiments of the FlexIO thesis from disk to network and from network to network, over the size of
//! the transfer and over that of the buffer, between two hosts and through a third one.
//!
//! Ours finds the rate by itself, which counts into its time. The peer is the user process of the thesis, which sends as
//! fast as it can and reads, sends and receives with the buffer. Throughput is that of the bytes that arrived, from the
//! start of the sender to the last datagram.

use super::by_hand::{FORWARD_DATAGRAMS, RECEIVE_DATAGRAMS, SEND_DATAGRAMS};
use super::net::{Net, Ready, Station, Stop, Transfer};
use super::process::{self, Protocol};
use super::relay::Account;
use super::route::{equal, find};
use super::{KIB, Needing, Outcome, Stage, arrived, throughput};
use crate::campaign::Declared;
use crate::engine::{Rounds, Runs, Side};
use crate::error::Error;
use crate::place::Kind;
use crate::row::{Point, Row, Unit};
use bywash_quantity::Bytes;
use std::fs;
use std::path::Path;

const MB: u64 = 1_000_000;
const TRANSFERS: [u64; 4] = [MB, 20 * MB, 100 * MB, 400 * MB];
const TRANSFERS_QUICK: [u64; 2] = [MB, 4 * MB];
const BUFFERS: [u64; 4] = [KIB, 5 * KIB, 20 * KIB, 50 * KIB];
const BUFFERS_QUICK: [u64; 2] = [KIB, 50 * KIB];
/// Size of the buffer while the transfer varies.
const BUFFER: u64 = 8 * KIB;
/// Size of the transfer while the buffer varies.
const TRANSFER: u64 = 100 * MB;
const TRANSFER_QUICK: u64 = 4 * MB;
/// Size of the transfer that may lose nothing: the rate that is found has to be held that long.
const HELD: u64 = 400 * MB;
const ROUNDS_MAX: u32 = 3;
const BY_HAND: &str = "by hand";
const ALL: &str = "everything";

/// One point of every curve of a figure; sizes in bytes.
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

    fn point(self) -> Point {
        let (axis, x, fixed) = match self.is_over_buffers {
            true => ("bytes of the buffer", self.buffer, format!("{} MB moved", self.transfer / MB)),
            false => ("bytes moved", self.transfer, format!("buffer of {}", Bytes(self.buffer))),
        };
        let figure = format!("{}, {fixed}", self.experiment());
        Point { figure, axis: axis.into(), unit: Unit::Bytes, x, line: "bywash".into() }
    }
}

pub(super) fn cases(quick: bool) -> Vec<Needing> {
    let (transfers, buffers) =
        if quick { (&TRANSFERS_QUICK[..], &BUFFERS_QUICK[..]) } else { (&TRANSFERS[..], &BUFFERS[..]) };
    let fixed = if quick { TRANSFER_QUICK } else { TRANSFER };
    let mut cases: Vec<Needing> = Vec::new();
    for hosts in [2, 3] {
        let transfers = transfers.iter().map(|bytes| (false, *bytes, BUFFER));
        for (is_over_buffers, transfer, buffer) in
            transfers.chain(buffers.iter().map(|bytes| (true, fixed, *bytes)))
        {
            let at = At { hosts, is_over_buffers, transfer, buffer };
            let what = match is_over_buffers {
                true => format!("UDP, buffer of {}", Bytes(buffer)),
                false => format!("UDP, {} MB", transfer / MB),
            };
            let head = Row::head("flow/datagram", &what, at.experiment());
            let head = Row { note: "bywash: --rate auto".into(), ..head };
            let head = arrived().head(&head, ALL, Some(1.0));
            let case = Declared::new(head, move |stage, head| measure(stage, head, at));
            cases.push((vec![Kind::DiskLarge, Kind::Tmpfs], case));
        }
    }
    cases
}

fn measure(stage: &Stage, head: &Row, at: At) -> Result<Vec<Row>, Error> {
    let net = Net::hosts(at.hosts)?;
    let disk = find(&stage.places, Kind::DiskLarge)?;
    let memory = find(&stage.places, Kind::Tmpfs)?;
    let (source, sink) = (disk.root.join("flow-datagrams"), memory.root.join("flow-datagrams-arrived"));
    disk.write_file(&source, at.transfer, 1)?;
    let sides = vec![
        Side::new("bywash", || ours(&net, at, &source, "null:")).warm_up(|| {
            // The bytes are compared here; the rounds do not write them.
            let outcome = ours(&net, at, &source, &sink.display().to_string())?;
            let compared = if outcome.lost == 0.0 { equal(&source, &sink) } else { Ok(()) };
            // The files of a run are removed with their folders at its end; memory is short before that.
            let _ = fs::remove_file(&sink);
            compared
        }),
        Side::new(BY_HAND, || by_hand(&net, at, &source)).warm_up(|| by_hand(&net, at, &source).map(drop)),
    ];
    let runs = Rounds::new(stage.rounds.min(ROUNDS_MAX)).limited().run(sides)?;
    Ok(rows_of(head, at, &runs))
}

fn rows_of(head: &Row, at: At, runs: &[Runs<Outcome>]) -> Vec<Row> {
    let (ours, by_hand) = (&runs[0], &runs[1]);
    let point = Row { point: Some(at.point()), ..head.clone() };
    let all = arrived().row_of_limit(head, ours, ALL, 100.0, 1.0);
    let all = if at.transfer == HELD { all } else { all.without_goal() };
    vec![
        throughput(at.transfer).row(&point, ours, by_hand, None),
        arrived().row(&point, ours, by_hand, None),
        all,
    ]
}

/// `bywash flow` in every host.
fn ours(net: &Net, at: At, source: &Path, sink: &str) -> Result<Outcome, Error> {
    let flags = ["--json".to_owned(), "--rate=auto".into(), format!("--block={}", at.buffer)];
    let last = net.address(Station::Last)?;
    let first = if at.hosts > 2 { net.address(Station::Middle)? } else { last };
    let relay = || process::flow(["--quiet"], format!("udp-listen:{first}"), format!("udp:{last}"));
    let done = net.run(Transfer {
        ready: Ready::Listens(Protocol::Udp),
        receiver: (process::flow(["--json"], format!("udp-listen:{last},sequenced"), sink)?, last.port()),
        middle: (at.hosts > 2).then(relay).transpose()?.map(|relay| (relay, first.port(), Stop::WhenTold)),
        sender: process::flow(flags, format!("file:{}", source.display()), format!("udp:{first},sequenced"))?,
        is_telling: true,
    })?;
    let received = Account::parse(&done.receiver.stdout)?;
    let lost = received.bytes_missing + at.transfer.saturating_sub(received.bytes);
    Ok(Outcome { lost: lost as f64 / at.transfer as f64, ..Outcome::new(done.seconds, 0.0) })
}

/// The user process of the thesis in every host.
fn by_hand(net: &Net, at: At, source: &Path) -> Result<Outcome, Error> {
    let last = net.address(Station::Last)?;
    let first = if at.hosts > 2 { net.address(Station::Middle)? } else { last };
    let command = |name, from: &str, to: &str| process::by_hand(name, from, to, at.buffer);
    let relay = || command(FORWARD_DATAGRAMS, &first.to_string(), &last.to_string());
    let done = net.run(Transfer {
        ready: Ready::Listens(Protocol::Udp),
        receiver: (command(RECEIVE_DATAGRAMS, &last.to_string(), "/dev/null")?, last.port()),
        middle: (at.hosts > 2).then(relay).transpose()?.map(|relay| (relay, first.port(), Stop::ByItself)),
        sender: command(SEND_DATAGRAMS, &source.display().to_string(), &first.to_string())?,
        is_telling: true,
    })?;
    done.sender.success()?;
    let (bytes, silence) = parse(&done.receiver.stdout)?;
    let lost = 1.0 - bytes as f64 / at.transfer as f64;
    Ok(Outcome { lost, ..Outcome::new((done.seconds - silence).max(1e-6), 0.0) })
}

/// Parses what the hand-written receiver prints: the bytes that arrived, and the silence at the end, in seconds.
fn parse(text: &str) -> Result<(u64, f64), Error> {
    let numbers = text.trim().split_once(' ');
    let numbers = numbers.and_then(|(bytes, silence)| bytes.parse().ok().zip(silence.parse().ok()));
    numbers.ok_or_else(|| Error::failed("the hand-written receiver", format!("printed '{}'", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_hand_written_receiver_is_parsed() {
        assert_eq!(parse("12 0.5\n").unwrap(), (12, 0.5));
        assert!(parse("").is_err());
    }

    #[test]
    fn four_hundred_megabytes_may_lose_nothing() {
        assert_eq!(cases(false).len(), 2 * (TRANSFERS.len() + BUFFERS.len()));
        let at = At { hosts: 3, is_over_buffers: false, transfer: HELD, buffer: BUFFER };
        let runs = |name: &str, lost| Runs {
            name: name.into(),
            samples: Ok(vec![Outcome { lost, ..Outcome::new(1.0, 0.0) }; 3]),
        };
        for (lost, met) in [(0.0, true), (1e-6, false)] {
            let rows = rows_of(&Row::default(), at, &[runs("bywash", lost), runs(BY_HAND, 0.5)]);
            let goals: Vec<Option<bool>> = rows.iter().map(|row| row.met).collect();
            assert_eq!(goals, [None, None, Some(met)]);
        }
    }
}
