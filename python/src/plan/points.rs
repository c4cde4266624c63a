//! The points of a sweep: every combination of the values of some numbers, under some architectures.
//!
//! A row is a point under one architecture. Rows are numbered; the architecture varies fastest and the first
//! axis slowest. Any range of rows can be computed alone, in any thread or process, with the same result to
//! the last bit. `python/bywash/plan/` calls this module and translates the numbers of rows.

use super::architecture;
use super::description::{Description, value};
use crate::errors;
use bywash_model::closed::closed;
use bywash_model::describe::{Error, Key};
use bywash_model::sweep::{Axis, POINTS_MAX};
use bywash_model::{Architecture, Description as Described, Resource, bound, performance};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

/// Returns the values of a number in a sweep, in base units: from ``"FROM:TO:STEP"``, from one value, or from
/// several values, each in the form that ``Description.with_`` takes.
#[pyfunction]
#[pyo3(signature = (key, given, /))]
pub(crate) fn values_of(py: Python<'_>, key: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    let refused = |error: Error| errors::description(py, &error, None);
    let named = Key::by_name(key).map_err(refused)?;
    if let Ok(text) = given.cast::<PyString>() {
        let text = text.to_str()?;
        if text.contains(':') {
            return Ok(format!("{key}={text}").parse::<Axis>().map_err(refused)?.values);
        }
        return Ok(vec![value(named, given)?]);
    }
    let mut values = Vec::new();
    for one in given.try_iter()? {
        if values.len() == POINTS_MAX {
            return Err(errors::option(py, format!("{key} has more than {POINTS_MAX} values")));
        }
        values.push(value(named, &one?)?);
    }
    Ok(values)
}

/// Every combination of the values of ``axes``, under each of ``architectures``. A sweep cuts it into pieces.
#[pyclass(frozen, module = "bywash._bywash")]
pub(crate) struct Points {
    description: Py<Description>,
    base: Described,
    axes: Vec<Axis>,
    architectures: Vec<Architecture>,
    rows: usize,
}

