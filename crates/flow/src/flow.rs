//! A flow as a value: what it is, what it would do, and starting it.

use crate::control::Control;
use crate::error::Error;
use crate::part;
use crate::plan::{Mover, Plan, Wishes};
use crate::report::{Failed, Report};
use crate::run;
use crate::spec::{Endpoint, Stage};
use rustix::fs::FileType;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Data from here to there: it can be planned, explained, started, watched and cancelled.
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
    pub(crate) source: Endpoint,
    pub(crate) stages: Vec<Stage>,
    pub(crate) sink: Endpoint,
    pub(crate) wishes: Wishes,
    pub(crate) one_way: bool,
}

impl Flow {
    /// A flow without stages, whose way is the planner's choice.
    pub fn new(source: Endpoint, sink: Endpoint) -> Flow {
        Flow { source, stages: Vec::new(), sink, wishes: Wishes::default(), one_way: false }
    }

    /// Puts a stage behind those that are there.
    pub fn stage(mut self, stage: Stage) -> Flow {
        self.stages.push(stage);
        self
    }

    /// By this mover and no other.
    pub fn via(mut self, mover: Mover) -> Flow {
        self.wishes.via = Some(mover);
        self
    }

    /// Pages may be sent as they are when they leave, and not as they were when they were read.
    pub fn by_reference(mut self, by_reference: bool) -> Flow {
        self.wishes.by_reference = by_reference;
        self
    }

    /// Bytes of a block, 512 B to 4 MiB.
    pub fn block(mut self, bytes: usize) -> Flow {
        self.wishes.block = Some(bytes);
        self
    }

    /// What has been moved is on the device in the end.
    pub fn sync(mut self, sync: bool) -> Flow {
        self.wishes.sync = sync;
        self
    }

    /// Datagrams are sent at the highest rate at which nothing is lost, which is found first. The sink must be
    /// sequenced, and a receiver must be there.
    pub fn finds_rate(mut self, finds_rate: bool) -> Flow {
        self.wishes.finds_rate = finds_rate;
        self
    }

    /// Between two sockets: only from the source to the sink, and not back too.
    pub fn one_way(mut self, one_way: bool) -> Flow {
        self.one_way = one_way;
        self
    }

    /// What the flow would do: a plan for each of its parts, of which programs make more than one. Nothing is made,
    /// connected or moved.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn plan(&self) -> Result<Vec<Plan>, Error> {
        self.clone().settled()?.plans()
    }

    fn plans(&self) -> Result<Vec<Plan>, Error> {
        part::cut(&self.source, &self.stages, &self.sink).iter().map(|part| part.plan(&self.wishes)).collect()
    }

    /// Starts it in a thread of its own.
    ///
    /// # Errors
    /// Why it cannot be. What fails later is what [`Running::wait`] answers.
    pub fn start(&self) -> Result<Running, Error> {
        let flow = self.clone().settled()?;
        let plans = flow.plans()?;
        let control = Arc::new(Control::new()?);
        let outcome = Arc::new(OnceLock::new());
        let (shared, place) = (control.clone(), outcome.clone());
        let thread = std::thread::Builder::new()
            .name("bywash flow".into())
            .spawn(move || {
                let end = AtEnd(&shared);
                // Nobody else leaves one there.
                let _ = place.set(run::run(&flow, &plans, &shared));
                drop(end);
            })
            .map_err(|error| Error::io("start a thread", error))?;
        Ok(Running { watch: Watch(control), outcome, thread })
    }
}

/// Tells the end of a flow, also where that is a panic.
struct AtEnd<'a>(&'a Control);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Flow {
    /// A folder as a sink means a file in it with the source's name.
    fn settled(mut self) -> Result<Flow, Error> {
        let (Endpoint::File(from), Endpoint::File(to)) = (&self.source, &mut self.sink) else {
            return Ok(self);
        };
        if to.path.is_dir()
            && let Some(name) = from.path.file_name()
        {
            to.path.push(name);
        }
        let here = rustix::fs::stat(&from.path);
        let same = |one: &rustix::fs::Stat, other: &rustix::fs::Stat| {
            (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev)
        };
        match (here, rustix::fs::stat(&to.path)) {
            (Ok(here), Ok(there))
                if same(&here, &there) && FileType::from_raw_mode(here.st_mode).is_file() =>
            {
                Err(Error::Usage(format!("{} and {} are the same file", self.source, self.sink)))
            }
            _ => Ok(self),
        }
    }
}

/// A flow that has been started. When it is dropped it goes on.
#[derive(Debug)]
pub struct Running {
    watch: Watch,
    outcome: Arc<OnceLock<Result<Report, Failed>>>,
    thread: JoinHandle<()>,
}

impl Running {
    /// To look at it from elsewhere, and to cancel it.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Why it did not come to its end, and how far it came.
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

    /// Waits until it has ended, or for so long (none: for ever), and tells what became of it, as often as one asks;
    /// none: it goes on.
    ///
    /// ```
    /// use bywash_flow::{Error, Flow};
    /// use std::time::Duration;
    ///
    /// let running = Flow::new("zero:".parse()?, "null:".parse()?).start()?;
    /// assert!(running.outcome(Some(Duration::from_millis(1)))?.is_none());
    /// running.watch().cancel();
    /// let failed = running.outcome(None)?.unwrap().as_ref().unwrap_err();
    /// assert!(matches!(failed.error, Error::Cancelled) && !failed.report.whole);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// What the kernel says about waiting.
    ///
    /// # Panics
    /// If the flow did.
    pub fn outcome(&self, limit: Option<Duration>) -> Result<Option<&Result<Report, Failed>>, Error> {
        if self.outcome.get().is_none() && !self.watch.wait(limit)? {
            return Ok(None);
        }
        Ok(Some(
            self.outcome.get().expect("a flow that has ended has left an outcome, but where it panicked"),
        ))
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Looks at a flow that runs.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Control>);

impl Watch {
    /// Bytes taken from the source so far.
    pub fn moved(&self) -> u64 {
        self.0.moved()
    }

    /// Bytes that there are in all, where that is known.
    pub fn total(&self) -> Option<u64> {
        self.0.total()
    }

    /// What there is to hear before the end, as the fingerprint of a listener's certificate; each once.
    pub fn take_notices(&self) -> Vec<String> {
        self.0.take_notices()
    }

    /// Ends it: it stops after the piece that it is moving, wherever it waits.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Waits until it has ended (true), or for so long (false; none: for ever). When it has ended,
    /// [`Running::wait`] does not wait any more.
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
    /// What the kernel says.
    pub fn wait(&self, limit: Option<Duration>) -> Result<bool, Error> {
        self.0.wait_for_end(limit)
    }
}

/// For event loops: readable from the flow's end on. It is to be polled, and for nothing else.
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.over()
    }
}
