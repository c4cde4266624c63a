//! Errors of the client library.

use bywash_protocol::{Access, Refusal, RefusalKind};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Reason why an operation on a volume or a queue was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server did not reply in time. The operation may still be carried out.
    #[error("{what} had no reply within {limit:?}; the request may still be carried out")]
    TimedOut {
        /// Operation that was waited for.
        what: &'static str,
        /// Timeout of the call.
        limit: Duration,
    },
    /// The server has ended or has closed the connection.
    #[error("the server is gone: {how}; connect again, or let the client do so (Options::reconnect)")]
    Gone {
        /// Way in which the client noticed that.
        how: String,
    },
    /// The server violated the protocol. The connection is not used any more.
    #[error("the server broke the protocol: {what}; connect to one that you trust")]
    ProtocolViolation {
        /// Description of the violation.
        what: String,
    },
    /// The server died while a compare-and-write was in flight. The request cannot be submitted again: if it
    /// had been carried out, it would now compare with its own bytes.
    #[error(
        "the server ended during a compare-and-write, which may or may not have written; read the blocks to see"
    )]
    OutcomeUnknown,
    /// The server refused an operation that was sent over its control socket.
    #[error("{what}: {refused}")]
    Refused {
        /// Description of the operation.
        what: String,
        /// The server's reason.
        refused: Box<Refusal>,
    },
    /// The grant does not include the right that the operation needs.
    #[error("{volume} was opened for {access}, which does not allow to {what} it; open it with that right")]
    Denied {
        /// Name of the volume.
        volume: Arc<str>,
        /// Rights of the grant.
        access: Access,
        /// Operation that was refused.
        what: &'static str,
    },
    /// The server does not know the grant.
    #[error("the server has no such grant of {volume}; open it again")]
    NoGrant {
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The grant was revoked. Requests that were in flight were not carried out, or possibly not.
    #[error("the grant of {volume} was revoked; open the volume again, if that is still allowed")]
    Revoked {
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The range extends beyond the end of the volume.
    #[error("{length} bytes at {offset} are not all within {volume}, which has {bytes}")]
    OutOfBounds {
        /// Name of the volume.
        volume: Arc<str>,
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        length: u64,
        /// Size of the volume, in bytes.
        bytes: u64,
    },
    /// Offset or length of the range is no multiple of the volume's block.
    #[error("{length} bytes at {offset}: both must be multiples of {block}, the block of {volume}")]
    Misaligned {
        /// Name of the volume.
        volume: Arc<str>,
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        length: u64,
        /// Size of a block, in bytes.
        block: u32,
    },
    /// Two lengths of one request differ: the bytes to compare with and those to write, or the ranges of
    /// [`crate::Queue::read_many`] and their memory.
    #[error("{expected} bytes to compare and {written} to write; give the same number of both")]
    LengthMismatch {
        /// Number of bytes to compare with; of `read_many`, the sum of the ranges.
        expected: usize,
        /// Number of bytes to write; of `read_many`, the size of the memory.
        written: usize,
    },
    /// The server found the request malformed.
    #[error("the server finds the request to {what} {volume} malformed: the device may want other lengths")]
    Malformed {
        /// Operation of the request.
        what: &'static str,
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The device failed to carry out the request.
    #[error("the device failed to {what} {volume}")]
    DeviceFailed {
        /// Operation of the request.
        what: &'static str,
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The device did not complete the server's command in time. It may still carry the command out; the
    /// memory that it may write to is not reused.
    #[error("the device did not {what} {volume} in time; it may still do it")]
    DeviceTimedOut {
        /// Operation of the request.
        what: &'static str,
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The device has no free space for the request. A thin volume gets no more blocks.
    #[error(
        "the device has no room to {what} {volume}; remove something on it, discard what is not needed in thin volumes, or \
         make it larger"
    )]
    NoSpace {
        /// Operation of the request.
        what: &'static str,
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The bytes of a compare-and-write were not the expected ones, and nothing was written.
    #[error("the contents of {volume} differ from the expected ones; nothing was written")]
    CompareFailed {
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The range consists of too many extents of the device for one request. Calls of [`crate::Volume`]
    /// divide such a range themselves.
    #[error(
        "the range of {volume} has too many extents for one request; request at most {bytes} at {offset}"
    )]
    TooManyExtents {
        /// Name of the volume.
        volume: Arc<str>,
        /// Offset of the range, in bytes.
        offset: u64,
        /// Number of bytes from `offset` on that one request can cover.
        bytes: u64,
    },
    /// The device does not support the operation.
    #[error("the device of {volume} cannot {what}")]
    NotSupported {
        /// Operation of the request.
        what: &'static str,
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The volume cannot be mapped.
    #[error("{volume} cannot be mapped: {why}; go through the channel (Choice::Automatic)")]
    NotMapped {
        /// Name of the volume.
        volume: Arc<str>,
        /// Reason why the volume cannot be mapped.
        why: String,
    },
    /// The arena is too small ever to allocate so many bytes.
    #[error("{asked} bytes were requested, and the arena has {most} at most; make it larger")]
    TooLarge {
        /// Bytes asked for.
        asked: usize,
        /// Greatest number of bytes that the arena can allocate at once.
        most: usize,
    },
    /// The arena has too little free memory now.
    #[error("{asked} bytes were requested: {arena}; reap completions, or free memory first")]
    ArenaFull {
        /// Bytes asked for.
        asked: usize,
        /// Owners of the arena's bytes.
        arena: Box<bywash_channel::ArenaUse>,
    },
    /// As many requests are in flight as the depth allows.
    #[error("{depth} requests are in flight, the greatest number; reap completions first")]
    Full {
        /// Depth of the queue.
        depth: u32,
    },
    /// Requests of the volume or by the transfer are in flight, or have completed and were not reaped.
    #[error("requests of it are in flight or not reaped; reap them first")]
    Busy,
    /// The buffer of a transfer was lost: a device that missed its timeout, or a server that died, may still write to it.
    #[error(
        "the transfer's buffer is lost, since a device may still write to it; release the transfer and prepare another"
    )]
    BufferLost,
    /// No request is in flight that a call could wait for.
    #[error("no request is in flight; submit one first")]
    Idle,
    /// A request of several pieces has none or too many.
    #[error("a request of {asked} ranges is out of bounds; give 1 to {most}")]
    PieceCount {
        /// Number of pieces given.
        asked: usize,
        /// Greatest number of pieces allowed.
        most: usize,
    },
    /// A volume, a buffer or a transfer belongs to another client or queue, or was closed.
    #[error("the {what} belongs to another {of}, or was closed")]
    Foreign {
        /// Kind of thing: a volume, a buffer or a transfer.
        what: &'static str,
        /// Kind of owner that the thing does not belong to: this client or this queue.
        of: &'static str,
    },
    /// An option has a value that is not allowed.
    #[error("{option} is {value}, and must be {allowed}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Value given.
        value: Box<str>,
        /// Description of the values that are allowed.
        allowed: Box<str>,
    },
    /// The program ended the wait ([`crate::Options::interrupted_by`]).
    #[error("the program has ended the wait; the request may still be carried out")]
    Interrupted,
    /// This process was forked off the one that connected.
    #[error("this connection belongs to the process that made it, and this one was forked off; connect anew")]
    Forked,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that needed the system call.
        what: String,
        /// Error of the system call.
        source: Arc<io::Error>,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: Arc::new(source.into()) }
    }

    pub(crate) fn broken(what: impl Into<String>) -> Error {
        Error::ProtocolViolation { what: what.into() }
    }

    /// Converts an error of the connection. `what` names the operation that was waited for, and `limit` its
    /// timeout.
    pub(crate) fn from_link(error: bywash_link::Error, what: &'static str, limit: Duration) -> Error {
        use bywash_link::Error as Link;
        match error {
            Link::TimedOut | Link::AllocTimedOut { .. } => Error::TimedOut { what, limit },
            Link::Closed | Link::PeerDied { .. } => Error::Gone { how: error.to_string() },
            Link::Protocol { what, .. } | Link::Incompatible(what) => Error::ProtocolViolation { what },
            Link::TooLarge { asked, most } => Error::TooLarge { asked, most },
            Link::ArenaFull { asked, arena } => Error::ArenaFull { asked, arena },
            Link::Full { depth } => Error::Full { depth },
            Link::Option { option, value, allowed } => {
                Error::Option { option, value: value.into(), allowed: allowed.into() }
            }
            Link::Forked => Error::Forked,
            Link::Io { what, source } => Error::io(what, source),
            Link::WrongPath(_) => Error::Foreign { what: "buffer", of: "queue" },
            error => Error::io(what, io::Error::other(error.to_string())),
        }
    }

    /// Returns true if the connection has ended, so that only a new one can help.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Error::Gone { .. } | Error::ProtocolViolation { .. })
    }

    /// Returns the kind of refusal, if the server refused an operation over its control socket.
    pub fn code(&self) -> Option<RefusalKind> {
        match self {
            Error::Refused { refused, .. } => Some(refused.code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every completion of a queue has room for an error, so errors must be small.
    #[test]
    fn errors_are_small() {
        assert!(size_of::<Error>() <= 56, "{}", size_of::<Error>());
    }
}
