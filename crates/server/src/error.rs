//! Errors of a server's start.

mod identity;

pub use identity::IdentityError;

use crate::limits::LimitsError;
use std::io;

/// Error that keeps a server from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device cannot be opened, or its description is malformed.
    #[error(transparent)]
    Device(#[from] bywash_device::Error),
    /// The store of volumes cannot be used, or does not accept a device's size, block or identity.
    #[error(transparent)]
    Store(#[from] bywash_volume::Error),
    /// A device is not the one that the store knows, or may belong to another store.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A later version wrote the label of a device.
    #[error("a device cannot be served: {0}")]
    Label(#[from] bywash_volume::LabelError),
    /// The file of limits cannot be read or is malformed.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The server cannot listen on its socket.
    #[error(transparent)]
    Socket(#[from] bywash_link::Error),
    /// The device is too small for any volume.
    #[error(
        "device '{name}' has {has} bytes, and the smallest volume on it needs {least}; give at least {least}"
    )]
    Small {
        /// Name of the device.
        name: String,
        /// Size of the device, in bytes.
        has: u64,
        /// Size of the smallest device that can hold a volume, in bytes.
        least: u64,
    },
    /// This process may not run on a processor that a core was to stay on.
    #[error("this process may not use processor {cpu}; it may use {allowed}")]
    Processor {
        /// Number of the processor, as it was given.
        cpu: usize,
        /// Processors that this process may use, as ranges.
        allowed: String,
    },
    /// The number of cores is out of range.
    #[error("there cannot be {0} cores; give 1 to {max}, as many as processors or fewer", max = crate::limits::CORES_MAX)]
    Cores(usize),
    /// Two devices have the same name.
    #[error("two devices are named '{0}'; give each a name of its own")]
    Twice(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that was tried, for the message.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}
