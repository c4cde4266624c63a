//! Memory that both the driver and the controller access.
//!
//! Invariant: the memory is mapped in this process for as long as the controller can reach it, and no Rust reference
//! points into it: every access is a volatile load or store, or a copy. Called by queues and devices.
#![expect(
    unsafe_code,
    reason = "the controller writes to this memory at any time, so it is accessed by raw pointers"
)]

use crate::error::Error;
use crate::function::Function;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Size of a page of the host and of the controller (CC.MPS = 0), in bytes.
pub const PAGE: usize = 4096;

/// Memory of this process that is mapped for DMA: zeroed, in whole pages, and contiguous for the controller.
pub(crate) struct DmaMemory<F: Function> {
    base: *mut u8,
    bytes: usize,
    address: u64,
    is_leaked: bool,
    function: Arc<F>,
}

// SAFETY: memory that belongs to this value alone, on whichever thread the value is used.
unsafe impl<F: Function> Send for DmaMemory<F> {}
// SAFETY: through shared references the memory is only accessed by volatile loads and stores and by copies, and the device
// that has the memory is used by one thread at a time.
unsafe impl<F: Function> Sync for DmaMemory<F> {}

impl<F: Function> DmaMemory<F> {
    /// Allocates `bytes` bytes, rounded up to whole pages and at least one, and maps them for DMA. The pages are
    /// shared, so that no fork(2) gives the parent other pages than the controller has.
    ///
    /// # Errors
    /// [`Error::Io`] if the memory cannot be allocated or mapped.
    pub(crate) fn new(function: &Arc<F>, bytes: usize) -> Result<DmaMemory<F>, Error> {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, flags) }
            .map_err(|error| Error::io(format!("allocate {bytes} bytes for DMA"), error))?;
        let base = base.cast::<u8>();
        // SAFETY: the new mapping has `bytes` bytes; `drop` removes it only after it was unmapped for DMA.
        match unsafe { function.map(base, bytes) } {
            Ok(address) => {
                Ok(DmaMemory { base, bytes, address, is_leaked: false, function: function.clone() })
            }
            Err(error) => {
                // SAFETY: the mapping was made above, and nobody else knows it.
                let _ = unsafe { munmap(base.cast(), bytes) };
                Err(error)
            }
        }
    }

    /// Keeps the memory mapped for ever, for this process and for the controller.
    pub(crate) fn leak(&mut self) {
        self.is_leaked = true;
    }

    /// Returns the controller's address of the byte at `offset`.
    #[inline]
    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.address + offset as u64
    }

    /// Returns this process's address of the byte at `offset`, which is at most the size.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes);
        self.base.wrapping_add(offset)
    }

    /// Reads the aligned 32-bit word at `offset`.
    #[inline]
    pub(crate) fn read32(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: the assertion keeps the word within the mapping and aligned; volatile, since the controller writes.
        u32::from_le(unsafe { self.base.add(offset).cast::<u32>().read_volatile() })
    }

    /// Writes the aligned 32-bit word at `offset`.
    #[inline]
    pub(crate) fn write32(&self, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: the assertion keeps the word within the mapping and aligned; volatile, since the controller reads.
        unsafe { self.base.add(offset).cast::<u32>().write_volatile(value.to_le()) };
    }

    /// Writes the aligned 64-bit word at `offset`.
    #[inline]
    pub(crate) fn write64(&self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: the assertion keeps the word within the mapping and aligned; volatile, since the controller reads.
        unsafe { self.base.add(offset).cast::<u64>().write_volatile(value.to_le()) };
    }

    /// Writes the eight aligned 64-bit words of a command at `offset`.
    #[inline]
    pub(crate) fn write_command(&self, offset: usize, words: &[u64; 8]) {
        assert!(offset.is_multiple_of(64) && offset + 64 <= self.bytes);
        // SAFETY: the assertion keeps the words within the mapping and aligned.
        let to = unsafe { self.base.add(offset).cast::<u64>() };
        for (index, word) in words.iter().enumerate() {
            // SAFETY: one of the eight words of the range asserted above.
            unsafe { to.add(index).write_volatile(word.to_le()) };
        }
    }

    /// Reads the aligned 32-bit word at `offset`, like [`DmaMemory::read32`], without looking whether it is in the memory.
    ///
    /// # Safety
    /// `offset` is a multiple of 4, and at most the size of the memory less 4.
    #[inline(always)]
    pub(crate) unsafe fn read32_unchecked(&self, offset: usize) -> u32 {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: the caller keeps the word within the mapping and aligned; volatile, since the controller writes.
        u32::from_le(unsafe { self.base.add(offset).cast::<u32>().read_volatile() })
    }

    /// Writes the words 0, 3, 4, 5 and 6 of a command of eight words at `offset`, without looking whether it is in the memory.
    ///
    /// # Safety
    /// `offset` is a multiple of 64, and at most the size of the memory less 64.
    #[inline(always)]
    pub(crate) unsafe fn write_words_unchecked(&self, offset: usize, words: [u64; 5]) {
        debug_assert!(offset.is_multiple_of(64) && offset + 64 <= self.bytes);
        // SAFETY: the caller keeps the words within the mapping and aligned.
        let to = unsafe { self.base.add(offset).cast::<u64>() };
        for (index, word) in [0, 3, 4, 5, 6].into_iter().zip(words) {
            // SAFETY: one of the eight words of the command.
            unsafe { to.add(index).write_volatile(word.to_le()) };
        }
    }

    /// Writes a list of `count` pages of the controller's that follow one another, from the address `first` on, at `offset`.
    /// Returns the controller's address of the list.
    #[inline(never)]
    pub(crate) fn write_pages(&self, offset: usize, first: u64, count: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && count <= PAGE / 8 && offset + count * 8 <= self.bytes);
        // SAFETY: the assertion keeps the words within the mapping and aligned.
        let to = unsafe { self.base.add(offset).cast::<u64>() };
        let mut page = first;
        for index in 0..count {
            // SAFETY: one of the words of the range asserted above.
            unsafe { to.add(index).write_volatile(page.to_le()) };
            page += PAGE as u64;
        }
        self.address(offset)
    }

    /// Copies `N` bytes out of the memory, from `offset` on.
    pub(crate) fn read_bytes<const N: usize>(&self, offset: usize) -> Box<[u8; N]> {
        assert!(offset + N <= self.bytes);
        let mut out = Box::new([0; N]);
        // SAFETY: the assertion keeps the range within the mapping; `out` is another object of `N` bytes.
        unsafe { ptr::copy_nonoverlapping(self.base.add(offset).cast_const(), out.as_mut_ptr(), N) };
        out
    }

    /// Returns true if the `bytes` bytes at `first` and at `second` are equal.
    pub(crate) fn has_equal(&self, first: usize, second: usize, bytes: usize) -> bool {
        assert!(first + bytes <= self.bytes && second + bytes <= self.bytes);
        (0..bytes).all(|index| {
            // SAFETY: both bytes are within the mapping, as asserted above.
            unsafe {
                self.base.add(first + index).read_volatile() == self.base.add(second + index).read_volatile()
            }
        })
    }

    /// Sets `bytes` bytes from `offset` on to zeros.
    pub(crate) fn zero(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: the assertion keeps the range within the mapping.
        unsafe { ptr::write_bytes(self.base.add(offset), 0, bytes) };
    }
}

impl<F: Function> Drop for DmaMemory<F> {
    fn drop(&mut self) {
        // If the controller may still access the memory, leaking it is better than freeing it.
        if !self.is_leaked && self.function.unmap(self.address, self.bytes) {
            // SAFETY: `new` made this mapping, the controller has no access any more, and nobody else has its address.
            let _ = unsafe { munmap(self.base.cast(), self.bytes) };
        }
    }
}

impl<F: Function> fmt::Debug for DmaMemory<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes for DMA at {:#x}", self.bytes, self.address)
    }
}

/// Orders all earlier stores to DMA memory before a later store to a doorbell.
#[inline]
pub(crate) fn before_doorbell() {
    if cfg!(target_arch = "x86_64") {
        // The processor keeps stores in order, those to uncached registers included.
        compiler_fence(Ordering::Release);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Orders the load of a completion's phase before loads of the completion's other fields, and of the data that the command
/// has moved.
#[inline]
pub(crate) fn after_phase() {
    fence(Ordering::Acquire);
}

/// Orders a store to a shadow doorbell before the load of its event index.
#[inline]
pub(crate) fn between_shadow_and_event() {
    fence(Ordering::SeqCst);
}
