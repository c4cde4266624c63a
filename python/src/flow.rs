//! Flows: their description, their plan, and flows that were started.

use crate::errors::flow_exception;
use crate::options::{number, one_of};
use crate::records;
use crate::waiting::{Attempt, Deadline, in_slices};
use bywash_container::Error as ContainerError;
use bywash_flow::{Endpoint, Error, Flow as Described, ProgressHandle, Running as Started, Stage};
use bywash_link::ProcessGeneration;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Data that moves from a source to a sink by the best mover: files, sockets, pipes, devices, programs.
///
/// source, sink
///     Endpoints in the syntax of the command ``bywash flow``: ``"file:/a/b,offset=1M"``, a path alone,
///     ``"tcp:example.org:9000"``, ``"unix-listen:/run/x"``, ``"-"``. A ``pathlib.Path`` is always a file,
///     whatever its name.
/// stages
///     Stages that the data passes through, in this order: ``"hash:sha256"``, ``"tee:ENDPOINT"``,
///     ``"limit:SIZE"``, ``"rate:SIZE"`` (a second), ``"compress:zstd"``, ``"decompress:"``,
///     ``"exec:COMMAND"``.
/// via
///     Name of the only mover to use, such as ``"splice"`` or ``"buffer"``; None: the planner chooses.
/// by
///     ``"value"`` (default): the sink gets the bytes that the source held when they were read.
///     ``"reference"``: pages may be sent with the contents that they have when they leave.
/// block
///     Size of a block in bytes, 512 to 4 MiB; None: the planner chooses.
/// sync
///     The data is durable on the device before the flow reports success.
/// one_way
///     Between two sockets: move data from the source to the sink only, and not back too.
/// finds_rate
///     Into numbered datagrams: first find the highest rate at which no datagram is lost, then send at this
///     rate.
///
/// A flow is a value: it opens nothing before it is started, and can be started more than once. A file gets
/// its name when all data has arrived; a flow that was cancelled or failed leaves no file that looks
/// complete.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Flow {
    flow: Described,
    words: Vec<String>,
}

const WAYS: [(&str, bool); 2] = [("value", false), ("reference", true)];
/// Greatest time that a call waits for a cancelled flow to end. A cancelled flow stops after the block that
/// it moves; if a device does not complete in this time, the call returns and the flow's thread goes on.
const STOP_LIMIT: Duration = Duration::from_secs(5);

fn read<V: FromStr<Err = Error>>(py: Python<'_>, text: &str) -> PyResult<V> {
    text.parse().map_err(|error| flow_exception(py, &error, None))
}

fn endpoint(given: &Bound<'_, PyAny>) -> PyResult<Endpoint> {
    if let Ok(text) = given.cast::<PyString>() {
        return read(given.py(), text.to_str()?);
    }
    let path: PathBuf = given.extract()?;
    Ok(Endpoint::file_at(path))
}

#[pymethods]
impl Flow {
    #[new]
    #[pyo3(
        signature = (source, sink, *, stages=None, via=None, by=None, block=None, sync=false, one_way=false, finds_rate=false),
        text_signature = "(source, sink, *, stages=(), via=None, by='value', block=None, sync=False, one_way=False, finds_rate=False)"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        source: &Bound<'_, PyAny>,
        sink: &Bound<'_, PyAny>,
        stages: Option<Vec<String>>,
        via: Option<&str>,
        by: Option<&Bound<'_, PyAny>>,
        block: Option<&Bound<'_, PyAny>>,
        sync: bool,
        one_way: bool,
        finds_rate: bool,
    ) -> PyResult<Flow> {
        let py = source.py();
        let (source, sink) = (endpoint(source)?, endpoint(sink)?);
        let stages: Vec<Stage> =
            stages.unwrap_or_default().iter().map(|stage| read(py, stage)).collect::<PyResult<_>>()?;
        let mut words = vec![source.to_string()];
        words.extend(stages.iter().map(ToString::to_string));
        words.push(sink.to_string());
        let mut flow = Described::new(source, sink).sync(sync).one_way(one_way).finds_rate(finds_rate);
        if let Some(by) = by {
            flow = flow.by_reference(one_of("by", by, &WAYS)?);
        }
        if let Some(block) = block {
            flow = flow.block(number::<u64>("block", block)?.try_into().unwrap_or(usize::MAX));
        }
        if let Some(via) = via {
            flow = flow.via(read(py, via)?);
        }
        Ok(Flow { flow: stages.into_iter().fold(flow, Described::stage), words })
    }

    /// The source, as text.
    #[getter]
    fn source(&self) -> &str {
        &self.words[0]
    }

    /// The sink, as text.
    #[getter]
    fn sink(&self) -> &str {
        &self.words[self.words.len() - 1]
    }

    /// The stages between the source and the sink, as text.
    #[getter]
    fn stages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.words[1..self.words.len() - 1])
    }

    /// Returns the plans of the flow, one for each pair of ends; each program among the stages adds one.
    /// Nothing is created, connected or moved.
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let plans = self.plans(py)?;
        let plans: Vec<_> =
            plans.iter().map(|plan| records::plan(py, plan)).collect::<PyResult<Vec<Bound<'_, PyAny>>>>()?;
        PyTuple::new(py, plans)
    }

    /// Returns the plan as text for people: the movers that fit, the others, and the reasons.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.plans(py)?.iter().map(ToString::to_string).collect())
    }

    /// Starts the flow in a thread of its own.
    fn start(&self, py: Python<'_>) -> PyResult<Running> {
        let started = py.detach(|| self.flow.start()).map_err(|error| flow_exception(py, &error, None))?;
        Ok(Running {
            watch: started.watch(),
            started: Arc::new(started),
            maker: ProcessGeneration::current(),
            name: self.words.join(" -> "),
        })
    }

    /// Starts the flow and waits for its end. Cancels the flow if it does not end within ``timeout`` seconds,
    /// or if a signal handler raises an exception (Ctrl-C).
    #[pyo3(signature = (timeout=None))]
    fn run<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let limit = Deadline::after(timeout)?;
        let running = self.start(py)?;
        running.wait_until(py, limit).inspect_err(|_| running.stop(py))
    }

    fn __repr__(&self) -> String {
        format!("<bywash.Flow: {}>", self.words.join(" -> "))
    }
}

