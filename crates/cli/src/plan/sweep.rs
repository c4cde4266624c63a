//! Sweeps: answers of the model and reports of the simulator for every combination of some numbers, as a table,
//! CSV, JSON and a plot.

use super::file;
use super::simulate::{options, refused, replications};
use super::tell::left_out;
use super::watch::Progress;
use super::words::{between, json, print, rate, time};
use crate::cli::plan::{ModelArgs, SimulateArgs, SweepArgs};
use crate::error::Failure;
use bywash_model::describe::{Error, Key};
use bywash_model::sweep::{Axis, LOADED_POINTS_MAX, loaded, sweep};
use bywash_model::{Architecture, Performance, Resource};
use bywash_plot::{Axis as PlotAxis, Curve, Curves};
use bywash_sim::Report;
use bywash_sim::many;
use bywash_sim::server::size::Statistic;
use bywash_sim::server::{LoadState, replicate};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Evaluates every point of a sweep by the model, under every architecture that the machine can have.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if the description or the sweep is invalid, [`Failure::Write`] or [`Failure::Output`] if the answer
/// cannot be written.
pub fn model(arguments: &ModelArgs) -> Result<i32, Failure> {
    let description = &file::read(&arguments.file, &arguments.set)?;
    let refused = refused_by(&arguments.file);
    let axes = axes(&arguments.sweep, &arguments.file)?;
    let architectures = description.supported();
    let columns = many::each(&architectures, |architecture| {
        let bounds = sweep(description, &axes, *architecture)?;
        Ok(Column {
            architecture: *architecture,
            bounds: bounds.throughput,
            binding: bounds.binding,
            loaded: loaded(description, &axes, *architecture)?,
        })
    });
    let columns: Vec<Column> = columns.into_iter().collect::<Result<_, Error>>().map_err(refused)?;
    let points = points(&axes);
    if let Some(out) = &arguments.sweep.plot {
        let curves = columns.iter().map(|column| {
            let response = column.loaded.iter().map(|one| one.response);
            (column.architecture.name().to_owned(), points.iter().map(|at| at[0]).zip(response).collect())
        });
        draw(out, "mean response time by the model", &axes, curves.collect())?;
    }
    print(&match (arguments.json, arguments.sweep.csv) {
        (true, _) => json(&as_json(&points, &columns)),
        (_, true) => as_csv(&axes, &points, &columns),
        _ => as_table(&axes, &points, &columns) + &left_out(description),
    })
}

/// Simulates every point of a sweep under one architecture.
///
/// # Errors
/// [`Failure::Description`] if the sweep or one of its points is invalid, [`Failure::Write`] or
/// [`Failure::Output`] if the reports cannot be written.
pub fn simulate(arguments: &SimulateArgs) -> Result<i32, Failure> {
    let description = file::read(&arguments.file, &arguments.runs.set)?;
    let architecture = arguments.architecture.unwrap_or(description.architecture);
    let axes = axes(&arguments.sweep, &arguments.file)?;
    let points = points(&axes);
    if points.len() > SIMULATED_POINTS_MAX {
        let why = format!("a simulated sweep has at most {SIMULATED_POINTS_MAX} points: take larger steps");
        return Err(Failure::Description { path: arguments.file.clone(), reason: why });
    }
    let mut described = Vec::with_capacity(points.len());
    for at in &points {
        let mut here = description;
        for (axis, value) in axes.iter().zip(at) {
            *axis.key.number_in(&mut here).map_err(refused_by(&arguments.file))? = *value;
        }
        described.push(here.checked().map_err(refused_by(&arguments.file))?);
    }
    let count = replications(&arguments.runs);
    let watch = Progress::new(points.len() as u64 * u64::from(count));
    let (options, mut rows) = (options(&arguments.runs), Vec::new());
    for (at, here) in points.iter().zip(&described) {
        let report = replicate(here, architecture, &options, count, &|share| watch.go_on(share));
        let report = report.map_err(refused(&arguments.file))?;
        watch.ended(u64::from(count));
        let is_whole = report.is_whole;
        rows.push(Row { at: at.clone(), report });
        if !is_whole {
            break;
        }
    }
    watch.finish();
    if let Some(out) = &arguments.sweep.plot {
        let curves = Statistic::ALL.map(|statistic| {
            let points = rows.iter().map(|row| (row.at[0], statistic.value_in(&row.report).0)).collect();
            (statistic.name().to_owned(), points)
        });
        draw(out, &format!("simulated response times, {}", architecture.name()), &axes, curves.into())?;
    }
    print(&match (arguments.runs.json, arguments.sweep.csv) {
        (true, _) => json(&rows),
        (_, true) => reports_as_csv(&axes, &rows),
        _ => reports_as_table(architecture, &axes, &rows),
    })
}

/// Greatest number of points of a simulated sweep.
const SIMULATED_POINTS_MAX: usize = 10_000;

