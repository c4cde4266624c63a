//! Memory that devices may prepare themselves for: a client's arena, of which many commands have their spans.
//!
//! The kernel looks up the pages of a command's memory and holds them while it is used; of memory that was *registered*
//! beforehand it holds them already. To register takes time for each page, under the lock of a ring of io_uring. So it is
//! done in two steps: [`Region::pin`] registers memory with a ring of its own, for a thread that may take its time, and
//! [`Device::register`](crate::Device::register) has a device's ring refer to what is registered there, which takes the same
//! few microseconds whatever the size.

use crate::error::Error;
use crate::span::Owner;
use io_uring::IoUring;
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

/// Most bytes of a region: the kernel's limit for a registered buffer.
pub const REGION_MAX: usize = 1 << 30;

/// Memory to be registered.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    bytes: usize,
    owner: Owner,
}

// SAFETY: an address range that its owner keeps mapped; see `Region::new`.
unsafe impl Send for Region {}

impl Region {
    /// The memory of `bytes` bytes from `base` on.
    ///
    /// # Safety
    /// It is mapped for reading and writing as long as `owner` lives, and no Rust reference leads there.
    pub unsafe fn new(base: *mut u8, bytes: usize, owner: Owner) -> Region {
        Region { base, bytes, owner }
    }

    /// Has the kernel take all of the memory, page by page, and hold it until the last that refers to it is gone. Pages that
    /// were not there yet are made. It counts as locked memory (`RLIMIT_MEMLOCK`) where the process lacks `CAP_IPC_LOCK`.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel has no io_uring for this process or does not take the memory, as it does not if that is
    /// empty or larger than [`REGION_MAX`].
    pub fn pin(self) -> Result<Pinned, Error> {
        let Region { base, bytes, owner } = self;
        let failed = |error| Error::io(format!("register {bytes} bytes of memory with io_uring"), error);
        let ring = IoUring::new(1).map_err(failed)?;
        let vector = libc::iovec { iov_base: base.cast(), iov_len: bytes };
        // SAFETY: the memory is mapped as long as its owner lives, which is dropped behind the ring.
        unsafe { ring.submitter().register_buffers(&[vector]) }.map_err(failed)?;
        Ok(Pinned { ring, base: base as usize, bytes, _owner: owner })
    }
}

/// Memory that the kernel holds, for devices to register. To drop the last of it takes time for each page.
pub struct Pinned {
    ring: IoUring,
    base: usize,
    bytes: usize,
    // Behind the ring: as long as the kernel holds the pages, their addresses do not become somebody else's.
    _owner: Owner,
}

impl Pinned {
    /// Returns the offset of a span in the region, or `None` if the span is not wholly in it.
    pub(crate) fn place_of(&self, base: *const u8, bytes: usize) -> Option<usize> {
        let from = (base as usize).checked_sub(self.base)?;
        from.checked_add(bytes).filter(|end| *end <= self.bytes && *end > from).map(|_| from)
    }

    /// The ring whose first buffer it is.
    pub(crate) fn ring(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes of memory that are registered", self.bytes)
    }
}

/// A region that was registered, as a command names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionId {
    pub(crate) index: u32,
    /// How often the place was used before, so that the name of a region that is gone names no other one.
    pub(crate) turn: u32,
}