/// Arguments that pickle passes to the constructor of [`Points`].
type Arguments = (Py<Description>, Vec<(&'static str, Vec<f64>)>, Vec<&'static str>);

#[pymethods]
impl Points {
    #[new]
    #[pyo3(signature = (description, axes, architectures, /))]
    fn new(
        py: Python<'_>,
        description: Py<Description>,
        axes: Vec<(String, Vec<f64>)>,
        architectures: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Points> {
        let base = description.get().known;
        let axes = axes_of(&base, axes).map_err(|error| errors::description(py, &error, None))?;
        let architectures: Vec<Architecture> =
            architectures.iter().map(architecture).collect::<PyResult<_>>()?;
        // An axis may give the processors that the description lacks; then each row tells.
        if !axes.iter().any(|axis| axis.key.name.ends_with(".processor")) {
            let missing = architectures.iter().find_map(|one| base.supports(*one).err());
            if let Some(missing) = missing {
                return Err(errors::description(py, &missing, None));
            }
        }
        let counts = axes.iter().map(|axis| axis.values.len()).chain([architectures.len()]);
        let rows = checked_rows(py, counts)?;
        Ok(Points { description, base, axes, architectures, rows })
    }

    /// Computes the rows from ``start`` up to ``stop``. Returns columns: ``throughput`` in bytes a second
    /// (float64) and ``binding`` (int8, an index into ``RESOURCES``); with ``response`` also ``response``, the mean
    /// response time under the load in seconds (float64, infinite if overloaded); with ``details`` also
    /// ``closed_throughput``, ``closed_response`` in seconds, and ``utilisation`` (float64, of all resources
    /// for each row). Each column is a bytes object in the machine's byte order.
    #[pyo3(signature = (start, stop, response, details, /))]
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
        response: bool,
        details: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        check_range(start, stop, self.rows)?;
        let columns = py.detach(|| self.columns(start, stop, response, details));
        let columns = columns.map_err(|error| errors::description(py, &error, None))?;
        let all = PyDict::new(py);
        all.set_item("throughput", bytes(py, &columns.throughput))?;
        all.set_item("binding", PyBytes::new(py, &columns.binding))?;
        if response {
            all.set_item("response", bytes(py, &columns.response))?;
        }
        if details {
            all.set_item("closed_throughput", bytes(py, &columns.closed_throughput))?;
            all.set_item("closed_response", bytes(py, &columns.closed_response))?;
            all.set_item("utilisation", bytes(py, &columns.utilisation))?;
        }
        Ok(all)
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    fn __getnewargs__(&self, py: Python<'_>) -> Arguments {
        let axes = self.axes.iter().map(|axis| (axis.key.name, axis.values.clone())).collect();
        let architectures = self.architectures.iter().map(|one| one.name()).collect();
        (self.description.clone_ref(py), axes, architectures)
    }
}

/// Multiplies the counts and returns the number of rows, or an error if a sweep may not have as many.
pub(super) fn checked_rows(py: Python<'_>, counts: impl IntoIterator<Item = usize>) -> PyResult<usize> {
    let rows = counts.into_iter().try_fold(1, usize::checked_mul).filter(|rows| *rows <= POINTS_MAX);
    rows.ok_or_else(|| {
        errors::option(py, format!("a sweep has at most {POINTS_MAX} rows: take larger steps"))
    })
}

pub(super) fn check_range(start: usize, stop: usize, rows: usize) -> PyResult<()> {
    if start > stop || stop > rows {
        return Err(PyIndexError::new_err(format!("there are no rows {start} to {stop}, but {rows} in all")));
    }
    Ok(())
}

/// Returns the numbers of a sweep with their values. Fails if the description cannot have one of the values while
/// the other numbers have their first ones. Some values exclude each other, so every row is checked again.
fn axes_of(base: &Described, axes: Vec<(String, Vec<f64>)>) -> Result<Vec<Axis>, Error> {
    let axes = axes.into_iter().map(|(name, values)| Ok(Axis { key: Key::by_name(&name)?, values }));
    let axes: Vec<Axis> = axes.collect::<Result<_, Error>>()?;
    let mut first = *base;
    for axis in &axes {
        let number = axis.key.number_in(&mut first)?;
        *number = axis.values.first().copied().unwrap_or(*number);
    }
    for axis in &axes {
        let mut here = first;
        for value in &axis.values {
            *axis.key.number_in(&mut here)? = *value;
            here.checked()?;
        }
    }
    Ok(axes)
}

#[derive(Default)]
struct Columns {
    throughput: Vec<f64>,
    binding: Vec<u8>,
    closed_throughput: Vec<f64>,
    closed_response: Vec<f64>,
    utilisation: Vec<f64>,
    response: Vec<f64>,
}

impl Points {
    fn columns(&self, start: usize, stop: usize, response: bool, details: bool) -> Result<Columns, Error> {
        let mut columns = Columns::default();
        columns.throughput.reserve_exact(stop - start);
        columns.binding.reserve_exact(stop - start);
        for row in start..stop {
            let (here, architecture) = self.row(row)?;
            here.supports(architecture)?;
            let (machine, work) = (&here.machine, &here.workload());
            let bound = bound(machine, work, architecture);
            columns.throughput.push(bound.throughput);
            columns.binding.push(place(bound.binding));
            if response {
                columns.response.push(performance(machine, work, architecture).response);
            }
            if details {
                let closed = closed(machine, work, architecture);
                columns.closed_throughput.push(closed.throughput);
                columns.closed_response.push(closed.response);
                columns.utilisation.extend(bound.utilisation);
            }
        }
        Ok(columns)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of the point that a row belongs to.
    pub(super) fn point(&self, row: usize) -> usize {
        row / self.architectures.len()
    }

    /// Returns the description with the largest value of each axis.
    pub(super) fn largest(&self) -> Result<Described, Error> {
        let mut here = self.base;
        for axis in &self.axes {
            if let Some(largest) = axis.values.iter().copied().max_by(f64::total_cmp) {
                *axis.key.number_in(&mut here)? = largest;
            }
        }
        Ok(here)
    }

    /// Returns the description and the architecture of a row.
    pub(super) fn row(&self, row: usize) -> Result<(Described, Architecture), Error> {
        let (mut rest, at) = (self.point(row), row % self.architectures.len());
        let mut here = self.base;
        for axis in self.axes.iter().rev() {
            *axis.key.number_in(&mut here)? = axis.values[rest % axis.values.len()];
            rest /= axis.values.len();
        }
        Ok((here.checked()?, self.architectures[at]))
    }
}

/// Index of a resource in `RESOURCES`.
fn place(resource: Resource) -> u8 {
    Resource::ALL.iter().position(|one| *one == resource).unwrap_or_default() as u8
}

fn bytes<'py>(py: Python<'py>, numbers: &[f64]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>())
}
