//! Reasons why recovery refuses a file, with the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a file cannot be recovered.
#[derive(Debug)]
pub struct Problem {
    path: PathBuf,
    kind: ProblemKind,
}

/// Kind of a problem.
#[derive(Debug)]
pub enum ProblemKind {
    /// The file is not there.
    Missing,
    /// Its file system is not there.
    NotMounted,
    /// Another log claims it.
    Claimed,
    /// It was changed since the boot.
    Newer,
    /// A system call failed: the step, as a verb.
    Io(&'static str, io::Error),
}

impl Problem {
    /// A problem with the file at a path.
    pub(crate) fn new(path: &Path, kind: ProblemKind) -> Problem {
        Problem { path: path.to_owned(), kind }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            ProblemKind::Missing => write!(
                to,
                "'{path}' has committed data in the log, and the file is not there, or another one has its name; put it \
                 back, or give its data up by --give-up '{path}'"
            ),
            ProblemKind::NotMounted => write!(
                to,
                "'{path}' has committed data in the log, and its file system is not mounted there; mount it, or give \
                 the data up by --give-up '{path}'"
            ),
            ProblemKind::Claimed => write!(
                to,
                "'{path}' is claimed by another log (attribute user.bywash.log); recover that one first, or give this \
                 log's data up by --give-up '{path}'"
            ),
            ProblemKind::Newer => write!(
                to,
                "'{path}' was changed after this boot began, so it may be newer than its data in the log; give that \
                 data up by --give-up '{path}' if the file is as it should be, or restore the file's earlier state"
            ),
            ProblemKind::Io(what, error) => write!(
                to,
                "cannot {what} '{path}', which has committed data in the log: {error}; repair that, or give the data \
                 up by --give-up '{path}'"
            ),
        }
    }
}
