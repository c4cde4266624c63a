//! What can go wrong between a program and its volumes.

use bywash_protocol::{Access, Code, Refused};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why something was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The server did not answer in time. What was asked may still be done.
    #[error("{what} was not answered within {limit:?}; what was asked may still be done")]
    TimedOut {
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        limit: Duration,
    },
    /// The server is gone: it ended, or cut the connection.
    #[error("the server is gone: {how}; connect again, or let the client do so (Options::reconnect)")]
    Gone {
        /// How that was seen.
        how: String,
    },
    /// The server did what no server that keeps to the protocol does. The connection is of no use any more.
    #[error("the server broke the protocol: {what}; connect to one that you trust")]
    Broken {
        /// What it did.
        what: String,
    },
    /// The server went while a compare-and-write was under way, which cannot be asked again: had it been done, it
    /// would now find what it wrote itself.
    #[error(
        "the server went while it compared and wrote: whether it wrote is unknown; read the blocks to see"
    )]
    Unknown,
    /// The server refused what it was asked over its socket.
    #[error("{what}: {refused}")]
    Refused {
        /// What it was asked.
        what: String,
        /// Why not.
        refused: Box<Refused>,
    },
    /// The grant does not allow it.
    #[error("{volume} was opened for {access}, which does not allow to {what} it; open it with that right")]
    Denied {
        /// The volume.
        volume: Arc<str>,
        /// What the grant allows.
        access: Access,
        /// What was asked.
        what: &'static str,
    },
    /// The server does not know the grant.
    #[error("the server has no such grant of {volume}; open it again")]
    NoGrant {
        /// The volume.
        volume: Arc<str>,
    },
    /// The grant was taken back. What was under way was not done, or not for certain.
    #[error("the grant of {volume} was taken back; open it again, if that is still allowed")]
    Revoked {
        /// The volume.
        volume: Arc<str>,
    },
    /// Beyond the end.
    #[error("{length} bytes at {offset} are not all within {volume}, which has {bytes}")]
    OutOfBounds {
        /// The volume.
        volume: Arc<str>,
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Bytes that it has.
        bytes: u64,
    },
    /// No whole blocks.
    #[error("{length} bytes at {offset}: both must be multiples of {block}, the block of {volume}")]
    Misaligned {
        /// The volume.
        volume: Arc<str>,
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// What is compared with is not as long as what is written.
    #[error("{expected} bytes are to be compared and {written} to be written: give as many of each")]
    Lengths {
        /// Bytes to compare with.
        expected: usize,
        /// Bytes to be written.
        written: usize,
    },
    /// The server finds the request malformed.
    #[error("the server finds the request to {what} {volume} malformed: the device may want other lengths")]
    Malformed {
        /// What was asked.
        what: &'static str,
        /// The volume.
        volume: Arc<str>,
    },
    /// The device failed.
    #[error("the device failed to {what} {volume}")]
    DeviceFailed {
        /// What was asked.
        what: &'static str,
        /// The volume.
        volume: Arc<str>,
    },
    /// The device did not answer the server in time. It may still do what it was asked; the memory that it may write
    /// to is not used again.
    #[error("the device did not {what} {volume} in time; it may still do it")]
    DeviceTimedOut {
        /// What was asked.
        what: &'static str,
        /// The volume.
        volume: Arc<str>,
    },
    /// The device has no room.
    #[error("the device has no room to {what} {volume}")]
    NoSpace {
        /// What was asked.
        what: &'static str,
        /// The volume.
        volume: Arc<str>,
    },
    /// The bytes were not what was expected, and nothing was written.
    #[error("the bytes of {volume} are not what was expected; nothing was written")]
    Differs {
        /// The volume.
        volume: Arc<str>,
    },
    /// The device has the range in too many pieces for one request. Calls that wait cut it by themselves.
    #[error("{volume} has these bytes in too many pieces; {bytes} at {offset} can be had in one request")]
    Scattered {
        /// The volume.
        volume: Arc<str>,
        /// Where the range begins.
        offset: u64,
        /// How many bytes of it one request can have.
        bytes: u64,
    },
    /// The device does not do that.
    #[error("the device of {volume} cannot {what}")]
    NotSupported {
        /// What was asked.
        what: &'static str,
        /// The volume.
        volume: Arc<str>,
    },
    /// The volume cannot be mapped.
    #[error("{volume} cannot be mapped: {why}; go through the channel (Choice::Automatic)")]
    NotMapped {
        /// The volume.
        volume: Arc<str>,
        /// Why not.
        why: String,
    },
    /// So many bytes can never be had of the arena.
    #[error("{asked} bytes were asked for, and the arena can give {most} at most; make it larger")]
    TooLarge {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that can be had.
        most: usize,
    },
    /// There is not so much free in the arena now.
    #[error("{asked} bytes were asked for: {arena}; reap what is done, or free something first")]
    UsedUp {
        /// Bytes asked for.
        asked: usize,
        /// Holders of the arena's bytes.
        arena: Box<bywash_channel::ArenaUse>,
    },
    /// As many requests are under way as may be.
    #[error("{depth} requests are under way, as many as may be; reap completions first")]
    Full {
        /// How many.
        depth: u32,
    },
    /// Requests of it are under way, or were not reaped.
    #[error("requests of the volume are under way, or were not reaped; reap them, then close it")]
    Busy,
    /// Nothing is under way that could be waited for.
    #[error("nothing is under way; submit something first")]
    Idle,
    /// A request of many pieces has too many, or none.
    #[error("{asked} pieces in one request: there are 1 to {most}")]
    Pieces {
        /// How many were given.
        asked: usize,
        /// How many there can be.
        most: usize,
    },
    /// Something of another client, or of another queue.
    #[error("the {what} is of another {of}, or was closed")]
    Foreign {
        /// What.
        what: &'static str,
        /// Of what.
        of: &'static str,
    },
    /// An option has a value that cannot be.
    #[error("{option} is {value}, and must be {allowed}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What was given.
        value: Box<str>,
        /// What can be given.
        allowed: Box<str>,
    },
    /// The program has ended the wait ([`crate::Options::interrupted_by`]).
    #[error("the program has ended the wait; what was asked may still be done")]
    Interrupted,
    /// The process was forked off the one that connected.
    #[error("this connection belongs to the process that made it, and this one was forked off; connect anew")]
    Forked,
    /// A call of the kernel failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: String,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: Arc::new(source.into()) }
    }

    pub(crate) fn broken(what: impl Into<String>) -> Error {
        Error::Broken { what: what.into() }
    }

    /// Of the connection below, while `what` was waited for.
    pub(crate) fn of_link(error: bywash_link::Error, what: &'static str, limit: Duration) -> Error {
        use bywash_link::Error as Link;
        match error {
            Link::TimedOut | Link::AllocTimedOut { .. } => Error::TimedOut { what, limit },
            Link::Closed | Link::PeerDied { .. } => Error::Gone { how: error.to_string() },
            Link::Peer { what, .. } | Link::Misfit(what) => Error::Broken { what },
            Link::TooLarge { asked, most } => Error::TooLarge { asked, most },
            Link::UsedUp { asked, arena } => Error::UsedUp { asked, arena },
            Link::Full { depth } => Error::Full { depth },
            Link::Option { option, value, allowed } => {
                Error::Option { option, value: value.into(), allowed: allowed.into() }
            }
            Link::Forked => Error::Forked,
            Link::Io { what, source } => Error::io(what, source),
            Link::Unfit(_) => Error::Foreign { what: "buffer", of: "queue" },
            Link::NotMapped(_) | Link::Pieces { .. } => Error::io(what, io::Error::other(error.to_string())),
        }
    }

    /// Whether the connection is over, so that only another one can help.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Error::Gone { .. } | Error::Broken { .. })
    }

    /// What kind of refusal it is, if the server refused what it was asked over its socket.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Refused { refused, .. } => Some(refused.code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors go through every completion of a queue.
    #[test]
    fn errors_are_small() {
        assert!(size_of::<Error>() <= 56, "{}", size_of::<Error>());
    }
}
