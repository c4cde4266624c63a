//! A file over TCP into a file: from process to process on this machine, and through a process in the middle, on this
//! machine and in the middle one of three hosts.
//!
//! By value (the receiver gets what the file held when it was read) is compared with senders that read; by reference with
//! those that send pages. With a process in the middle, a hand-written sender and receiver are the same on all sides, and
//! the CPU time is that of the process in the middle.

use super::by_hand::{FORWARD_SPLICE, RECEIVE_READ_WRITE, RECEIVE_SPLICE, SEND_READ_WRITE, SEND_SENDFILE};
use super::disk::flow_between;
use super::net::{Net, Ready, Station, Stop, Transfer};
use super::process::{self, Protocol, command};
use super::route::{Ends, Route};
use super::{BEST, GOAL_CHOICE, MIB, MOVERS, Needing, Outcome, Stage, cpu, row_of_best, throughput};
use crate::campaign::Declared;
use crate::engine::Runs;
use crate::error::Error;
use crate::place::Kind;
use crate::programs::require;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_quantity::Bytes;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds for each of other benches: runs of two processes vary with the cores that the kernel chooses for them.
const TURNS: u32 = 3;
/// Goal of CPU time: at most 1.05 times that of the best pair that was written by hand, or of a splice loop.
const GOAL_BY_HAND: f64 = 1.0 / 1.05;
/// Goal of CPU time: at most half of socat's; in the middle, at most 0.35 times.
const GOAL_SOCAT: f64 = 2.0;
const GOAL_SOCAT_MIDDLE: f64 = 1.0 / 0.35;
const BEST_BY_HAND: &str = "best pair by hand";

/// Program that sends, receives or passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    /// `bywash flow`, by the planner's choice or by a mover that it is forced to use.
    Bywash {
        by_reference: bool,
        via: Option<Mover>,
    },
    /// A hand-written loop of that name.
    Hand(&'static str),
    Socat(&'static [&'static str]),
    Nc,
    PvIntoNc,
    Haproxy,
}

/// Name of a side, sender, receiver.
type Pair = (String, Tool, Tool);

const OURS: Tool = Tool::Bywash { by_reference: false, via: None };
const BY_VALUE: [(&str, Tool, Tool); 6] = [
    ("read and write, splice", Tool::Hand(SEND_READ_WRITE), Tool::Hand(RECEIVE_SPLICE)),
    ("read and write at both ends", Tool::Hand(SEND_READ_WRITE), Tool::Hand(RECEIVE_READ_WRITE)),
    ("socat", Tool::Socat(&["-u"]), Tool::Socat(&["-u"])),
    ("socat -b 1 MiB", Tool::Socat(&["-u", "-b", "1048576"]), Tool::Socat(&["-u", "-b", "1048576"])),
    ("nc", Tool::Nc, Tool::Nc),
    ("pv into nc", Tool::PvIntoNc, Tool::Nc),
];
const BY_REFERENCE: [(&str, Tool, Tool); 2] = [
    ("sendfile, splice", Tool::Hand(SEND_SENDFILE), Tool::Hand(RECEIVE_SPLICE)),
    ("sendfile, read and write", Tool::Hand(SEND_SENDFILE), Tool::Hand(RECEIVE_READ_WRITE)),
];
/// Programs in the middle, ours first, with the goal of CPU time.
const MIDDLES: [(&str, Tool, Option<f64>); 4] = [
    ("bywash", OURS, None),
    ("splice loop, 1 MiB pipe", Tool::Hand(FORWARD_SPLICE), Some(GOAL_BY_HAND)),
    ("socat", Tool::Socat(&[]), Some(GOAL_SOCAT_MIDDLE)),
    ("HAProxy with splice", Tool::Haproxy, None),
];

