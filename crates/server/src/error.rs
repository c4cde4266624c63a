//! Why there is no server.

use crate::identity::IdentityError;
use crate::limits::LimitsError;
use std::io;

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
    /// A device is not the one that the store knows, or may be somebody else's.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A later version wrote the label of a device.
    #[error("a device cannot be served: {0}")]
    Label(#[from] bywash_volume::LabelError),
    /// What clients may have is not said.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The socket cannot be had.
    #[error(transparent)]
    Socket(#[from] bywash_link::Error),
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
    /// The core cannot be on that processor.
    #[error("processor {cpu} is none that this process may use; it may use {allowed}")]
    Processor {
        /// As it was given.
        cpu: usize,
        /// Those that may be used, as ranges.
        allowed: String,
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
