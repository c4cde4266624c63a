//! The papers' simulated results, simulated again here. Ctrl-C ends the wait for them.

use super::trials::interval;
use crate::errors;
use crate::records::{record, tuple};
use crate::waiting::in_own_thread;
use bywash_sim::paper::servers::{self, Figures};
use bywash_sim::paper::{Target, streams};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

const MODULE: &str = "bywash.plan.records";

/// Simulates the bars of Figure 8 (the Web server) or 9 (video on demand) of Carrera et al. on all
/// processors: by interconnect, then by the place where TCP and the file system run. Takes a second or
/// so.
#[pyfunction]
#[pyo3(signature = (number, /))]
pub(crate) fn bars<'py>(py: Python<'py>, number: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let wanted: Option<u32> = number.extract().ok();
    let Some(bars) = in_own_thread(py, move || Ok(wanted.and_then(servers::figure)))? else {
        let text = format!("the figure is {}, and must be 8 or 9; the others are curves", number.repr()?);
        return Err(errors::option(py, text));
    };
    tuple(py, &bars, |bar| {
        record!(py, MODULE, "Bar", {
            name: &bar.name,
            throughput: interval(py, bar.throughput)?,
            binding: &bar.binding,
            busiest: &bar.busiest,
            busy: bar.busy,
            processors: bar.processors,
            computing: bar.computing,
            stalled: bar.stalled,
            says: bar.says,
            says_binding: bar.says_binding,
            verdict: bar.verdict.name(),
        })
    })
}

/// Compares statements of the papers about their simulations with numbers that this call simulates on all
/// processors. Takes some seconds.
#[pyfunction]
pub(crate) fn targets(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    let targets: Vec<Target> = in_own_thread(py, || {
        Ok([Figures::without_limits().targets(), servers::gap_targets(), streams::targets()].concat())
    })?;
    tuple(py, &targets, |target| {
        record!(py, MODULE, "Target", {
            source: target.source,
            what: target.what,
            says: target.says(),
            simulated: target.simulated,
            verdict: target.verdict.name(),
            note: target.note,
        })
    })
}
