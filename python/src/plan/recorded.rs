//! Recorded calls of programs, as values of Python, and their replay.

use super::Description;
use super::trials::whole;
use crate::errors;
use crate::options::{number, one_of};
use crate::records::{record, tuple};
use bywash_sim::Options;
use bywash_sim::server::{Pace, replay as run};
use bywash_sim::trace::{Imported, Omission, Trace as Recorded};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::HashSet;
use std::path::PathBuf;

const MODULE: &str = "bywash.plan.records";
const PACES: [(&str, Pace); 3] =
    [("recorded", Pace::Recorded), ("fastest", Pace::Fastest), ("computed", Pace::Computed)];

/// Recorded calls of programs: what ``bywash plan trace`` makes of a recording.
///
/// text
///     Output of strace or blkparse, or a trace (CSV with the columns time, process, call, file, offset, length).
///
/// ``len(trace)`` is the number of calls. A text that is none of these raises a ``DescriptionError``.
#[pyclass(frozen, module = "bywash.plan")]
pub(crate) struct Trace {
    imported: Imported,
    text: String,
}

#[pymethods]
impl Trace {
    #[new]
    fn new(py: Python<'_>, text: String) -> PyResult<Trace> {
        let imported = py.detach(|| Recorded::import(&text));
        let imported =
            imported.map_err(|error| errors::from_text(py, "DescriptionError", error.to_string()))?;
        Ok(Trace { imported, text })
    }

    /// Form of the recording, in words.
    #[getter]
    fn form(&self) -> &'static str {
        self.imported.form.name()
    }

    /// Names of the files and connections, in the order of their first calls.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.imported.trace.files)
    }

    /// Number of processes that made calls.
    #[getter]
    fn processes(&self) -> usize {
        self.imported.trace.calls.iter().map(|call| call.process).collect::<HashSet<u32>>().len()
    }

    /// Time from the first call to the last, in seconds.
    #[getter]
    fn seconds(&self) -> f64 {
        self.imported.trace.calls.last().map_or(0.0, |call| call.at)
    }

    /// Calls and lines of the recording that the trace leaves out, most frequent first.
    #[getter]
    fn left_out<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        tuple(py, &self.imported.left_out, |one| omission(py, one))
    }

    /// Assumptions of the trace that the recording does not state, most frequent first.
    #[getter]
    fn assumed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        tuple(py, &self.imported.assumed, |one| omission(py, one))
    }

    /// Returns the trace as CSV, which ``Trace`` and ``bywash plan simulate --replay`` read.
    fn to_csv(&self) -> String {
        self.imported.trace.write()
    }

    fn __len__(&self) -> usize {
        self.imported.trace.calls.len()
    }

    fn __getnewargs__(&self) -> (&str,) {
        (&self.text,)
    }

    fn __repr__(&self) -> String {
        format!("<bywash.plan.Trace: {} calls of {}>", self.__len__(), self.imported.form.name())
    }
}

fn omission<'py>(py: Python<'py>, known: &Omission) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Omission", { what: &known.what, lines: known.count, first_line: known.line })
}

/// Reads a recording from a file: output of strace or blkparse, or a trace.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn trace(py: Python<'_>, path: PathBuf) -> PyResult<Trace> {
    let bytes: Vec<u8> =
        py.import("pathlib")?.call_method1("Path", (&path,))?.call_method0("read_bytes")?.extract()?;
    // The output of the traced program between strace's lines may be any bytes.
    Trace::new(py, String::from_utf8_lossy(&bytes).into_owned()).map_err(|error| {
        errors::from_text(py, "DescriptionError", format!("{}: {}", path.display(), error.value(py)))
    })
}

/// Replays recorded calls on a description's machine, instead of its requests.
///
/// architecture
///     Architecture of the machine's I/O; None: the description's own.
/// pace
///     ``"recorded"``: each call at its recorded time, or as soon as its process has completed the one before;
///     ``"fastest"``: each call as soon as its process has completed the one before;
///     ``"computed"``: each call after the recorded computing, and waits in the recorded order; for traces of
///     ``bywash plan record``.
/// seed
///     Seed of the random numbers: the same seed gives the same run.
/// progress
///     Function that is called now and then with the share that is done, from 0 to 1.
///
/// ``machine.memory.file-cache`` decides which reads are served from memory. The report's requests are the calls.
/// Ctrl-C raises ``Stopped``, a KeyboardInterrupt, whose ``partial`` is the report so far.
#[pyfunction]
#[pyo3(
    signature = (description, trace, architecture=None, *, pace=None, seed=None, progress=None),
    text_signature = "(description, trace, architecture=None, *, pace='recorded', seed=1, progress=None)"
)]
pub(crate) fn replay<'py>(
    py: Python<'py>,
    description: &Description,
    trace: &Trace,
    architecture: Option<&Bound<'py, PyAny>>,
    pace: Option<&Bound<'py, PyAny>>,
    seed: Option<&Bound<'py, PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let known = &description.known;
    let architecture = architecture.map_or(Ok(known.architecture), super::architecture)?;
    let pace = pace.map_or(Ok(Pace::Recorded), |pace| one_of("pace", pace, &PACES))?;
    let seed = seed.map_or(Ok(Options::default().seed), |seed| number("seed", seed))?;
    whole(py, progress, |watch| run(known, architecture, &trace.imported.trace, pace, seed, watch))
}
