//! `bywash plan validate`: predictions of a description for simple runs on this machine, against measurements
//! of the runs.
//!
//! - [`runs`]: the runs, and the description of each one
//! - [`copying`], [`reading`], [`serving`]: the programs
//! - [`servers`]: the example servers, where they are beside the command; [`clients`]: their clients
//!
//! Invariant: a prediction follows from the description and from the program's actions (its calls, its bytes,
//! its waiting). No result of a run is known when it is predicted. The programs share no loop with the
//! measurements of `bywash plan calibrate`.

mod clients;
mod copying;
mod reading;
mod runs;
mod servers;
mod serving;

use super::calibrate::{self, preset};
use super::file;
use super::measure::others::{self, Others};
use super::measure::rounds::{Effort, summary};
use super::measure::scratch::Scratch;
use super::measure::{failed, failed_in};
use super::words::{json, print};
use crate::cli::plan::ValidateArgs;
use crate::error::Failure;
use bywash_bench::statistics::Summary;
use bywash_model::Description;
use bywash_model::closed::closed;
use bywash_sim::{Options, Stop, simulate};
use indicatif::{ProgressBar, ProgressStyle};
use runs::Run;
use serde::Serialize;
use servers::{Kind, Site};
use std::io;
use std::path::Path;

/// Predicts, measures, and prints the comparison.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if the description cannot be used, [`Failure::Scratch`] or
/// [`Failure::Measure`] if a measurement or prediction fails, [`Failure::Output`] if standard output cannot
/// be written.
pub fn main(arguments: &ValidateArgs) -> Result<i32, Failure> {
    let effort = Effort::new(arguments.quick);
    let given = arguments.file.as_ref().map(|file| file::read(file, &[])).transpose()?;
    let shown = progress(effort.rounds);
    let describe = |site: Option<&Site>| {
        let stage = |name| {
            shown.set_message(name);
            site.map_or(Ok(()), Site::check).map_err(failed("this machine"))
        };
        match &given {
            Some(description) => Ok(*description),
            None => {
                let measured = calibrate::measure(&effort.turn(), &arguments.dir, &stage)?;
                calibrate::described(&preset::text(&measured))
            }
        }
    };
    let first = describe(None)?;
    // Two files of the runs and the film; without a description, one more in each turn.
    let needed = if given.is_some() { 3 * effort.file } else { 4 * effort.file };
    let scratch = || Scratch::new(&arguments.dir, effort.file).map_err(failed_in(&arguments.dir, needed));
    let site = servers(&arguments.dir, &effort, &first).map_err(failed_in(&arguments.dir, needed))?;
    let places = Folders { source: scratch()?, target: scratch()?, site };
    let others = Others::watch_besides_children();
    // It only warms up.
    turn(&effort, &first, &places)?;
    let mut turns = Vec::with_capacity(effort.rounds);
    for _ in 0..effort.rounds {
        shown.inc(1);
        let description = describe(places.site.as_ref())?;
        shown.set_message("making the runs");
        turns.push(turn(&effort, &description, &places)?);
    }
    shown.finish_and_clear();
    let rows = rows(&turns)?;
    let others = others.share();
    let is_direct = places.is_direct().map_err(failed("reads past the page cache"))?;
    let text = if arguments.json {
        json(&JsonAnswer { direct: is_direct, others, rows })
    } else {
        in_words(&rows, is_direct, others)
    };
    print(&text)
}

/// Returns the bar that shows how many turns are done, and what is being done.
fn progress(turns: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} turn {pos} of {len}: {msg}");
    // The template is a valid one.
    ProgressBar::new(turns as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Makes each run once, in a machine that is described as it is now, or as it was said to be. All runs take turns, so that
/// other work on the machine, and its host, affect all of them and the description.
fn turn(effort: &Effort, machine: &Description, places: &Folders) -> Result<Vec<Outcome>, Failure> {
    let mut runs = Run::all();
    if let Some(site) = &places.site {
        runs.extend(found().map(|kind| Run::server(kind, site.own(kind))));
    }
    let outcome = |run: Run| {
        let predicted = Predicted::predict(&run, machine)?;
        let measured = run.measure(places, effort.stretch).map_err(failed(run.name))?;
        Ok(Outcome { run, predicted, measured })
    };
    runs.into_iter().map(outcome).collect()
}

/// Returns a row for each run of the turns, of which each has the same runs.
fn rows(turns: &[Vec<Outcome>]) -> Result<Vec<Row>, Failure> {
    let runs = turns.first().map_or(0, Vec::len);
    (0..runs).map(|number| Row::of(&turns.iter().map(|turn| &turn[number]).collect::<Vec<_>>())).collect()
}

/// Files of the runs.
pub struct Folders {
    pub source: Scratch,
    pub target: Scratch,
    pub site: Option<Site>,
}

/// Returns the example servers that are beside the command.
fn found() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.program().is_some())
}

/// Makes the files of the example servers, if there are any.
fn servers(folder: &Path, effort: &Effort, description: &Description) -> io::Result<Option<Site>> {
    if found().next().is_none() {
        return Ok(None);
    }
    Site::new(folder, effort.file, description.machine.disks.rate.0).map(Some)
}

