//! Part of a client's arena that is pinned, as the devices that share a pinner know it; when more is to be pinned.
//!
//! Invariant: memory that a device may still refer to is kept, so that its pages are never unpinned on the core's thread.
//! Called by [`super::arenas`].

use crate::helpers::DropByHelper;
use bywash_device::{Error, PinnedRegion, Pinner, REGION_MAX, RegionId};
use std::ptr;
use std::sync::Arc;

/// Number of times that an arena's size is moved before the arena is pinned for devices that may use any memory: from
/// then on pinning is cheaper than looking up pages.
const MOVED_FACTOR: u64 = 2;
/// Greatest size of an arena that is pinned for devices that may use any memory, in bytes: larger ones would pin much
/// memory that is rarely used.
const ARENA_MAX: u64 = 64 << 20;
/// Least number of bytes that are copied before a larger part of an arena is pinned.
const COPIED_MIN: u64 = 64 << 10;

/// Result of pinning: `None` if no larger part of the arena is backed by pages than is pinned already.
pub(crate) type Pinned = Result<Option<DropByHelper<Arc<PinnedRegion>>>, Error>;

/// A client's arena, as the devices that share a pinner know it.
#[derive(Debug)]
pub(crate) struct ArenaPins {
    pinner: Arc<dyn Pinner>,
    /// Number of bytes that commands have moved outside of the pinned memory since pinning last began.
    moved: u64,
    /// True while a helper pins, and if nothing more is to be pinned.
    is_closed: bool,
    pinned: Option<Arc<PinnedRegion>>,
    /// Smaller regions that were pinned before, which commands in flight may still use.
    former: Vec<Arc<PinnedRegion>>,
}

/// Part of a client's arena that a device has registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisteredArena {
    pub(crate) region: RegionId,
    /// Address of the first byte.
    base: usize,
    /// Address behind the last byte.
    end: usize,
}

/// Returns true if both are the same pinner.
pub(crate) fn is_same(one: &Arc<dyn Pinner>, other: &Arc<dyn Pinner>) -> bool {
    ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

impl ArenaPins {
    pub(crate) fn new(pinner: Arc<dyn Pinner>) -> ArenaPins {
        ArenaPins { pinner, moved: 0, is_closed: false, pinned: None, former: Vec::new() }
    }

    /// Returns true if the memory is pinned by this pinner.
    pub(crate) fn is_by(&self, pinner: &Arc<dyn Pinner>) -> bool {
        is_same(&self.pinner, pinner)
    }

    /// Returns the memory that is pinned.
    pub(crate) fn pinned(&self) -> Option<&Arc<PinnedRegion>> {
        self.pinned.as_ref()
    }

    /// Returns the number of bytes that are pinned.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.pinned.as_ref().map_or(0, |memory| memory.bytes())
    }

    /// Counts bytes that were moved outside of the pinned memory. Returns true if more of the arena, which has
    /// `arena_bytes` bytes, is to be pinned now.
    pub(crate) fn is_due(&mut self, bytes: u64, arena_bytes: u64) -> bool {
        if self.is_closed {
            return false;
        }
        self.moved += bytes;
        let (due, arena_max) = match (self.pinner.copies_unregistered(), self.pinned_bytes() as u64) {
            (true, 0) => (0, REGION_MAX as u64),
            (true, pinned) => (pinned.max(COPIED_MIN), REGION_MAX as u64),
            (false, _) => (MOVED_FACTOR * arena_bytes, ARENA_MAX),
        };
        if self.moved < due {
            return false;
        }
        (self.moved, self.is_closed) = (0, true);
        arena_bytes <= arena_max
    }

    /// Notes that there was no more to pin than before.
    pub(crate) fn note_unchanged(&mut self) {
        self.is_closed = false;
    }

    /// Keeps memory that was pinned instead of the former.
    pub(crate) fn replace(&mut self, memory: Arc<PinnedRegion>) {
        self.former.extend(self.pinned.replace(memory));
        // For devices that may use any memory, an arena is pinned once.
        self.is_closed = !self.pinner.copies_unregistered();
    }

    /// Takes the former regions that no device refers to any more.
    pub(crate) fn take_unused(&mut self) -> Vec<Arc<PinnedRegion>> {
        self.former.extract_if(.., |memory| Arc::strong_count(memory) == 1).collect()
    }
}

