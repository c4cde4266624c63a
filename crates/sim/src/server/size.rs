//! Search for the most load that a server bears, or for the fewest parts that bear a load, with a response time
//! under a limit. The command and Python call it.
//!
//! Each trial simulates a description several times and compares the confidence interval of the response time
//! with the limit. A trial that is neither within the limit nor above it for certain gets more runs, and stays
//! unclear if they do not decide. The search halves the interval between a trial that is within and one that is
//! not: of a load, until they are a hundredth apart; of a number of parts, until they are neighbours. The
//! answer is the last trial that is within for certain, so it errs to the safe side; the trials beside it are
//! returned as evidence.
//!
//! Invariant: response times grow with the load and do not grow with the number of parts, apart from chance. The
//! search assumes this and does not check it.

use super::replicate::{each, replicate_arrivals};
use super::simulate::{Error as SimulationError, LoadState, Options, Report, capacity, simulate};
use crate::engine::Interval;
use bywash_model::describe::{self, Key};
use bywash_model::{Architecture, Description};
use serde::Serialize;

/// Number that a search varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Requests that arrive per second, as many as possible.
    Load,
    /// Disks, as few as possible.
    Disks,
    /// Network interfaces, as few as possible.
    Interfaces,
    /// Processors, as few as possible.
    Processors,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Quantity; 4] =
        [Quantity::Load, Quantity::Disks, Quantity::Interfaces, Quantity::Processors];

    /// Name of the quantity, as the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Load => "load",
            Quantity::Disks => "disks",
            Quantity::Interfaces => "interfaces",
            Quantity::Processors => "processors",
        }
    }

    /// Name of the quantity's key in a description.
    pub fn key(self) -> &'static str {
        match self {
            Quantity::Load => "load.arrivals",
            Quantity::Disks => "machine.disks.count",
            Quantity::Interfaces => "machine.interfaces.count",
            Quantity::Processors => "machine.processors.count",
        }
    }
}

/// Statistic of the response times that a limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Mean.
    Mean,
    /// Median.
    P50,
    /// Quantile of 90 %.
    P90,
    /// Quantile of 99 %.
    P99,
    /// Quantile of 99.9 %.
    P999,
}

impl Statistic {
    /// All statistics.
    pub const ALL: [Statistic; 5] =
        [Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P99, Statistic::P999];

    /// Name of the statistic, as the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::P50 => "p50",
            Statistic::P90 => "p90",
            Statistic::P99 => "p99",
            Statistic::P999 => "p999",
        }
    }

    /// Returns the statistic of `report`, and the bounds of its 95 % confidence interval, in seconds.
    pub fn value_in(self, report: &Report) -> (f64, [f64; 2]) {
        let latency = &report.latency;
        match self {
            Statistic::Mean => {
                let Interval { mean, half_width } = latency.mean;
                if mean.is_infinite() {
                    return (mean, [mean; 2]);
                }
                (mean, [(mean - half_width).max(0.0), mean + half_width])
            }
            Statistic::P50 => (latency.p50, latency.p50_bounds),
            Statistic::P90 => (latency.p90, latency.p90_bounds),
            Statistic::P99 => (latency.p99, latency.p99_bounds),
            Statistic::P999 => (latency.p999, latency.p999_bounds),
        }
    }
}

/// Question of a search: the number that varies, and the limit to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Number that varies: most load, or fewest parts.
    pub quantity: Quantity,
    /// Statistic of the response times.
    pub statistic: Statistic,
    /// Greatest value of the statistic, in seconds.
    pub limit: f64,
}

/// Position of a trial's confidence interval to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is at or below the limit.
    Within,
    /// The interval contains the limit.
    Unclear,
    /// The whole interval is above the limit, or the server is overloaded.
    Above,
}