pub(super) fn cases(quick: bool) -> Vec<Needing> {
    let bytes = if quick { 16 * MIB } else { 256 * MIB };
    let mut cases: Vec<Needing> = Vec::new();
    for (what, by_reference) in [("by value", false), ("by reference", true)] {
        let head = Row::head("flow/tcp", &format!("{} from file to file, {what}", Bytes(bytes)), "");
        let head = cpu(bytes).head(&head, BEST_BY_HAND, Some(GOAL_BY_HAND));
        let case = Declared::new(head, move |stage, head| direct(stage, head, bytes, by_reference));
        cases.push((vec![Kind::Tmpfs], case));
    }
    for (what, in_hosts) in [("over loopback", false), ("through the middle of three hosts", true)] {
        let head = Row::head("flow/forward", &format!("TCP, {} {what}", Bytes(bytes)), "");
        let head = Row { note: "cpu: of the process in the middle".into(), ..head };
        let head = cpu(bytes).head(&head, MIDDLES[1].0, Some(GOAL_BY_HAND));
        let case = Declared::new(head, move |stage, head| through(stage, head, bytes, in_hosts));
        cases.push((vec![Kind::Tmpfs], case));
    }
    cases
}

impl Tool {
    fn send(self, file: &Path, to: SocketAddr) -> Result<Command, Error> {
        let (host, port) = (to.ip().to_string(), to.port().to_string());
        match self {
            Tool::Bywash { by_reference, via } => {
                let mut flags = vec!["--quiet".to_owned()];
                flags.extend(by_reference.then(|| "--by=reference".into()));
                flags.extend(via.map(|mover| format!("--via={mover}")));
                process::flow(flags, format!("file:{}", file.display()), format!("tcp:{to}"))
            }
            Tool::Hand(name) => process::by_hand(name, &file.display().to_string(), &to.to_string(), 0),
            Tool::Socat(flags) => {
                socat(flags, format!("OPEN:{},rdonly", file.display()), format!("TCP:{to}"))
            }
            Tool::PvIntoNc => {
                let mut command = command("sh");
                command.args(["-c", "\"$1\" -q \"$2\" | \"$3\" -N \"$4\" \"$5\"", "sh"]);
                command.arg(require("pv", "pv")?).arg(file).arg(nc()?).args([host, port]);
                Ok(command)
            }
            Tool::Nc | Tool::Haproxy => {
                let source = File::open(file).map_err(|error| Error::io("open", file, error))?;
                let mut command = command(nc()?);
                command.args(["-N", &host, &port]).stdin(source);
                Ok(command)
            }
        }
    }

    fn receive(self, at: SocketAddr, file: &Path) -> Result<Command, Error> {
        match self {
            Tool::Bywash { .. } => {
                process::flow(["--quiet"], format!("tcp-listen:{at}"), format!("file:{}", file.display()))
            }
            Tool::Hand(name) => process::by_hand(name, &at.to_string(), &file.display().to_string(), 0),
            Tool::Socat(flags) => socat(flags, socat_listens(at), format!("CREATE:{}", file.display())),
            Tool::Nc | Tool::PvIntoNc | Tool::Haproxy => {
                let sink = File::create(file).map_err(|error| Error::io("create", file, error))?;
                let mut command = command(nc()?);
                command.args(["-l", &at.ip().to_string(), &at.port().to_string()]).stdout(sink);
                Ok(command)
            }
        }
    }

    /// Makes the command that passes on; a configuration is written to `folder`.
    fn forward(self, from: SocketAddr, to: SocketAddr, folder: &Path) -> Result<Command, Error> {
        match self {
            Tool::Hand(name) => process::by_hand(name, &from.to_string(), &to.to_string(), 0),
            Tool::Socat(flags) => socat(flags, socat_listens(from), format!("TCP:{to}")),
            Tool::Haproxy => {
                let mut command = command(require("haproxy", "haproxy")?);
                let configuration = folder.join("haproxy.cfg");
                let text = format!(
                    "global\n  nbthread 1\n  tune.pipesize {MIB}\ndefaults\n  mode tcp\n  option splice-auto\n  \
                     timeout connect 5s\n  timeout client 60s\n  timeout server 60s\nlisten flow\n  \
                     bind {from}\n  server sink {to}\n"
                );
                fs::write(&configuration, text).map_err(|error| Error::io("write", &configuration, error))?;
                command.arg("-db").arg("-f").arg(&configuration);
                Ok(command)
            }
            Tool::Bywash { .. } | Tool::Nc | Tool::PvIntoNc => {
                process::flow(["--quiet"], format!("tcp-listen:{from}"), format!("tcp:{to}"))
            }
        }
    }
}

