//! Memory for copies between two ranges of a device, which the core reads into and writes from.
//!
//! Made by threads that may block, and used by the core and the device alone.

use bywash_link::{Error, HugePages, Mapping, MemoryFile};

/// Memory for a copy, mapped as long as a command of the device may use it.
#[derive(Debug)]
pub(crate) struct CopyMemory {
    mapping: Mapping,
    bytes: usize,
}

impl CopyMemory {
    /// Allocates memory for copies of up to `bytes` bytes at a time.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel gives no memory.
    pub(crate) fn new(bytes: usize) -> Result<CopyMemory, Error> {
        let mapping = MemoryFile::create("bywash-copy", bytes, HugePages::No)?.map(true)?;
        Ok(CopyMemory { mapping, bytes })
    }

    /// Returns the first address.
    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Returns the size, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
