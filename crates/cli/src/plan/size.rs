//! `bywash plan size`: the most load, or the fewest parts, with a response time under a limit.

use super::file;
use super::watch::Progress;
use super::words::{between, json, print, time};
use crate::cli::plan::{Greatest, Parts, SizeArgs};
use crate::error::Failure;
use bywash_model::Architecture;
use bywash_sim::Options;
use bywash_sim::server::LoadState;
use bywash_sim::server::size::{self, Goal, Quantity, Sized, Statistic, Trial, Verdict};

/// Searches the answer and prints it with its trials.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if the description cannot be used or nothing holds the limit,
/// [`Failure::Output`] if standard output cannot be written.
pub fn size(arguments: &SizeArgs) -> Result<i32, Failure> {
    let description = file::read(&arguments.file, &arguments.set)?;
    let architecture = arguments.architecture.unwrap_or(description.architecture);
    let goal = goal(arguments);
    let watch = Progress::unmeasured();
    let options = Options::default().seed(arguments.seed).stop(arguments.until);
    let go_on = || watch.go_on(0.0);
    let found = size::size(&description, architecture, goal, &options, arguments.replications, &go_on);
    let found = found.map_err(|why| {
        let reason = match why {
            size::Error::Unreachable(goal, best) => unreachable(&goal, &best),
            other => other.to_string(),
        };
        Failure::Description { path: arguments.file.clone(), reason }
    })?;
    print(&if arguments.json { json(&found) } else { in_words(architecture, goal, &found) })
}

fn goal(arguments: &SizeArgs) -> Goal {
    let quantity = match (arguments.most, arguments.fewest) {
        (_, Some(Parts::Disks)) => Quantity::Disks,
        (_, Some(Parts::Interfaces)) => Quantity::Interfaces,
        (_, Some(Parts::Processors)) => Quantity::Processors,
        (Some(Greatest::Load) | None, None) => Quantity::Load,
    };
    let limits = [arguments.mean, arguments.p50, arguments.p90, arguments.p99, arguments.p999];
    let given = Statistic::ALL.into_iter().zip(limits).find_map(|(one, limit)| Some((one, limit?)));
    // The command line has one of the limits: its group requires it.
    let (statistic, limit) = given.unwrap_or((Statistic::Mean, f64::NAN));
    Goal { quantity, statistic, limit }
}

fn unreachable(goal: &Goal, best: &Trial) -> String {
    let response = match best.load {
        LoadState::Overloaded => "the server is overloaded".into(),
        _ => format!("{} is {}", goal.statistic.name(), time(best.response)),
    };
    format!(
        "with {} {response}, so nothing holds {} within {}; bound by {}, which works {:.0} % of the time",
        amount(goal.quantity, best.value),
        goal.statistic.name(),
        time(goal.limit),
        best.binding,
        best.busy * 100.0
    )
}

/// Formats a value of the quantity, with its name.
fn amount(quantity: Quantity, value: f64) -> String {
    match (quantity, value) {
        (Quantity::Load, _) if value < 100.0 => format!("{value:.2} requests a second"),
        (Quantity::Load, _) => format!("{value:.0} requests a second"),
        (Quantity::Disks, 1.0) => "1 disk".into(),
        (Quantity::Interfaces, 1.0) => "1 interface".into(),
        (Quantity::Processors, 1.0) => "1 processor".into(),
        (parts, _) => format!("{value} {}", parts.name()),
    }
}

fn in_words(architecture: Architecture, goal: Goal, found: &Sized) -> String {
    let Goal { quantity, statistic, limit } = goal;
    let kind = if quantity == Quantity::Load { "at most" } else { "at least" };
    let answer = &found.answer;
    let mut text = format!(
        "{kind} {}: {} within {} ({}, with 95 % confidence)\nbound by {}, which works {:.0} % of the time\n",
        amount(quantity, answer.value),
        statistic.name(),
        time(limit),
        architecture.name(),
        answer.binding,
        answer.busy * 100.0
    );
    text += &format!("{}\n", beyond(quantity, found));
    let name = if quantity == Quantity::Load { "requests/s" } else { quantity.name() };
    let confidence = "95 % confidence";
    text += &format!(
        "\n{name:>12} {:>12}  {confidence:26} {:>5}  {:10} {}\n",
        statistic.name(),
        "runs",
        "",
        "bound by"
    );
    for trial in &found.trials {
        text += &line(quantity, trial, trial.value == answer.value);
    }
    text
}

/// Returns what is known of the values on the other side of the limit.
fn beyond(quantity: Quantity, found: &Sized) -> String {
    let told = |trial: &Trial| match trial.load {
        LoadState::Overloaded => format!("{} overload the server", amount(quantity, trial.value)),
        _ => format!("{} take {}", amount(quantity, trial.value), time(trial.response)),
    };
    match (&found.beyond, &found.above) {
        (None, _) => "no fewer are possible".into(),
        (Some(beyond), Some(above)) if beyond.value == above.value => told(above),
        (Some(beyond), Some(above)) => {
            format!("{}, too near the limit to tell; {}", told(beyond), told(above))
        }
        (Some(beyond), None) => format!("{}, too near the limit to tell", told(beyond)),
    }
}

fn line(quantity: Quantity, trial: &Trial, is_answer: bool) -> String {
    let value = match quantity {
        Quantity::Load if trial.value < 100.0 => format!("{:.2}", trial.value),
        _ => format!("{:.0}", trial.value),
    };
    let (response, bounds) = match trial.load {
        LoadState::Overloaded => ("overloaded".into(), String::new()),
        _ => (time(trial.response), between(trial.bounds)),
    };
    let verdict = match (trial.verdict, is_answer) {
        (Verdict::Within, true) => "answer",
        (Verdict::Within, false) => "within",
        (Verdict::Unclear, _) => "unclear",
        (Verdict::Above, _) => "above",
    };
    format!(
        "{value:>12} {response:>12}  {bounds:26} {:>5}  {verdict:10} {} {:.0} %\n",
        trial.runs,
        trial.binding,
        trial.busy * 100.0
    )
}
