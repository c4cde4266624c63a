//! Memory that can be registered with devices: a client's arena, which the segments of many commands lie in.
//!
//! The kernel looks up and pins the pages of a command's memory while it uses them, and a device that the process
//! drives by itself reaches only memory that was mapped for it (DMA). Pages of *registered* memory are already pinned
//! and mapped. That takes time for each page, so registration has two steps:
//!
//! ```text
//!   Region::pin        on a thread that may block: a device's pinner pins the pages    milliseconds
//!   Device::register   on the device's thread: the device refers to what is pinned     microseconds, whatever the size
//! ```
//!
//! A [`Pinner`] belongs to a kind of device or to one device: [`Device::pinner`](crate::Device::pinner). Memory that was
//! pinned for io_uring can be registered with each device that uses io_uring; memory that was mapped for a controller
//! only with that controller.

use crate::error::Error;
use crate::segment::MemoryOwner;
use io_uring::IoUring;
use std::any::Any;
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};

/// Greatest size of a region, in bytes: the kernel's limit for a registered buffer.
pub const REGION_MAX: usize = 1 << 30;

/// Pins memory for the devices that share it, on threads that may block.
pub trait Pinner: fmt::Debug + Send + Sync {
    /// Makes the kernel populate and pin all pages of the `bytes` bytes from `base` on, and makes them ready for
    /// registration.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses, for example because the range is empty, too long or not mapped, or because of
    /// the limit of locked memory (`RLIMIT_MEMLOCK`).
    ///
    /// # Safety
    /// The memory stays mapped for reading and writing, and no Rust reference points into it, until
    /// [`Pinning::release`] has returned true.
    unsafe fn pin(&self, base: *mut u8, bytes: usize) -> Result<Box<dyn Pinning>, Error>;

    /// Returns true if the devices copy the data of memory that is not registered.
    fn copies_unregistered(&self) -> bool;
}

/// Pages that a [`Pinner`] has pinned.
pub trait Pinning: Any + Send + Sync {
    /// Unpins the pages, which takes time for each of them. Returns false if a device may still access them: the memory
    /// must then never be freed.
    fn release(&mut self) -> bool;
}

/// Memory that is to be pinned.
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

    /// Has the pages of the memory pinned until the last reference to the result is dropped. The memory counts as locked
    /// (`RLIMIT_MEMLOCK`) if the process lacks `CAP_IPC_LOCK`.
    ///
    /// # Errors
    /// Same as [`Pinner::pin`].
    pub fn pin(self, pinner: &dyn Pinner) -> Result<PinnedRegion, Error> {
        let Region { base, bytes, owner } = self;
        // SAFETY: the owner keeps the memory mapped, and `PinnedRegion` drops the owner after the pages were released, or
        // never.
        let pinning = unsafe { pinner.pin(base, bytes) }?;
        Ok(PinnedRegion { pinning, base: base as usize, bytes, owner: Some(owner) })
    }
}

/// Memory whose pages are pinned, for devices to register. Dropping the last reference takes time for each page.
pub struct PinnedRegion {
    // Declared before `owner`, so dropped before it.
    pinning: Box<dyn Pinning>,
    base: usize,
    bytes: usize,
    /// Owner of the memory; `None` only while the region is dropped.
    owner: Option<MemoryOwner>,
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

    /// Returns what the pinner made, if it is a `T`: a device recognises the memory that its own pinner has pinned.
    pub fn pinning<T: Pinning>(&self) -> Option<&T> {
        (&*self.pinning as &dyn Any).downcast_ref()
    }
}

impl Drop for PinnedRegion {
    fn drop(&mut self) {
        if !self.pinning.release() {
            // A device may still access the memory. Leaking it is better than freeing it.
            std::mem::forget(self.owner.take());
        }
    }
}

impl fmt::Debug for PinnedRegion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes of memory that are pinned", self.bytes)
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

/// Pinner for all devices that use io_uring: registers memory with a ring of its own, whose registration the devices'
/// rings then refer to.
#[derive(Debug)]
pub(crate) struct RingPinner(());

impl RingPinner {
    /// Returns the pinner, which is the same for all devices.
    pub(crate) fn shared() -> Arc<dyn Pinner> {
        static SHARED: OnceLock<Arc<RingPinner>> = OnceLock::new();
        SHARED.get_or_init(|| Arc::new(RingPinner(()))).clone()
    }
}

impl Pinner for RingPinner {
    unsafe fn pin(&self, base: *mut u8, bytes: usize) -> Result<Box<dyn Pinning>, Error> {
        let failed = |error| Error::io(format!("register {bytes} bytes of memory with io_uring"), error);
        let ring = IoUring::new(1).map_err(failed)?;
        let vector = libc::iovec { iov_base: base.cast(), iov_len: bytes };
        // SAFETY: the caller keeps the memory mapped until the pages are released, after which the ring is dropped.
        unsafe { ring.submitter().register_buffers(&[vector]) }.map_err(failed)?;
        Ok(Box::new(RingPinning(Some(ring))))
    }

    fn copies_unregistered(&self) -> bool {
        false
    }
}

/// Ring in which memory is registered buffer 0, until the memory is released.
pub(crate) struct RingPinning(Option<IoUring>);

impl RingPinning {
    /// Returns the descriptor of the ring, or `None` if the memory was released.
    pub(crate) fn ring(&self) -> Option<RawFd> {
        self.0.as_ref().map(AsRawFd::as_raw_fd)
    }
}

impl Pinning for RingPinning {
    fn release(&mut self) -> bool {
        self.0 = None;
        true
    }
}
