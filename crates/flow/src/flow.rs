//! A flow as a value: what it is, what it would do, and starting it.

use crate::control::Control;
use crate::error::Error;
use crate::part;
use crate::plan::{Mover, Plan, Prefer, Wishes};
use crate::report::{Failed, Report};
use crate::run;
use crate::spec::{Endpoint, File, Listening, Stage, quoted, quoted_path};
use rustix::fs::FileType;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
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
    /// Bytes that the source must give, no more and no fewer.
    pub(crate) expect_size: Option<u64>,
    /// Whether a part that is there already is gone on with.
    pub(crate) resume: bool,
}

impl Flow {
    /// A flow without stages, whose way is the planner's choice.
    pub fn new(source: Endpoint, sink: Endpoint) -> Flow {
        Flow {
            source,
            stages: Vec::new(),
            sink,
            wishes: Wishes::default(),
            one_way: false,
            expect_size: None,
            resume: false,
        }
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

    /// By what movers are compared that take turns over the first pieces of the flow.
    pub fn prefer(mut self, prefer: Prefer) -> Flow {
        self.wishes.prefer = prefer;
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

    /// Fails unless the source gives exactly so many bytes: for peers that cannot tell an end from a breakdown.
    pub fn expect_size(mut self, bytes: u64) -> Flow {
        self.expect_size = Some(bytes);
        self
    }

    /// Goes on with what an earlier flow to the same file has left as a part: what agrees with the source is not moved
    /// again. The source must be a file or a device, and nothing be done on the way but a rate be kept.
    pub fn resume(mut self, resume: bool) -> Flow {
        self.resume = resume;
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
    /// Whether data moves from the sink to the source too: between two stream sockets, without a stage that would have
    /// to be undone.
    pub(crate) fn moves_both_ways(&self) -> bool {
        let is_stream = |end: &Endpoint| matches!(end, Endpoint::Tcp(_) | Endpoint::Unix(_));
        let only_holds_back = |stage: &Stage| matches!(stage, Stage::Limit(_) | Stage::Rate(_));
        is_stream(&self.source)
            && is_stream(&self.sink)
            && !self.one_way
            && self.stages.iter().all(only_holds_back)
    }

    /// # Errors
    /// [`Error::Usage`] when a part cannot be gone on with, and why.
    fn check_resume(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Usage(format!("--resume: {why}")));
        let new_file = |file: &File| !(file.append || file.in_place || file.offset.is_some());
        match (&self.source, &self.sink) {
            _ if !self.resume => Ok(()),
            (Endpoint::File(_) | Endpoint::Raw { .. }, Endpoint::File(file)) if new_file(file) => {
                match self.stages.iter().find(|stage| !matches!(stage, Stage::Rate(_))) {
                    Some(stage) => wrong(format!("{stage} would not see what is there already")),
                    None if self.expect_size.is_some() => {
                        wrong("an expected size is for sources that cannot be asked".into())
                    }
                    None => Ok(()),
                }
            }
            (Endpoint::File(_) | Endpoint::Raw { .. }, sink) => {
                wrong(format!("{sink} is no file that appears when it is whole, and leaves no part"))
            }
            (source, _) => wrong(format!(
                "{source} is a stream, which cannot be asked whether it still has what was moved; move it anew"
            )),
        }
    }

    /// Whether the source serves ever new connections.
    fn serves(&self) -> bool {
        let listening = match &self.source {
            Endpoint::Tcp(end) => end.listening,
            Endpoint::Unix(end) => end.listening,
            _ => return false,
        };
        listening == Listening::Serves
    }

    /// Refuses a folder as the source, with the commands that copy, pack or send a tree.
    fn check_tree(&self) -> Result<(), Error> {
        let Endpoint::File(File { path, .. }) = &self.source else { return Ok(()) };
        if !path.is_dir() {
            return Ok(());
        }
        let tree = quoted_path(path);
        let packed = |to: &str| format!("tar -cf - {tree} | bywash flow - {to}");
        let instead = match &self.sink {
            Endpoint::File(File { path: to, .. }) if to.is_dir() || !to.exists() => {
                let archive = archive_name(path, to);
                format!("copy the tree: cp -a {tree} {}; or pack it: {}", quoted_path(to), packed(&archive))
            }
            sink => format!("pack the tree: {}", packed(&quoted(&sink.to_string()))),
        };
        let shown = path.display();
        Err(Error::Usage(format!("{shown} is a folder, and a flow moves one stream of bytes; {instead}")))
    }

    /// The flow with what its words imply: a folder as a sink means a file in it with the source's name, and more than
    /// the expected size is not waited for.
    fn settled(mut self) -> Result<Flow, Error> {
        self.check_tree()?;
        self.check_resume()?;
        if let Some(size) = self.expect_size {
            if self.serves() {
                return Err(Error::Usage(
                    "each connection has a size of its own: an expected one does not go with 'fork'".into(),
                ));
            }
            self.stages.insert(0, Stage::Limit(size.saturating_add(1)));
        }
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

/// Name of the archive of a tree that was to go to `to`, as a shell takes it.
fn archive_name(tree: &Path, to: &Path) -> String {
    let in_folder = tree.file_name().filter(|_| to.is_dir()).map(|name| to.join(name));
    let mut name = in_folder.unwrap_or_else(|| to.components().collect()).into_os_string();
    name.push(".tar");
    quoted_path(Path::new(&name))
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