/// One value of a search's quantity, simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Value of the quantity: requests per second, or a number of parts.
    pub value: f64,
    /// The statistic of the response times, in seconds; infinite if the server is overloaded.
    pub response: f64,
    /// Bounds of the statistic's 95 % confidence interval.
    pub bounds: [f64; 2],
    /// Position of the interval to the limit.
    pub verdict: Verdict,
    /// State of the queues.
    pub load: LoadState,
    /// Name of the resource that worked the largest share of the time.
    pub binding: String,
    /// Share of the time that this resource worked, 0 to 1.
    pub busy: f64,
    /// Number of runs that the trial took.
    pub runs: u32,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sized {
    /// Name of the key that was varied.
    pub key: &'static str,
    /// Name of the statistic that was limited.
    pub statistic: &'static str,
    /// The limit, in seconds.
    pub limit: f64,
    /// The trial of the most load, or of the fewest parts, that is within the limit for certain.
    pub answer: Trial,
    /// The nearest trial on the other side: with more load, or fewer parts, that is not within for certain. None
    /// if one part suffices.
    pub beyond: Option<Trial>,
    /// The nearest trial that is above the limit for certain; the same as `beyond` unless that is unclear.
    pub above: Option<Trial>,
    /// All trials, by increasing value.
    pub trials: Vec<Trial>,
}

/// Error of a search.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The limit is not a positive time.
    #[error("the limit is {0} s, and must be more than 0")]
    Limit(f64),
    /// Fewer runs than a confidence interval needs. Holds their number.
    #[error(
        "a trial has {0} runs, and must have from 2 to {RUNS_MAX}: its confidence comes from their differences"
    )]
    Runs(u32),
    /// The description cannot have the values of the search.
    #[error(transparent)]
    Description(#[from] describe::Error),
    /// The description cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// No value of the quantity is within the limit. Holds the best trial.
    #[error("{}", unreachable(.0, .1))]
    Unreachable(Goal, Box<Trial>),
    /// The caller stopped the search.
    #[error("the search was stopped before it had an answer")]
    Stopped,
}

fn unreachable(goal: &Goal, best: &Trial) -> String {
    let (name, limit) = (goal.statistic.name(), goal.limit);
    let what = match goal.quantity {
        Quantity::Load => format!("even {:.4} requests a second are not", best.value),
        parts => format!("even {} {} are not", best.value, parts.name()),
    };
    let found = if best.response.is_finite() {
        format!("{name} is {} s", best.response)
    } else {
        "the server is overloaded".into()
    };
    format!(
        "{what} within {name} of {limit} s: {found}, bound by {}, which works {:.0} % of the time",
        best.binding,
        best.busy * 100.0
    )
}

/// Greatest number of parts that a search tries.
pub const PARTS_MAX: u32 = 1024;
/// Greatest number of runs of a trial before it is unclear.
pub const RUNS_MAX: u32 = 1000;
/// Factor by which an undecided trial may exceed its number of runs.
const MORE_RUNS: u32 = 4;
/// Distance of two loads at which the search ends, relative to the larger one.
const PRECISION: f64 = 0.01;
/// Least load that is tried, as a share of the capacity.
const LOAD_MIN: f64 = 0.01;

/// Searches the answer to `goal` for `description` under `architecture`. Each trial has at least `runs` runs of
/// `options`. The description's own value of the quantity does not matter. `go_on` is called from time to time,
/// and ends the search by returning false.
///
/// # Errors
/// [`Error::Limit`] or [`Error::Runs`] if an argument is out of range; [`Error::Unreachable`] if nothing that was
/// tried is within the limit; [`Error::Stopped`] if `go_on` returns false; [`Error::Simulation`] or
/// [`Error::Description`] if a trial cannot be simulated.
pub fn size(
    description: &Description,
    architecture: Architecture,
    goal: Goal,
    options: &Options,
    runs: u32,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Sized, Error> {
    if !(goal.limit > 0.0 && goal.limit.is_finite()) {
        return Err(Error::Limit(goal.limit));
    }
    if !(2..=RUNS_MAX).contains(&runs) {
        return Err(Error::Runs(runs));
    }
    let key = Key::by_name(goal.quantity.key())?;
    let changed = |value: f64| {
        let mut changed = *description;
        *key.number_in(&mut changed)? = value;
        if goal.quantity == Quantity::Load {
            changed.load.think.0 = 0.0;
        }
        changed.checked()
    };
    let simulator = Simulator { architecture, options, runs, goal, go_on };
    if goal.quantity == Quantity::Load {
        let saturated = simulator.capacity(&changed(1.0)?)?;
        let highest = saturated.rate.mean;
        let mut attempt = |value: f64| simulator.trial(value, &changed(value)?, Some(&saturated));
        return most(goal, highest, &mut attempt);
    }
    fewest(goal, &mut |count| simulator.trial(f64::from(count), &changed(f64::from(count))?, None))
}

/// Simulator of the trials of one search.
struct Simulator<'a> {
    architecture: Architecture,
    options: &'a Options,
    runs: u32,
    goal: Goal,
    go_on: &'a (dyn Fn() -> bool + Sync),
}

