//! What can go wrong on a path.

use std::io;

/// Why an operation on a path was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The time that was given is over.
    #[error("nothing happened on the path within the time that was given")]
    TimedOut,
    /// The peer closed its end, and everything that it had sent has been received.
    #[error("the peer has closed the path")]
    Closed,
    /// The peer is gone without having closed its end.
    #[error("the peer (process {pid}) died or was cut off")]
    PeerDied {
        /// Its process, as the kernel knew it when the path was made.
        pid: u32,
    },
    /// The peer did what no peer that keeps to the protocol does. The path is of no use any more.
    #[error("the peer (process {pid}) broke the protocol: {what}; make a new path, to a peer that you trust")]
    Peer {
        /// Its process.
        pid: u32,
        /// What it did.
        what: String,
    },
    /// The two ends cannot work together.
    #[error("the two ends of the path do not fit together: {0}")]
    Misfit(String),
    /// A container of this size can never be had on this path.
    #[error(
        "a container of {asked} bytes was asked for, and this path can give {most} at most; give it a larger arena"
    )]
    TooLarge {
        /// Bytes asked for.
        asked: usize,
        /// Bytes of the largest container.
        most: usize,
    },
    /// What a message consists of is limited.
    #[error("a message of {asked} containers was to be shipped; at least one and at most {most} can be")]
    Pieces {
        /// Containers given.
        asked: usize,
        /// Containers allowed.
        most: usize,
    },
    /// The contents cannot be looked at in this way.
    #[error("the contents cannot be borrowed: {0}")]
    NotMapped(&'static str),
    /// This container cannot go on this path.
    #[error("this container cannot be shipped on this path: {0}")]
    Unfit(&'static str),
    /// The process was forked off the one that made the path.
    #[error(
        "the path belongs to the process that made it, and this one was forked off; make a path of its own"
    )]
    Forked,
    /// An option has a value that cannot be.
    #[error("{option} is {value}, and must be {allowed}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What was given.
        value: u64,
        /// What can be given.
        allowed: String,
    },
    /// A call of the kernel failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done, with the name of what it was to be done to.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}

/// What was to be shipped, and why it was not.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotShipped<T> {
    /// Why.
    #[source]
    pub error: Error,
    /// What was given, unharmed.
    pub cargo: T,
}
