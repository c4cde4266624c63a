//! Registered memory: what users of the device registered, and the controller's addresses of it.
//!
//! Invariant: memory stays pinned, and so mapped for DMA, while a command in flight uses it, also after it was
//! unregistered. Called by the device.

use bywash_device::{PinnedRegion, RegionId, Segment};
use std::sync::Arc;

/// Greatest number of registered regions.
pub(super) const REGIONS_MAX: usize = 1024;

#[derive(Debug, Default)]
struct RegionEntry {
    generation: u32,
    /// Number of commands in flight that use the memory, which was unregistered meanwhile.
    users: u32,
    /// Registered or leaving memory; without memory, the fields below are zeros.
    memory: Option<Arc<PinnedRegion>>,
    /// This process's address of the memory's first byte.
    base: usize,
    bytes: usize,
    /// Controller's address of the memory's first byte.
    address: u64,
}

/// Table of registered memory.
#[derive(Debug, Default)]
pub(super) struct Regions {
    entries: Vec<RegionEntry>,
    /// Number of entries whose memory was unregistered while commands use it.
    leaving: usize,
    /// Number of regions that were unregistered, modulo 2^32.
    unregistered: u32,
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
        let index = match self.entries.iter().position(|entry| entry.memory.is_none()) {
            Some(index) => index,
            None if self.entries.len() < REGIONS_MAX => {
                self.entries.push(RegionEntry::default());
                self.entries.len() - 1
            }
            None => return None,
        };
        let entry = &mut self.entries[index];
        (entry.memory, entry.address) = (Some(memory.clone()), address);
        (entry.base, entry.bytes) = (memory.base().addr(), memory.bytes());
        Some(RegionId::new(index as u32, entry.generation))
    }

    /// Unregisters a region: at once, or when the last command in flight that uses it has completed. `users` returns the
    /// number of these commands, from the index of the region.
    pub(super) fn unregister(&mut self, region: RegionId, users: impl FnOnce(u32) -> u32) {
        let Some(entry) = self.entries.get_mut(region.index() as usize) else { return };
        if entry.generation != region.generation() || entry.memory.is_none() {
            return;
        }
        // The identifier is unknown from now on.
        self.unregistered = self.unregistered.wrapping_add(1);
        entry.generation = entry.generation.wrapping_add(1);
        (entry.base, entry.bytes, entry.address) = (0, 0, 0);
        entry.users = users(region.index());
        match entry.users {
            0 => entry.memory = None,
            _ => self.leaving += 1,
        }
    }

    /// Returns the controller's address of `bytes` bytes at `base`, and the index of their region, if the region is
    /// registered and contains them.
    #[inline]
    pub(super) fn find_one(&self, region: RegionId, base: usize, bytes: u64) -> Option<(u32, u64)> {
        let entry = self.entries.get(region.index() as usize)?;
        let offset = base.wrapping_sub(entry.base) as u64;
        // Without registered memory no range is inside, since it has no bytes.
        let is_inside = entry.generation == region.generation()
            && bytes <= entry.bytes as u64
            && offset <= entry.bytes as u64 - bytes;
        is_inside.then(|| (region.index(), entry.address + offset))
    }

    /// Returns the region if it is registered and contains all of the segments that have bytes.
    #[inline]
    pub(super) fn find(&self, region: RegionId, segments: &[Segment]) -> Option<Lookup> {
        let entry = self.entries.get(region.index() as usize)?;
        let memory = entry.memory.as_ref().filter(|_| entry.generation == region.generation())?;
        let is_inside = |segment: &Segment| memory.offset_of(segment.base(), segment.bytes()).is_some();
        let lookup = Lookup { index: region.index(), base: entry.base, address: entry.address };
        segments.iter().all(is_inside).then_some(lookup)
    }

    /// Returns the number of regions that were unregistered, modulo 2^32. As long as it stays the same, a region that was found
    /// is registered.
    #[inline(always)]
    pub(super) fn unregistered(&self) -> u32 {
        self.unregistered
    }

    /// Returns true if a region was unregistered while commands use it: [`Regions::leave`] has to be called for each command
    /// that completes.
    #[inline]
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// Notes that a command does not use the region of entry `index` any more.
    pub(super) fn leave(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        // A registered region has no users that are counted.
        if entry.users > 0 {
            entry.users -= 1;
            if entry.users == 0 {
                entry.memory = None;
                self.leaving -= 1;
            }
        }
    }
}
