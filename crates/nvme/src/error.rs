//! Errors of finding, taking, starting and giving back a controller. A command that fails reports a
//! [`CommandError`](bywash_device::CommandError).

use std::fmt::Display;
use std::io;

/// Error of finding, taking, starting or giving back a controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Action and its object, such as `open /dev/vfio/7`.
        what: String,
        /// Error that the system call returned.
        source: io::Error,
    },
    /// The text is no PCI address, or no NVMe controller has this address.
    #[error("'{address}' {reason}")]
    Address {
        /// Text that was given as the address.
        address: String,
        /// Fault of the address, with the remedy.
        reason: String,
    },
    /// The controller must not or cannot be taken from the kernel or given back to it.
    #[error("the controller {address} is refused: {reason}")]
    Refused {
        /// PCI address of the controller.
        address: String,
        /// Reason for the refusal, and the remedy.
        reason: String,
    },
    /// An option is out of range.
    #[error("the option '{option}' of the controller {what}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Fault of the value, with the values that are allowed.
        what: String,
    },
    /// The controller or its namespace has properties that this driver does not support.
    #[error("the controller cannot be used: {reason}")]
    Unsupported {
        /// Unsupported property, and the remedy if there is one.
        reason: String,
    },
    /// The controller did not do in time what it was told.
    #[error(
        "the controller did not {what} within {seconds} s: power it off and on, or give it back to the kernel"
    )]
    Timeout {
        /// Missing reaction, such as "become ready".
        what: &'static str,
        /// Greatest time that the reaction may take, in seconds.
        seconds: u64,
    },
    /// An admin command failed, or the controller refuses the command by which blocks are verified.
    #[error("the controller refuses {command}: {status}")]
    Admin {
        /// Name of the command in the specification.
        command: &'static str,
        /// Status in words, with its two codes.
        status: String,
    },
    /// The controller was removed: its registers read all ones.
    #[error("the controller was removed")]
    Removed,
    /// The controller was reset several times and completed no command in between.
    #[error(
        "the controller was reset {resets} times in a row and completed nothing in between; it is broken"
    )]
    Broken {
        /// Number of consecutive resets.
        resets: u32,
    },
}

impl Error {
    /// Returns the error for a failed system call; `what` is the action and its object.
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }

    /// Returns the error as one of devices, for the controller at `address`.
    pub(crate) fn of_device(self, address: &impl Display) -> bywash_device::Error {
        let reason = match self {
            Error::Io { what, source } => return bywash_device::Error::Io { what, source },
            Error::Refused { reason, .. } | Error::Unsupported { reason } => reason,
            error => error.to_string(),
        };
        bywash_device::Error::Unfit { what: format!("the NVMe controller {address}"), reason }
    }

    /// Returns the errno(3) with which commands fail once the controller is lost for this reason.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Error::Removed => libc::ENODEV,
            Error::Timeout { .. } | Error::Broken { .. } => libc::ETIMEDOUT,
            _ => libc::EIO,
        }
    }
}
