//! Requests as a server takes them: with their fields, and as the token by which they are completed.
//!
//! Called by `server`, which checks tag and buffer of each request.

use crate::layout::{ARGUMENTS, BufferRange, RequestEntry};

/// A request that the server took. It stays in flight, and the client waits, until it is given to
/// [`Completer::complete`](crate::Completer::complete).
#[derive(Debug)]
#[must_use = "the client waits until the request is completed"]
pub struct Request {
    pub(crate) ticket: RequestToken,
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) arguments: [u64; ARGUMENTS],
}

impl Request {
    /// Returns the operation, as the service defines.
    #[inline]
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// Returns the flags of the operation.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Returns the arguments of the operation, as the client wrote them: nobody has checked them.
    #[inline]
    pub fn arguments(&self) -> &[u64; ARGUMENTS] {
        &self.arguments
    }

    /// Returns the size of the attached buffer, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.ticket.buffer.length as usize
    }

    /// Returns true if no buffer is attached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The part of a request that a server needs to access its buffer and to complete it. It has a third of the
/// size of a [`Request`], for servers that keep many requests in flight.
#[derive(Debug)]
#[must_use = "the client waits until the request is completed"]
pub struct RequestToken {
    /// Number of the channel that the request came over.
    pub(crate) channel: u64,
    pub(crate) buffer: BufferRange,
    pub(crate) tag: u16,
}

impl From<Request> for RequestToken {
    #[inline]
    fn from(request: Request) -> RequestToken {
        request.ticket
    }
}

impl AsRef<RequestToken> for Request {
    #[inline]
    fn as_ref(&self) -> &RequestToken {
        &self.ticket
    }
}

impl AsRef<RequestToken> for RequestToken {
    #[inline]
    fn as_ref(&self) -> &RequestToken {
        self
    }
}

/// Fields of a request, copied out of the ring, as the client wrote them: nobody has checked them. A server that takes many
/// requests keeps one of these and has each request copied into it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestWords(pub(crate) RequestEntry);

impl RequestWords {
    /// Returns the operation, as the service defines.
    #[inline]
    pub fn opcode(&self) -> u8 {
        (self.0[0] >> 32) as u8
    }

    /// Returns the flags of the operation.
    #[inline]
    pub fn flags(&self) -> u8 {
        (self.0[0] >> 40) as u8
    }

    /// Returns the arguments of the operation.
    #[inline]
    pub fn arguments(&self) -> &[u64; ARGUMENTS] {
        self.0.last_chunk().expect("a request has two more words than arguments")
    }

    /// Returns the size of the attached buffer, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.0[1] >> 32) as usize
    }

    /// Returns true if no buffer is attached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
