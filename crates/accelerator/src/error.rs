//! Reasons of failures of devices and kernels.

use std::path::PathBuf;

/// Failure of a device, or of a kernel on it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter of a kernel is invalid; the text says which, and what is possible.
    #[error("{0}")]
    Parameter(String),
    /// The input does not fit the kernel, such as a sample that is cut off at its end.
    #[error("{0}")]
    Input(String),
    /// The kernel in a file cannot be used: the compiler's message with file and line, or the loader's.
    #[error("{}: {message}", path.display())]
    Kernel {
        /// File of the kernel.
        path: PathBuf,
        /// Message of the compiler or loader.
        message: String,
    },
    /// The device has no memory left for the buffers or the scene.
    #[error("{device} has no memory left for {bytes} bytes: {remedy}")]
    Memory {
        /// Name of the device.
        device: String,
        /// Bytes that were asked for.
        bytes: u64,
        /// Remedy, for the user.
        remedy: &'static str,
    },
    /// The device is gone, or failed while it computed.
    #[error("{device} failed: {message}")]
    Lost {
        /// Name of the device.
        device: String,
        /// Message of its driver.
        message: String,
    },
    /// The temporary file of a scene that is larger than memory cannot be made, read or written.
    #[error("cannot {action} the scene's temporary file in {}: {reason}; make room, or name another folder (TMPDIR)", folder.display())]
    TemporaryFile {
        /// Folder of the file.
        folder: PathBuf,
        /// Operation that failed: make, read or write.
        action: &'static str,
        /// Reason that the system gave.
        reason: String,
    },
    /// The other end of the session was dropped before the input had ended.
    #[error("the other end of the session was given up before the input had ended")]
    Closed,
    /// The device cannot run this kernel.
    #[error("{device} cannot run {kernel}: {reason}")]
    Unsupported {
        /// Name of the device.
        device: String,
        /// Name of the kernel.
        kernel: &'static str,
        /// Reason, and what to use instead.
        reason: String,
    },
}

impl Error {
    /// Returns the failure of a session to which more bytes were submitted than its buffer has.
    pub(crate) fn beyond_buffer(bytes: usize, room: usize) -> Error {
        Error::Input(format!("{bytes} bytes were submitted, but the input buffer has room for {room}"))
    }
}
