//! A flow as a value: its description, its plan, and a handle to it while it runs.

use crate::control::Control;
use crate::description::Description;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::movers::Mover;
use crate::part;
use crate::plan::{FlowOptions, Plan, Prefer};
use crate::report::{Failed, Report};
use crate::run;
use crate::serve;
use crate::stage::Stage;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// A transfer of data from a source to a sink, which can be planned, explained, started, watched and
/// cancelled.
///
/// ```
/// use bywash_flow::Flow;
///
/// let folder = tempfile::tempdir()?;
/// let (here, there) = (folder.path().join("here"), folder.path().join("there"));
/// std::fs::write(&here, "data")?;
/// let flow = Flow::new(here.to_str().unwrap().parse()?, there.to_str().unwrap().parse()?)
///     .stage("hash:sha256".parse()?);
/// println!("{}", flow.plan()?[0].movers[0].mover);
/// let report = flow.start()?.wait()?;
/// assert_eq!((report.bytes, report.whole), (4, true));
/// assert_eq!(std::fs::read(&there)?, b"data");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Flow {
    description: Description,
}

impl Flow {
    /// Creates a flow without stages; the planner chooses the mover.
    pub fn new(source: Endpoint, sink: Endpoint) -> Flow {
        Flow {
            description: Description {
                source,
                stages: Vec::new(),
                sink,
                options: FlowOptions::default(),
                one_way: false,
                expect_size: None,
                resume: false,
            },
        }
    }

    /// Appends a stage.
    pub fn stage(mut self, stage: Stage) -> Flow {
        self.description.stages.push(stage);
        self
    }

    /// Forces this mover.
    pub fn via(mut self, mover: Mover) -> Flow {
        self.description.options.via = Some(mover);
        self
    }

    /// Allows pages of the source to be sent by reference: the sink then gets what they hold when they are
    /// sent, not what they held when they were read.
    pub fn by_reference(mut self, by_reference: bool) -> Flow {
        self.description.options.by_reference = by_reference;
        self
    }

    /// Sets the block size in bytes, 512 to 4 MiB.
    pub fn block(mut self, bytes: usize) -> Flow {
        self.description.options.block = Some(bytes);
        self
    }

    /// Makes the data durable on the sink's device before the flow succeeds.
    pub fn sync(mut self, sync: bool) -> Flow {
        self.description.options.sync = sync;
        self
    }

    /// Sets the kind of cost by which movers that take turns over the first pieces of the flow are compared.
    pub fn prefer(mut self, prefer: Prefer) -> Flow {
        self.description.options.prefer = prefer;
        self
    }

    /// Measures the highest rate without loss first, and sends datagrams at that rate. The sink must be
    /// `sequenced`, and its receiver must be running.
    pub fn finds_rate(mut self, finds_rate: bool) -> Flow {
        self.description.options.finds_rate = finds_rate;
        self
    }

    /// Moves data between two sockets from the source to the sink only, instead of in both directions.
    pub fn one_way(mut self, one_way: bool) -> Flow {
        self.description.one_way = one_way;
        self
    }

    /// Fails unless the source gives exactly `bytes` bytes. Meant for peers whose end of stream is the same
    /// as a breakdown.
    pub fn expect_size(mut self, bytes: u64) -> Flow {
        self.description.expect_size = Some(bytes);
        self
    }

    /// Continues the partial file that an earlier flow to the same file left: data that equals the source is
    /// not moved again. The source must be a file or a block device, the sink a new file, and `rate:` the
    /// only kind of stage.
    pub fn resume(mut self, resume: bool) -> Flow {
        self.description.resume = resume;
        self
    }

    /// Returns the plans of the flow, one for each part; each `exec:` stage adds a part. Nothing is created,
    /// connected or moved.
    ///
    /// # Errors
    /// [`Error::Usage`] if the ends, stages and options do not go together; [`Error::Unfit`] if the mover
    /// that [`Flow::via`] forces cannot move the data; [`Error::Io`] if an end cannot be inspected.
    pub fn plan(&self) -> Result<Vec<Plan>, Error> {
        plans(&self.description.clone().settled()?)
    }

    /// Starts the flow in a thread of its own.
    ///
    /// # Errors
    /// Those of [`Flow::plan`], and [`Error::Io`] if a descriptor or the thread cannot be created. Later
    /// errors are returned by [`Running::wait`].
    pub fn start(&self) -> Result<Running, Error> {
        let description = self.description.clone().settled()?;
        let plans = plans(&description)?;
        let control = Arc::new(Control::new()?);
        let outcome = Arc::new(OnceLock::new());
        let (shared, result) = (control.clone(), outcome.clone());
        let thread = std::thread::Builder::new()
            .name("bywash flow".into())
            .spawn(move || {
                let end = AtEnd(&shared);
                // Only this thread sets the result, so that `set` cannot fail.
                let _ = result.set(run(&description, &plans, &shared));
                drop(end);
            })
            .map_err(|error| Error::io("start a thread", error))?;
        Ok(Running { watch: ProgressHandle(control), outcome, thread })
    }
}

