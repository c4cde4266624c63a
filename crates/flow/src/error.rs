//! Why a flow could not be planned, or did not come to its end.

use crate::plan::Mover;
use std::io;

/// Why a flow could not be planned, or did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for cannot be: an endpoint that makes no sense, options that exclude each other.
    #[error("{0}")]
    Usage(String),

    /// The mover that was forced cannot move this flow.
    #[error(
        "{mover} cannot move this flow: {reason}; leave the mover to the planner, whose plan names those that can"
    )]
    Unfit {
        /// The mover.
        mover: Mover,
        /// Why not.
        reason: String,
    },

    /// The kernel refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried, with its object, as in `write /mnt/x`.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The data is not what it should be: shorter than it was, not compressed, not the hash that was expected.
    #[error("{0}")]
    Data(String),

    /// Datagrams were lost on the way.
    #[error("{0}")]
    Lost(String),

    /// A program that the data went through failed.
    #[error("{0}")]
    Program(String),

    /// The flow was cancelled.
    #[error("the flow was cancelled")]
    Cancelled,
}

impl Error {
    /// The kernel refused `what`.
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