fn axes(sweep: &SweepArgs, path: &Path) -> Result<Vec<Axis>, Failure> {
    let axes: Vec<Axis> =
        sweep.axes.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(refused_by(path))?;
    let refused = |reason| Err(Failure::Description { path: path.into(), reason });
    let points = axes.iter().try_fold(1usize, |points, axis| points.checked_mul(axis.values.len()));
    if points.is_none_or(|points| points > LOADED_POINTS_MAX) {
        return refused(format!("a sweep has at most {LOADED_POINTS_MAX} points: take larger steps"));
    }
    if sweep.plot.is_some() && axes.len() > 1 {
        return refused("a plot has one number along its axis: give --sweep once".into());
    }
    Ok(axes)
}

fn refused_by(path: &Path) -> impl Fn(Error) -> Failure {
    move |why| Failure::Description { path: path.into(), reason: why.to_string() }
}

/// Returns the values of the axes at each point. The last axis varies fastest.
fn points(axes: &[Axis]) -> Vec<Vec<f64>> {
    let mut points = vec![Vec::new()];
    for axis in axes {
        let longer = |point: &Vec<f64>| {
            let with = |value: &f64| point.iter().copied().chain([*value]).collect::<Vec<f64>>();
            axis.values.iter().map(with).collect::<Vec<_>>()
        };
        points = points.iter().flat_map(longer).collect();
    }
    points
}

/// Results of the model for all points under one architecture.
struct Column {
    architecture: Architecture,
    /// Throughput at most, in bytes per second.
    bounds: Vec<f64>,
    binding: Vec<Resource>,
    loaded: Vec<Performance>,
}

/// Result of the model for one point. Lists are in the order of `architectures`.
#[derive(Serialize)]
struct Point {
    /// The values, in base units, in the order of the axes.
    at: Vec<f64>,
    architectures: Vec<Architecture>,
    /// Throughput at most, in bytes a second.
    throughput: Vec<f64>,
    /// Binding resource.
    binding: Vec<Resource>,
    /// Throughput under the description's load, in bytes a second.
    loaded: Vec<f64>,
    /// Mean response time under this load, in seconds; null if the server is overloaded.
    response: Vec<f64>,
}

fn as_json(points: &[Vec<f64>], columns: &[Column]) -> Vec<Point> {
    let point = |(number, at): (usize, &Vec<f64>)| Point {
        at: at.clone(),
        architectures: columns.iter().map(|column| column.architecture).collect(),
        throughput: columns.iter().map(|column| column.bounds[number]).collect(),
        binding: columns.iter().map(|column| column.binding[number]).collect(),
        loaded: columns.iter().map(|column| column.loaded[number].throughput).collect(),
        response: columns.iter().map(|column| column.loaded[number].response).collect(),
    };
    points.iter().enumerate().map(point).collect()
}

/// Formats the model's answers as CSV: the values, then five columns for each architecture.
fn as_csv(axes: &[Axis], points: &[Vec<f64>], columns: &[Column]) -> String {
    let mut names: Vec<String> = axes.iter().map(|axis| axis.key.name.to_owned()).collect();
    for column in columns {
        let name = column.architecture.name();
        names.extend(["B/s", "bound by", "loaded B/s", "response s"].map(|what| format!("{name} {what}")));
    }
    let mut text = names.join(",") + "\n";
    for (number, at) in points.iter().enumerate() {
        let mut words: Vec<String> = at.iter().map(f64::to_string).collect();
        for Column { bounds, binding, loaded, .. } in columns {
            words.push(bounds[number].to_string());
            words.push(binding[number].name().to_owned());
            words.push(loaded[number].throughput.to_string());
            words.push(loaded[number].response.to_string());
        }
        text += &(words.join(",") + "\n");
    }
    text
}

fn as_table(axes: &[Axis], points: &[Vec<f64>], columns: &[Column]) -> String {
    let mut text = heading(axes)
        + &format!("{:13} {:>12}  {:21} {:>12} {:>12}\n", "", "at most", "bound by", "with load", "response");
    for (number, at) in points.iter().enumerate() {
        for Column { architecture, bounds, binding, loaded } in columns {
            let Performance { throughput, response, .. } = loaded[number];
            let response = if loaded[number].is_overloaded() { "overloaded".into() } else { time(response) };
            text += &values(axes, at);
            text += &format!(
                "{:13} {:>12}  {:21} {:>12} {response:>12}\n",
                architecture.name(),
                rate(bounds[number]),
                binding[number].name(),
                rate(throughput)
            );
        }
    }
    text
}

/// Report of one point.
#[derive(Serialize)]
struct Row {
    /// The values, in base units, in the order of the axes.
    at: Vec<f64>,
    report: Report,
}

