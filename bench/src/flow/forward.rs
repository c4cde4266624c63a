//! A TCP connection through a process in the middle, on this machine.
//!
//! A hand-written sender and receiver, the same on all sides; the CPU time is that of the one in the middle.

use super::by_hand;
use super::part::{Part, Stage, repeats};
use super::process::command;
use super::rounds::{self, Frame, Metric, Runs, Side, Work};
use super::route::had;
use super::wires::{End, Files, Forwarder, by_hand as hand, flow, socat, through};
use crate::error::Error;
use crate::place::Kind;
use crate::programs::require;
use crate::row::Row;
use bywash_flow::size::Bytes;
use std::fs;
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
    vec![Part {
        frame: Frame {
            bench: BENCH,
            what: format!("TCP, {} over loopback", Bytes(bytes)),
            place: String::new(),
            bytes,
            note: "cpu: of the process in the middle".into(),
        },
        kinds: vec![Kind::Tmpfs],
        headline: (Metric::Cpu, SPLICE, Some(GOAL_SPLICE)),
        measure: Box::new(rows),
    }]
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
            Box::new(|from, to| {
                flow(&[], format!("tcp-listen:127.0.0.1:{from}"), format!("tcp:127.0.0.1:{to}"))
            }),
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
                let listen = format!("TCP-LISTEN:{from},bind=127.0.0.1,reuseaddr");
                socat(&[], listen, format!("TCP:127.0.0.1:{to}"))
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

fn haproxy(from: u16, to: u16) -> String {
    format!(
        "global\n  nbthread 1\n  tune.pipesize {MIB}\ndefaults\n  mode tcp\n  option splice-auto\n  \
         timeout connect 5s\n  timeout client 60s\n  timeout server 60s\nlisten flow\n  \
         bind 127.0.0.1:{from}\n  server sink 127.0.0.1:{to}\n"
    )
}

fn rows(stage: &Stage<'_>, frame: &Frame) -> Result<Vec<Row>, Error> {
    let place = had(stage.places, Kind::Tmpfs)?;
    let files = Files { source: place.root.join("flow-sent"), sink: place.root.join("flow-received") };
    place.write_file(&files.source, frame.bytes, 1)?;
    let middles = middles(stage.folder);
    let sides: Vec<Side<'_>> = middles
        .iter()
        .map(|middle| {
            let files = &files;
            Side::new(middle.name, move || through(&middle.forward, middle.end, &files.source, &files.sink))
        })
        .collect();
    let work = Work { state: &files, repeats: repeats(frame.bytes, stage.quick), pairs: stage.pairs };
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
                outcomes: Ok(vec![Outcome { seconds: 1.0, cpu_seconds: 1.0 }; 3]),
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
