//! Registered memory: what users of the device registered, and the controller's addresses of it.
//!
//! Invariant: memory stays pinned, and so mapped for DMA, while a command in flight uses it, also after it was
//! unregistered. Called by the device.

use bywash_device::{PinnedRegion, RegionId, Segment};
use std::sync::Arc;

/// Greatest number of registered regions.
pub(super) const REGIONS_MAX: usize = 1024;

#[derive(Debug)]
struct Registered {
    memory: Arc<PinnedRegion>,
    address: u64,
    /// Number of commands in flight that use the region.
    users: u32,
    /// True if the region was unregistered while commands use it.
    is_leaving: bool,
}

#[derive(Debug, Default)]
struct RegionEntry {
    generation: u32,
    registered: Option<Registered>,
}

/// Table of registered memory.
#[derive(Debug, Default)]
pub(super) struct Regions {
    entries: Vec<RegionEntry>,
}

/// Region of a command: its entry, and where its first byte is for the process and for the controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup {
    pub(super) index: u32,
    pub(super) base: usize,
    pub(super) address: u64,
}

impl Regions {
    /// Registers memory that is mapped for DMA at `address`. `None` if every entry is taken.
    pub(super) fn register(&mut self, memory: &Arc<PinnedRegion>, address: u64) -> Option<RegionId> {
        let index = match self.entries.iter().position(|entry| entry.registered.is_none()) {
            Some(index) => index,
            None if self.entries.len() < REGIONS_MAX => {
                self.entries.push(RegionEntry::default());
                self.entries.len() - 1
            }
            None => return None,
        };
        let entry = &mut self.entries[index];
        entry.registered = Some(Registered { memory: memory.clone(), address, users: 0, is_leaving: false });
        Some(RegionId::new(index as u32, entry.generation))
    }

    /// Unregisters a region: at once, or when the last command in flight that uses it has completed.
    pub(super) fn unregister(&mut self, region: RegionId) {
        let Some(entry) = self.entries.get_mut(region.index() as usize) else { return };
        let is_known = entry.generation == region.generation();
        let Some(registered) = entry.registered.as_mut().filter(|_| is_known) else { return };
        registered.is_leaving = true;
        let is_unused = registered.users == 0;
        // The identifier is unknown from now on.
        entry.generation = entry.generation.wrapping_add(1);
        if is_unused {
            entry.registered = None;
        }
    }

    /// Returns the region if it is registered and contains all of the segments that have bytes.
    #[inline]
    pub(super) fn find(&self, region: RegionId, segments: &[Segment]) -> Option<Lookup> {
        let entry = self.entries.get(region.index() as usize)?;
        let registered = entry.registered.as_ref().filter(|_| entry.generation == region.generation())?;
        let memory = &registered.memory;
        let is_inside = |segment: &Segment| memory.offset_of(segment.base(), segment.bytes()).is_some();
        let lookup =
            Lookup { index: region.index(), base: memory.base().addr(), address: registered.address };
        segments.iter().all(is_inside).then_some(lookup)
    }

    /// Notes that a command uses the region of entry `index`.
    #[inline]
    pub(super) fn enter(&mut self, index: u32) {
        if let Some(registered) = &mut self.entries[index as usize].registered {
            registered.users += 1;
        }
    }

    /// Notes that a command does not use the region of entry `index` any more.
    #[inline]
    pub(super) fn leave(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        let Some(registered) = &mut entry.registered else { return };
        registered.users -= 1;
        if registered.users == 0 && registered.is_leaving {
            entry.registered = None;
        }
    }
}
