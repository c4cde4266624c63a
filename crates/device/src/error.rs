//! What can go wrong before there are commands; what becomes of a command is [`Failure`](crate::Failure).

use std::io;

/// Why a device could not be had, or memory not be registered with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text does not describe a device.
    #[error("'{text}' describes no device: {what}")]
    Spec {
        /// The text.
        text: String,
        /// What is wrong with it, and what to write instead.
        what: String,
    },
    /// What is there cannot be such a device.
    #[error("{what} cannot be a device: {reason}")]
    Unfit {
        /// Its name.
        what: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The kernel refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried, with its object, as in `open /mnt/x`.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A device failed a command that was waited for.
    #[error("the device cannot {what}: {why}")]
    Command {
        /// Read or write.
        what: &'static str,
        /// Its reason.
        why: String,
    },
    /// Memory for a device could not be made.
    #[error(transparent)]
    Memory(#[from] bywash_link::Error),
    /// As many regions are registered as can be.
    #[error(
        "{most} pieces of registered memory are in use, as many as there can be; unregister a region first"
    )]
    Regions {
        /// Pieces that there can be.
        most: usize,
    },
}

impl Error {
    /// The kernel refused `what`.
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
