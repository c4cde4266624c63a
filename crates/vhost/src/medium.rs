//! What a disk is made of: something that carries out requests, many at a time, and tells when they are done.
//!
//! The interface is this crate's own, so that it serves a device as well as a client of a device server. Invariant: a
//! request that is handed to a medium is within its bounds, in whole blocks, and its pieces are the guest's memory,
//! which `memory` keeps mapped. Called by [`crate::Export`], from one thread.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What keeps the memory of a request mapped.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// What a medium is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its size.
    pub bytes: u64,
    /// Bytes of a block, a power of two from 512 to 2^31: offsets and lengths are multiples of it.
    pub block: u32,
    /// Bytes of which multiples are carried out best.
    pub optimal: u32,
    /// Most bytes of a request that carries data.
    pub transfer_max: u64,
    /// Most bytes of one that carries none: to discard, to write zeros.
    pub range_max: u64,
    /// Most pieces of a request, one at least.
    pub pieces_max: usize,
    /// Whether it may only be read.
    pub read_only: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Bytes of the medium go to memory.
    Read,
    /// Bytes of memory go to the medium, which may keep them in a volatile cache for now.
    Write,
    /// As `Write`, and when it is done the bytes are durable.
    WriteDurable,
    /// When it is done, everything is durable that was given out as done before it was submitted.
    Flush,
    /// The contents are not needed any more.
    Discard,
    /// The contents become zeros.
    WriteZeroes,
}

/// A piece of the guest's memory.
///
/// Invariant: it is mapped for reading and writing as long as the request's [`Owner`] lives; the guest can write there
/// at any time, so it is for raw pointers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    base: *mut u8,
    bytes: usize,
}

impl Piece {
    /// Made where guest addresses are translated, and nowhere else.
    pub(crate) fn new(base: *mut u8, bytes: usize) -> Piece {
        Piece { base, bytes }
    }

    /// Where it begins.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Something to be done.
pub struct Request<'a> {
    /// The submitter's name for it, unlike that of any other that is under way.
    pub token: u64,
    /// What.
    pub operation: Operation,
    /// From where on.
    pub offset: u64,
    /// How many bytes of the medium; as many as the pieces have, where there are any.
    pub length: u64,
    /// Memory that the bytes go to or come from.
    pub pieces: &'a [Piece],
    /// Is to be kept until the request is done.
    pub memory: &'a Owner,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { token, operation, offset, length, pieces, .. } = self;
        write!(out, "{operation:?} {token}: {length} bytes from {offset}, {} pieces", pieces.len())
    }
}

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its name.
    pub token: u64,
    /// Whether it was carried out.
    pub result: Result<(), Failure>,
}

/// The request was not carried out, or not wholly. The guest learns that, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure;

/// No request can be taken before one that is under way is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Something that carries out requests in any order.
///
/// It has one user, who is its only thread at a time. None of the calls waits. Every request ends, if only because the
/// medium has a time limit of its own: a guest that is gone is not followed by another one before that.
pub trait Medium: Send {
    /// What it is like. It stays so.
    fn geometry(&self) -> Geometry;

    /// Takes a request, which may begin now or with the next [`Medium::reap`] or [`Medium::arm`].
    ///
    /// # Errors
    /// [`Full`] if it cannot be taken before another one that is under way is done. The request is not.
    fn submit(&mut self, request: Request<'_>) -> Result<(), Full>;

    /// Gives what is done to `done`, in any order.
    fn reap(&mut self, done: &mut dyn FnMut(Done));

    /// For those who want to sleep: after `false` the [`Medium::descriptor`] becomes readable when something is done.
    /// `true`: something is done already, or can be found out by reaping alone.
    fn arm(&mut self) -> bool;

    /// What becomes readable when something is done, after [`Medium::arm`]. None where there is nothing but reaping.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Requests that were submitted and not given out as done.
    fn under_way(&self) -> usize;
}
