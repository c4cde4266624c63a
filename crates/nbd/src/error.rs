//! Errors of a server as a whole. The error of a single request is reported only to its client.

use std::io;
use std::net::SocketAddr;

/// Reason why exports cannot be served, or why a client was disconnected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that is not allowed.
    #[error("{option} cannot be {value}: give {allowed}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Value given.
        value: String,
        /// Description of the values that are allowed.
        allowed: String,
    },
    /// The device cannot be an export.
    #[error("the device cannot be exported: {0}")]
    Unfit(String),
    /// A TCP address that other machines can reach would be served without encryption.
    #[error(
        "{0} can be reached from other machines, and nothing would be encrypted nor clients checked; give an address \
         of the loopback interface, such as 127.0.0.1:10809, or say that the network is trusted"
    )]
    Exposed(SocketAddr),
    /// A certificate or key cannot be used.
    #[error("TLS cannot be served: {0}")]
    Tls(String),
    /// The client sent a message that is not allowed, or did not send or receive in time.
    #[error("a client was cut off: {0}")]
    Client(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that needed the system call.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

impl Error {
    /// Makes the error of a system call that failed while doing `what`.
    pub(crate) fn io(what: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Io { what, source: source.into() }
    }
}
