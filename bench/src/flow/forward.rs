//! A TCP connection through a process in the middle: on this machine, and in the middle one of three hosts.
//!
//! A hand-written sender and receiver, the same on all sides; the CPU time is that of the one in the middle.

use super::by_hand;
use super::part::{Part, Stage, repeats};
use super::process::command;
use super::rounds::{self, Frame, Metric, Runs, Side, Work};
use super::route::had;
use super::tcp::TURNS;
use super::wires::{End, Files, Forwarder, Net, by_hand as hand, flow, socat, through};
use crate::error::Error;
use crate::place::Kind;
use crate::programs::require;
use crate::row::Row;
use bywash_flow::size::Bytes;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

const BENCH: &str = "flow/forward";
const MIB: u64 = 1 << 20;
/// At most 1.05 times the CPU time of a splice loop.
const GOAL_SPLICE: f64 = 1.0 / 1.05;
/// At most 0.35 times that of socat.
const GOAL_SOCAT: f64 = 1.0 / 0.35;
const SPLICE: &str = "splice loop, 1 MiB pipe";
const SOCAT: &str = "socat";

/// The parts of this bench.
pub fn parts(quick: bool) -> Vec<Part> {
    let bytes = if quick { 16 * MIB } else { 256 * MIB };
    let part = |what: &str, between_hosts| Part {
        frame: Frame {
            bench: BENCH,
            what: format!("TCP, {} {what}", Bytes(bytes)),
            place: String::new(),
            bytes,
            note: "cpu: of the process in the middle".into(),
        },
        kinds: vec![Kind::Tmpfs],
        headline: (Metric::Cpu, SPLICE, Some(GOAL_SPLICE)),
        measure: Box::new(move |stage, frame| rows(stage, frame, between_hosts)),
    };
    vec![part("over loopback", false), part("through the middle of three hosts", true)]
}

/// Somebody in the middle.
struct Middle {
    name: &'static str,
    forward: Forwarder,
    end: End,
    /// Of CPU time.
    goal: Option<f64>,
}

/// Ours first.
fn middles(folder: &Path) -> Vec<Middle> {
    let middle = |name, goal, forward| Middle { name, forward, end: End::ByItself, goal };
    let configuration = folder.join("haproxy.cfg");
    vec![
        middle(
            "bywash",
            None,
            Box::new(|from, to| flow(&[], format!("tcp-listen:{from}"), format!("tcp:{to}"))),
        ),
        middle(
            SPLICE,
            Some(GOAL_SPLICE),
            Box::new(|from, to| hand(by_hand::Part::ForwardSplice, &from.to_string(), &to.to_string())),
        ),
        middle(
            SOCAT,
            Some(GOAL_SOCAT),
            Box::new(|from, to| {
                let listen = format!("TCP-LISTEN:{},bind={},reuseaddr", from.port(), from.ip());
                socat(&[], listen, format!("TCP:{to}"))
            }),
        ),
        Middle {
            end: End::WhenTold,
            ..middle(
                "HAProxy with splice",
                None,
                Box::new(move |from, to| {
                    let mut command = command(require("haproxy", "haproxy")?);
                    let text = haproxy(from, to);
                    fs::write(&configuration, text)
                        .map_err(|error| Error::io("write", &configuration, error))?;
                    command.arg("-db").arg("-f").arg(&configuration);
                    Ok(command)
                }),
            )
        },
    ]
}

fn haproxy(from: SocketAddr, to: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  tune.pipesize {MIB}\ndefaults\n  mode tcp\n  option splice-auto\n  \
         timeout connect 5s\n  timeout client 60s\n  timeout server 60s\nlisten flow\n  \
         bind {from}\n  server sink {to}\n"
    )
}

fn rows(stage: &Stage<'_>, frame: &Frame, between_hosts: bool) -> Result<Vec<Row>, Error> {
    let net = if between_hosts { Net::hosts(3)? } else { Net::Loopback };
    let files = Files::make(had(stage.places, Kind::Tmpfs)?, frame.bytes)?;
    let middles = middles(stage.folder);
    let sides: Vec<Side<'_>> = middles
        .iter()
        .map(|middle| {
            let (net, files) = (&net, &files);
            Side::new(middle.name, move || through(net, &middle.forward, middle.end, files))
        })
        .collect();
    let work = Work { state: &files, repeats: repeats(frame.bytes, stage.quick), pairs: stage.pairs * TURNS };
    let runs = rounds::run(sides, &work)?;
    let goals: Vec<Option<f64>> = middles.iter().map(|middle| middle.goal).collect();
    Ok(rows_of(frame, &runs, &goals))
}

fn rows_of(frame: &Frame, runs: &[Runs], goals: &[Option<f64>]) -> Vec<Row> {
    let others = runs.iter().zip(goals).skip(1);
    let both = others.flat_map(|(peer, goal)| {
        [frame.row(Metric::Cpu, &runs[0], peer, *goal), frame.row(Metric::Throughput, &runs[0], peer, None)]
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    use super::super::rounds::Outcome;
    use super::*;

    #[test]
    fn the_goals_are_there() {
        let middles = middles(Path::new("/"));
        let runs: Vec<Runs> = middles
            .iter()
            .map(|middle| Runs {
                name: middle.name.into(),
                outcomes: Ok(vec![Outcome { seconds: 1.0, cpu_seconds: 1.0, lost: 0.0 }; 3]),
            })
            .collect();
        let goals: Vec<Option<f64>> = middles.iter().map(|middle| middle.goal).collect();
        let rows = rows_of(&parts(true)[0].frame, &runs, &goals);
        let goals: Vec<(&str, Option<bool>)> =
            rows.iter().filter(|row| row.goal.is_some()).map(|row| (row.peer.as_str(), row.met)).collect();
        assert_eq!(goals, [(SPLICE, Some(true)), (SOCAT, Some(false))]);
        assert!(rows.iter().filter(|row| row.goal.is_some()).all(|row| row.metric == "cpu"));
    }
}