impl Folders {
    /// Returns true if the file system can read past the page cache.
    fn is_direct(&self) -> io::Result<bool> {
        let is_direct = self.source.direct(true)?;
        self.source.direct(false)?;
        Ok(is_direct)
    }
}

/// Predicted throughput, in requests a second.
#[derive(Clone, Copy)]
struct Predicted {
    /// Prediction by mean-value analysis.
    model: f64,
    /// Prediction by the simulator.
    simulated: f64,
}

impl Predicted {
    fn predict(run: &Run, machine: &Description) -> Result<Predicted, Failure> {
        let description = run.described(machine);
        let impossible = |why| Failure::Measure { what: run.name, source: io::Error::other(why) };
        let options = Options::default().seed(SEED).stop(Stop::Requests(REQUESTS));
        let architecture = description.architecture;
        let simulated = simulate(&description, architecture, &options, &mut |_| true).map_err(impossible)?;
        let work = description.workload();
        Ok(Predicted {
            model: closed(&description.machine, &work, architecture).requests,
            simulated: simulated.rate.mean,
        })
    }
}

/// Number of requests of a simulation: enough for a deviation of a percent or two.
const REQUESTS: u64 = 5_000;
const SEED: u64 = 1;

/// A run in one turn.
struct Outcome {
    run: Run,
    predicted: Predicted,
    /// Requests a second.
    measured: f64,
}

/// Result of one run, medians of all turns: in bytes a second for a transfer, in requests a second otherwise.
#[derive(Serialize)]
struct Row {
    run: &'static str,
    unit: &'static str,
    model: f64,
    simulated: f64,
    /// Median and quartiles.
    measured: f64,
    low: f64,
    high: f64,
    model_error: Deviation,
    simulated_error: Deviation,
}

/// Ratio of predicted to measured value within one turn, minus 1: median and quartiles of the turns.
#[derive(Serialize)]
struct Deviation {
    median: f64,
    low: f64,
    high: f64,
}

#[derive(Serialize)]
struct JsonAnswer {
    /// True if the device was read past the page cache.
    direct: bool,
    /// Share of the processors that other programs used, from 0 to 1; null if unknown.
    others: Option<f64>,
    rows: Vec<Row>,
}

impl Row {
    /// Makes the row of a run from its turns, of which there is at least one.
    fn of(turns: &[&Outcome]) -> Result<Row, Failure> {
        let Run { name, bytes, is_transfer, .. } = turns[0].run;
        let (unit, each) = if is_transfer { ("B/s", bytes as f64) } else { ("/s", 1.0) };
        let of = |value: &dyn Fn(&Outcome) -> f64| -> Result<Summary, Failure> {
            summary(&turns.iter().map(|turn| value(turn)).collect::<Vec<_>>()).map_err(failed(name))
        };
        let deviation = |value: fn(&Predicted) -> f64| -> Result<Deviation, Failure> {
            let Summary { median, low, high } = of(&|turn| value(&turn.predicted) / turn.measured - 1.0)?;
            Ok(Deviation { median, low, high })
        };
        let measured = of(&|turn| turn.measured * each)?;
        Ok(Row {
            run: name,
            unit,
            model: of(&|turn| turn.predicted.model * each)?.median,
            simulated: of(&|turn| turn.predicted.simulated * each)?.median,
            measured: measured.median,
            low: measured.low,
            high: measured.high,
            model_error: deviation(|predicted| predicted.model)?,
            simulated_error: deviation(|predicted| predicted.simulated)?,
        })
    }
}

fn in_words(rows: &[Row], is_direct: bool, others: Option<f64>) -> String {
    let line = |run: &str, columns: [String; 5]| {
        let [model, simulated, measured, model_error, simulated_error] = columns;
        format!(
            "{run:43} {model:>12} {simulated:>12} {measured:>12} {model_error:>23} {simulated_error:>23}\n"
        )
    };
    let heads = ["model", "simulator", "measured", "model", "simulator"].map(str::to_owned);
    let mut text = format!("{:43} {:>25} {:12} {:>47}\n", "", "predicted by", "", "off by (quartiles)");
    text += &line("run", heads);
    for row in rows {
        let shown = |value: f64| calibrate::quantity(value, row.unit);
        let error = |error: &Deviation| {
            let [median, low, high] = [error.median, error.low, error.high].map(|error| error * 100.0);
            format!("{median:+.0} % ({low:+.0} to {high:+.0})")
        };
        text += &line(
            row.run,
            [
                shown(row.model),
                shown(row.simulated),
                shown(row.measured),
                error(&row.model_error),
                error(&row.simulated_error),
            ],
        );
    }
    if !is_direct {
        text += "The file system of --dir cannot be read past the page cache: no run read a device.\n";
    }
    if found().count() < 2 {
        text += "The example servers are run, too, if bywash-web and bywash-video are beside this command (cargo build \
                 --release -p bywash-example-web -p bywash-example-video).\n";
    }
    text + &others::in_words(others).map_or(String::new(), |words| words + "\n")
}
