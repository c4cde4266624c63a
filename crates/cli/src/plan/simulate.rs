//! `bywash plan simulate` and `compare`: simulations of one description, or of several side by side.

use super::file;
use super::tell::left_out;
use super::timeline;
use super::trace;
use super::watch::Progress;
use super::words::{around, between, json, print, rate, time};
use crate::cli::plan::{CompareArgs, Pacing, RunsArgs, SimulateArgs};
use crate::error::Failure;
use bywash_model::{Architecture, Description};
use bywash_sim::server::{Error, LoadState, Pace, replay, replicate, simulate_timeline};
use bywash_sim::trace::Trace;
use bywash_sim::{Options, Report};
use std::path::Path;

/// Simulates one description and prints the report.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if the description or the trace to replay cannot be used,
/// [`Failure::Write`] or [`Failure::Output`] if a result cannot be written.
pub fn simulate(arguments: &SimulateArgs) -> Result<i32, Failure> {
    let description = file::read(&arguments.file, &arguments.runs.set)?;
    let architecture = arguments.architecture.unwrap_or(description.architecture);
    let work = Work::new(&arguments.runs)?;
    let watch = Progress::new(u64::from(replications(&arguments.runs)));
    let refused = refused(&arguments.file);
    let report = match &arguments.trace {
        None => run(&watch, &description, architecture, &work).map_err(refused)?,
        Some(out) => {
            let options = options(&arguments.runs);
            let (report, spans) =
                simulate_timeline(&description, architecture, &options, timeline::SPANS_MAX, &mut |share| {
                    watch.go_on(share)
                })
                .map_err(refused)?;
            timeline::write(out, &spans)?;
            report
        }
    };
    watch.finish();
    print(&if arguments.runs.json { json(&report) } else { in_words(&report) })
}

/// Simulates several descriptions, or the architectures that the machine of one can have, and prints the
/// reports side by side.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if a description or the trace to replay cannot be used,
/// [`Failure::Output`] if standard output cannot be written.
pub fn compare(arguments: &CompareArgs) -> Result<i32, Failure> {
    let mut columns: Vec<(String, &Path, Description, Architecture)> = Vec::new();
    let mut notes = String::new();
    for path in &arguments.files {
        let description = file::read(path, &arguments.runs.set)?;
        if arguments.files.len() == 1 {
            let all = description.supported().into_iter();
            columns.extend(all.map(|one| (one.name().to_owned(), path.as_path(), description, one)));
            notes = left_out(&description);
        } else {
            let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            columns.push((name, path, description, description.architecture));
        }
    }
    let work = Work::new(&arguments.runs)?;
    let watch = Progress::new(columns.len() as u64 * u64::from(replications(&arguments.runs)));
    let mut reports = Vec::new();
    for (name, path, description, architecture) in columns {
        let report = run(&watch, &description, architecture, &work).map_err(refused(path))?;
        reports.push((name, report));
    }
    watch.finish();
    if arguments.runs.json {
        return print(&json(
            &reports.into_iter().map(|(name, report)| Column { name, report }).collect::<Vec<_>>(),
        ));
    }
    print(&(side_by_side(&reports) + &notes))
}

#[derive(serde::Serialize)]
struct Column {
    name: String,
    report: Report,
}

pub(super) fn refused(path: &Path) -> impl Fn(Error) -> Failure {
    move |why| Failure::Description { path: path.into(), reason: why.to_string() }
}

/// Workload of a simulation.
enum Work<'a> {
    /// Requests of the description.
    Requests(&'a RunsArgs),
    /// Calls of a recorded trace, their pace, and the seed.
    Trace(Box<Trace>, Pace, u64),
}

impl Work<'_> {
    fn new(runs: &RunsArgs) -> Result<Work<'_>, Failure> {
        let Some(path) = &runs.replay else { return Ok(Work::Requests(runs)) };
        let pace = match runs.pace {
            Pacing::Recorded => Pace::Recorded,
            Pacing::Fastest => Pace::Fastest,
            Pacing::Computed => Pace::Computed,
        };
        Ok(Work::Trace(Box::new(trace::read(path)?), pace, runs.seed))
    }
}

pub(super) fn options(runs: &RunsArgs) -> Options {
    Options::default().seed(runs.seed).stop(runs.until)
}

/// Simulates `work`, with all its replications, and shows the progress.
fn run(
    watch: &Progress,
    description: &Description,
    architecture: Architecture,
    work: &Work<'_>,
) -> Result<Report, Error> {
    let (report, runs) = match work {
        Work::Trace(trace, pace, seed) => {
            (replay(description, architecture, trace, *pace, *seed, &mut |share| watch.go_on(share)), 1)
        }
        Work::Requests(runs) => {
            let go_on = |share| watch.go_on(share);
            let count = replications(runs);
            (replicate(description, architecture, &options(runs), count, &go_on), u64::from(count))
        }
    };
    watch.ended(runs);
    report
}

pub(super) fn replications(runs: &RunsArgs) -> u32 {
    runs.replications.unwrap_or(1)
}

