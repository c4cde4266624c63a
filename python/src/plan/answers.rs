//! Answers of the analytic model: for a description, for the paper's figures, and for statements in the
//! paper's text.

use super::{Description, architecture};
use crate::errors;
use crate::records::{record, tuple};
use bywash_model::closed::{Closed, closed};
use bywash_model::figures::{Curve, Mark};
use bywash_model::{Architecture, Bound as AtMost, Performance, Resource, bound, figures, performance};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

const MODULE: &str = "bywash.plan.records";

/// Computes a server's upper bound on throughput, its throughput with its number of threads, and its performance
/// under its load, by the analytic model.
///
/// The architecture is the description's own unless one is given; one that the machine cannot have raises a
/// ``DescriptionError``. The result depends on the arguments only.
/// Other threads run meanwhile.
#[pyfunction]
#[pyo3(
    signature = (description, architecture=None, /),
    text_signature = "(description, architecture=None, /)"
)]
pub(crate) fn evaluate<'py>(
    py: Python<'py>,
    description: &Description,
    architecture: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let known = description.known;
    let architecture = architecture.map_or(Ok(known.architecture), self::architecture)?;
    known.supports(architecture).map_err(|error| errors::description(py, &error, None))?;
    let (bound, closed, loaded) = py.detach(|| {
        let (machine, work) = (&known.machine, &known.workload());
        (
            bound(machine, work, architecture),
            closed(machine, work, architecture),
            performance(machine, work, architecture),
        )
    });
    answer(py, architecture, &bound, &closed, &loaded)
}

fn answer<'py>(
    py: Python<'py>,
    architecture: Architecture,
    bound: &AtMost,
    closed: &Closed,
    loaded: &Performance,
) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Answer", {
        architecture: architecture.name(),
        bound: record!(py, MODULE, "Bound", {
            throughput: bound.throughput,
            binding: bound.binding.name(),
            utilisation: by_resource(py, &bound.utilisation)?,
        })?,
        closed: record!(py, MODULE, "Closed", {
            throughput: closed.throughput,
            requests: closed.requests,
            response: closed.response,
            utilisation: by_resource(py, &closed.utilisation)?,
            waiting: by_resource(py, &closed.queue_length)?,
        })?,
        performance: record!(py, MODULE, "Performance", {
            throughput: loaded.throughput,
            requests: loaded.requests,
            response: loaded.response,
            utilisation: by_resource(py, &loaded.utilisation)?,
            in_server: loaded.in_server,
            capacity: loaded.capacity,
        })?,
    })
}

fn by_resource<'py>(py: Python<'py>, numbers: &[f64; 6]) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (resource, number) in Resource::ALL.iter().zip(numbers) {
        all.set_item(resource.name(), number)?;
    }
    Ok(all)
}

/// Computes one of the paper's figures, as curves.
#[pyfunction]
#[pyo3(signature = (number, /))]
pub(crate) fn figure<'py>(py: Python<'py>, number: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let wanted: Option<u32> = number.extract().ok();
    let Some(figure) = wanted.and_then(figures::figure) else {
        let (first, last) = (figures::NUMBERS.start(), figures::NUMBERS.end());
        let text = format!("the figure is {}, and must be a number from {first} to {last}", number.repr()?);
        return Err(errors::option(py, text));
    };
    record!(py, MODULE, "Figure", {
        number: figure.number,
        title: figure.title,
        x: figure.x,
        curves: tuple(py, &figure.curves, |curve| self::curve(py, curve))?,
        marks: tuple(py, &figure.marks, |mark| self::mark(py, mark))?,
    })
}

fn curve<'py>(py: Python<'py>, known: &Curve) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Curve", {
        name: &known.name,
        x: PyTuple::new(py, known.points.iter().map(|point| point.0))?,
        y: PyTuple::new(py, known.points.iter().map(|point| point.1))?,
    })
}

fn mark<'py>(py: Python<'py>, known: &Mark) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Mark", { x: known.position.0, y: known.position.1, says: known.statement })
}

/// Compares statements of the paper's text with computed values. Returns one ``Line`` for each statement.
#[pyfunction]
pub(crate) fn check(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    let lines = py.detach(bywash_model::check::table);
    tuple(py, &lines, |line| {
        record!(py, MODULE, "Line", {
            figure: line.figure,
            point: line.point,
            says: line.says,
            computed: &line.computed,
            verdict: line.verdict.name(),
            note: line.note,
        })
    })
}
