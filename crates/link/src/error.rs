//! Errors of paths and channels.

use crate::arena_use::ArenaUse;
use std::io;

/// Reason for which an operation on a path or a channel failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The timeout of the call expired.
    #[error("nothing happened before the timeout")]
    TimedOut,
    /// This end or the peer closed the connection, and everything that was sent before has been received.
    #[error("the peer has closed its end")]
    Closed,
    /// The peer disappeared without closing its end, so it may have sent less than it wanted to.
    #[error("the peer {} died or was cut off", process(*.pid))]
    PeerDied {
        /// Process of the peer, as the kernel reported it during the handshake; 0 before the handshake.
        pid: u32,
    },
    /// The peer broke the protocol. The connection cannot be used any more.
    #[error("the peer (process {pid}) broke the protocol: {what}; connect anew, to a peer that you trust")]
    Protocol {
        /// Process of the peer.
        pid: u32,
        /// Description of the violation: a predicate whose subject is the peer.
        what: String,
    },
    /// The two ends cannot work together: their protocols, versions or options differ.
    #[error("the two ends do not fit together: {0}")]
    Incompatible(String),
    /// The arena can never hold so many bytes in one block.
    #[error("{asked} bytes were requested, and the arena has {most} at most; make it larger")]
    TooLarge {
        /// Bytes requested.
        asked: usize,
        /// Size of the largest block that the arena can hold, in bytes.
        most: usize,
    },
    /// The arena has no free block of this size now.
    #[error("{asked} bytes were requested: {arena}; reap completions, or free memory first")]
    ArenaFull {
        /// Bytes requested.
        asked: usize,
        /// Holders of the arena's bytes.
        arena: Box<ArenaUse>,
    },
    /// No block of this size became free within the timeout.
    #[error(
        "no {asked} bytes became free before the timeout: of the arena's {} bytes this program holds {} in {} containers \
         that it has not shipped, and the peer holds {} in {} that it has not returned; the largest free block has {}; \
         ship or drop containers, or make the arena larger",
        arena.bytes, arena.held_bytes, arena.held, arena.shipped_bytes, arena.shipped, arena.largest_free
    )]
    AllocTimedOut {
        /// Bytes requested.
        asked: usize,
        /// Holders of the arena's bytes when the timeout expired.
        arena: Box<ArenaUse>,
    },
    /// As many requests are in flight as the channel is deep.
    #[error("{depth} requests are in flight, the depth of the channel; reap completions first")]
    Full {
        /// Depth of the channel.
        depth: u32,
    },
    /// A message has no containers, or more than allowed.
    #[error("a message of {asked} containers cannot be shipped; a message has 1 to {most}")]
    MessageSize {
        /// Number of containers given.
        asked: usize,
        /// Greatest number of containers allowed.
        most: usize,
    },
    /// The contents cannot be borrowed in place.
    #[error("the contents cannot be borrowed: {0}")]
    NotMapped(&'static str),
    /// This path cannot ship the container, or this channel cannot carry the buffer or complete the request.
    #[error("it cannot go this way: {0}")]
    WrongPath(&'static str),
    /// The caller is a forked child of the process that made this end.
    #[error("this end belongs to the process that made it, and this one was forked off; connect anew in it")]
    Forked,
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
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that failed, with the name of its object: an infinitive for "cannot …".
        what: String,
        /// Error of the system call.
        source: io::Error,
    },
}

/// Describes the process of a peer in an error message.
fn process(pid: u32) -> String {
    match pid {
        0 => "that had not presented itself yet".into(),
        pid => format!("(process {pid})"),
    }
}

impl Error {
    /// Makes the error for a system call that failed: `what` completes the sentence "cannot …".
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
