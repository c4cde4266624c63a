//! Timelines in the Trace Event Format (JSON), which Perfetto and Chrome open.
//!
//! A file has one process for the stations, with a track for each of their servers, and one for the jobs, with a track
//! for each; for a program also one for the processors that execute it. Times are in microseconds.

use crate::engine::{Span, Time, Timeline};
use crate::program::ProgramTimeline;
use serde::Serialize;
use std::io::{self, Write};

/// Greatest number of spans that a file should have: some 50 MB.
pub const SPANS_MAX: usize = 200_000;
/// Numbers and names of the processes in the trace.
const PROCESSES: [(u32, &str); 2] = [(1, "stations"), (2, "jobs")];
/// Number and name of the process whose tracks are the processors that execute a program.
const PROCESSORS: (u32, &str) = (3, "processors");

#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'a str,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Named<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

/// Writes the timeline of a simulation.
///
/// # Errors
/// The error of `out`.
pub fn write(out: &mut impl Write, timeline: &Timeline) -> io::Result<()> {
    write_program(out, &ProgramTimeline { threads: Vec::new(), parts: timeline.clone() })
}

/// Writes the timeline of a program.
///
/// # Errors
/// The error of `out`.
pub fn write_program(out: &mut impl Write, timeline: &ProgramTimeline) -> io::Result<()> {
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut comma = "";
    let mut add = |event: &Event<'_>| {
        writeln!(out, "{comma}")?;
        comma = ",";
        serde_json::to_writer(&mut *out, event).map_err(io::Error::from)
    };
    for (pid, name) in PROCESSES {
        add(&meta("process_name", pid, 0, name))?;
    }
    add_stations(&mut add, &timeline.parts)?;
    if !timeline.threads.is_empty() {
        add(&meta("process_name", PROCESSORS.0, 0, PROCESSORS.1))?;
    }
    for span in &timeline.threads {
        let name = format!("thread {}", span.thread);
        let (ts, dur) = times(span.from, span.to);
        add(&Event {
            name: &name,
            ph: "X",
            pid: PROCESSORS.0,
            tid: span.processor + 1,
            ts,
            dur,
            args: None,
        })?;
    }
    writeln!(out, "\n]}}")
}

/// Returns the start and the length of a span, in microseconds.
fn times(from: Time, to: Time) -> (Option<f64>, Option<f64>) {
    (Some(from.seconds() * 1e6), Some((to - from).seconds() * 1e6))
}

/// Adds the tracks of the stations and of the jobs.
fn add_stations(add: &mut impl FnMut(&Event<'_>) -> io::Result<()>, timeline: &Timeline) -> io::Result<()> {
    let mut spans: Vec<&Span> = timeline.spans.iter().collect();
    spans.sort_by_key(|span| (span.from, span.to));
    // For each server of each station: the time until which it is taken, and its track.
    let mut servers: Vec<Vec<(u64, u32)>> = vec![Vec::new(); timeline.stations.len()];
    let mut tracks = 0;
    for span in spans {
        let station = &timeline.stations[span.station as usize];
        let own = &mut servers[span.station as usize];
        let free = own.iter_mut().find(|(until, _)| *until <= span.from.0);
        let track = match free {
            Some(server) => {
                server.0 = span.to.0;
                server.1
            }
            None => {
                tracks += 1;
                own.push((span.to.0, tracks));
                add(&meta("thread_name", PROCESSES[0].0, tracks, station))?;
                tracks
            }
        };
        let (ts, dur) = times(span.from, span.to);
        let job = format!("job {}", span.job);
        add(&Event { name: &job, ph: "X", pid: PROCESSES[0].0, tid: track, ts, dur, args: None })?;
        add(&Event { name: station, ph: "X", pid: PROCESSES[1].0, tid: span.job + 1, ts, dur, args: None })?;
    }
    Ok(())
}

fn meta<'a>(what: &'a str, pid: u32, tid: u32, name: &'a str) -> Event<'a> {
    Event { name: what, ph: "M", pid, tid, ts: None, dur: None, args: Some(Named { name }) }
}
