//! Pools: arenas whose containers go to a process that does not speak the protocol of paths, such as a display
//! server, which maps the arena's descriptor by itself.
//!
//! Each container of a pool is in one of three states, and each state is a type of its own:
//!
//! ```text
//!              alloc                 ship
//!     free ───────────► PoolContainer ───────► PoolShipment    held by the other process
//!       ▲                 │      ▲                  │
//!       └─────────────────┘      └──────────────────┘
//!              drop                   returned
//! ```
//!
//! Invariants:
//! - A shipped container cannot be written, and its block is not allocated again until the caller states that
//!   the other process has returned it. A [`PoolShipment`] that is dropped stays shipped for as long as the pool
//!   exists.
//! - There is no Rust reference to the bytes of a pool that others may write ([`Trust::Writer`]): containers are
//!   filled by stores through a pointer, and their bytes are never read.
//! - The arena of [`Trust::Reader`] is sealed before anybody else can have its descriptor: the one mapping that
//!   can write is the pool's own.
//!
//! Called by `bywash-display`, and by programs that feed another consumer of shared memory.

use crate::store;
use bywash_link::{Arena, ArenaUse, Block, BlockAllocator, Error, HugePages, PAGE, ProcessGeneration};
use bywash_link::{Holder, SpinLock, Writers};
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;
use std::sync::Arc;

/// Trust in the processes that get the descriptor of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// They may read. The arena is sealed, so that the kernel refuses every attempt to write to it or to map
    /// it for writing (F_SEAL_FUTURE_WRITE). An X server attaches such an arena.
    Reader,
    /// They may also write, at any time. A Wayland compositor maps for reading and writing, and fails if it
    /// cannot.
    Writer,
}

/// Memory of a container, for a process that maps it by itself.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRange<'a> {
    /// Descriptor of the memory file. It remains this library's: pass it on, or duplicate it.
    pub descriptor: BorrowedFd<'a>,
    /// Offset of the first byte in the file, in bytes.
    pub offset: usize,
    /// Length, in bytes.
    pub length: usize,
}

/// Arena whose containers go to a process that maps it by itself.
///
/// ```
/// use bywash_container::{Pool, Trust};
///
/// let pool = Pool::create(1 << 20, Trust::Reader)?;
/// let mut frame = pool.alloc(640 * 480)?;
/// frame.write(0, b"pixels");
/// let shipped = frame.ship();
/// // The other process gets this descriptor once, and the offset of each container.
/// let memory = shipped.memory();
/// assert_eq!((memory.offset % 4096, memory.length), (0, 640 * 480));
/// // Later, once the other process has said that it does not need the container any more:
/// let mut frame = shipped.returned();
/// frame.write(0, b"others");
/// # Ok::<_, bywash_container::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    arena: Arena,
    trust: Trust,
    /// Process that made the pool: in a forked child nothing can be allocated.
    maker: ProcessGeneration,
    state: SpinLock<State>,
}

#[derive(Debug)]
struct State {
    blocks: BlockAllocator,
    /// Blocks that the other process holds.
    shipped: Vec<Block>,
}

impl Pool {
    /// Creates a pool of at least `bytes` bytes, which are zeros. Nobody can resize it.
    ///
    /// # Errors
    /// [`Error::Option`] if `bytes` is 0 or more than an arena can have; [`Error::Io`] if the memory cannot be
    /// made, mapped or sealed.
    pub fn create(bytes: usize, trust: Trust) -> Result<Pool, Error> {
        if bytes == 0 {
            let allowed = "1 byte at least".to_owned();
            return Err(Error::Option { option: "the pool", value: bytes.to_string(), allowed });
        }
        let arena = match trust {
            Trust::Reader => Arena::create(bytes, HugePages::No, Writers::Owner)?,
            Trust::Writer => {
                let arena = Arena::create(bytes, HugePages::No, Writers::Both)?;
                // Nobody may seal the arena any more: a seal against writing would be a fault here.
                arena.file.seal_size()?;
                arena
            }
        };
        let state = State { blocks: BlockAllocator::new(arena.file.bytes()), shipped: Vec::new() };
        let maker = ProcessGeneration::current();
        Ok(Pool(Arc::new(Shared { arena, trust, maker, state: SpinLock::new(state) })))
    }

    /// Returns the size in bytes: that of [`Pool::create`], rounded up as an arena's.
    pub fn bytes(&self) -> usize {
        self.0.arena.file.bytes()
    }

    /// Returns the trust that the pool was created with.
    pub fn trust(&self) -> Trust {
        self.0.trust
    }