/// Formats reports as CSV. A column that ends in `low` or `high` is a bound of the 95 % confidence interval of the
/// column before it.
fn reports_as_csv(axes: &[Axis], rows: &[Row]) -> String {
    let mut names: Vec<String> = axes.iter().map(|axis| axis.key.name.to_owned()).collect();
    names.extend(["load", "B/s", "B/s half width", "requests /s"].map(str::to_owned));
    for statistic in Statistic::ALL {
        names.extend(["s", "low", "high"].map(|what| format!("{} {what}", statistic.name())));
    }
    names.extend(["bound by", "working"].map(str::to_owned));
    let mut text = names.join(",") + "\n";
    for Row { at, report } in rows {
        let mut words: Vec<String> = at.iter().map(f64::to_string).collect();
        words.push(state(report).into());
        words.extend(
            [report.throughput.mean, report.throughput.half_width, report.rate.mean]
                .map(|one| one.to_string()),
        );
        for statistic in Statistic::ALL {
            let (value, [low, high]) = statistic.value_in(report);
            words.extend([value, low, high].map(|one| one.to_string()));
        }
        words.extend([report.binding.clone(), busy(report).to_string()]);
        text += &(words.join(",") + "\n");
    }
    text
}

fn reports_as_table(architecture: Architecture, axes: &[Axis], rows: &[Row]) -> String {
    let mut text = format!("{}, with 95 % confidence\n", architecture.name());
    text += &(heading(axes)
        + &format!(
            "{:>12} {:>11} {:>11} {:>11} {:>11} {:24} {:>11}  {}\n",
            "throughput", "mean", "50 %", "90 %", "99 %", "", "99.9 %", "bound by"
        ));
    for Row { at, report } in rows {
        let latency = &report.latency;
        text += &values(axes, at);
        text += &format!("{:>12} ", rate(report.throughput.mean));
        text += &match report.load {
            LoadState::Overloaded => format!("{:84}", "overloaded: response times have no limit"),
            _ => format!(
                "{:>11} {:>11} {:>11} {:>11} {:24} {:>11}",
                time(latency.mean.mean),
                time(latency.p50),
                time(latency.p90),
                time(latency.p99),
                format!("({})", between(latency.p99_bounds)),
                time(latency.p999)
            ),
        };
        text += &format!("  {} {:.0} %", report.binding, busy(report) * 100.0);
        text += match (report.is_whole, report.load) {
            (false, _) => ", stopped before its end\n",
            (_, LoadState::Rising) => ", still rising: a longer run has longer times\n",
            _ => "\n",
        };
    }
    text
}

/// Returns the state of a report's queues, as JSON writes it.
fn state(report: &Report) -> &'static str {
    match report.load {
        LoadState::Steady => "steady",
        LoadState::Rising => "rising",
        LoadState::Overloaded => "overloaded",
    }
}

/// Returns the share of the time that the binding resource worked.
fn busy(report: &Report) -> f64 {
    report.resources.iter().find(|row| row.name == report.binding).map_or(0.0, |row| row.working)
}

fn width(key: Key) -> usize {
    key.name.len().max(12)
}

fn heading(axes: &[Axis]) -> String {
    axes.iter().map(|axis| format!("{:<width$}  ", axis.key.name, width = width(axis.key))).collect()
}

fn values(axes: &[Axis], at: &[f64]) -> String {
    let cell = |(axis, value): (&Axis, &f64)| {
        format!("{:<width$}  ", axis.key.text(*value), width = width(axis.key))
    };
    axes.iter().zip(at).map(cell).collect()
}

/// Points of a curve: the values along the axis, and response times in seconds.
type Points = Vec<(f64, f64)>;

/// Ratio of the longest to the shortest time from which on the times' axis is logarithmic.
const RATIO_LOGARITHMIC: f64 = 20.0;

/// Draws response times over the only axis. Overloaded points have no finite time and are left out.
fn draw(out: &Path, title: &str, axes: &[Axis], curves: Vec<(String, Points)>) -> Result<(), Failure> {
    let all = || curves.iter().flat_map(|(_, points)| points).filter(|(_, time)| time.is_finite());
    let least = all().map(|(_, time)| time * 1e3).fold(f64::INFINITY, f64::min);
    let most = all().map(|(_, time)| time * 1e3).fold(0.0, f64::max);
    let values = &axes[0].values;
    let (first, last) = (values[0], values[values.len() - 1]);
    let y = if most > RATIO_LOGARITHMIC * least {
        PlotAxis::logarithmic("response time in ms, logarithmic", least, most)
    } else {
        PlotAxis::linear("response time in ms", 0.0, most * 1.05)
    };
    let key = axes[0].key;
    let step = values.len().div_ceil(TICKS_MAX);
    let ticks = values.iter().step_by(step.max(1)).map(|value| (*value, key.text(*value)));
    let finite = |points: Points| {
        points.into_iter().filter(|(_, time)| time.is_finite()).map(|(x, time)| (x, time * 1e3)).collect()
    };
    let curve =
        |(colour, (name, points)): (usize, (String, Points))| Curve { name, colour, points: finite(points) };
    let plot = Curves {
        title: title.into(),
        x: PlotAxis::linear(key.name, first, last).ticks(ticks),
        y,
        curves: curves.into_iter().enumerate().map(curve).collect(),
        marks: Vec::new(),
    };
    fs::write(out, plot.svg()).map_err(|source| Failure::Write { path: out.into(), source })
}

/// Greatest number of labels along the axis.
const TICKS_MAX: usize = 8;
