//! What goes into a queue with a request, and comes out with its completion.

use crate::error::Error;
use std::ptr::NonNull;

/// Memory of a queue's arena, which goes to the server and comes back without being copied.
///
/// It is filled and read by copying, since a server that breaks the protocol could write there at any time; where the server
/// is trusted ([`crate::Options::trusted`]) it can be borrowed. After the queue has connected again it is copied into the
/// new arena when it is submitted next.
#[derive(Debug)]
pub struct Buffer {
    pub(super) inner: bywash_channel::Buffer,
    /// Of which connection's arena.
    pub(super) generation: u64,
}

impl Buffer {
    /// Bytes, as many as a request with it reads or writes.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Bytes that it could hold.
    pub fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    /// Changes how many bytes a request with it reads or writes, up to [`Buffer::capacity`]; false if that is less.
    pub fn resize(&mut self, length: usize) -> bool {
        self.inner.resize(length)
    }

    /// Copies `from` to the bytes from `at` on, as much as there is room for; answers how much.
    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) -> usize {
        self.inner.write(at, from)
    }

    /// Copies the bytes from `at` on to `to`, as many as there are; answers how many.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        self.inner.read(at, to)
    }

    /// Where it is, for a system call or a device: valid for reading and writing as long as this value is there.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.as_ptr()
    }

    /// What is inside, where it is.
    ///
    /// # Errors
    /// If the server is not trusted.
    pub fn map(&self) -> Result<&[u8], bywash_channel::Error> {
        self.inner.map()
    }

    /// As [`Buffer::map`], to be changed in place.
    ///
    /// # Errors
    /// As there.
    pub fn map_mut(&mut self) -> Result<&mut [u8], bywash_channel::Error> {
        self.inner.map_mut()
    }
}

/// Memory that a request takes with it, and that comes back with the completion.
#[derive(Debug)]
pub enum Room {
    /// Of the arena: not copied.
    Arena(Buffer),
    /// The program's own: what is read is copied there, from the arena when it is reaped, from mapped memory when it is
    /// submitted.
    Own(Vec<u8>),
}

impl From<Buffer> for Room {
    fn from(buffer: Buffer) -> Room {
        Room::Arena(buffer)
    }
}

impl From<Vec<u8>> for Room {
    fn from(bytes: Vec<u8>) -> Room {
        Room::Own(bytes)
    }
}

impl Room {
    /// Where its bytes are, and how many.
    #[inline(always)]
    pub(super) fn place(&mut self) -> (*mut u8, usize) {
        match self {
            Room::Arena(buffer) => (buffer.as_ptr(), buffer.len()),
            Room::Own(bytes) => (bytes.as_mut_ptr(), bytes.len()),
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Room::Arena(buffer) => buffer.len(),
            Room::Own(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `at` on to `to`, as many as there are; answers how many.
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        match self {
            Room::Arena(buffer) => buffer.read(at, to),
            Room::Own(bytes) => {
                let from = bytes.get(at..).unwrap_or_default();
                let length = from.len().min(to.len());
                to[..length].copy_from_slice(&from[..length]);
                length
            }
        }
    }
}

/// What became of a request.
#[derive(Debug)]
pub struct Completion {
    /// What it was to be known by.
    pub user_data: u64,
    /// How it went.
    pub outcome: Result<(), Error>,
    /// The memory that it took along. A buffer of the arena does not come back if the device did not answer in time, or the
    /// server went: somebody may still write there.
    pub room: Option<Room>,
}

/// What was not submitted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotSubmitted {
    /// Why.
    #[source]
    pub error: Error,
    /// The memory that was given, unharmed.
    pub room: Option<Room>,
}

impl NotSubmitted {
    #[cold]
    pub(super) fn new(error: Error, room: Option<Room>) -> NotSubmitted {
        NotSubmitted { error, room }
    }
}

impl From<Error> for NotSubmitted {
    fn from(error: Error) -> NotSubmitted {
        NotSubmitted::new(error, None)
    }
}

impl From<NotSubmitted> for Error {
    fn from(refused: NotSubmitted) -> Error {
        refused.error
    }
}

/// Where bytes are to go that are read into memory that a program lends by its address alone.
#[derive(Debug)]
pub(super) struct Place(pub(super) NonNull<u8>);

// SAFETY: an address. Whoever lent what is there has promised that it stays, whichever thread reaps.
unsafe impl Send for Place {}

/// What a request leaves with the queue while it is under way.
#[derive(Debug, Default)]
pub(super) enum Keep {
    /// Nothing: its memory in the arena, if it has some, is the queue's own.
    #[default]
    Nothing,
    /// Its memory in the arena is the program's.
    Buffer,
    /// What is read goes there.
    Own(Vec<u8>),
    /// What is read goes there.
    Lent(Place),
}