impl Flow {
    fn plans(&self, py: Python<'_>) -> PyResult<Vec<bywash_flow::plan::Plan>> {
        py.detach(|| self.flow.plan()).map_err(|error| flow_exception(py, &error, None))
    }
}

/// A flow that was started. ``Flow.start`` makes it.
///
/// Several threads may watch the flow, wait for it and cancel it. The flow goes on when this object is
/// dropped. The end of a ``with`` block waits for the end of the flow and raises its error, unless it was
/// cancelled; an exception that leaves the block cancels the flow.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Running {
    started: Arc<Started>,
    watch: ProgressHandle,
    maker: ProcessGeneration,
    name: String,
}

/// Leaks the started flow in a forked child, which does not have the flow's thread.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            std::mem::forget(self.started.clone());
        }
    }
}

impl Running {
    fn check(&self) -> Result<(), ContainerError> {
        if self.maker.is_here() { Ok(()) } else { Err(ContainerError::Forked) }
    }

    fn wait_until<'py>(&self, py: Python<'py>, limit: Deadline) -> PyResult<Bound<'py, PyAny>> {
        in_slices(py, limit, |slice| {
            Attempt::Done(self.check().and_then(|()| match self.watch.wait(Some(slice)) {
                Ok(true) => Ok(()),
                Ok(false) => Err(ContainerError::TimedOut),
                Err(error) => Err(waiting_failed(error)),
            }))
        })?;
        let outcome = self.started.result(None).map_err(|error| flow_exception(py, &error, None))?;
        match outcome {
            Some(Ok(report)) => records::report(py, report),
            Some(Err(failed)) => {
                let report = records::report(py, &failed.report)?;
                Err(flow_exception(py, &failed.error, Some(report)))
            }
            None => unreachable!("it is over"),
        }
    }

    /// Cancels the flow and waits at most [`STOP_LIMIT`] for its end.
    fn stop(&self, py: Python<'_>) {
        if self.maker.is_here() {
            self.watch.cancel();
            // An error of the wait is dropped: the caller has an exception of its own to raise.
            let _ = py.detach(|| self.watch.wait(Some(STOP_LIMIT)));
        }
    }
}

fn waiting_failed(error: Error) -> ContainerError {
    match error {
        Error::Io { what, source } => ContainerError::Io { what, source },
        other => ContainerError::Io { what: "wait for a flow".into(), source: std::io::Error::other(other) },
    }
}

#[pymethods]
impl Running {
    /// Number of bytes taken from the source so far.
    #[getter]
    fn moved(&self) -> u64 {
        self.watch.moved()
    }

    /// Number of bytes to move in all; None if it is unknown, and until the source is open.
    #[getter]
    fn total(&self) -> Option<u64> {
        self.watch.total()
    }

    /// True if the flow has ended.
    #[getter]
    fn over(&self) -> bool {
        matches!(self.watch.wait(Some(Duration::ZERO)), Ok(true))
    }

    /// Returns the notices that came since the last call, for example the fingerprint of a listener's
    /// certificate. Each notice is returned once.
    fn notices(&self) -> Vec<String> {
        self.watch.take_notices()
    }

    /// Cancels the flow: it stops after the block that it is moving, even while it waits, and ``wait`` raises
    /// ``Cancelled``. Does nothing to a flow that has ended.
    fn cancel(&self) {
        if self.maker.is_here() {
            self.watch.cancel();
        }
    }

    /// Waits for the end of the flow and returns its report; may be called again. If the flow has failed,
    /// raises its error, whose ``report`` says how far the flow came. Raises ``TimedOut`` after ``timeout``
    /// seconds; the flow goes on then, and after Ctrl-C.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.wait_until(py, Deadline::after(timeout)?)
    }

    /// Returns a descriptor for event loops, which is readable once the flow has ended. Wait for it to become
    /// readable, and do nothing else with it.
    fn fileno(&self) -> c_int {
        self.watch.as_fd().as_raw_fd()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (class, *_rest))]
    fn __exit__(&self, py: Python<'_>, class: &Bound<'_, PyAny>, _rest: &Bound<'_, PyAny>) -> PyResult<()> {
        if !class.is_none() {
            self.stop(py);
            return Ok(());
        }
        let is_cancelled = |error: &PyErr| {
            let cancelled = flow_exception(py, &Error::Cancelled, None);
            error.get_type(py).is(cancelled.get_type(py))
        };
        match self.wait_until(py, Deadline::after(None)?) {
            Err(error) if !is_cancelled(&error) => {
                self.stop(py);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        let state = if self.over() { "ended" } else { "running" };
        format!("<bywash.Running: {}, {state}, {} bytes>", self.name, self.moved())
    }
}
