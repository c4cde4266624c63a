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
use indicatif::ProgressBar;
use runs::{Run, SERVER_ROUNDS};
use serde::Serialize;
use servers::{Kind, Site};
use std::io;

/// Predicts, measures, and prints the comparison.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if the description cannot be used, [`Failure::Scratch`] or
/// [`Failure::Measure`] if a measurement or prediction fails, [`Failure::Output`] if standard output cannot
/// be written.
pub fn main(arguments: &ValidateArgs) -> Result<i32, Failure> {
    let effort = Effort::new(arguments.quick);
    let description = match &arguments.file {
        Some(file) => file::read(file, &[])?,
        None => calibrate::described(&preset::text(&calibrate::measure(&effort, &arguments.dir)?))?,
    };
    let site = servers(arguments, &effort, &description)?;
    let mut runs = Run::all();
    if let Some(site) = &site {
        for kind in found() {
            let before = site.measure(kind, effort.stretch * SERVER_ROUNDS);
            runs.push(Run::server(kind, before.map_err(failed("an example server"))?.own));
        }
    }
    let predicted: Vec<Predicted> =
        runs.iter().map(|run| Predicted::predict(run, &description)).collect::<Result<_, _>>()?;
    let scratch =
        || Scratch::new(&arguments.dir, effort.file).map_err(failed_in(&arguments.dir, 3 * effort.file));
    let places = Folders { source: scratch()?, target: scratch()?, site };
    let others = Others::watch_besides_children();
    let measured = measure(&effort, &runs, &places)?;
    let others = others.share();
    let rows: Vec<Row> = runs
        .iter()
        .zip(predicted)
        .zip(measured)
        .map(|((run, predicted), measured)| Row::of(run, predicted, measured))
        .collect();
    let is_direct = places.is_direct().map_err(failed("reads past the page cache"))?;
    let text = if arguments.json {
        json(&JsonAnswer { direct: is_direct, others, rows })
    } else {
        in_words(&rows, is_direct, others)
    };
    print(&text)
}

/// Files of the runs.
pub struct Folders {
    pub source: Scratch,
    pub target: Scratch,
    pub site: Option<Site>,
}

/// Returns the example servers that are beside the command.
fn found() -> impl Iterator<Item = Kind> {
    [Kind::Web, Kind::Video].into_iter().filter(|kind| kind.program().is_some())
}

/// Makes the files of the example servers, if there are any.
fn servers(
    arguments: &ValidateArgs,
    effort: &Effort,
    description: &Description,
) -> Result<Option<Site>, Failure> {
    if found().next().is_none() {
        return Ok(None);
    }
    let site = Site::new(&arguments.dir, effort.file, description.machine.disks.rate.0);
    site.map(Some).map_err(failed_in(&arguments.dir, 3 * effort.file))
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

/// Measures each run in requests a second. The runs take turns, so that other work on the machine affects all
/// of them.
fn measure(effort: &Effort, runs: &[Run], places: &Folders) -> Result<Vec<Summary>, Failure> {
    let shown = ProgressBar::new((effort.rounds + 1) as u64);
    let mut rates = vec![Vec::with_capacity(effort.rounds); runs.len()];
    for round in 0..=effort.rounds {
        for (run, rates) in runs.iter().zip(&mut rates) {
            let rate = run.measure(places, effort.stretch).map_err(failed(run.name))?;
            // The first round only warms up.
            if round > 0 {
                rates.push(rate);
            }
        }
        shown.inc(1);
    }
    shown.finish_and_clear();
    runs.iter().zip(&rates).map(|(run, rates)| summary(rates).map_err(failed(run.name))).collect()
}

/// Result of one run: in bytes a second for a transfer, in requests a second otherwise.
#[derive(Serialize)]
struct Row {
    run: &'static str,
    unit: &'static str,
    model: f64,
    simulated: f64,
    measured: f64,
    low: f64,
    high: f64,
    /// Ratio of predicted to measured value, minus 1.
    model_error: f64,
    simulated_error: f64,
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
    fn of(run: &Run, predicted: Predicted, measured: Summary) -> Row {
        let (unit, each) = if run.is_transfer { ("B/s", run.bytes as f64) } else { ("/s", 1.0) };
        Row {
            run: run.name,
            unit,
            model: predicted.model * each,
            simulated: predicted.simulated * each,
            measured: measured.median * each,
            low: measured.low * each,
            high: measured.high * each,
            model_error: predicted.model / measured.median - 1.0,
            simulated_error: predicted.simulated / measured.median - 1.0,
        }
    }
}

fn in_words(rows: &[Row], is_direct: bool, others: Option<f64>) -> String {
    let line = |run: &str, columns: [String; 5]| {
        let [model, simulated, measured, model_error, simulated_error] = columns;
        format!("{run:43} {model:>12} {simulated:>12} {measured:>40} {model_error:>8} {simulated_error:>8}\n")
    };
    let heads = ["model", "simulator", "measured (quartiles)", "model", "simulator"].map(str::to_owned);
    let mut text = format!("{:43} {:>25} {:40} {:>17}\n", "", "predicted by", "", "off by");
    text += &line("run", heads);
    for row in rows {
        let shown = |value: f64| calibrate::quantity(value, row.unit);
        let measured = format!("{} ({} to {})", shown(row.measured), shown(row.low), shown(row.high));
        let error = |error: f64| format!("{:+.0} %", error * 100.0);
        text += &line(
            row.run,
            [
                shown(row.model),
                shown(row.simulated),
                measured,
                error(row.model_error),
                error(row.simulated_error),
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
