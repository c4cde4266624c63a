//! Reasons for which something could not be measured.

use std::io;
use std::path::Path;

/// Reason for which a case, or the whole run, ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program or header is not installed; the case is left out and its row says so.
    #[error("{what} is not installed: apt-get install {package}")]
    Missing {
        /// The program, header or library.
        what: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// This machine cannot do it; the case is left out and its row says so.
    #[error("{0}")]
    Unavailable(String),
    /// The command line, or a file that it names, cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A program did not do its work.
    #[error("{program} {how}{tail}")]
    Failed {
        /// The program with its arguments.
        program: String,
        /// Exit status, signal, or what its output lacked.
        how: String,
        /// `: ` and the end of what it wrote to stderr, if anything.
        tail: String,
    },
    /// A file or system call.
    #[error("{what}: {source}")]
    Io {
        /// Action that the kernel refused, with the path.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An error of the kernel, with the action that it refused.
    pub fn io(doing: &str, path: &Path, source: impl Into<io::Error>) -> Error {
        Error::Io { what: format!("cannot {doing} {}", path.display()), source: source.into() }
    }

    /// A failure of a program or process, with how it failed.
    pub fn failed(program: &str, how: String) -> Error {
        Error::Failed { program: program.into(), how, tail: String::new() }
    }

    /// Returns true if the case was left out, as against tried and failed.
    pub fn is_absence(&self) -> bool {
        matches!(self, Error::Missing { .. } | Error::Unavailable(_))
    }

    /// The error as the reason to leave the case out; an interruption stays one.
    pub(crate) fn into_absence(self) -> Error {
        match self {
            Error::Interrupted => Error::Interrupted,
            error => Error::Unavailable(error.to_string()),
        }
    }
}

/// Names the action that the kernel refused.
pub(crate) trait Attempt<T> {
    /// The result, whose error says that one cannot do `what` with `path`.
    fn doing(self, what: &str, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Attempt<T> for Result<T, E> {
    fn doing(self, what: &str, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::io(what, path, error))
    }
}