fn socat(flags: &[&str], from: String, to: String) -> Result<Command, Error> {
    let mut command = command(require("socat", "socat")?);
    command.args(flags).args([from, to]);
    Ok(command)
}

fn socat_listens(at: SocketAddr) -> String {
    format!("TCP-LISTEN:{},bind={},reuseaddr", at.port(), at.ip())
}

/// OpenBSD's nc, since the others end differently.
fn nc() -> Result<PathBuf, Error> {
    require("nc.openbsd", "netcat-openbsd")
}

/// The pairs that are compared with ours.
fn peers(by_reference: bool, movers: &[Mover]) -> Vec<Pair> {
    let table: &[(&str, Tool, Tool)] = if by_reference { &BY_REFERENCE } else { &BY_VALUE };
    let others = table.iter().map(|(name, send, receive)| ((*name).to_owned(), *send, *receive));
    let forced = movers
        .iter()
        .map(|mover| (mover.to_string(), Tool::Bywash { by_reference, via: Some(*mover) }, OURS));
    others.chain(forced).collect()
}

fn direct(stage: &Stage, head: &Row, bytes: u64, by_reference: bool) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(Route::Tmpfs, &stage.places, bytes)?;
    let flow = flow_between(&format!("file:{}", ends.source.display()), "tcp:127.0.0.1:1")?;
    let flow = flow.by_reference(by_reference);
    let movers: Vec<Mover> = Mover::all().filter(|mover| flow.clone().via(*mover).plan().is_ok()).collect();
    let peers = peers(by_reference, &movers);
    let own = ("bywash".to_owned(), Tool::Bywash { by_reference, via: None }, OURS);
    let side = |(name, send, receive): &Pair| {
        let (ends, send, receive) = (&ends, *send, *receive);
        ends.side(name.clone(), move || pair(send, receive, ends))
    };
    let sides = std::iter::once(&own).chain(&peers).map(side).collect();
    let runs = stage.run(sides, bytes, stage.rounds * TURNS)?;
    Ok(rows_of(head, bytes, &runs, &peers))
}

/// One file from a sender to a receiver; the CPU time is that of both.
fn pair(send: Tool, receive: Tool, ends: &Ends) -> Result<Outcome, Error> {
    let net = Net::loopback();
    let at = net.address(Station::Last)?;
    let done = net.run(Transfer {
        ready: Ready::Listens(Protocol::Tcp),
        receiver: (receive.receive(at, &ends.sink)?, at.port()),
        middle: None,
        sender: send.send(&ends.source, at)?,
        is_telling: false,
    })?;
    Ok(Outcome::new(done.seconds_of_both, done.receiver.success()? + done.sender.success()?))
}

fn rows_of(head: &Row, bytes: u64, runs: &[Runs<Outcome>], pairs: &[Pair]) -> Vec<Row> {
    let (ours, peers) = (&runs[0], &runs[1..]);
    let sent_by = |is_of: fn(&Tool) -> bool| {
        let all = peers.iter().zip(pairs).filter(|(_, pair)| is_of(&pair.1));
        all.map(|(peer, _)| peer).collect::<Vec<_>>()
    };
    let by_hand = sent_by(|tool| matches!(tool, Tool::Hand(_)));
    let forced = sent_by(|tool| matches!(tool, Tool::Bywash { .. }));
    let (throughput, cpu) = (throughput(bytes), cpu(bytes));
    let best = |metric, peers: &[&Runs<Outcome>], called, goal| {
        row_of_best(metric, head, ours, peers.iter().copied(), called, goal)
    };
    let best = [
        best(&cpu, &by_hand, BEST_BY_HAND, Some(GOAL_BY_HAND)),
        best(&throughput, &by_hand, BEST_BY_HAND, None),
        best(&cpu, &forced, BEST, None),
        best(&throughput, &forced, BEST, Some(GOAL_CHOICE)),
    ];
    let mut rows: Vec<Row> = best.into_iter().flatten().collect();
    for (peer, (name, send, _)) in peers.iter().zip(pairs) {
        let goal = (name == "socat").then_some(GOAL_SOCAT);
        let is_forced = matches!(send, Tool::Bywash { .. });
        let head = Row { bench: if is_forced { MOVERS.into() } else { head.bench.clone() }, ..head.clone() };
        rows.push(cpu.row(&head, ours, peer, goal));
        rows.push(throughput.row(&head, ours, peer, None));
    }
    rows
}

