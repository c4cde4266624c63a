//! Buffers of a channel's arena, which a client attaches to its requests.

use crate::holders::Holders;
use crate::layout::{BufferRange, GRANULE};
use crate::stats::Counters;
use bywash_link::{Arena, Block, BlockAllocator, Error, ProcessGeneration, SpinLock};
use std::sync::Arc;
use std::{ptr, slice};

/// The arena of a client, and its free blocks.
#[derive(Debug)]
pub(crate) struct Pool {
    arena: Arena,
    free: SpinLock<BlockAllocator>,
    largest: usize,
    /// True if buffers that the server has used may be borrowed; see [`crate::Options::trusted`].
    trusted: bool,
    maker: ProcessGeneration,
    holders: Holders,
}

impl Pool {
    pub(crate) fn new(arena: Arena, trusted: bool, holders: Holders) -> Pool {
        let bytes = arena.file.bytes();
        let (free, largest) = (SpinLock::new(BlockAllocator::new(bytes)), BlockAllocator::largest(bytes));
        Pool { arena, free, largest, trusted, maker: ProcessGeneration::current(), holders }
    }

    #[cold]
    fn used_up(&self, asked: usize) -> Error {
        let mut arena = self.free.lock().usage();
        self.holders.split(&mut arena);
        Error::ArenaFull { asked, arena: Box::new(arena) }
    }

    /// Allocates a buffer of the client's arena, if the client has one.
    pub(crate) fn take(pool: Option<&Arc<Pool>>, bytes: usize) -> Result<Buffer, Error> {
        let Some(pool) = pool else {
            return Err(Error::TooLarge { asked: bytes, most: 0 });
        };
        if !pool.maker.is_here() {
            return Err(Error::Forked);
        }
        if bytes > pool.largest || bytes > u32::MAX as usize {
            return Err(Error::TooLarge { asked: bytes, most: pool.largest });
        }
        let mut free = pool.free.lock();
        let Some(block) = free.allocate(bytes) else {
            drop(free);
            return Err(pool.used_up(bytes));
        };
        let (offset, capacity) = (free.offset(block), free.bytes(block));
        Ok(Buffer { pool: pool.clone(), block, offset, capacity, length: bytes })
    }
}

/// Allocator of a client's buffers, for threads that have no half of the client.
#[derive(Clone, Debug)]
pub struct BufferAllocator(pub(crate) Option<Arc<Pool>>);

impl BufferAllocator {
    /// Allocates a buffer, like [`Submitter::alloc`](crate::Submitter::alloc).
    ///
    /// # Errors
    /// Same as [`Submitter::alloc`](crate::Submitter::alloc).
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        Pool::take(self.0.as_ref(), bytes)
    }

    /// Returns address and size of the whole arena, in bytes, for a device that is to access it; `None` without an arena.
    /// The memory is mapped for reading and writing as long as this value or a copy of it lives.
    pub fn arena(&self) -> Option<(*mut u8, usize)> {
        let pool = self.0.as_ref()?;
        Some((pool.arena.at(0)?, pool.arena.file.bytes()))
    }
}

/// A block of the arena. The owner of this value owns the block: the client, or the server while a request
/// with this buffer is in flight.
///
/// Contents are copied in and out, since a malicious server could write to the block at any time. If the
/// server is trusted, contents can also be borrowed. The initial contents are left from the last use of the
/// block, or zeros. Dropping a buffer frees the block.
#[derive(Debug)]
pub struct Buffer {
    pool: Arc<Pool>,
    block: Block,
    offset: usize,
    capacity: usize,
    length: usize,
}

