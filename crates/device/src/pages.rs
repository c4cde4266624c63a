//! Memory of this process, aligned for every device.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Memory of this process on pages of its own, zeros at first.
#[derive(Debug)]
pub(crate) struct Pages {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: memory that belongs to this value alone; what is done with its bytes is up to those who use it.
unsafe impl Send for Pages {}
// SAFETY: as above; the value gives out nothing but the address.
unsafe impl Sync for Pages {}

impl Pages {
    /// So many bytes, at least one page.
    pub(crate) fn new(bytes: usize) -> Pages {
        // A size that does not fit into memory is nobody's wish: all callers have constants or checked numbers.
        let layout = Layout::from_size_align(bytes.max(1), bywash_link::PAGE).expect("a size of memory");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        Pages { base, layout }
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: made in `new` with the same layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}
