//! What can go wrong with a disk as a whole; what becomes of a request is the guest's to know.

use std::io;

/// Why a disk cannot be served, or a frontend was cut off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that it cannot have.
    #[error("{option} cannot be {value}: give {allowed}")]
    Option {
        /// Which.
        option: &'static str,
        /// What it was.
        value: String,
        /// What it can be.
        allowed: String,
    },
    /// What there is cannot be a disk.
    #[error("the medium cannot be a disk: {0}")]
    Unfit(String),
    /// The frontend said something that it must not, or that cannot be done.
    #[error("the frontend was cut off: {0}")]
    Frontend(String),
    /// A frontend was cut off, or none can be accepted, since threads do not come back from receiving, mapping or closing
    /// what frontends have passed.
    #[error(
        "{threads} threads are stuck with what frontends have passed, of {} that may be: a file or socket does not let \
         itself be received or closed; end the program that passed it",
        crate::export::STUCK_MAX
    )]
    Stuck {
        /// Threads that do not come back.
        threads: usize,
    },
    /// The kernel refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl Error {
    /// The kernel refused `what`.
    pub(crate) fn io(what: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Io { what, source: source.into() }
    }
}
