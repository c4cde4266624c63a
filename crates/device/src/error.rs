//! Errors of opening a device and of registering memory. A command that fails reports a
//! [`CommandError`](crate::CommandError).

use std::io;

/// Error of opening a device, of a synchronous read or write, or of registering memory with a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a valid specification of a device.
    #[error("'{text}' describes no device: {what}")]
    Spec {
        /// Text that was parsed.
        text: String,
        /// Description of the mistake, and the text to write instead.
        what: String,
    },
    /// The file, block device or size of memory cannot be used as a device.
    #[error("{what} cannot be a device: {reason}")]
    Unfit {
        /// Name of the file or block device, or a description of the memory.
        what: String,
        /// Reason for the refusal, and the remedy.
        reason: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Action and its object, such as `open /mnt/x`.
        what: String,
        /// Error that the system call returned.
        source: io::Error,
    },
    /// A command could not be submitted, failed or timed out in [`read_exclusive`](crate::read_exclusive) or
    /// [`write_exclusive`](crate::write_exclusive).
    #[error("the device cannot {what}: {why}")]
    Command {
        /// Verb of the failed command, "read" or "write", for the message.
        what: &'static str,
        /// Reason for the failure.
        why: String,
    },
    /// The memory of a device could not be allocated, mapped or populated.
    #[error(transparent)]
    Memory(#[from] bywash_link::Error),
    /// The device has the greatest possible number of registered regions.
    #[error("{most} regions are registered, the greatest number; unregister one first")]
    Regions {
        /// Greatest number of registered regions.
        most: usize,
    },
}

impl Error {
    /// Returns the error for a failed system call; `what` is the action and its object.
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
