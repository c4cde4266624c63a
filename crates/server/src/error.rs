//! Why there is no server.

use crate::limits::LimitsError;
use std::io;
use std::path::PathBuf;

/// What went wrong before a server could begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device cannot be had, or its description is none.
    #[error(transparent)]
    Device(#[from] bywash_device::Error),
    /// The store of volumes cannot be used, or a device does not fit what it says.
    #[error(transparent)]
    Store(#[from] bywash_volume::Error),
    /// What clients may have is not said.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The socket cannot be had.
    #[error(transparent)]
    Socket(#[from] bywash_link::Error),
    /// Somebody listens there already.
    #[error("a server listens at {path} already; stop it, or name another socket")]
    Listening {
        /// The socket.
        path: PathBuf,
    },
    /// No volume would fit on the device.
    #[error(
        "device '{name}' has {has} bytes, and volumes on it are made of pieces of {least}; give at least {least}"
    )]
    Small {
        /// Its name.
        name: String,
        /// Bytes that it has.
        has: u64,
        /// Bytes of the smallest volume.
        least: u64,
    },
    /// Two devices have the same name.
    #[error("two devices are named '{0}'; give each a name of its own")]
    Twice(String),
    /// The kernel refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}
