//! The storage of a disk: carries out requests, many at a time, and reports when they have completed.
//!
//! The interface belongs to this crate, so that a device can implement it as well as a client of a device
//! server. Invariant: a request that is submitted to a medium lies within its bounds and consists of whole
//! blocks, and its pieces are memory of the guest, which `memory` keeps mapped. Called by [`crate::Export`],
//! from one thread at a time.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Owner of the mapping that a request's memory lies in.
pub type MappingOwner = Arc<dyn Any + Send + Sync>;

/// Size and limits of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the medium, in bytes.
    pub bytes: u64,
    /// Size of a block, in bytes: a power of two from 512 to 2^31. Offsets and lengths are multiples of it.
    pub block: u32,
    /// Preferred unit of requests, in bytes.
    pub optimal: u32,
    /// Greatest size of a request that transfers data, in bytes.
    pub transfer_max: u64,
    /// Greatest size of a request to discard or to write zeros, in bytes.
    pub range_max: u64,
    /// Greatest number of pieces of a request, at least 1.
    pub pieces_max: usize,
    /// True if the medium can only be read.
    pub read_only: bool,
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Copies bytes of the medium to memory.
    Read,
    /// Copies bytes of memory to the medium, which may keep them in a volatile cache.
    Write,
    /// Like `Write`, but the bytes are durable on completion.
    WriteDurable,
    /// Makes everything durable that was reported as done before this request was submitted.
    Flush,
    /// Tells the medium that a range's contents are no longer needed.
    Discard,
    /// Sets a range to zeros.
    WriteZeroes,
}

/// A piece of the guest's memory.
///
/// Invariant: the piece is mapped for reading and writing as long as the request's [`MappingOwner`] lives.
/// The guest can write to it at any time, so it must be accessed by raw pointers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSegment {
    base: *mut u8,
    bytes: usize,
}

impl GuestSegment {
    /// Makes a piece. Only the code that translates guest addresses may call this.
    pub(crate) fn new(base: *mut u8, bytes: usize) -> GuestSegment {
        GuestSegment { base, bytes }
    }

    /// Returns the address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the size, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A request to a medium.
pub struct Request<'a> {
    /// Identifier that the submitter chooses, unique among the requests in flight.
    pub token: u64,
    /// Operation to carry out.
    pub operation: Operation,
    /// Offset of the range in the medium, in bytes.
    pub offset: u64,
    /// Length of the range, in bytes: the sum of the pieces, if the request has any.
    pub length: u64,
    /// Memory that the bytes are copied to or from.
    pub pieces: &'a [GuestSegment],
    /// Owner of the pieces' mapping, which the medium keeps until the request has completed.
    pub memory: &'a MappingOwner,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { token, operation, offset, length, pieces, .. } = self;
        write!(out, "{operation:?} {token}: {length} bytes from {offset}, {} pieces", pieces.len())
    }
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// Success, or failure.
    pub result: Result<(), Failure>,
}

/// Error for a request that was not carried out, or only in part. The guest is told no details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure;

/// Error for a request that can be submitted only after another one has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Storage that carries out requests in any order.
///
/// A medium has one user, which calls it from one thread at a time. No method waits. Every request must
/// complete, at the latest by a timeout of the medium: the next guest is not served before the requests of
/// the last one have completed.
pub trait Storage: Send {
    /// Returns the size and the limits, which never change.
    fn geometry(&self) -> Geometry;

    /// Submits a request, which may begin now or at the next [`Storage::reap`] or [`Storage::arm`].
    ///
    /// # Errors
    /// [`Full`] if the request can be submitted only after one in flight has completed. It is not submitted
    /// then.
    fn submit(&mut self, request: Request<'_>) -> Result<(), Full>;

    /// Calls `done` for each completed request, in any order.
    fn reap(&mut self, done: &mut dyn FnMut(Completion));

    /// Prepares to sleep. After `false` the [`Storage::descriptor`] becomes readable when a request completes.
    /// `true` means that a request has completed already, or that only reaping can find out.
    fn arm(&mut self) -> bool;

    /// Returns the descriptor that becomes readable after [`Storage::arm`] when a request completes; `None` if
    /// the medium can only be polled by reaping.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the number of requests that were submitted and not yet reported as done.
    fn in_flight(&self) -> usize;
}
