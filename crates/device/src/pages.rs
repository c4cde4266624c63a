//! Page-aligned memory of this process, which every device accepts for its commands.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Zeroed, page-aligned memory of this process, freed when it is dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone; those who use its bytes have to synchronise by themselves.
unsafe impl Send for Pages {}
// SAFETY: a shared reference gives out nothing but the address, and users of the bytes synchronise by
// themselves.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates `bytes` bytes, at least one, aligned to a page.
    pub(crate) fn new(bytes: usize) -> Pages {
        // Not reached: all callers pass constants or checked numbers, which fit into the address space.
        let layout = Layout::from_size_align(bytes.max(1), bywash_link::PAGE).expect("a size of memory");
        // SAFETY: the layout has at least one byte, as `alloc_zeroed` requires.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        Pages { base, layout }
    }

    /// Returns the address of the first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the size, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with the same layout, and nobody frees it twice.
        unsafe { dealloc(self.base, self.layout) };
    }
}