impl Simulator<'_> {
    fn capacity(&self, description: &Description) -> Result<Report, Error> {
        let report = capacity(description, self.architecture, self.options, &mut |_| (self.go_on)())?;
        if report.is_whole { Ok(report) } else { Err(Error::Stopped) }
    }

    /// Simulates `description` until its verdict is clear, or often enough.
    fn trial(
        &self,
        value: f64,
        description: &Description,
        saturated: Option<&Report>,
    ) -> Result<Trial, Error> {
        let own;
        let saturated = match saturated {
            None if description.load.is_open() => {
                own = self.capacity(description)?;
                Some(&own)
            }
            known => known,
        };
        let mut runs = self.runs;
        loop {
            let trial = self.attempt(value, description, saturated, runs)?;
            let is_over = runs >= self.runs * MORE_RUNS || trial.verdict != Verdict::Unclear;
            if is_over {
                return Ok(trial);
            }
            runs *= 2;
        }
    }

    fn attempt(
        &self,
        value: f64,
        description: &Description,
        saturated: Option<&Report>,
        runs: u32,
    ) -> Result<Trial, Error> {
        let go_on = |_| (self.go_on)();
        let numbers = 0..u64::from(runs);
        let report = match saturated {
            Some(saturated) => {
                replicate_arrivals(description, self.architecture, self.options, numbers, saturated, &go_on)
            }
            None => each(self.options, numbers, |options| {
                simulate(description, self.architecture, options, &mut |share| go_on(share))
            }),
        }?;
        if !report.is_whole {
            return Err(Error::Stopped);
        }
        Ok(self.goal.judge(value, &report, runs))
    }
}

impl Goal {
    /// Compares the report of `runs` runs at `value` with the limit.
    fn judge(&self, value: f64, report: &Report, runs: u32) -> Trial {
        let (response, bounds) = self.statistic.value_in(report);
        // Response times that still rise are too low, so they cannot be within the limit for certain.
        let verdict = match bounds {
            [low, _] if low > self.limit => Verdict::Above,
            [_, high] if high <= self.limit && report.load == LoadState::Steady => Verdict::Within,
            _ => Verdict::Unclear,
        };
        let row = report.resources.iter().find(|row| row.name == report.binding);
        Trial {
            value,
            response,
            bounds,
            verdict,
            load: report.load,
            binding: report.binding.clone(),
            busy: row.map_or(0.0, |row| row.working),
            runs,
        }
    }
}

/// Searches the greatest load below `highest`, the capacity, that is within the limit.
fn most(
    goal: Goal,
    highest: f64,
    attempt: &mut dyn FnMut(f64) -> Result<Trial, Error>,
) -> Result<Sized, Error> {
    let first = attempt(highest * LOAD_MIN)?;
    if first.verdict != Verdict::Within {
        return Err(Error::Unreachable(goal, Box::new(first)));
    }
    let mut trials = vec![first, attempt(highest)?];
    // First the greatest load that is within for certain, then the least that is above for certain.
    for wanted in [Verdict::Within, Verdict::Above] {
        loop {
            trials.sort_by(|one, other| one.value.total_cmp(&other.value));
            let edge = match wanted {
                Verdict::Within => trials.iter().rposition(|one| one.verdict == wanted),
                _ => trials.iter().position(|one| one.verdict == wanted),
            };
            let (low, high) = match edge {
                Some(at) if wanted == Verdict::Within && at + 1 < trials.len() => (at, at + 1),
                Some(at) if wanted == Verdict::Above && at > 0 => (at - 1, at),
                _ => break,
            };
            let (low, high) = (trials[low].value, trials[high].value);
            if high - low <= PRECISION * high {
                break;
            }
            trials.push(attempt((low + high) / 2.0)?);
        }
    }
    told(goal, trials, false)
}