    /// Allocates a container of `bytes` bytes, which begins at a page. Its contents are left from its last use,
    /// or zeros. The pages that it lies on belong to no other container.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the pool can never hold so many bytes in one container, or `bytes` is 0;
    /// [`Error::ArenaFull`] if it has no room now, which tells who holds it; [`Error::Forked`] in a forked
    /// child; [`Error::Io`] if there is no memory.
    pub fn alloc(&self, bytes: usize) -> Result<PoolContainer, Error> {
        if !self.0.maker.is_here() {
            return Err(Error::Forked);
        }
        let most = BlockAllocator::largest(self.bytes());
        if bytes == 0 || bytes > most {
            return Err(Error::TooLarge { asked: bytes, most });
        }
        let mut state = self.0.state.lock();
        let Some(block) = state.blocks.allocate(bytes.next_multiple_of(PAGE)) else {
            drop(state);
            return Err(Error::ArenaFull { asked: bytes, arena: Box::new(self.usage()) });
        };
        let offset = state.blocks.offset(block);
        drop(state);
        let container =
            PoolContainer { pool: self.0.clone(), block, offset, length: bytes, is_shipped: false };
        // The pages are this process's charge, and not that of the process which reads them first.
        self.0.arena.populate(offset, bytes.next_multiple_of(PAGE))?;
        Ok(container)
    }

    /// Returns the use of the arena: what this process holds, what was shipped, and what is free.
    pub fn usage(&self) -> ArenaUse {
        let state = self.0.state.lock();
        let mut usage = state.blocks.usage();
        usage.attribute(Holder::Peer, state.shipped.iter().map(|block| state.blocks.bytes(*block)));
        usage
    }
}

/// The descriptor of the memory, which the other process maps. With [`Trust::Writer`], whoever has it can write.
impl AsFd for Pool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.arena.file.descriptor()
    }
}

impl Shared {
    fn memory(&self, offset: usize, length: usize) -> MemoryRange<'_> {
        MemoryRange { descriptor: self.arena.file.descriptor(), offset, length }
    }

    fn base(&self, offset: usize) -> *mut u8 {
        match self.arena.at(offset) {
            Some(base) => base,
            None => unreachable!("a pool maps the arena that it makes"),
        }
    }
}

/// A container of a pool that this process owns and may fill. Dropping it frees its memory.
#[derive(Debug)]
pub struct PoolContainer {
    pool: Arc<Shared>,
    block: Block,
    offset: usize,
    length: usize,
    /// True while another process holds the container, so that its block must not be freed.
    is_shipped: bool,
}

impl PoolContainer {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns false: a container of a pool has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns descriptor, offset and length of the memory.
    pub fn memory(&self) -> MemoryRange<'_> {
        self.pool.memory(self.offset, self.length)
    }

    /// Copies `bytes` into the container, from `offset` on.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.range(offset, bytes.len());
        // SAFETY: the range lies within the block, as `range` asserts, so within the mapped arena, and this value
        // alone stores there.
        unsafe { store::bytes(to, bytes) };
    }

    /// Stores words in little-endian order, from `offset` on, without reading what is there: for a program that
    /// computes pixels.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write_words(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u32>) {
        let count = words.len();
        let to = self.range(offset, count.saturating_mul(4));
        // SAFETY: as many words lie within the range that `range` asserted, and this value alone stores there.
        unsafe { store::words(to, count, words) };
    }

    /// Returns the address of the first byte, for a program that stores through pointers: with [`Trust::Writer`] there
    /// must be no reference to the bytes, since another process may write them. No store is allowed once the container
    /// was shipped.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pool.base(self.offset)
    }

    /// Returns the contents, if nobody else can write them: with [`Trust::Reader`].
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.pool.trust == Trust::Writer {
            return None;
        }
        let base = self.pool.base(self.offset);
        // SAFETY: the block's initialised bytes within the mapped arena. The arena was sealed before its
        // descriptor was given to anybody, so that only this mapping can write; and this value is the only
        // access to the block.
        Some(unsafe { slice::from_raw_parts_mut(base, self.length) })
    }

    /// Ships the container to the other process: it can be neither written nor allocated again, until
    /// [`PoolShipment::returned`].
    pub fn ship(mut self) -> PoolShipment {
        self.is_shipped = true;
        self.pool.state.lock().shipped.push(self.block);
        PoolShipment(self)
    }

    #[inline]
    fn range(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset <= self.length && length <= self.length - offset,
            "{length} bytes from {offset} on do not fit into a container of {}",
            self.length
        );
        self.pool.base(self.offset + offset)
    }
}

impl Drop for PoolContainer {
    fn drop(&mut self) {
        if !self.is_shipped && self.pool.maker.is_here() {
            self.pool.state.lock().blocks.free(self.block);
        }
    }
}

/// A container of a pool that another process holds. If it is dropped, its memory is not used again for as long
/// as the pool exists, since the other process may still read it.
#[derive(Debug)]
pub struct PoolShipment(PoolContainer);

