//! Errors of sound devices.

use std::io;

/// Reason for which an operation on a sound device failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// ALSA's library could not be loaded, or is too old.
    #[error(
        "cannot load {library}, ALSA's library: {message}; install it (Debian's package libasound2, or libasound2t64 from \
         Debian 13 on)"
    )]
    Library {
        /// File name of the library.
        library: String,
        /// Statement of the dynamic loader.
        message: String,
    },
    /// The device could not be opened.
    #[error("cannot open the sound device '{device}': {source}{hint}")]
    Open {
        /// Name of the device.
        device: String,
        /// Error of the library.
        source: io::Error,
        /// Remedy, as the end of a sentence; empty if none is known.
        hint: &'static str,
    },
    /// The device can be opened, but not with these samples.
    #[error(
        "the sound device '{device}' has no {what}; convert the samples, or name a device that does, such as plug:'{device}'"
    )]
    Unsupported {
        /// Name of the device.
        device: String,
        /// Property that the device lacks, and the nearest ones that it has.
        what: String,
    },
    /// The device was removed, or the daemon behind it has ended.
    #[error("the sound device '{device}' is gone: {source}")]
    Gone {
        /// Name of the device.
        device: String,
        /// Error of the library.
        source: io::Error,
    },
    /// An operation on the open device failed.
    #[error("cannot {what} the sound device '{device}': {source}")]
    Failed {
        /// Operation: an infinitive, such as "write to".
        what: &'static str,
        /// Name of the device.
        device: String,
        /// Error of the library.
        source: io::Error,
    },
    /// No thread could be started, or the one of an operation has ended without a result.
    #[error("cannot start a thread for the sound library: {0}")]
    Thread(#[source] io::Error),
}
