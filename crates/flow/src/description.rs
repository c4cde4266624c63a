//! A flow as the user describes it: its ends, stages and options, checked against each other.
//!
//! Invariant: nothing is created, connected or moved here. Called by [`crate::flow`].

use crate::endpoint::{Endpoint, File, Listening};
use crate::error::Error;
use crate::plan::FlowOptions;
use crate::shell::{quoted, quoted_path};
use crate::stage::{Bound, Stage};
use rustix::fs::FileType;
use std::path::Path;

/// Ends, stages and options of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) source: Endpoint,
    pub(crate) stages: Vec<Stage>,
    pub(crate) sink: Endpoint,
    pub(crate) options: FlowOptions,
    /// True if data moves from the source to the sink only, also between two sockets.
    pub(crate) one_way: bool,
    /// Exact number of bytes that the source must give; `None` if any number will do.
    pub(crate) expect_size: Option<u64>,
    /// True if the flow continues the partial file of an earlier flow.
    pub(crate) resume: bool,
}

impl Description {
    /// Returns true if data also moves from the sink to the source: between two stream sockets, without
    /// stages other than limits and rates, and without [`Description::one_way`].
    pub(crate) fn moves_both_ways(&self) -> bool {
        self.source.kind.stream().is_some()
            && self.sink.kind.stream().is_some()
            && !self.one_way
            && self.stages.iter().all(|stage| stage.bound().is_some())
    }

    /// Checks that [`Description::resume`] goes with the ends and stages.
    ///
    /// # Errors
    /// [`Error::Usage`] with the reason if it does not.
    fn check_resume(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Usage(format!("--resume: {why}")));
        let (source, sink) = (&self.source, &self.sink);
        let keeps_rate = |stage: &Stage| matches!(stage.bound(), Some(Bound::BytesPerSecond(_)));
        if !self.resume {
            return Ok(());
        }
        if source.kind.storage_path().is_none() {
            return wrong(format!(
                "{source} is a stream, which cannot be asked whether it still has what was moved; move it anew"
            ));
        }
        if !sink.kind.file().is_some_and(File::is_new) {
            return wrong(format!("{sink} is no file that appears when it is whole, and leaves no part"));
        }
        match self.stages.iter().find(|stage| !keeps_rate(stage)) {
            Some(stage) => wrong(format!("{stage} would not see what is there already")),
            None if self.expect_size.is_some() => {
                wrong("an expected size is for sources that cannot be asked".into())
            }
            None => Ok(()),
        }
    }

    /// Returns true if the source serves any number of connections (`fork`).
    fn serves(&self) -> bool {
        self.source.kind.stream().is_some_and(|stream| stream.listening() == Listening::Serves)
    }

    /// Refuses a folder as the source, with the commands that copy, pack or send the tree.
    ///
    /// # Errors
    /// [`Error::Usage`] if the source is a folder.
    fn check_tree(&self) -> Result<(), Error> {
        let Some(File { path, .. }) = self.source.kind.file() else { return Ok(()) };
        if !path.is_dir() {
            return Ok(());
        }
        let tree = quoted_path(path);
        let packed = |to: &str| format!("tar -cf - {tree} | bywash flow - {to}");
        let instead = match self.sink.kind.file() {
            Some(File { path: to, .. }) if to.is_dir() || !to.exists() => {
                let archive = archive_name(path, to);
                format!("copy the tree: cp -a {tree} {}; or pack it: {}", quoted_path(to), packed(&archive))
            }
            Some(_) | None => format!("pack the tree: {}", packed(&quoted(&self.sink.to_string()))),
        };
        let shown = path.display();
        Err(Error::Usage(format!("{shown} is a folder, and a flow moves one stream of bytes; {instead}")))
    }

    /// Returns the flow with everything that its description implies: a sink that is a folder becomes a file
    /// in it with the source's name, and an expected size becomes a limit of one byte more.
    ///
    /// # Errors
    /// [`Error::Usage`] if the source is a folder, source and sink are the same file, or [`Description::resume`] or
    /// [`Description::expect_size`] does not go with the ends.
    pub(crate) fn settled(mut self) -> Result<Description, Error> {
        self.check_tree()?;
        self.check_resume()?;
        if let Some(size) = self.expect_size {
            if self.serves() {
                return Err(Error::Usage(
                    "each connection has a size of its own: an expected one does not go with 'fork'".into(),
                ));
            }
            self.stages.insert(0, Stage::limit(size.saturating_add(1)));
        }
        let (Some(from), Some(to)) = (self.source.kind.file(), self.sink.kind.file()) else {
            return Ok(self);
        };
        let mut to = to.clone();
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
                Err(Error::Usage(format!("{from} and {to} are the same file")))
            }
            _ => Ok(Description { sink: Endpoint::new(to), ..self }),
        }
    }
}

/// Returns a shell-quoted name for the archive of `tree` that a flow to `to` could write.
fn archive_name(tree: &Path, to: &Path) -> String {
    let in_folder = tree.file_name().filter(|_| to.is_dir()).map(|name| to.join(name));
    let mut name = in_folder.unwrap_or_else(|| to.components().collect()).into_os_string();
    name.push(".tar");
    quoted_path(Path::new(&name))
}
