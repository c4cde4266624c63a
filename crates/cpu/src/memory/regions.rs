//! Regions: which addresses are mapped, and what their mapping permits.

use std::collections::BTreeMap;
use std::ops::BitOr;

use super::access::AccessKind;

/// Length of a page, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// End of the addresses that can be mapped: the lower half of 39 bits, as programs have it under Linux with
/// Sv39.
pub const ADDRESS_LIMIT: u64 = 1 << 38;

/// Kinds of access that a mapping permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// No access.
    pub const NONE: Permissions = Permissions(0);
    /// Loads.
    pub const READ: Permissions = Permissions(1);
    /// Stores.
    pub const WRITE: Permissions = Permissions(2);
    /// Fetches of instructions.
    pub const EXECUTE: Permissions = Permissions(4);

    /// Returns whether a kind of access is permitted.
    pub const fn permit(self, access: AccessKind) -> bool {
        self.0 & Permissions::of_kind(access).0 != 0
    }

    /// Returns the permission that a kind of access needs.
    pub(super) const fn of_kind(access: AccessKind) -> Permissions {
        match access {
            AccessKind::Load => Permissions::READ,
            AccessKind::Store => Permissions::WRITE,
            AccessKind::Fetch => Permissions::EXECUTE,
        }
    }

    /// Returns the permissions as the bits 1 (read), 2 (write) and 4 (execute).
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl BitOr for Permissions {
    type Output = Permissions;

    fn bitor(self, other: Permissions) -> Permissions {
        Permissions(self.0 | other.0)
    }
}

/// Reason for which mappings cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MapError {
    /// Address or length are no multiple of a page, the length is zero, or the end is above
    /// [`ADDRESS_LIMIT`].
    #[error("{length:#x} bytes at {start:#x} are no range of whole pages below {:#x}", ADDRESS_LIMIT)]
    Range {
        /// First address.
        start: u64,
        /// Length in bytes.
        length: u64,
    },
    /// A page of the range is not mapped.
    #[error("the page at {0:#x} is not mapped")]
    Unmapped(u64),
    /// There are too many mappings.
    #[error("there are {} mappings already, and no more are possible", Regions::LIMIT)]
    TooMany,
    /// The memory's limit of pages is reached.
    #[error("no page is left below the memory's limit of {0} bytes; raise the limit")]
    OutOfMemory(u64),
}

/// Mapped regions by their start, without overlaps; neighbours with equal permissions are joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Regions {
    /// End and permissions of each region, by its start.
    by_start: BTreeMap<u64, (u64, Permissions)>,
}

impl Regions {
    /// Greatest number of regions, as Linux has it (`vm.max_map_count`).
    const LIMIT: usize = 65_530;

    /// Returns the permissions of a mapped address.
    pub fn permissions(&self, address: u64) -> Option<Permissions> {
        let (_, &(end, permissions)) = self.by_start.range(..=address).next_back()?;
        (address < end).then_some(permissions)
    }

    /// Returns the first address of a range that is not mapped.
    pub fn first_unmapped(&self, start: u64, end: u64) -> Option<u64> {
        let mut at = start;
        while at < end {
            match self.by_start.range(..=at).next_back() {
                Some((_, &(region_end, _))) if region_end > at => at = region_end,
                _ => return Some(at),
            }
        }
        None
    }

    /// Maps a range, whatever was there before; `None` unmaps it.
    ///
    /// # Errors
    ///
    /// [`MapError::TooMany`]: nothing has changed then.
    pub fn set(&mut self, start: u64, end: u64, permissions: Option<Permissions>) -> Result<(), MapError> {
        // Two regions at most are added: the new one, and the rest of one that it divides.
        if self.by_start.len() + 2 > Self::LIMIT {
            return Err(MapError::TooMany);
        }
        self.split(start);
        self.split(end);
        let inside: Vec<u64> = self.by_start.range(start..end).map(|(&start, _)| start).collect();
        for start in inside {
            self.by_start.remove(&start);
        }
        if let Some(permissions) = permissions {
            self.by_start.insert(start, (end, permissions));
            self.join(end);
            self.join(start);
        }
        Ok(())
    }

    /// Returns the highest free range of a length between two addresses.
    pub fn highest_free(&self, length: u64, lowest: u64, limit: u64) -> Option<u64> {
        let mut end = limit;
        for (&start, &(region_end, _)) in self.by_start.range(..limit).rev() {
            if region_end < end && end - region_end >= length {
                break;
            }
            end = end.min(start);
        }
        let start = end.checked_sub(length)?;
        (start >= lowest && self.by_start.range(start..end).next().is_none()).then_some(start)
    }

    /// Divides the region across an address.
    fn split(&mut self, at: u64) {
        if let Some((_, region)) = self.by_start.range_mut(..at).next_back() {
            let (end, permissions) = *region;
            if end > at {
                region.0 = at;
                self.by_start.insert(at, (end, permissions));
            }
        }
    }

    /// Joins the regions on both sides of an address if they meet there with equal permissions.
    fn join(&mut self, at: u64) {
        let Some(&(end, permissions)) = self.by_start.get(&at) else { return };
        let Some((_, before)) = self.by_start.range_mut(..at).next_back() else { return };
        if before.0 == at && before.1 == permissions {
            before.0 = end;
            self.by_start.remove(&at);
        }
    }
}
