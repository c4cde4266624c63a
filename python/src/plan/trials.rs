//! Simulations of one description, and of the points of a sweep with replications.
//!
//! The seed of a sweep's row follows from the sweep's seed, the number of the point and the number of the
//! replication. So every process that simulates a row gets the same result, and all architectures of a point
//! use the same random numbers.

use super::description::Description;
use super::points::{Points, check_range, checked_rows};
use crate::errors;
use crate::options::number;
use crate::records::{record, tuple};
use crate::waiting::SLICE;
use bywash_model::{Architecture, Description as Described};
use bywash_sim::engine::Interval;
use bywash_sim::many::seed_of;
use bywash_sim::server::{Error, LoadState, ResourceUtilisation, within_limits};
use bywash_sim::{Options, Report, Stop, simulate as run};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::time::Instant;

const MODULE: &str = "bywash.plan.records";

/// Simulates a description in detail, event by event.
///
/// architecture
///     Architecture of the server's I/O; None: the description's own.
/// seed
///     Seed of the random numbers: the same seed gives the same run.
/// requests
///     The run ends when this many requests were served; None, without ``seconds``: 20,000.
/// seconds
///     The run ends when this much simulated time has passed.
/// progress
///     Function that is called now and then with the share that is done, from 0 to 1.
///
/// Measurement begins after a warm-up of a tenth of the run, and of 50 requests for each thread if the run
/// ends by requests of a closed load. An open load (``load.arrivals``) that the server cannot serve has infinite
/// response times, and ``load`` says ``"overloaded"``. Other threads run meanwhile. Ctrl-C raises ``Stopped``, a KeyboardInterrupt, whose
/// ``partial`` is the report so far, with ``is_whole`` False.
#[pyfunction]
#[pyo3(
    signature = (description, architecture=None, *, seed=None, requests=None, seconds=None, progress=None),
    text_signature = "(description, architecture=None, *, seed=1, requests=None, seconds=None, progress=None)"
)]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    description: &Description,
    architecture: Option<&Bound<'py, PyAny>>,
    seed: Option<&Bound<'py, PyAny>>,
    requests: Option<&Bound<'py, PyAny>>,
    seconds: Option<f64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let known = &description.known;
    let architecture = architecture.map_or(Ok(known.architecture), super::architecture)?;
    let seed = seed.map_or(Ok(Options::default().seed), |seed| number("seed", seed))?;
    let options = Options::default().seed(seed).stop(stop(py, requests, seconds)?);
    whole(py, progress, |watch| run(known, architecture, &options, watch))
}

/// Runs `simulate` with a watcher that calls `progress`, and returns its report, or raises ``Stopped`` with the
/// report so far.
pub(super) fn whole<'py>(
    py: Python<'py>,
    progress: Option<Py<PyAny>>,
    simulate: impl FnOnce(&mut dyn FnMut(f64) -> bool) -> Result<Report, Error> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let (outcome, raised) = run_interruptible(py, simulate, &mut |py, share| {
        if let Some(progress) = &progress {
            progress.call1(py, (share,))?;
        }
        Ok(true)
    });
    let outcome = outcome.map_err(|error| refused(py, &error))?;
    let outcome = report(py, &outcome)?;
    raised.map_or(Ok(outcome.clone()), |raised| Err(errors::stopped(py, raised, &outcome)))
}