fn through(stage: &Stage, head: &Row, bytes: u64, in_hosts: bool) -> Result<Vec<Row>, Error> {
    let net = if in_hosts { Net::hosts(3)? } else { Net::loopback() };
    let ends = Ends::make(Route::Tmpfs, &stage.places, bytes)?;
    let side = |(name, tool, _): (&str, Tool, _)| {
        let (net, ends) = (&net, &ends);
        ends.side(name, move || {
            let (first, second) = (net.address(Station::Middle)?, net.address(Station::Last)?);
            let stop = if tool == Tool::Haproxy { Stop::WhenTold } else { Stop::ByItself };
            let done = net.run(Transfer {
                ready: Ready::Listens(Protocol::Tcp),
                receiver: (Tool::Hand(RECEIVE_READ_WRITE).receive(second, &ends.sink)?, second.port()),
                middle: Some((tool.forward(first, second, &stage.folder)?, first.port(), stop)),
                sender: Tool::Hand(SEND_SENDFILE).send(&ends.source, first)?,
                is_telling: false,
            })?;
            done.receiver.success()?;
            done.sender.success()?;
            Ok(Outcome::new(done.seconds, done.middle_cpu_seconds))
        })
    };
    let sides = MIDDLES.into_iter().map(side).collect();
    let runs = stage.run(sides, bytes, stage.rounds * TURNS)?;
    Ok(rows_of_middles(head, bytes, &runs))
}

fn rows_of_middles(head: &Row, bytes: u64, runs: &[Runs<Outcome>]) -> Vec<Row> {
    let others = runs.iter().zip(MIDDLES).skip(1);
    let both = others.flat_map(|(peer, (_, _, goal))| {
        [cpu(bytes).row(head, &runs[0], peer, goal), throughput(bytes).row(head, &runs[0], peer, None)]
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    use super::super::route::equal;
    use super::super::tests::runs;
    use super::*;
    use crate::place::Places;

    fn goals(rows: &[Row]) -> Vec<(&str, &str, f64)> {
        rows.iter().filter_map(|row| Some((row.peer.as_str(), row.metric.as_str(), row.goal?))).collect()
    }

    #[test]
    fn the_goals_are_there() {
        let choice = (BEST, "throughput", GOAL_CHOICE);
        let (hand, with_socat) = ((BEST_BY_HAND, "cpu", GOAL_BY_HAND), ("socat", "cpu", GOAL_SOCAT));
        for (by_reference, wanted) in [(false, vec![hand, choice, with_socat]), (true, vec![hand, choice])] {
            let peers = peers(by_reference, &[Mover::Buffer]);
            let names = std::iter::once("bywash").chain(peers.iter().map(|pair| pair.0.as_str()));
            let measured: Vec<_> = names.map(|name| runs(name, 1.0)).collect();
            assert_eq!(goals(&rows_of(&Row::default(), 1, &measured, &peers)), wanted);
        }
        let middles = MIDDLES.map(|middle| runs(middle.0, 1.0));
        let wanted = [(MIDDLES[1].0, "cpu", GOAL_BY_HAND), ("socat", "cpu", GOAL_SOCAT_MIDDLE)];
        assert_eq!(goals(&rows_of_middles(&Row::default(), 1, &middles)), wanted);
    }

    #[test]
    fn programs_send_and_receive_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::Tmpfs], "").unwrap();
        let Ok(ends) = Ends::make(Route::Tmpfs, &places, 3 * MIB + 5) else { return };
        // Hand-written loops and flows are processes of this program, which here is the test.
        for (name, send, receive) in BY_VALUE.into_iter().filter(|pair| !matches!(pair.1, Tool::Hand(_))) {
            ends.clear().unwrap();
            match pair(send, receive, &ends) {
                Ok(outcome) => {
                    equal(&ends.source, &ends.sink).unwrap();
                    assert!(outcome.cpu_seconds > 0.0, "{name}");
                }
                Err(error) => assert!(error.is_absence(), "{name}: {error}"),
            }
        }
    }
}
