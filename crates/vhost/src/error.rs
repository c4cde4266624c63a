//! Errors of a disk as a whole. The error of a single request is reported only to the guest.

use std::io;

/// Reason why a disk cannot be served, or why a frontend was disconnected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that is not allowed.
    #[error("{option} cannot be {value}: give {allowed}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Value given.
        value: String,
        /// Description of the values that are allowed.
        allowed: String,
    },
    /// The device cannot be a disk.
    #[error("the device cannot be a disk: {0}")]
    Unfit(String),
    /// The frontend sent a message that is not allowed, or that cannot be carried out.
    #[error("the frontend was cut off: {0}")]
    Frontend(String),
    /// A frontend was disconnected, or none can be accepted, because threads block in receiving, mapping or
    /// closing objects that frontends have passed.
    #[error(
        "{threads} threads are stuck with what frontends have passed, of {} that may be: a file or socket does not let \
         itself be received or closed; end the program that passed it",
        crate::export::STUCK_MAX
    )]
    Stuck {
        /// Number of blocked threads.
        threads: usize,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that needed the system call.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

impl Error {
    /// Makes the error of a system call that failed while doing `what`.
    pub(crate) fn io(what: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Io { what, source: source.into() }
    }
}
