//! What can go wrong between two ends.

use crate::arena_use::ArenaUse;
use std::io;

/// Why an operation on a path or a channel was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The time that was given is over.
    #[error("nothing happened within the time that was given")]
    TimedOut,
    /// The peer closed its end, and everything that it had sent has been received.
    #[error("the peer has closed its end")]
    Closed,
    /// The peer is gone without having closed its end: what it sent may be less than it wanted to send.
    #[error("the peer {} died or was cut off", process(*.pid))]
    PeerDied {
        /// Its process, as the kernel knew it when they met; 0 if it never presented itself.
        pid: u32,
    },
    /// The peer did what no peer that keeps to the protocol does. The connection is of no use any more.
    #[error("the peer (process {pid}) broke the protocol: {what}; connect anew, to a peer that you trust")]
    Peer {
        /// Its process.
        pid: u32,
        /// What it did.
        what: String,
    },
    /// The two ends cannot work together.
    #[error("the two ends do not fit together: {0}")]
    Misfit(String),
    /// So many bytes in one piece can never be had of this arena.
    #[error("{asked} bytes were asked for, and the arena can give {most} at most; make it larger")]
    TooLarge {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that can be had.
        most: usize,
    },
    /// There is not so much in one piece now.
    #[error("{asked} bytes were asked for: {arena}; reap what is done, or free something first")]
    UsedUp {
        /// Bytes asked for.
        asked: usize,
        /// Holders of the arena's bytes.
        arena: Box<ArenaUse>,
    },
    /// No container of this size became free within the time that was given.
    #[error(
        "no {asked} bytes became free within the time that was given: of the arena's {} bytes this program holds {} in {} \
         containers that it has not shipped, the peer holds {} in {} that it has not given back, and the largest free \
         block has {}; let whoever holds them drop some, or make the arena larger",
        arena.bytes, arena.held_bytes, arena.held, arena.shipped_bytes, arena.shipped, arena.largest_free
    )]
    AllocTimedOut {
        /// Bytes asked for.
        asked: usize,
        /// Holders of the arena when the time was over.
        arena: Box<ArenaUse>,
    },
    /// As many requests are under way as the channel is deep.
    #[error("{depth} requests are under way, as many as the channel is deep; reap completions first")]
    Full {
        /// Its depth.
        depth: u32,
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
    /// This container cannot go on this path, or this buffer or request over this channel.
    #[error("it cannot go this way: {0}")]
    Unfit(&'static str),
    /// The process was forked off the one that made this end.
    #[error("this end belongs to the process that made it, and this one was forked off; connect anew in it")]
    Forked,
    /// An option has a value that cannot be.
    #[error("{option} is {value}, and must be {allowed}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What was given.
        value: String,
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

/// The process of a peer, for messages.
fn process(pid: u32) -> String {
    match pid {
        0 => "that had not presented itself yet".into(),
        pid => format!("(process {pid})"),
    }
}

impl Error {
    /// The error for a call of the kernel that failed: what was to be done, and what it said.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
