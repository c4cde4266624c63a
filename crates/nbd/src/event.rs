//! Events that are reported to whoever serves.
//!
//! Made by `service`.

use bywash_export::Error;

/// Event at a listener.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client has connected.
    Connected {
        /// Number of the client since the start.
        client: u64,
    },
    /// A client has disconnected, or the server has stopped.
    Disconnected {
        /// Number of the client since the start.
        client: u64,
    },
    /// A client was disconnected, or could not be accepted.
    CutOff {
        /// Number of the client since the start; `None` if it could not be accepted.
        client: Option<u64>,
        /// Reason of the disconnection.
        error: Error,
    },
}
