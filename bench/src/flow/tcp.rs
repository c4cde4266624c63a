//! A file over TCP into a file: from process to process on this machine, and through a process in the middle, on this
//! machine and in the middle one of three hosts.
//!
//! By value (the receiver gets what the file held when it was read) is compared with senders that read; by reference with
//! those that send pages. With a process in the middle, a hand-written sender and receiver are the same on all sides, and
//! the CPU time is that of the process in the middle.

use super::Figure::{Cpu, Throughput};
use super::disk::{flow_between, planned};
use super::route::{Ends, Route};
use super::transfer::Net;
use super::{BEST_MOVER, GOAL_CHOICE, Goal, Group, MIB, Needing, Peer, Stage, case};
use crate::error::{Attempt, Error};
use crate::place::Kind;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_quantity::Bytes;
use std::fs;

/// Rounds for each of other benches: runs of two processes vary with the cores that the kernel chooses for them.
const TURNS: u32 = 3;
/// CPU time is at most 1.05 times that of the best pair that was written by hand, and half of socat's.
const GOALS: [Goal; 3] = [
    (Group::ByHand.best(), Cpu, Some(1.0 / 1.05)),
    ("socat", Cpu, Some(2.0)),
    (BEST_MOVER, Throughput, Some(GOAL_CHOICE)),
];
/// In the middle, it is at most 1.05 times that of a splice loop, and 0.35 times socat's.
const GOALS_MIDDLE: [Goal; 2] =
    [("splice loop, 1 MiB pipe", Cpu, Some(1.0 / 1.05)), ("socat", Cpu, Some(1.0 / 0.35))];

const SEND_READ_WRITE: &str = "bywash bench peer flow send-read-write {from} {at} 0";
const SEND_SENDFILE: &str = "bywash bench peer flow send-sendfile {from} {at} 0";
const RECEIVE_READ_WRITE: &str = "bywash bench peer flow receive-read-write {at} {to} 0";
const RECEIVE_SPLICE: &str = "bywash bench peer flow receive-splice {at} {to} 0";
const RECEIVE: &str = "bywash flow --quiet tcp-listen:{at} {sink}";
/// OpenBSD's nc, since the others end differently.
const RECEIVE_NC: &str = "nc.openbsd -l {host} {port} >{to}";

