//! Timeline of jobs and stations, in a format that Perfetto and Chrome open.
//!
//! The Trace Event Format (JSON): one process for the stations, with a track for each of their servers, and
//! one for the jobs, with a track for each. Times are in microseconds.

use crate::error::Failure;
use bywash_sim::engine::{Span, Timeline};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Greatest number of spans in a timeline: some 50 MB.
pub const SPANS_MAX: usize = 200_000;
/// Numbers and names of the two processes in the trace.
const PROCESSES: [(u32, &str); 2] = [(1, "stations"), (2, "jobs")];

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

/// Writes `timeline` to `path`.
///
/// # Errors
/// [`Failure::Write`] if the file cannot be written.
pub fn write(path: &Path, timeline: &Timeline) -> Result<(), Failure> {
    let failed = |source| Failure::Write { path: path.into(), source };
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    events(&mut out, timeline).and_then(|()| out.flush()).map_err(failed)
}

fn events(out: &mut impl Write, timeline: &Timeline) -> io::Result<()> {
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
        let (ts, dur) = (Some(span.from.seconds() * 1e6), Some((span.to - span.from).seconds() * 1e6));
        let job = format!("job {}", span.job);
        add(&Event { name: &job, ph: "X", pid: PROCESSES[0].0, tid: track, ts, dur, args: None })?;
        add(&Event { name: station, ph: "X", pid: PROCESSES[1].0, tid: span.job + 1, ts, dur, args: None })?;
    }
    writeln!(out, "\n]}}")
}

fn meta<'a>(what: &'a str, pid: u32, tid: u32, name: &'a str) -> Event<'a> {
    Event { name: what, ph: "M", pid, tid, ts: None, dur: None, args: Some(Named { name }) }
}
