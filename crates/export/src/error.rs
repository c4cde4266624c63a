//! Errors of an export as a whole. The error of a single request is reported only to its peer.

use std::io;
use std::net::SocketAddr;

/// Reason why an export cannot be served, or why a peer of it was disconnected.
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
    /// The device cannot be a disk.
    #[error("the device cannot be a disk: {0}")]
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
    /// The peer sent a message that is not allowed or that cannot be carried out, or did not go on in time.
    #[error("the peer was cut off: {0}")]
    Peer(String),
    /// A peer was disconnected, or none can be accepted, because threads block in receiving, mapping or closing
    /// objects that peers have passed.
    #[error(
        "{threads} threads are stuck with what peers have passed, of {most} that may be: a file or socket does not let \
         itself be received or closed; end the program that passed it"
    )]
    Stuck {
        /// Number of blocked threads.
        threads: usize,
        /// Greatest number of blocked threads.
        most: usize,
    },
    /// An export was withdrawn, and its device is still busy.
    #[error(
        "clients cannot use the export any more, but its requests are still in flight on a device that does not answer; \
         the device is closed when they complete"
    )]
    Busy,
    /// An export cannot end, since what it serves is in use.
    #[error("{0} is in use: unmount it, or end the program that has it")]
    InUse(String),
    /// The export has ended, and its thread with it.
    #[error("the export has ended")]
    Ended,
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
    pub fn io(what: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Io { what, source: source.into() }
    }
}
