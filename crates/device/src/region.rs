//! Memory that a device may prepare itself for: a client's arena, of which many commands have their spans.

use crate::span::Owner;

/// Memory to be registered.
#[derive(Debug)]
pub struct Region {
    pub(crate) base: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) owner: Owner,
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
}

/// A region that was registered, as a command names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionId {
    pub(crate) index: u32,
    /// How often the place was used before, so that the name of a region that is gone names no other one.
    pub(crate) turn: u32,
}