fn in_words(report: &Report) -> String {
    let Report { throughput, latency, .. } = report;
    let mut text = String::new();
    if !report.is_whole {
        text += "stopped before its end: what follows is of the part that was simulated\n\n";
    }
    text += &format!(
        "{}: {} requests in {}, {} events\n\n",
        report.architecture.name(),
        report.requests,
        time(report.seconds),
        report.events
    );
    text += &of_load(report);
    for (name, value, note) in [
        ("throughput", rate(throughput.mean), around(throughput.mean, throughput.half_width)),
        ("requests", format!("{:.0} /s", report.rate.mean), String::new()),
        ("latency", time(latency.mean.mean), around(latency.mean.mean, latency.mean.half_width)),
        ("  50 %", time(latency.p50), between(latency.p50_bounds)),
        ("  90 %", time(latency.p90), between(latency.p90_bounds)),
        ("  99 %", time(latency.p99), between(latency.p99_bounds)),
        ("  99.9 %", time(latency.p999), between(latency.p999_bounds)),
        ("  longest", time(latency.max), String::new()),
        ("processor", time(report.processor_seconds), "a request".into()),
        ("computing", share(report.processors.computing), "of the processors' time".into()),
        ("stalled", share(report.processors.stalled), "waiting for memory".into()),
        ("spinning", share(report.processors.spinning), String::new()),
        ("idle", share(report.processors.idle), "waiting for devices".into()),
        ("busiest", report.binding.clone(), busiest(report)),
    ] {
        text += format!("{name:12} {value:>14}  {note}").trim_end();
        text.push('\n');
    }
    text += &format!("\n{:24} {:>6} {:>9} {:>9} {:>9}\n", "", "of", "taken", "working", "waiting");
    for row in report.resources.iter().filter(|row| row.utilisation > 0.0) {
        text += &format!(
            "{:24} {:>6} {:>7.1} % {:>7.1} % {:>9.1}\n",
            row.name,
            row.count,
            row.utilisation * 100.0,
            row.working * 100.0,
            row.waiting
        );
    }
    text
}

/// Returns lines about an open load: what arrives, and whether the server serves it.
fn of_load(report: &Report) -> String {
    let (Some(offered), Some(capacity)) = (report.offered, report.capacity) else { return String::new() };
    let most = format!("{:.0} /s {}", capacity.mean, around(capacity.mean, capacity.half_width));
    match report.load {
        LoadState::Steady => format!("arrivals: {offered:.0} /s, of at most {most}\n\n"),
        LoadState::Rising => format!(
            "arrivals: {offered:.0} /s, of at most {most}; response times still rose at the end of the run: a longer \
             one (--until) has longer times\n\n"
        ),
        LoadState::Overloaded => format!(
            "overloaded: {offered:.0} /s arrive, and at most {most} are served, so queues and response times grow \
             without limit; all else is of a server that always has requests\n\n"
        ),
    }
}

/// Formats a share of the time.
fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns the share of time that the binding resource worked: if it is small, no resource limits the
/// throughput.
fn busiest(report: &Report) -> String {
    let row = report.resources.iter().find(|row| row.name == report.binding);
    row.map_or(String::new(), |row| format!("working {:.0} %", row.working * 100.0))
}

fn side_by_side(reports: &[(String, Report)]) -> String {
    const WIDTH: usize = 18;
    let mut text = String::new();
    let mut line = |name: &str, of: &dyn Fn(&(String, Report)) -> String| {
        let cells: String = reports.iter().map(|one| format!(" {:>WIDTH$}", of(one))).collect();
        text += &format!("{name:24}{cells}\n");
    };
    line("", &|(name, _)| name.chars().take(WIDTH).collect());
    if reports.iter().any(|(_, report)| !report.is_whole) {
        line("", &|(_, report)| if report.is_whole { "" } else { "(stopped early)" }.into());
    }
    line("structure", &|(_, report)| report.architecture.name().into());
    if reports.iter().any(|(_, report)| report.load != LoadState::Steady) {
        line("", &|(_, report)| match report.load {
            LoadState::Steady => String::new(),
            LoadState::Rising => "still rising".into(),
            LoadState::Overloaded => "overloaded".into(),
        });
    }
    line("throughput", &|(_, report)| rate(report.throughput.mean));
    line("", &|(_, report)| around(report.throughput.mean, report.throughput.half_width));
    let first = reports.first().map_or(1.0, |(_, report)| report.throughput.mean);
    line("  against the first", &|(_, report)| format!("{:.2}", report.throughput.mean / first));
    line("latency, mean", &|(_, report)| time(report.latency.mean.mean));
    line("  50 %", &|(_, report)| time(report.latency.p50));
    line("  99 %", &|(_, report)| time(report.latency.p99));
    line("  99.9 %", &|(_, report)| time(report.latency.p999));
    line("processor a request", &|(_, report)| time(report.processor_seconds));
    line("  computing", &|(_, report)| share(report.processors.computing));
    line("  stalled", &|(_, report)| share(report.processors.stalled));
    line("  idle", &|(_, report)| share(report.processors.idle));
    line("busiest", &|(_, report)| report.binding.chars().take(WIDTH).collect());
    let mut names: Vec<&str> = Vec::new();
    for row in reports.iter().flat_map(|(_, report)| &report.resources).filter(|row| row.utilisation > 0.0) {
        if !names.contains(&&*row.name) {
            names.push(&row.name);
        }
    }
    for name in names {
        line(name, &|(_, report)| {
            let row = report.resources.iter().find(|row| row.name == name);
            row.map_or("-".into(), |row| format!("{:.1} %", row.utilisation * 100.0))
        });
    }
    text
}
