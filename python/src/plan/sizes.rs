//! Search for the most load, or the fewest parts, with a response time under a limit.

use super::Description;
use super::trials::{bounds, refused, state, stop};
use crate::errors;
use crate::options::{number, one_of};
use crate::records::{record, tuple};
use bywash_sim::Options;
use bywash_sim::server::size::{Error, Goal, Quantity, Sized, Statistic, Trial, Verdict, size as search};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const MODULE: &str = "bywash.plan.records";
/// Interval between two looks whether the search has ended, or a signal has come.
const LOOK: Duration = Duration::from_millis(10);

/// Finds the most load that a server bears, or the fewest parts that bear its load, with a response time under a
/// limit, by simulations.
///
/// architecture
///     Architecture of the server's I/O; None: the description's own.
/// most
///     ``"load"``: the most requests a second; the description's own load is not used.
/// fewest
///     ``"disks"``, ``"interfaces"`` or ``"processors"``: the fewest of these for the description's load.
/// mean, p50, p90, p99, p999
///     Limit of the mean response time, or of a percentile, in seconds. One of them.
/// seed
///     Seed of the random numbers: the same seed gives the same answer.
/// requests, seconds
///     End of each run, as for ``simulate``; by default 20,000 requests.
/// replications
///     Number of runs of a trial; up to four times as many if it is not clear.
///
/// The answer is within the limit with 95 % confidence; the trials beside it are evidence that it is the most, or
/// the fewest. A limit that nothing holds raises a ``DescriptionError`` that says what limits the server. All
/// processors compute, and other threads run meanwhile.
#[pyfunction]
#[pyo3(
    signature = (
        description, architecture=None, *, most=None, fewest=None, mean=None, p50=None, p90=None, p99=None,
        p999=None, seed=None, requests=None, seconds=None, replications=None
    ),
    text_signature = "(description, architecture=None, *, most=None, fewest=None, mean=None, p50=None, p90=None, p99=None, p999=None, seed=1, requests=None, seconds=None, replications=6)"
)]
// The arguments are the keywords of a function in Python.
#[allow(clippy::too_many_arguments)]
pub(crate) fn size<'py>(
    py: Python<'py>,
    description: &Description,
    architecture: Option<&Bound<'py, PyAny>>,
    most: Option<&Bound<'py, PyAny>>,
    fewest: Option<&Bound<'py, PyAny>>,
    mean: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    seed: Option<&Bound<'py, PyAny>>,
    requests: Option<&Bound<'py, PyAny>>,
    seconds: Option<f64>,
    replications: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let known = &description.known;
    let architecture = architecture.map_or(Ok(known.architecture), super::architecture)?;
    let quantity = quantity(py, most, fewest)?;
    let limits = Statistic::ALL.into_iter().zip([mean, p50, p90, p99, p999]);
    let limits: Vec<(Statistic, f64)> = limits.filter_map(|(one, limit)| Some((one, limit?))).collect();
    let [(statistic, limit)] = limits[..] else {
        return Err(errors::option(py, "give one of mean, p50, p90, p99 and p999, a time in seconds".into()));
    };
    let seed = seed.map_or(Ok(Options::default().seed), |seed| number("seed", seed))?;
    let runs = replications.map_or(Ok(6), |replications| number("replications", replications))?;
    let end = match (&requests, seconds) {
        (None, None) => bywash_sim::Stop::Requests(20_000),
        _ => stop(py, requests, seconds)?,
    };
    let options = Options::default().seed(seed).stop(end);
    let goal = Goal { quantity, statistic, limit };
    let is_stopped = AtomicBool::new(false);
    // The flag only tells the search to end; nothing else is read after it, so a relaxed order suffices.
    let go_on = || !is_stopped.load(Ordering::Relaxed);
    let mut raised = None;
    let found = py.detach(|| {
        thread::scope(|scope| {
            let searching = scope.spawn(|| search(known, architecture, goal, &options, runs, &go_on));
            while !searching.is_finished() {
                thread::sleep(LOOK);
                if let Err(signal) = Python::attach(|py| py.check_signals()) {
                    raised = Some(signal);
                    is_stopped.store(true, Ordering::Relaxed);
                }
            }
            searching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    let found = found.map_err(|error| match error {
        Error::Simulation(error) => refused(py, &error),
        Error::Description(error) => errors::description(py, &error, None),
        Error::Limit(_) | Error::Runs(_) => errors::option(py, error.to_string()),
        other => errors::from_text(py, "DescriptionError", other.to_string()),
    })?;
    sized(py, &found)
}

fn quantity(
    py: Python<'_>,
    most: Option<&Bound<'_, PyAny>>,
    fewest: Option<&Bound<'_, PyAny>>,
) -> PyResult<Quantity> {
    let named = |one: Quantity| (one.name(), one);
    match (most, fewest) {
        (Some(most), None) => one_of("most", most, &[named(Quantity::Load)]),
        (None, Some(fewest)) => one_of(
            "fewest",
            fewest,
            &[Quantity::Disks, Quantity::Interfaces, Quantity::Processors].map(named),
        ),
        _ => Err(errors::option(py, "give either most or fewest: what is searched".into())),
    }
}

fn sized<'py>(py: Python<'py>, known: &Sized) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Sized", {
        key: known.key,
        statistic: known.statistic,
        limit: known.limit,
        answer: trial(py, &known.answer)?,
        beyond: known.beyond.as_ref().map(|one| trial(py, one)).transpose()?,
        above: known.above.as_ref().map(|one| trial(py, one)).transpose()?,
        trials: tuple(py, &known.trials, |one| trial(py, one))?,
    })
}

fn trial<'py>(py: Python<'py>, known: &Trial) -> PyResult<Bound<'py, PyAny>> {
    let verdict = match known.verdict {
        Verdict::Within => "within",
        Verdict::Unclear => "unclear",
        Verdict::Above => "above",
    };
    record!(py, MODULE, "Trial", {
        value: known.value,
        response: known.response,
        bounds: bounds(known.bounds),
        verdict: verdict,
        load: state(known.load),
        binding: &known.binding,
        busy: known.busy,
        runs: known.runs,
    })
}