/// Searches the least number of parts that is within the limit.
fn fewest(goal: Goal, attempt: &mut dyn FnMut(u32) -> Result<Trial, Error>) -> Result<Sized, Error> {
    let mut trials: Vec<Trial> = Vec::new();
    let (mut low, mut high) = (0, 1);
    loop {
        trials.push(attempt(high)?);
        let last = &trials[trials.len() - 1];
        if last.verdict == Verdict::Within {
            break;
        }
        if high >= PARTS_MAX {
            return Err(Error::Unreachable(goal, Box::new(last.clone())));
        }
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let trial = attempt(middle)?;
        if trial.verdict == Verdict::Within {
            high = middle
        } else {
            low = middle
        }
        trials.push(trial);
    }
    told(goal, trials, true)
}

/// Builds the answer from the trials, of which the least value within the limit counts if `is_least`, otherwise
/// the greatest.
fn told(goal: Goal, mut trials: Vec<Trial>, is_least: bool) -> Result<Sized, Error> {
    trials.sort_by(|one, other| one.value.total_cmp(&other.value));
    let within = |one: &Trial| one.verdict == Verdict::Within;
    let at = if is_least { trials.iter().position(within) } else { trials.iter().rposition(within) };
    let Some(at) = at else { return Err(Error::Stopped) };
    let others: Vec<&Trial> =
        if is_least { trials[..at].iter().rev().collect() } else { trials[at + 1..].iter().collect() };
    let above = others.iter().find(|one| one.verdict == Verdict::Above);
    Ok(Sized {
        key: goal.quantity.key(),
        statistic: goal.statistic.name(),
        limit: goal.limit,
        answer: trials[at].clone(),
        beyond: others.first().map(|one| (*one).clone()),
        above: above.map(|one| (*one).clone()),
        trials,
    })
}

#[cfg(test)]
mod tests {
    use super::super::simulate::Stop;
    use super::*;
    use bywash_model::units::{Cycles, Frequency, Rate, Share, Size};
    use bywash_model::work::Request;
    use bywash_model::{Machine, Workload};

    fn goal(quantity: Quantity, limit: f64) -> Goal {
        Goal { quantity, statistic: Statistic::P99, limit }
    }

    /// Returns a server on which each request computes for 1 ms on one of `processors` processors.
    fn computing(processors: f64) -> Description {
        let page = Request::Dynamic { page: Size(1.0), compute: Cycles(1e6), data: Size(0.0) };
        let mut description = Description::new(Machine::carrera_2003(), Workload::new(page));
        description.machine.processors.speed = Frequency(1e9);
        description.machine.processors.count = processors;
        description
    }

    fn run(description: &Description, goal: Goal) -> Result<Sized, Error> {
        let options = Options::default().stop(Stop::Requests(10_000)).seed(3);
        size(description, Architecture::Conventional, goal, &options, 4, &|| true)
    }

    /// Returns the 99 % quantile of the response time of M/D/1 with a service time of 1, by Erlang's formula for
    /// the wait.
    fn deterministic_p99(load: f64) -> f64 {
        let waits_at_most = |time: f64| {
            let mut factorial = 1.0;
            let terms = (0..=time.floor() as u32).map(|at| {
                factorial *= f64::from(at.max(1));
                let left = load * (time - f64::from(at));
                (-left).powi(at as i32) / factorial * left.exp()
            });
            (1.0 - load) * terms.sum::<f64>()
        };
        let (mut low, mut high) = (0.0, 20.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if waits_at_most(middle) < 0.99 { low = middle } else { high = middle }
        }
        high + 1.0
    }

