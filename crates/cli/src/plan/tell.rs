//! Answers of the model, for people and as JSON.

use super::file;
use super::words::{json, print, rate, time};
use crate::cli::ModelArgs;
use crate::error::Failure;
use bywash_model::closed::{Closed, closed};
use bywash_model::describe::Description;
use bywash_model::sweep::{Axis, Table, sweep};
use bywash_model::{Architecture, Bound, Resource, bound};
use bywash_sim::many;
use serde::Serialize;

/// Answer for a description under one architecture.
#[derive(Serialize)]
struct JsonAnswer {
    architecture: Architecture,
    bound: Bound,
    closed: Closed,
}

/// Evaluates a description, or a sweep of it, under every architecture, and prints the answers.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if the description or the sweep is invalid,
/// [`Failure::Output`] if standard output cannot be written.
pub fn model(arguments: &ModelArgs) -> Result<i32, Failure> {
    let description = file::read(&arguments.file, &arguments.set)?;
    let refused = |why: bywash_model::describe::Error| Failure::Description {
        path: arguments.file.clone(),
        reason: why.to_string(),
    };
    let text = if arguments.sweep.is_empty() {
        let answers: Vec<JsonAnswer> = Architecture::ALL
            .iter()
            .map(|architecture| {
                let (machine, work) = (&description.machine, &description.workload());
                JsonAnswer {
                    architecture: *architecture,
                    bound: bound(machine, work, *architecture),
                    closed: closed(machine, work, *architecture),
                }
            })
            .collect();
        if arguments.json { json(&answers) } else { in_words(&description, &answers) }
    } else {
        let axes: Vec<Axis> =
            arguments.sweep.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(refused)?;
        let tables = many::each(&Architecture::ALL, |architecture| sweep(&description, &axes, *architecture));
        let tables: Vec<Table> = tables.into_iter().collect::<Result<_, _>>().map_err(refused)?;
        if arguments.json { json(&swept(&axes, &tables)) } else { rows(&axes, &tables) }
    };
    print(&text)
}

fn in_words(description: &Description, answers: &[JsonAnswer]) -> String {
    let mut text = format!(
        "{:13} {:>12}  {:21} {:>12} {:>12}   busy with {} threads\n",
        "", "at most", "bound by", "with threads", "response", description.load.threads
    );
    for JsonAnswer { architecture, bound, closed } in answers {
        let busy: Vec<String> = Resource::ALL
            .iter()
            .zip(closed.utilisation)
            .filter(|(_, busy)| *busy > 0.0)
            .map(|(resource, busy)| format!("{} {:.0} %", resource.name(), busy * 100.0))
            .collect();
        text += &format!(
            "{:13} {:>12}  {:21} {:>12} {:>12}   {}\n",
            architecture.name(),
            rate(bound.throughput),
            bound.binding.name(),
            rate(closed.throughput),
            time(closed.response),
            busy.join(", ")
        );
    }
    text
}

/// Result for one combination of a sweep's values.
#[derive(Serialize)]
struct Point {
    /// The values, in base units, in the order of the axes.
    at: Vec<f64>,
    /// Throughput in bytes a second, in the order of [`Architecture::ALL`].
    throughput: Vec<f64>,
    /// Binding resource, in the order of [`Architecture::ALL`].
    binding: Vec<Resource>,
}

fn swept(axes: &[Axis], tables: &[Table]) -> Vec<Point> {
    let count = tables.first().map_or(0, |table| table.throughput.len());
    let point = |number: usize| {
        let mut at = Vec::with_capacity(axes.len());
        let mut rest = number;
        for axis in axes.iter().rev() {
            at.push(axis.values[rest % axis.values.len()]);
            rest /= axis.values.len();
        }
        at.reverse();
        Point {
            at,
            throughput: tables.iter().map(|table| table.throughput[number]).collect(),
            binding: tables.iter().map(|table| table.binding[number]).collect(),
        }
    };
    (0..count).map(point).collect()
}

/// Formats a sweep as CSV: the values, then throughput and binding resource for each architecture.
fn rows(axes: &[Axis], tables: &[Table]) -> String {
    let mut names: Vec<String> = axes.iter().map(|axis| axis.key.name.to_owned()).collect();
    for architecture in Architecture::ALL {
        names.push(format!("{} B/s", architecture.name()));
        names.push(format!("{} bound by", architecture.name()));
    }
    let mut text = names.join(",") + "\n";
    for point in swept(axes, tables) {
        let mut words: Vec<String> = point.at.iter().map(f64::to_string).collect();
        for (throughput, binding) in point.throughput.iter().zip(&point.binding) {
            words.push(throughput.to_string());
            words.push(binding.name().to_owned());
        }
        text += &(words.join(",") + "\n");
    }
    text
}
