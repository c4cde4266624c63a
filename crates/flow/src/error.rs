//! The error type of this crate.

use crate::movers::Mover;
use std::io;

/// Reason why a flow could not be planned or failed while it ran.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is impossible: a malformed endpoint or stage, or options that exclude each other.
    #[error("{0}")]
    Usage(String),

    /// The mover that the user chose cannot move this flow.
    #[error(
        "{mover} cannot move this flow: {reason}; leave the mover to the planner, whose plan names those that can"
    )]
    Unfit {
        /// Mover that the user chose.
        mover: Mover,
        /// Reason why the mover cannot be used.
        reason: String,
    },

    /// A system call, or a library operation like one, failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that failed, with its object, such as `write /mnt/x`.
        what: String,
        /// Error of the system call.
        source: io::Error,
    },

    /// The data is not as expected: truncated, not decompressible, of the wrong size, or with another hash.
    #[error("{0}")]
    Data(String),

    /// Datagrams were lost.
    #[error("{0}")]
    Lost(String),

    /// A program of an `exec:` stage failed.
    #[error("{0}")]
    Program(String),

    /// The flow was cancelled.
    #[error("the flow was cancelled")]
    Cancelled,
}

impl Error {
    /// Creates an [`Error::Io`] for the operation `what`.
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}

impl From<bywash_options::OptionError> for Error {
    fn from(error: bywash_options::OptionError) -> Error {
        Error::Usage(error.to_string())
    }
}