impl RegisteredArena {
    pub(crate) fn new(region: RegionId, memory: &PinnedRegion) -> RegisteredArena {
        let base = memory.base().addr();
        RegisteredArena { region, base, end: base + memory.bytes() }
    }

    /// Returns true if the `bytes` bytes from address `base` on are within the region.
    #[inline]
    pub(crate) fn contains(&self, base: usize, bytes: u64) -> bool {
        // No overflow: the addresses are those of memory that is mapped.
        self.base <= base && base + bytes as usize <= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_device::{Pinning, Region};

    /// A pinner that pins nothing.
    #[derive(Debug)]
    struct Idle {
        copies: bool,
    }

    #[expect(unsafe_code, reason = "the trait's method is unsafe")]
    impl Pinner for Idle {
        unsafe fn pin(&self, _: *mut u8, _: usize) -> Result<Box<dyn Pinning>, Error> {
            Ok(Box::new(Nothing))
        }

        fn copies_unregistered(&self) -> bool {
            self.copies
        }
    }

    struct Nothing;

    impl Pinning for Nothing {
        fn release(&mut self) -> bool {
            true
        }
    }

    fn unpinned(copies: bool) -> ArenaPins {
        ArenaPins::new(Arc::new(Idle { copies }))
    }

    #[expect(unsafe_code, reason = "a region is described by its address")]
    fn region(pins: &ArenaPins, bytes: usize) -> Arc<PinnedRegion> {
        // SAFETY: nothing accesses the memory of this region, which does not exist.
        let region = unsafe { Region::new(ptr::dangling_mut(), bytes, Arc::new(())) };
        Arc::new(region.pin(&*pins.pinner).unwrap())
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_that_need_not_be_copied_is_pinned_once_after_it_was_used_twice() {
        let mut pins = unpinned(false);
        assert!(!pins.is_due(MIB, MIB) && pins.is_due(MIB, MIB) && !pins.is_due(9 * MIB, MIB));
        let memory = region(&pins, 4096);
        pins.replace(memory);
        assert!(!pins.is_due(9 * MIB, MIB));
        let mut large = unpinned(false);
        assert!(!large.is_due(1 << 40, ARENA_MAX + 4096));
    }

    #[test]
    fn memory_that_would_be_copied_is_pinned_at_once_and_grows() {
        let mut pins = unpinned(true);
        assert!(pins.is_due(512, 16 * MIB));
        assert!(!pins.is_due(MIB, 16 * MIB), "a helper pins");
        let memory = region(&pins, 4096);
        pins.replace(memory);
        assert!(!pins.is_due(COPIED_MIN - 512, 16 * MIB) && pins.is_due(512, 16 * MIB));
        let memory = region(&pins, MIB as usize);
        pins.replace(memory);
        assert!(!pins.is_due(MIB - 512, 16 * MIB) && pins.is_due(512, 16 * MIB));
        assert!(!unpinned(true).is_due(512, REGION_MAX as u64 + 4096));
    }

    #[test]
    fn former_memory_is_given_up_when_no_device_refers_to_it() {
        let mut pins = unpinned(true);
        let (first, second) = (region(&pins, 4096), region(&pins, 8192));
        let device = first.clone();
        pins.replace(first);
        pins.replace(second);
        assert!(pins.take_unused().is_empty());
        drop(device);
        assert_eq!(pins.take_unused().len(), 1);
        assert_eq!((pins.take_unused().len(), pins.pinned_bytes()), (0, 8192));
    }
}
