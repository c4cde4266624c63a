//! Memory of a channel's arena that goes along with requests.

use crate::holders::Holders;
use crate::layout::{Extent, GRANULE};
use crate::stats::Counters;
use bywash_link::{Arena, Block, Blocks, Error, Exclusive, Maker};
use std::sync::Arc;
use std::{ptr, slice};

/// The arena of a client, and what is free in it.
#[derive(Debug)]
pub(crate) struct Pool {
    arena: Arena,
    free: Exclusive<Blocks>,
    largest: usize,
    /// Whether what the server has had may be borrowed; see [`crate::Options::trusted`].
    trusted: bool,
    maker: Maker,
    holders: Holders,
}

impl Pool {
    pub(crate) fn new(arena: Arena, trusted: bool, holders: Holders) -> Pool {
        let bytes = arena.file.bytes();
        let (free, largest) = (Exclusive::new(Blocks::new(bytes)), Blocks::largest(bytes));
        Pool { arena, free, largest, trusted, maker: Maker::this(), holders }
    }

    #[cold]
    fn used_up(&self, asked: usize) -> Error {
        let mut arena = self.free.lock().usage();
        self.holders.split(&mut arena);
        Error::UsedUp { asked, arena: Box::new(arena) }
    }

    /// A buffer of a client's arena, if it has one.
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
        let Some(block) = free.take(bytes) else {
            drop(free);
            return Err(pool.used_up(bytes));
        };
        let (offset, capacity) = (free.offset(block), free.bytes(block));
        Ok(Buffer { pool: pool.clone(), block, offset, capacity, length: bytes })
    }
}

/// Where buffers come from, for threads that have no half of the client.
#[derive(Clone, Debug)]
pub struct Buffers(pub(crate) Option<Arc<Pool>>);

impl Buffers {
    /// As [`Submitter::alloc`](crate::Submitter::alloc).
    ///
    /// # Errors
    /// As there.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        Pool::take(self.0.as_ref(), bytes)
    }
}

/// A part of the arena that belongs to whoever has this value: the client, or the server while a request with it is
/// under way.
///
/// Its contents are copied in and out, since a server that breaks the protocol could write there at any time. Where
/// the server is trusted they can be borrowed as well. What is in a buffer at first is what was in it when it was used
/// last, or zeros. It goes back to the arena when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    pool: Arc<Pool>,
    block: Block,
    offset: usize,
    capacity: usize,
    length: usize,
}

impl Buffer {
    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that it could hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes how much of it goes along with a request, up to [`Buffer::capacity`]; false if that is less.
    pub fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.capacity && length <= u32::MAX as usize;
        if fits {
            self.length = length;
        }
        fits
    }

    #[inline]
    fn base(&self) -> *mut u8 {
        // An arena of ours is always mapped.
        self.pool.arena.at(self.offset).unwrap_or_else(ptr::dangling_mut)
    }

    /// Where it is, for a system call or a device: valid for reading and writing as long as this value is there. A server
    /// that breaks the protocol may write there at any time.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base()
    }

    #[inline]
    pub(crate) fn extent(&self) -> Extent {
        // Within the arena, whose size and granules fit; see `Arena::create`.
        Extent { offset: (self.offset / GRANULE) as u32, length: self.length as u32 }
    }

    /// Takes the memory of what goes along with a request.
    #[inline]
    pub(crate) fn take_memory(&self) -> Result<(), Error> {
        self.pool.arena.take_memory(self.offset, self.length)
    }

    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    fn memory(&self) -> Memory<'_> {
        Memory { base: self.base(), length: self.length, counters: &self.pool.holders.counters }
    }

    /// Copies `from` to the bytes from `at` on, as much as there is room for; answers how much.
    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) -> usize {
        self.memory().write(at, from)
    }

    /// Copies the bytes from `at` on to `to`, as many as there are; answers how many. The copy is private: nobody
    /// can change it after it was checked.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        self.memory().read(at, to)
    }

    /// What is inside, where it is.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if the server is not trusted.
    #[inline]
    pub fn map(&self) -> Result<&[u8], Error> {
        self.check_trusted()?;
        // SAFETY: of a mapped arena, initialised since it began as zeros. This value is the only way to it here,
        // and that the server does not write while it is ours is what `Options::trusted` asks the caller to promise.
        Ok(unsafe { slice::from_raw_parts(self.base(), self.length) })
    }

    /// As [`Buffer::map`], to be changed in place.
    ///
    /// # Errors
    /// As [`Buffer::map`].
    #[inline]
    pub fn map_mut(&mut self) -> Result<&mut [u8], Error> {
        self.check_trusted()?;
        // SAFETY: as in `map`, and the server does not read it either.
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
            self.pool.free.lock().give(self.block);
        }
    }
}

/// Memory of the peer's that came with a request, as long as the end that answered it is borrowed. The peer can write
/// there at any time: copy out, then believe the copy.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    pub(crate) base: *mut u8,
    pub(crate) length: usize,
    pub(crate) counters: &'a Counters,
}

impl Memory<'_> {
    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where it is, for a system call or a device: valid for reading and writing as long as the channel's end lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// As [`Buffer::read`].
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        let bytes = self.length.saturating_sub(at).min(to.len());
        self.counters.copied_bytes.add(bytes as u64);
        // SAFETY: within the memory that `base` and `length` say, and `to` is the caller's own. The peer may write
        // there meanwhile: then the copy has some bytes of each, and stays so.
        unsafe { ptr::copy_nonoverlapping(self.base.wrapping_add(at).cast_const(), to.as_mut_ptr(), bytes) };
        bytes
    }

    /// As [`Buffer::write`].
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) -> usize {
        let bytes = self.length.saturating_sub(at).min(from.len());
        self.counters.copied_bytes.add(bytes as u64);
        // SAFETY: as in `read`, and the arena is mapped for writing.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.wrapping_add(at), bytes) };
        bytes
    }
}
