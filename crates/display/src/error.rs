//! Errors of surfaces.

use crate::kind::DisplayKind;
use std::io;
use std::time::Duration;

/// Reason for which an operation on a surface failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No display is named, neither by an option nor by the environment.
    #[error("there is no display: {0}")]
    NoDisplay(String),
    /// The display server could not be reached.
    #[error("cannot connect to {kind} display '{name}': {source}")]
    Connect {
        /// Kind of the display.
        kind: DisplayKind,
        /// Name of the display, such as ':0' or the path of a socket.
        name: String,
        /// Error of the attempt.
        source: io::Error,
    },
    /// The display lacks something that a surface needs.
    #[error("{kind} display '{name}' cannot show a surface: {what}")]
    Unsupported {
        /// Kind of the display.
        kind: DisplayKind,
        /// Name of the display.
        name: String,
        /// Property that the display lacks, and the remedy.
        what: String,
    },
    /// An option has an invalid value.
    #[error("{option} is {value}, and must be {allowed}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Invalid value.
        value: String,
        /// Values allowed.
        allowed: String,
    },
    /// The display server died, or closed the connection.
    #[error("{kind} display '{name}' is gone: {source}")]
    Gone {
        /// Kind of the display.
        kind: DisplayKind,
        /// Name of the display.
        name: String,
        /// Error of the connection.
        source: io::Error,
    },
    /// The display server refused a request, which ends the connection.
    #[error("{kind} display '{name}' refused a request: {what}")]
    Refused {
        /// Kind of the display.
        kind: DisplayKind,
        /// Name of the display.
        name: String,
        /// Statement of the server.
        what: String,
    },
    /// The display server has returned no frame within the timeout.
    #[error(
        "{kind} display '{name}' has returned none of its {shipped} frames within {} s: it hangs, or is stopped; see to \
         it, or allow more time",
        timeout.as_secs_f64()
    )]
    NotReturned {
        /// Kind of the display.
        kind: DisplayKind,
        /// Name of the display.
        name: String,
        /// Number of frames that the server holds.
        shipped: usize,
        /// Timeout of the surface.
        timeout: Duration,
    },
    /// The display server has not answered within the timeout.
    #[error(
        "{kind} display '{name}' has not {what} within {} s: it hangs, or is stopped; see to it, or allow more time",
        timeout.as_secs_f64()
    )]
    Silent {
        /// Kind of the display.
        kind: DisplayKind,
        /// Name of the display.
        name: String,
        /// Event that did not come about, as a past participle.
        what: &'static str,
        /// Timeout of the surface.
        timeout: Duration,
    },
    /// The user has closed the window.
    #[error("the window was closed")]
    Closed,
    /// This program holds all frames of the surface.
    #[error("all {0} frames are held by this program; present or drop one first")]
    AllTaken(usize),
    /// The frame belongs to another surface.
    #[error("the frame belongs to another surface; present it there")]
    OtherSurface,
    /// The memory of the frames failed.
    #[error("frames: {0}")]
    Memory(#[from] bywash_container::Error),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that failed: an infinitive for "cannot …".
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}
