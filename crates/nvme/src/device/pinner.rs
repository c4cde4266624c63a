//! Mapping of memory for DMA, on threads that may block: the first step of registration.
//!
//! Invariant: memory is mapped exactly until its [`DmaMapping`] is released. The function stays open meanwhile, also after
//! its device was dropped, when the controller is shut down and cut off from memory. Called by whoever has memory pinned
//! that commands are to use; the device recognises the mappings of its own pinner.

use crate::dma::PAGE;
use crate::error::Error;
use crate::function::Function;
use bywash_device::{PinnedRegion, Pinner, Pinning};
use std::fmt;
use std::sync::Arc;

/// Maps memory for one controller.
pub(super) struct DmaPinner<F: Function> {
    function: Arc<F>,
}

/// Memory that is mapped for one controller, or was.
struct DmaMapping<F: Function> {
    function: Arc<F>,
    /// The controller's address of the first byte.
    address: u64,
    bytes: usize,
    is_mapped: bool,
}

impl<F: Function> DmaPinner<F> {
    pub(super) fn new(function: &Arc<F>) -> DmaPinner<F> {
        DmaPinner { function: function.clone() }
    }

    /// Returns the controller's address of memory that this pinner has mapped; `None` for other memory.
    pub(super) fn address_of(&self, memory: &PinnedRegion) -> Option<u64> {
        let mapping = memory.pinning::<DmaMapping<F>>()?;
        Arc::ptr_eq(&mapping.function, &self.function).then_some(mapping.address)
    }
}

impl<F: Function> Pinner for DmaPinner<F> {
    /// Maps whole pages: some milliseconds for 64 MiB on small pages.
    #[expect(unsafe_code, reason = "the controller gets access to memory of the process")]
    unsafe fn pin(&self, base: *mut u8, bytes: usize) -> Result<Box<dyn Pinning>, bywash_device::Error> {
        let io = |what, source| bywash_device::Error::Io { what, source };
        if bytes == 0 || !base.addr().is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
            let reason = std::io::Error::other("it does not consist of whole pages");
            return Err(io(format!("map {bytes} bytes of memory for DMA"), reason));
        }
        // SAFETY: the caller keeps the memory mapped and unreferenced until `release` has returned true.
        let address = unsafe { self.function.map(base, bytes) }.map_err(|error| match error {
            Error::Io { what, source } => io(what, source),
            error => io("map memory for DMA".into(), std::io::Error::other(error.to_string())),
        })?;
        Ok(Box::new(DmaMapping { function: self.function.clone(), address, bytes, is_mapped: true }))
    }

    fn copies_unregistered(&self) -> bool {
        true
    }
}

impl<F: Function> Pinning for DmaMapping<F> {
    fn release(&mut self) -> bool {
        if self.is_mapped {
            self.is_mapped = !self.function.unmap(self.address, self.bytes);
        }
        !self.is_mapped
    }
}

impl<F: Function> fmt::Debug for DmaPinner<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the pinner of {}", self.function.description())
    }
}
