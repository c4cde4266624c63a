//! Memory that a request takes along, and the completion that returns it.

use crate::error::Error;
use std::ptr::NonNull;

/// Memory of a queue's arena, which the server accesses without a copy.
///
/// The program fills and reads a buffer by copying, since a server that breaks the protocol could write to it
/// at any time. Where the server is trusted ([`crate::Options::trusted`]) the program can borrow the bytes.
/// After the queue has connected again, a buffer of the old arena is copied into the new one when it is next
/// submitted.
#[derive(Debug)]
pub struct Buffer {
    pub(super) inner: bywash_channel::Buffer,
    /// Generation of the connection whose arena the buffer belongs to.
    pub(super) generation: u64,
}

impl Buffer {
    /// Returns the number of bytes that a request with this buffer reads or writes.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Returns true if that number is 0.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Returns the greatest number of bytes that the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    /// Sets the number of bytes that a request with this buffer reads or writes. Returns false, and changes
    /// nothing, if `length` exceeds [`Buffer::capacity`].
    pub fn resize(&mut self, length: usize) -> bool {
        self.inner.resize(length)
    }

    /// Copies `from` into the buffer at offset `at`, as far as it fits, and returns the number of bytes
    /// copied.
    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) -> usize {
        self.inner.write(at, from)
    }

    /// Copies bytes of the buffer from offset `at` on to `to`, as many as exist, and returns their number.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        self.inner.read(at, to)
    }

    /// Returns the address of the bytes, for a system call or a device. It is valid for reading and writing
    /// as long as this value lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.as_ptr()
    }

    /// Borrows the bytes in place.
    ///
    /// # Errors
    /// [`bywash_channel::Error::NotMapped`] if the server is not trusted.
    pub fn map(&self) -> Result<&[u8], bywash_channel::Error> {
        self.inner.map()
    }

    /// Borrows the bytes in place, like [`Buffer::map`], for changing them.
    ///
    /// # Errors
    /// Same as [`Buffer::map`].
    pub fn map_mut(&mut self) -> Result<&mut [u8], bywash_channel::Error> {
        self.inner.map_mut()
    }
}

/// Memory that a request takes along, and that its completion returns.
#[derive(Debug)]
pub enum RequestMemory {
    /// A buffer of the arena, which is not copied.
    Arena(Buffer),
    /// Memory of the program. Bytes that are read are copied to it: from the arena when the completion is
    /// reaped, from mapped memory when the request is submitted.
    Own(Vec<u8>),
}

impl From<Buffer> for RequestMemory {
    fn from(buffer: Buffer) -> RequestMemory {
        RequestMemory::Arena(buffer)
    }
}

impl From<Vec<u8>> for RequestMemory {
    fn from(bytes: Vec<u8>) -> RequestMemory {
        RequestMemory::Own(bytes)
    }
}

impl RequestMemory {
    /// Returns the address and the number of the bytes.
    #[inline(always)]
    pub(super) fn place(&mut self) -> (*mut u8, usize) {
        match self {
            RequestMemory::Arena(buffer) => (buffer.as_ptr(), buffer.len()),
            RequestMemory::Own(bytes) => (bytes.as_mut_ptr(), bytes.len()),
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match self {
            RequestMemory::Arena(buffer) => buffer.len(),
            RequestMemory::Own(bytes) => bytes.len(),
        }
    }

    /// Returns true if the number of bytes is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from offset `at` on to `to`, as many as exist, and returns their number.
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        match self {
            RequestMemory::Arena(buffer) => buffer.read(at, to),
            RequestMemory::Own(bytes) => {
                let from = bytes.get(at..).unwrap_or_default();
                let length = from.len().min(to.len());
                to[..length].copy_from_slice(&from[..length]);
                length
            }
        }
    }
}

/// Result of a request.
#[derive(Debug)]
pub struct Completion {
    /// The user data that the request was submitted with.
    pub user_data: u64,
    /// Success, or the error of the request.
    pub outcome: Result<(), Error>,
    /// The memory that the request took along. A buffer of the arena is not returned if the device missed its
    /// timeout or the server died, since either may still write to it.
    pub memory: Option<RequestMemory>,
}

/// A request that was not submitted, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SubmitError {
    /// Reason why the request was not submitted.
    #[source]
    pub error: Error,
    /// The memory that was given, unchanged.
    pub memory: Option<RequestMemory>,
}

impl SubmitError {
    #[cold]
    pub(super) fn new(error: Error, room: Option<RequestMemory>) -> SubmitError {
        SubmitError { error, memory: room }
    }
}

impl From<Error> for SubmitError {
    fn from(error: Error) -> SubmitError {
        SubmitError::new(error, None)
    }
}

impl From<SubmitError> for Error {
    fn from(refused: SubmitError) -> Error {
        refused.error
    }
}

/// Address of memory that the program lends for a read, until the completion is reaped.
#[derive(Debug)]
pub(super) struct LentAddress(pub(super) NonNull<u8>);

// SAFETY: the value is only an address. The lender guarantees that the memory stays valid, on whichever
// thread the queue reaps.
unsafe impl Send for LentAddress {}

/// Part of a request's memory that the queue keeps while the request is in flight.
#[derive(Debug, Default)]
pub(super) enum KeptMemory {
    /// Nothing: the request has no memory, or a buffer of the arena that the queue allocated itself.
    #[default]
    Nothing,
    /// Nothing, since the request's buffer of the arena is the program's, and the completion returns it.
    Buffer,
    /// Nothing, since the request's buffer of the arena belongs to the transfer with this index.
    Transfer(u32),
    /// The program's memory, to which the bytes of a read are copied.
    Own(Vec<u8>),
    /// The address of lent memory, to which the bytes of a read are copied.
    Lent(LentAddress),
}
