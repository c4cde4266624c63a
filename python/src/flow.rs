//! Flows: what moves from where to where, what it would do, and one that was started.

use crate::errors::flow_exception;
use crate::options::{number, one_of};
use crate::records;
use crate::waiting::{Attempt, Limit, in_slices};
use bywash_container::Error as ContainerError;
use bywash_flow::spec::File;
use bywash_flow::{Endpoint, Error, Flow as Described, Running as Started, Stage, Watch};
use bywash_link::Maker;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Data that goes from here to there the best way that there is: files, sockets, pipes, devices, programs.
///
/// source, sink
///     Endpoints as the command ``bywash flow`` has them: ``"file:/a/b,offset=1M"``, a path alone,
///     ``"tcp:example.org:9000"``, ``"unix-listen:/run/x"``, ``"-"``. A ``pathlib.Path`` is a file, whatever its name.
/// stages
///     What is done with the data on its way, in this order: ``"hash:sha256"``, ``"tee:ENDPOINT"``, ``"limit:SIZE"``,
///     ``"rate:SIZE"`` (a second), ``"compress:zstd"``, ``"decompress:"``, ``"exec:COMMAND"``.
/// via
///     Only by this mover, as ``"splice"`` or ``"buffer"``; None: the planner chooses.
/// by
///     ``"value"`` (default): the sink gets what the source held when it was read. ``"reference"``: pages may be sent
///     as they are when they leave.
/// block
///     Bytes of a block, 512 to 4 MiB; None: the planner chooses.
/// sync
///     What was moved is on the device in the end.
/// one_way
///     Between two sockets: only from the source to the sink, and not back too.
/// finds_rate
///     Into numbered datagrams: at the highest rate at which nothing is lost, which is found first.
///
/// A flow is a value: nothing is opened before it is started, and it can be started more than once. A file gets its
/// name when everything has arrived; what was cancelled or failed leaves no file that looks whole.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Flow {
    flow: Described,
    words: Vec<String>,
}

const WAYS: [(&str, bool); 2] = [("value", false), ("reference", true)];
/// A flow that is cancelled stops after the piece that it moves. Where a device does not answer it is left behind.
const STOP_LIMIT: Duration = Duration::from_secs(5);

fn read<V: FromStr<Err = Error>>(py: Python<'_>, text: &str) -> PyResult<V> {
    text.parse().map_err(|error| flow_exception(py, &error, None))
}

fn endpoint(given: &Bound<'_, PyAny>) -> PyResult<Endpoint> {
    if let Ok(text) = given.cast::<PyString>() {
        return read(given.py(), text.to_str()?);
    }
    let path: PathBuf = given.extract()?;
    Ok(Endpoint::File(File { path, ..File::default() }))
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

    /// Source, as text.
    #[getter]
    fn source(&self) -> &str {
        &self.words[0]
    }

    /// Sink, as text.
    #[getter]
    fn sink(&self) -> &str {
        &self.words[self.words.len() - 1]
    }

    /// Stages, as texts.
    #[getter]
    fn stages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.words[1..self.words.len() - 1])
    }

    /// Returns the plan for each part of the flow; a program as a stage makes more than one part. Nothing is created,
    /// connected or moved.
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let plans = self.plans(py)?;
        let plans: Vec<_> =
            plans.iter().map(|plan| records::plan(py, plan)).collect::<PyResult<Vec<Bound<'_, PyAny>>>>()?;
        PyTuple::new(py, plans)
    }

    /// The plan for people: what would be done, the alternatives, and why not.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.plans(py)?.iter().map(ToString::to_string).collect())
    }

    /// Starts it, in a thread of its own.
    fn start(&self, py: Python<'_>) -> PyResult<Running> {
        let started = py.detach(|| self.flow.start()).map_err(|error| flow_exception(py, &error, None))?;
        Ok(Running {
            watch: started.watch(),
            started: Arc::new(started),
            maker: Maker::this(),
            name: self.words.join(" -> "),
        })
    }

    /// Starts it and waits for its end. If it does not end within ``timeout`` seconds, or a signal handler raises
    /// something (Ctrl-C), it is cancelled.
    #[pyo3(signature = (timeout=None))]
    fn run<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let limit = Limit::of(timeout)?;
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

/// A flow that was started: ``Flow.start`` makes it.
///
/// Several threads may look at it, wait for it and cancel it. When it is dropped the flow goes on. At the end of a
/// ``with`` block its end is waited for, and why it failed is raised, unless it was cancelled; an exception on its way
/// out of the block cancels it.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Running {
    started: Arc<Started>,
    watch: Watch,
    maker: Maker,
    name: String,
}

/// In a forked child there is no thread that could be let go.
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

    fn wait_until<'py>(&self, py: Python<'py>, limit: Limit) -> PyResult<Bound<'py, PyAny>> {
        in_slices(py, limit, |slice| {
            Attempt::Done(self.check().and_then(|()| match self.watch.wait(Some(slice)) {
                Ok(true) => Ok(()),
                Ok(false) => Err(ContainerError::TimedOut),
                Err(error) => Err(waiting_failed(error)),
            }))
        })?;
        let outcome = self.started.outcome(None).map_err(|error| flow_exception(py, &error, None))?;
        match outcome {
            Some(Ok(report)) => records::report(py, report),
            Some(Err(failed)) => {
                let report = records::report(py, &failed.report)?;
                Err(flow_exception(py, &failed.error, Some(report)))
            }
            None => unreachable!("it is over"),
        }
    }

    /// Cancels it and waits a while for its end.
    fn stop(&self, py: Python<'_>) {
        if self.maker.is_here() {
            self.watch.cancel();
            // Whoever stops it has something more important to tell.
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
    /// Bytes taken from the source so far.
    #[getter]
    fn moved(&self) -> u64 {
        self.watch.moved()
    }

    /// Bytes that there are in all; None where nobody knows, and until the source is open.
    #[getter]
    fn total(&self) -> Option<u64> {
        self.watch.total()
    }

    /// True if the flow has ended.
    #[getter]
    fn over(&self) -> bool {
        matches!(self.watch.wait(Some(Duration::ZERO)), Ok(true))
    }

    /// Returns the notices since the last call, such as the fingerprint of a listener's certificate.
    fn notices(&self) -> Vec<String> {
        self.watch.take_notices()
    }

    /// Ends it: it stops after the piece that it is moving, wherever it waits, and ``wait`` raises ``Cancelled``. One
    /// that has ended stays what it is.
    fn cancel(&self) {
        if self.maker.is_here() {
            self.watch.cancel();
        }
    }

    /// Waits until it has ended, and tells what became of it, as often as one asks. One that has failed raises why,
    /// with how far it came as the exception's ``report``. After ``timeout`` seconds: ``TimedOut``; it goes on then, and
    /// so it does after Ctrl-C.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.wait_until(py, Limit::of(timeout)?)
    }

    /// A descriptor that is readable from the end on, for event loops: wait for that, and do nothing else with it.
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
        match self.wait_until(py, Limit::of(None)?) {
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