fn plans(flow: &Description) -> Result<Vec<Plan>, Error> {
    part::cut(&flow.source, &flow.stages, &flow.sink).iter().map(|part| part.plan(&flow.options)).collect()
}

/// Runs a flow until it has ended; a source that serves many connections runs until it is cancelled.
fn run(flow: &Description, plans: &[Plan], control: &Control) -> Result<Report, Failed> {
    match serve::listen(flow, control)? {
        None => run::run(flow, plans, None, control),
        Some(listener) => serve::serve(&listener, flow, plans, control),
    }
}

/// Signals the end of the flow when it is dropped, even by a panic.
struct AtEnd<'a>(&'a Control);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.set_ended();
    }
}

/// Handle to a running flow. If it is dropped, the flow continues.
#[derive(Debug)]
pub struct Running {
    watch: ProgressHandle,
    outcome: Arc<OnceLock<Result<Report, Failed>>>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Returns a handle with which other threads can watch and cancel the flow.
    pub fn watch(&self) -> ProgressHandle {
        self.watch.clone()
    }

    /// Waits until the flow has ended and returns its report.
    ///
    /// # Errors
    /// [`Failed`], with the error and the report up to it.
    pub fn wait(self) -> Result<Report, Failed> {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        match Arc::into_inner(self.outcome).and_then(OnceLock::into_inner) {
            Some(outcome) => outcome,
            None => {
                unreachable!("the thread has left an outcome and is gone, and nobody else has a share in it")
            }
        }
    }

    /// Waits until the flow has ended or `limit` has passed (`None`: without a timeout). Returns the result,
    /// any number of times, or `None` if the flow is still running.
    ///
    /// ```
    /// use bywash_flow::{Error, Flow};
    /// use std::time::Duration;
    ///
    /// let running = Flow::new("zero:".parse()?, "null:".parse()?).start()?;
    /// assert!(running.result(Some(Duration::from_millis(1)))?.is_none());
    /// running.watch().cancel();
    /// let failed = running.result(None)?.unwrap().as_ref().unwrap_err();
    /// assert!(matches!(failed.error, Error::Cancelled) && !failed.report.whole);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if poll(2) fails.
    ///
    /// # Panics
    /// Panics if the flow's thread has panicked.
    pub fn result(&self, limit: Option<Duration>) -> Result<Option<&Result<Report, Failed>>, Error> {
        if self.outcome.get().is_none() && !self.watch.wait(limit)? {
            return Ok(None);
        }
        Ok(Some(
            self.outcome.get().expect("a flow that has ended has left an outcome, but where it panicked"),
        ))
    }

    /// Returns true if the flow's thread has ended.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Handle with which any thread can watch and cancel a running flow.
#[derive(Clone, Debug)]
pub struct ProgressHandle(Arc<Control>);

impl ProgressHandle {
    /// Returns the number of bytes moved from the source so far, holes included.
    pub fn moved(&self) -> u64 {
        self.0.moved()
    }

    /// Returns the number of bytes to move in all, if it is known.
    pub fn total(&self) -> Option<u64> {
        self.0.total()
    }

    /// Removes and returns the messages of the running flow, such as the fingerprint of a listener's
    /// certificate.
    pub fn take_notices(&self) -> Vec<String> {
        self.0.take_notices()
    }

    /// Cancels the flow. Waits end at once, and a mover stops after its current piece.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Waits until the flow has ended or `limit` has passed (`None`: without a timeout). Returns true if the
    /// flow has ended; [`Running::wait`] returns at once then.
    ///
    /// ```
    /// use bywash_flow::Flow;
    /// use std::time::Duration;
    ///
    /// let running = Flow::new("zero:".parse()?, "null:".parse()?).start()?;
    /// let watch = running.watch();
    /// assert!(!watch.wait(Some(Duration::from_millis(1)))?);
    /// watch.cancel();
    /// assert!(watch.wait(None)?);
    /// # Ok::<(), bywash_flow::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if poll(2) fails.
    pub fn wait(&self, limit: Option<Duration>) -> Result<bool, Error> {
        self.0.wait_for_end(limit)
    }
}

/// Descriptor for event loops, readable once the flow has ended. Callers may poll the descriptor, but must
/// not read it.
impl AsFd for ProgressHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.over()
    }
}