impl PoolShipment {
    /// Returns descriptor, offset and length of the memory.
    pub fn memory(&self) -> MemoryRange<'_> {
        self.0.memory()
    }

    /// Takes the container back. The caller states that the other process has returned it; if that is not so,
    /// the other process sees what is written next.
    pub fn returned(self) -> PoolContainer {
        let PoolShipment(mut container) = self;
        container.is_shipped = false;
        container.pool.state.lock().shipped.retain(|block| *block != container.block);
        container
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{SealFlags, fcntl_get_seals, ftruncate};
    use rustix::io::{Errno, pread, pwrite};
    use rustix::mm::{MapFlags, ProtFlags, mmap};

    fn read(pool: &Pool, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert_eq!(pread(pool, &mut bytes, offset as u64).unwrap(), length);
        bytes
    }

    fn maps(pool: &Pool, rights: ProtFlags) -> Result<(), Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody accesses.
        unsafe { mmap(std::ptr::null_mut(), PAGE, rights, MapFlags::SHARED, pool, 0) }.map(drop)
    }

    #[test]
    fn a_reader_can_only_read() {
        let pool = Pool::create(PAGE, Trust::Reader).unwrap();
        let mut container = pool.alloc(100).unwrap();
        container.bytes_mut().unwrap()[..3].copy_from_slice(b"abc");
        container.write(3, b"def");
        assert_eq!(container.as_mut_ptr(), container.bytes_mut().unwrap().as_mut_ptr());
        container.write_words(8, [0x0102_0304, 5].into_iter());
        let offset = container.memory().offset;
        assert_eq!(read(&pool, offset, 16), b"abcdef\0\0\x04\x03\x02\x01\x05\0\0\0");
        assert_eq!(maps(&pool, ProtFlags::READ | ProtFlags::WRITE), Err(Errno::PERM));
        assert_eq!(maps(&pool, ProtFlags::READ), Ok(()));
        assert_eq!(pwrite(&pool, b"x", 0), Err(Errno::PERM));
        assert_eq!(ftruncate(&pool, 0), Err(Errno::PERM));
    }

    #[test]
    fn a_writer_can_write_but_neither_resize_nor_seal() {
        let pool = Pool::create(PAGE, Trust::Writer).unwrap();
        let mut container = pool.alloc(100).unwrap();
        assert!(container.bytes_mut().is_none());
        container.write(0, b"abc");
        assert_eq!(maps(&pool, ProtFlags::READ | ProtFlags::WRITE), Ok(()));
        assert_eq!(pwrite(&pool, b"x", 0), Ok(1));
        assert_eq!(read(&pool, 0, 3), b"xbc");
        assert_eq!(ftruncate(&pool, 0), Err(Errno::PERM));
        assert!(fcntl_get_seals(&pool).unwrap().contains(SealFlags::SEAL));
    }

    #[test]
    fn what_is_shipped_is_not_used_again_until_it_is_returned() {
        let pool = Pool::create(4 * PAGE, Trust::Reader).unwrap();
        let shipped: Vec<_> = (0..4).map(|_| pool.alloc(PAGE).unwrap().ship()).collect();
        let offsets: Vec<_> = shipped.iter().map(|one| one.memory().offset).collect();
        let refused = pool.alloc(1).unwrap_err();
        assert!(matches!(&refused, Error::ArenaFull { arena, .. } if arena.shipped == 4), "{refused}");
        let mut shipped = shipped.into_iter();
        drop(shipped.next().unwrap().returned());
        let again = pool.alloc(PAGE).unwrap();
        assert_eq!(again.memory().offset, offsets[0]);
        // A shipment that is dropped stays shipped, and one that was freed does not.
        drop(shipped);
        assert_eq!(pool.usage().shipped, 3);
        drop(again);
        assert_eq!(pool.usage().held, 0);
        assert!(pool.alloc(2 * PAGE).is_err());
        assert!(pool.alloc(PAGE).is_ok());
    }

    #[test]
    fn what_can_never_fit_is_refused() {
        let pool = Pool::create(PAGE, Trust::Reader).unwrap();
        for bytes in [0, PAGE + 1, usize::MAX] {
            assert!(matches!(pool.alloc(bytes), Err(Error::TooLarge { .. })), "{bytes}");
        }
        assert!(matches!(Pool::create(0, Trust::Reader), Err(Error::Option { .. })));
        assert!(matches!(Pool::create(usize::MAX, Trust::Writer), Err(Error::Option { .. })));
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn a_write_beyond_the_end_panics() {
        let pool = Pool::create(PAGE, Trust::Writer).unwrap();
        pool.alloc(8).unwrap().write_words(4, [0, 0].into_iter());
    }

    #[test]
    fn the_memory_outlives_the_pool_while_a_container_is_there() {
        let pool = Pool::create(PAGE, Trust::Writer).unwrap();
        let shipped = pool.alloc(1).unwrap().ship();
        drop(pool);
        shipped.returned().write(0, b"x");
    }
}