    #[test]
    fn the_most_load_is_that_of_queueing_theory() {
        // 99 % within 6 ms, of M/D/1.
        let (mut low, mut high) = (0.1, 0.9);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if deterministic_p99(middle) < 6.0 { low = middle } else { high = middle }
        }
        let found = run(&computing(1.0), goal(Quantity::Load, 6e-3)).unwrap();
        let (answer, above) = (&found.answer, found.above.as_ref().unwrap());
        assert!(answer.value <= high * 1000.0 && above.value >= high * 1000.0, "{found:?}, wanted {high}");
        assert!(answer.value > 0.93 * high * 1000.0 && above.value < 1.07 * high * 1000.0, "{found:?}");
        assert!(answer.bounds[1] <= 6e-3 && above.bounds[0] > 6e-3);
        assert_eq!((&*answer.binding, found.key), ("processors", "load.arrivals"));
        assert!(found.trials.windows(2).all(|two| two[0].value < two[1].value));
    }

    #[test]
    fn the_fewest_processors_have_neighbours_that_do_not_do() {
        // 3500 requests of 1 ms in a second need four processors, and more for short waits.
        let mut description = computing(1.0);
        description.load.arrivals.0 = 3500.0;
        let found = run(&description, goal(Quantity::Processors, 3e-3)).unwrap();
        let beyond = found.beyond.as_ref().unwrap();
        assert_eq!(beyond.value + 1.0, found.answer.value);
        assert!((5.0..=6.0).contains(&found.answer.value), "{found:?}");
        assert!(beyond.verdict != Verdict::Within && found.answer.verdict == Verdict::Within);
        let all = run(&description, goal(Quantity::Processors, 1.0)).unwrap();
        assert_eq!((all.answer.value, all.beyond.unwrap().load), (4.0, LoadState::Overloaded));
        description.load.arrivals.0 = 100.0;
        assert_eq!(run(&description, goal(Quantity::Processors, 1.0)).unwrap().beyond, None);
    }

    #[test]
    fn a_closed_load_can_be_sized_too() {
        let work = Workload::new(Request::Blocks { block: Size(1e6), writes: Share(0.0), in_order: false });
        let mut description = Description::new(Machine::carrera_2003(), work);
        (description.load.threads, description.machine.disks.rate) = (16.0, Rate(1e8));
        description.machine.processors.speed = Frequency(1e11);
        // A disk takes 10 ms for a request, so eight of sixteen requests at a time leave it 20 ms on the average.
        let goal = Goal { quantity: Quantity::Disks, statistic: Statistic::Mean, limit: 30e-3 };
        let found = run(&description, goal).unwrap();
        assert!((5.0..=12.0).contains(&found.answer.value), "{found:?}");
    }

    #[test]
    fn a_limit_that_nothing_holds_is_refused_with_what_binds() {
        let refused = |description: &Description, goal| run(description, goal).unwrap_err().to_string();
        let told = refused(&computing(1.0), goal(Quantity::Load, 0.5e-3));
        assert!(
            told.contains("requests a second are not within p99 of 0.0005 s") && told.contains("processors"),
            "{told}"
        );
        let mut description = computing(1.0);
        description.load.arrivals.0 = 2000.0;
        let options = Options::default().stop(Stop::Requests(2000));
        let told =
            size(&description, Architecture::Conventional, goal(Quantity::Disks, 0.5), &options, 2, &|| true);
        let told = told.unwrap_err().to_string();
        assert!(
            told.contains("even 1024 disks") && told.contains("overloaded, bound by processors"),
            "{told}"
        );
    }

    #[test]
    fn what_cannot_be_asked_is_refused_and_a_stop_is_told() {
        let options = Options::default();
        let ask = |limit, runs, go_on: &(dyn Fn() -> bool + Sync)| {
            let goal = goal(Quantity::Load, limit);
            size(&computing(1.0), Architecture::Conventional, goal, &options, runs, go_on).unwrap_err()
        };
        assert!(matches!(ask(0.0, 4, &|| true), Error::Limit(_)));
        assert!(matches!(ask(1.0, 1, &|| true), Error::Runs(1)));
        assert!(matches!(ask(1.0, 4, &|| false), Error::Stopped));
    }
}