/// Sender and receiver that are compared with ours.
type Pair = (&'static str, Group, &'static str, &'static str);

const BY_VALUE: [Pair; 6] = [
    ("read and write, splice", Group::ByHand, SEND_READ_WRITE, RECEIVE_SPLICE),
    ("read and write at both ends", Group::ByHand, SEND_READ_WRITE, RECEIVE_READ_WRITE),
    (
        "socat",
        Group::Programs,
        "socat -u OPEN:{from},rdonly TCP:{at}",
        "socat -u TCP-LISTEN:{port},bind={host},reuseaddr CREATE:{to}",
    ),
    (
        "socat -b 1 MiB",
        Group::Programs,
        "socat -u -b 1048576 OPEN:{from},rdonly TCP:{at}",
        "socat -u -b 1048576 TCP-LISTEN:{port},bind={host},reuseaddr CREATE:{to}",
    ),
    ("nc", Group::Programs, "nc.openbsd -N {host} {port} <{from}", RECEIVE_NC),
    (
        "pv into nc",
        Group::Programs,
        "sh -c '\"$0\" -q \"$1\" | \"$2\" -N \"$3\" \"$4\"' {=pv} {from} {=nc.openbsd} {host} {port}",
        RECEIVE_NC,
    ),
];
const BY_REFERENCE: [Pair; 2] = [
    ("sendfile, splice", Group::ByHand, SEND_SENDFILE, RECEIVE_SPLICE),
    ("sendfile, read and write", Group::ByHand, SEND_SENDFILE, RECEIVE_READ_WRITE),
];

/// Programs in the middle, ours first, and whether they have to be told to end.
const MIDDLES: [(&str, Group, &str, bool); 4] = [
    ("bywash", Group::Ours, "bywash flow --quiet tcp-listen:{at} tcp:{next}", false),
    (GOALS_MIDDLE[0].0, Group::Programs, "bywash bench peer flow forward-splice {at} {next} 0", false),
    ("socat", Group::Programs, "socat TCP-LISTEN:{port},bind={host},reuseaddr TCP:{next}", false),
    ("HAProxy with splice", Group::Programs, "env AT={at} NEXT={next} {=haproxy} -db -f {from}.cfg", true),
];
const HAPROXY: &str = "global\n  nbthread 1\n  tune.pipesize 1048576\ndefaults\n  mode tcp\n  option splice-auto\n  \
     timeout connect 5s\n  timeout client 60s\n  timeout server 60s\nlisten flow\n  \
     bind \"${AT}\"\n  server sink \"${NEXT}\"\n";

pub(super) fn cases(quick: bool) -> Vec<Needing> {
    let bytes = if quick { 16 * MIB } else { 256 * MIB };
    let direct = [("by value", false), ("by reference", true)].map(|(what, by_reference)| {
        let head = Row::head("flow/tcp", &format!("{} from file to file, {what}", Bytes(bytes)), "");
        let measure = move |stage: &Stage, head: &Row| direct(stage, head, bytes, by_reference);
        case(&[Kind::Tmpfs], &head, GOALS[0], measure)
    });
    let places = [("over loopback", false), ("through the middle of three hosts", true)];
    let through = places.map(|(what, in_hosts)| {
        let head = Row::head("flow/forward", &format!("TCP, {} {what}", Bytes(bytes)), "");
        let head = Row { note: "cpu: of the process in the middle".into(), ..head };
        let measure = move |stage: &Stage, head: &Row| through(stage, head, bytes, in_hosts);
        case(&[Kind::Tmpfs], &head, GOALS_MIDDLE[0], measure)
    });
    direct.into_iter().chain(through).collect()
}

/// One file from a sender to a receiver; the CPU time is that of both.
fn direct(stage: &Stage, head: &Row, bytes: u64, by_reference: bool) -> Result<Vec<Row>, Error> {
    let ends = &Ends::make(Route::TMPFS, &stage.places, bytes)?;
    let side = |name: &str, sender: String, receiver: &'static str| {
        ends.side(name, move || ends.run(&Net(None), [&sender, "", receiver], false))
    };
    let by = if by_reference { "reference" } else { "value" };
    let own = |via: &str| format!("bywash flow --quiet --by={by} {via} {{source}} tcp:{{at}}");
    let mut peers: Vec<Peer> = vec![(Group::Ours, side("bywash", own(""), RECEIVE))];
    for (name, group, sender, receiver) in if by_reference { BY_REFERENCE.as_slice() } else { &BY_VALUE } {
        peers.push((*group, side(name, (*sender).into(), receiver)));
    }
    let flow = flow_between(&ends.words()[0], "tcp:127.0.0.1:1")?.by_reference(by_reference);
    for via in planned(&flow).iter().map(Mover::to_string) {
        peers.push((Group::Movers, side(&via, own(&format!("--via={via}")), RECEIVE)));
    }
    Ok(stage.contest(stage.rounds * TURNS, bytes, peers)?.rows(head, &[Cpu, Throughput], &GOALS))
}

fn through(stage: &Stage, head: &Row, bytes: u64, in_hosts: bool) -> Result<Vec<Row>, Error> {
    let net = &if in_hosts { Net::hosts(3)? } else { Net(None) };
    let ends = &Ends::make(Route::TMPFS, &stage.places, bytes)?;
    let configuration = ends.source.with_extension("cfg");
    fs::write(&configuration, HAPROXY).doing("write", &configuration)?;
    let peers = MIDDLES.map(|(name, group, middle, is_told)| {
        let lines = [SEND_SENDFILE, middle, RECEIVE_READ_WRITE];
        (group, ends.side(name, move || ends.run(net, lines, is_told)))
    });
    let contest = stage.contest(stage.rounds * TURNS, bytes, peers.into())?;
    Ok(contest.rows(head, &[Cpu, Throughput], &GOALS_MIDDLE))
}

#[cfg(test)]
mod tests {
    use super::super::disk::{CP_SYNC, PROGRAMS, movers};
    use super::super::route::equal;
    use super::*;
    use crate::place::Places;

    #[test]
    fn programs_move_equal_bytes_and_movers_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::Tmpfs], "").unwrap();
        let Ok(ends) = Ends::make(Route::TMPFS, &places, 3 * MIB + 5) else { return };
        let copies = PROGRAMS.iter().chain([&CP_SYNC]).map(|(name, line)| (name, [*line, "", ""]));
        // Hand-written loops and flows are processes of this program, which here is the test.
        let pairs = BY_VALUE.iter().filter(|pair| pair.1 == Group::Programs);
        for (name, lines) in copies.chain(pairs.map(|pair| (&pair.0, [pair.2, "", pair.3]))) {
            ends.clear().unwrap();
            match ends.run(&Net(None), lines, false) {
                Ok(_) => equal(&ends.source, &ends.sink).unwrap(),
                Err(error) => assert!(error.is_absence(), "{name}: {error}"),
            }
        }
        let movers = movers(&ends).unwrap();
        assert!(movers.contains(&Mover::Buffer) && !movers.contains(&Mover::Ring), "{movers:?}");
    }
}
