//! Memory that can be registered with devices: a client's arena, which the segments of many commands lie in.
//!
//! The kernel looks up and pins the pages of a command's memory while it uses them. Pages of *registered*
//! memory are already pinned. Registration takes time for each page, under the lock of a ring of io_uring, so
//! it has two steps: [`Region::pin`] registers the memory with a ring of its own, on a thread that may block;
//! then [`Device::register`](crate::Device::register) lets a device's ring refer to that registration, which
//! takes a few microseconds whatever the size.

use crate::error::Error;
use crate::segment::MemoryOwner;
use io_uring::IoUring;
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

/// Greatest size of a region, in bytes: the kernel's limit for a registered buffer.
pub const REGION_MAX: usize = 1 << 30;

/// Memory that is to be registered.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    bytes: usize,
    owner: MemoryOwner,
}

// SAFETY: an address range that `owner`, which is `Send`, keeps mapped on whichever thread it is used
// (`Region::new`). Moving it to another thread accesses no memory.
unsafe impl Send for Region {}

impl Region {
    /// Describes the `bytes` bytes of memory from `base` on.
    ///
    /// # Safety
    /// The memory is mapped for reading and writing as long as `owner` lives, and no Rust reference points
    /// into it.
    pub unsafe fn new(base: *mut u8, bytes: usize, owner: MemoryOwner) -> Region {
        Region { base, bytes, owner }
    }

    /// Makes the kernel populate and pin all pages of the memory until the last reference to the registration
    /// is dropped. The memory counts as locked (`RLIMIT_MEMLOCK`) if the process lacks `CAP_IPC_LOCK`.
    ///
    /// # Errors
    /// [`Error::Io`] if the process cannot use io_uring, or if the kernel refuses to register the memory, for
    /// example because it is empty or larger than [`REGION_MAX`].
    pub fn pin(self) -> Result<PinnedRegion, Error> {
        let Region { base, bytes, owner } = self;
        let failed = |error| Error::io(format!("register {bytes} bytes of memory with io_uring"), error);
        let ring = IoUring::new(1).map_err(failed)?;
        let vector = libc::iovec { iov_base: base.cast(), iov_len: bytes };
        // SAFETY: the owner keeps the memory mapped, and `PinnedRegion` drops the ring before the owner.
        unsafe { ring.submitter().register_buffers(&[vector]) }.map_err(failed)?;
        Ok(PinnedRegion { ring, base: base as usize, bytes, _owner: owner })
    }
}

/// Memory that the kernel has pinned, for devices to register. Dropping the last reference takes time for
/// each page.
pub struct PinnedRegion {
    ring: IoUring,
    base: usize,
    bytes: usize,
    // Declared after `ring`, so dropped after it: the addresses stay mapped while the kernel has the pages
    // pinned.
    _owner: MemoryOwner,
}

impl PinnedRegion {
    /// Returns the address of the region's first byte.
    pub fn base(&self) -> *mut u8 {
        self.base as *mut u8
    }

    /// Returns the size of the region, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the offset of a segment in the region, in bytes, or `None` if the segment is empty or not wholly in
    /// the region.
    #[inline]
    pub fn offset_of(&self, base: *const u8, bytes: usize) -> Option<usize> {
        let from = (base as usize).checked_sub(self.base)?;
        from.checked_add(bytes).filter(|end| *end <= self.bytes && *end > from).map(|_| from)
    }

    /// Returns the descriptor of the ring in which the memory is registered buffer 0.
    pub(crate) fn ring(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl fmt::Debug for PinnedRegion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes of memory that are registered", self.bytes)
    }
}

/// Identifier of a region that is registered with a device; commands carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionId {
    pub(crate) index: u32,
    /// Generation of the table entry: an identifier of an unregistered region never matches a later region.
    pub(crate) generation: u32,
}

impl RegionId {
    /// Makes the identifier of a region that a device keeps in entry `index` of its table. The device counts
    /// `generation` up when it unregisters the entry's region, so that no old identifier names a later region.
    pub fn new(index: u32, generation: u32) -> RegionId {
        RegionId { index, generation }
    }

    /// Returns the index of the region's entry in the device's table.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns the generation of the table entry when the region was registered.
    pub fn generation(self) -> u32 {
        self.generation
    }
}