impl Buffer {
    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the greatest length that this buffer can have, in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the number of bytes that are attached to a request. Returns false, without a change, if `length`
    /// is more than [`Buffer::capacity`] or 2^32 - 1.
    pub fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.capacity && length <= u32::MAX as usize;
        if fits {
            self.length = length;
        }
        fits
    }

    #[inline]
    fn base(&self) -> *mut u8 {
        // A client's own arena is always mapped, so `at` never returns `None`.
        self.pool.arena.at(self.offset).unwrap_or_else(ptr::dangling_mut)
    }

    /// Returns the address, for a system call or a device: valid for reading and writing as long as this
    /// value lives. A malicious server may write there at any time.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base()
    }

    #[inline]
    pub(crate) fn extent(&self) -> BufferRange {
        // The casts do not truncate: `Arena::create` limits the size of an arena to 2^32 granules, and
        // `length` was checked.
        BufferRange { offset: (self.offset / GRANULE) as u32, length: self.length as u32 }
    }

    /// Populates the pages that are attached to a request, so that the server is not charged for them.
    #[inline]
    pub(crate) fn take_memory(&self) -> Result<(), Error> {
        self.pool.arena.populate(self.offset, self.length)
    }

    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    fn memory(&self) -> RequestBuffer<'_> {
        RequestBuffer { base: self.base(), length: self.length, counters: &self.pool.holders.counters }
    }

    /// Copies `from` to the bytes from `at` on, as much as there is room for, and returns the number of bytes
    /// copied.
    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) -> usize {
        self.memory().write(at, from)
    }

    /// Copies the bytes from `at` on to `to`, as much as fits, and returns the number of bytes copied. The
    /// copy is private, so nobody can change it after it was checked.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        self.memory().read(at, to)
    }

    /// Borrows the contents in place.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if the server is not trusted.
    #[inline]
    pub fn map(&self) -> Result<&[u8], Error> {
        self.check_trusted()?;
        // SAFETY: within the client's mapped arena, and initialised, since it began as zeros. This value is
        // the only access to the block in this process; the caller of `Options::trusted` promised that the
        // server does not write there meanwhile.
        Ok(unsafe { slice::from_raw_parts(self.base(), self.length) })
    }

    /// Like [`Buffer::map`], but gives write access.
    ///
    /// # Errors
    /// Same as [`Buffer::map`].
    #[inline]
    pub fn map_mut(&mut self) -> Result<&mut [u8], Error> {
        self.check_trusted()?;
        // SAFETY: an initialised block that only this value gives access to, like in `map`, borrowed
        // exclusively; the caller of `Options::trusted` promised that the server does not touch it meanwhile.
        Ok(unsafe { slice::from_raw_parts_mut(self.base(), self.length) })
    }

    #[inline]
    fn check_trusted(&self) -> Result<(), Error> {
        match self.pool.trusted {
            true => Ok(()),
            false => Err(Error::NotMapped(
                "the server is not trusted, so that it could change them meanwhile; copy them with read and write",
            )),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.pool.maker.is_here() {
            self.pool.free.lock().free(self.block);
        }
    }
}

/// The client's memory that is attached to a request; it borrows the server's end. The client can write there
/// at any time: so copy the bytes first, and then check the copy.
#[derive(Clone, Copy, Debug)]
pub struct RequestBuffer<'a> {
    pub(crate) base: *mut u8,
    pub(crate) length: usize,
    pub(crate) counters: &'a Counters,
}

impl RequestBuffer<'_> {
    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the address, for a system call or a device: valid for reading and writing as long as the
    /// channel's end lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// Copies bytes out, like [`Buffer::read`].
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        let bytes = self.length.saturating_sub(at).min(to.len());
        self.counters.copied_bytes.add(bytes as u64);
        // SAFETY: `base` and `length` describe mapped memory and limit the copy, and `to` is the caller's own
        // memory. The peer may write meanwhile: then the private copy is a mixture of old and new bytes.
        unsafe { ptr::copy_nonoverlapping(self.base.wrapping_add(at).cast_const(), to.as_mut_ptr(), bytes) };
        bytes
    }

    /// Copies bytes in, like [`Buffer::write`].
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) -> usize {
        let bytes = self.length.saturating_sub(at).min(from.len());
        self.counters.copied_bytes.add(bytes as u64);
        // SAFETY: `base` and `length` describe memory that is mapped for writing and limit the copy; `from`
        // is the caller's own.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.wrapping_add(at), bytes) };
        bytes
    }
}
