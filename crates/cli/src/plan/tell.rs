//! Answers of the model, for people and as JSON.

use super::file;
use super::words::{json, print, rate, time};
use crate::cli::plan::ModelArgs;
use crate::error::Failure;
use bywash_model::closed::{Closed, closed};
use bywash_model::describe::Description;
use bywash_model::{Architecture, Bound, Performance, Resource, bound, performance};
use serde::Serialize;

/// Answer for a description under one architecture.
#[derive(Serialize)]
struct JsonAnswer {
    architecture: Architecture,
    bound: Bound,
    closed: Closed,
    /// Performance under the description's load, which may be open; times of an overloaded server are null.
    performance: Performance,
}

/// Evaluates a description under every architecture that its machine can have, and prints
/// the answers.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if the description is invalid,
/// [`Failure::Output`] if standard output cannot be written.
pub fn model(arguments: &ModelArgs) -> Result<i32, Failure> {
    let description = file::read(&arguments.file, &arguments.set)?;
    let answers: Vec<JsonAnswer> = description
        .supported()
        .into_iter()
        .map(|architecture| {
            let (machine, work) = (&description.machine, &description.workload());
            JsonAnswer {
                architecture,
                bound: bound(machine, work, architecture),
                closed: closed(machine, work, architecture),
                performance: performance(machine, work, architecture),
            }
        })
        .collect();
    print(&if arguments.json { json(&answers) } else { in_words(&description, &answers) })
}

fn in_words(description: &Description, answers: &[JsonAnswer]) -> String {
    let load = &description.load;
    let (heading, busy) = if load.is_open() {
        let bursts = if load.burst > 1.0 { format!(" in bursts of {}", load.burst) } else { String::new() };
        ("with arrivals", format!("busy with {}{bursts}, {} threads", load.arrivals, load.threads))
    } else {
        ("with threads", format!("busy with {} threads", load.threads))
    };
    let mut text =
        format!("{:13} {:>12}  {:21} {heading:>13} {:>12}   {busy}\n", "", "at most", "bound by", "response");
    for JsonAnswer { architecture, bound, performance, .. } in answers {
        let busy: Vec<String> = Resource::ALL
            .iter()
            .zip(performance.utilisation)
            .filter(|(_, busy)| *busy > 0.0)
            .map(|(resource, busy)| format!("{} {:.0} %", resource.name(), busy * 100.0))
            .collect();
        let (comes, response) = if performance.is_overloaded() {
            (format!("{:.0} /s", performance.capacity), "overloaded".into())
        } else {
            (rate(performance.throughput), time(performance.response))
        };
        text += &format!(
            "{:13} {:>12}  {:21} {comes:>13} {response:>12}   {}\n",
            architecture.name(),
            rate(bound.throughput),
            bound.binding.name(),
            busy.join(", ")
        );
    }
    if answers.iter().any(|answer| answer.performance.is_overloaded()) {
        text += "overloaded: more requests arrive than the number that is served at most, so response times grow\n";
    }
    text + &left_out(description)
}

/// Returns a line for each architecture that the machine cannot have, with the reason.
pub fn left_out(description: &Description) -> String {
    let reasons = Architecture::ALL.into_iter().filter_map(|one| {
        let why = description.supports(one).err()?;
        Some(format!("{} is left out: {why}\n", one.name()))
    });
    reasons.collect()
}