/// Runs a simulation without the interpreter. Every [`SLICE`] it takes the interpreter, handles signals, and
/// calls `hear`, which returns true if the run shall go on. Returns the report so far, and the exception that
/// ended the run, if any.
fn run_interruptible(
    py: Python<'_>,
    simulate: impl FnOnce(&mut dyn FnMut(f64) -> bool) -> Result<Report, Error> + Send,
    hear: &mut (dyn FnMut(Python<'_>, f64) -> PyResult<bool> + Send),
) -> (Result<Report, Error>, Option<PyErr>) {
    py.detach(|| {
        let (mut raised, mut heard) = (None, Instant::now());
        let outcome = simulate(&mut |share| {
            if heard.elapsed() < SLICE {
                return true;
            }
            heard = Instant::now();
            let goes_on = Python::attach(|py| py.check_signals().and_then(|()| hear(py, share)));
            goes_on.unwrap_or_else(|error| {
                raised = Some(error);
                false
            })
        });
        (outcome, raised)
    })
}

pub(super) fn stop(
    py: Python<'_>,
    requests: Option<&Bound<'_, PyAny>>,
    seconds: Option<f64>,
) -> PyResult<Stop> {
    match (requests, seconds) {
        (None, None) => Ok(Options::default().stop),
        (Some(requests), None) => Ok(Stop::Requests(number("requests", requests)?)),
        (None, Some(seconds)) => Ok(Stop::Seconds(seconds)),
        (Some(_), Some(_)) => {
            Err(errors::option(py, "a simulation ends by requests or by seconds, not by both".into()))
        }
    }
}

pub(super) fn refused(py: Python<'_>, error: &Error) -> PyErr {
    errors::from_text(py, "DescriptionError", error.to_string())
}

/// The rows of a simulated sweep: each row of ``points``, ``replications`` times.
#[pyclass(frozen, module = "bywash._bywash")]
pub(crate) struct Trials {
    points: Py<Points>,
    replications: usize,
    seed: u64,
    stop: Stop,
    rows: usize,
}

#[pymethods]
impl Trials {
    #[new]
    #[pyo3(signature = (points, replications, seed, requests, seconds, /))]
    fn new(
        py: Python<'_>,
        points: Py<Points>,
        replications: &Bound<'_, PyAny>,
        seed: &Bound<'_, PyAny>,
        requests: Option<&Bound<'_, PyAny>>,
        seconds: Option<f64>,
    ) -> PyResult<Trials> {
        let (replications, seed) = (number("replications", replications)?, number("seed", seed)?);
        let stop = stop(py, requests, seconds)?;
        let all = points.get();
        let rows = checked_rows(py, [all.rows(), replications])?;
        // The largest values decide if the sweep can be simulated; the check comes first, before hours of
        // work.
        let largest = all.largest().map_err(|error| errors::description(py, &error, None))?;
        within_limits(&largest).map_err(|error| refused(py, &error))?;
        Ok(Trials { points, replications, seed, stop, rows })
    }

    /// Simulates the rows from ``start`` up to ``stop`` and returns their reports. Before each row, and now
    /// and then during it, ``is_over`` is called; if it returns True, no more rows are simulated.
    #[pyo3(signature = (start, stop, is_over, /))]
    fn simulate<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
        is_over: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        check_range(start, stop, self.rows)?;
        let is_over = is_over.clone().unbind();
        let reports = PyList::empty(py);
        for row in start..stop {
            if is_over.call0(py)?.is_truthy(py)? {
                break;
            }
            let (description, architecture, options) =
                self.row(row).map_err(|error| errors::description(py, &error, None))?;
            let (outcome, raised) = run_interruptible(
                py,
                |watch| run(&description, architecture, &options, watch),
                &mut |py, _| Ok(!is_over.call0(py)?.is_truthy(py)?),
            );
            let outcome = outcome.map_err(|error| refused(py, &error))?;
            if let Some(raised) = raised {
                return Err(raised);
            }
            if !outcome.is_whole {
                break;
            }
            reports.append(report(py, &outcome)?)?;
        }
        Ok(reports)
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (requests, seconds) = match self.stop {
            Stop::Requests(requests) => (Some(requests), None),
            Stop::Seconds(seconds) => (None, Some(seconds)),
        };
        (self.points.clone_ref(py), self.replications, self.seed, requests, seconds).into_pyobject(py)
    }
}

impl Trials {
    /// Returns the description, the architecture and the options of a row; the replication varies fastest.
    fn row(&self, row: usize) -> Result<(Described, Architecture, Options), bywash_model::describe::Error> {
        let points = self.points.get();
        let (place, replication) = (row / self.replications, row % self.replications);
        let (description, architecture) = points.row(place)?;
        let number = points.point(place) * self.replications + replication;
        let options = Options::default().seed(seed_of(self.seed, number as u64)).stop(self.stop);
        Ok((description, architecture, options))
    }
}

fn report<'py>(py: Python<'py>, known: &Report) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Report", {
        architecture: known.architecture.name(),
        seed: known.seed,
        load: state(known.load),
        offered: known.offered,
        capacity: known.capacity.map(|capacity| interval(py, capacity)).transpose()?,
        requests: known.requests,
        seconds: known.seconds,
        throughput: interval(py, known.throughput)?,
        rate: interval(py, known.rate)?,
        latency: record!(py, MODULE, "Latency", {
            mean: interval(py, known.latency.mean)?,
            p50: known.latency.p50,
            p50_bounds: bounds(known.latency.p50_bounds),
            p90: known.latency.p90,
            p90_bounds: bounds(known.latency.p90_bounds),
            p99: known.latency.p99,
            p99_bounds: bounds(known.latency.p99_bounds),
            p999: known.latency.p999,
            p999_bounds: bounds(known.latency.p999_bounds),
            max: known.latency.max,
        })?,
        resources: tuple(py, &known.resources, |resource| self::resource(py, resource))?,
        binding: &known.binding,
        processors: record!(py, MODULE, "ProcessorShares", {
            computing: known.processors.computing,
            stalled: known.processors.stalled,
            spinning: known.processors.spinning,
            idle: known.processors.idle,
        })?,
        processor_seconds: known.processor_seconds,
        events: known.events,
        is_whole: known.is_whole,
    })
}

pub(super) fn state(load: LoadState) -> &'static str {
    match load {
        LoadState::Steady => "steady",
        LoadState::Rising => "rising",
        LoadState::Overloaded => "overloaded",
    }
}

pub(super) fn bounds([low, high]: [f64; 2]) -> (f64, f64) {
    (low, high)
}

pub(super) fn interval(py: Python<'_>, known: Interval) -> PyResult<Bound<'_, PyAny>> {
    record!(py, MODULE, "Interval", { mean: known.mean, half_width: known.half_width })
}

fn resource<'py>(py: Python<'py>, known: &ResourceUtilisation) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "ResourceUse", {
        name: &known.name,
        units: known.count,
        utilisation: known.utilisation,
        working: known.working,
        busiest: known.busiest,
        waiting: known.waiting,
    })
}
