//! Maps of thin volumes as their grants have them. Called by whoever changes a volume's map, and when a grant is opened.
//!
//! Invariant: a map that the core gets has no block that is withheld, and allows to write none of a volume that is frozen or
//! that other volumes have.

use crate::control::SharedState;
use crate::control::clearing::DrainError;
use crate::control::registry::{RegistryState, ThinHolder};
use crate::core::order::{CoreOrder, CoreStopped};
use bywash_protocol::Refusal;
use bywash_protocol::layout::Status;
use bywash_volume::{ByteRange, Bytes, Error, Extent, Grant, GrantExtent, MappedExtent, Volume};

/// Reason why a map was not changed.
pub(super) enum Failure {
    Store(Error),
    Refused(Refusal),
    /// The device has not copied blocks.
    Device(Status),
    Stopped,
    /// Requests to the blocks that are released or written are still in flight, or another change of the map is.
    Busy,
}

impl From<DrainError> for Failure {
    fn from(error: DrainError) -> Failure {
        match error {
            DrainError::Busy => Failure::Busy,
            DrainError::Stopped => Failure::Stopped,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl From<CoreStopped> for Failure {
    fn from(_: CoreStopped) -> Failure {
        Failure::Stopped
    }
}

/// Sends the cores the map of a volume for all its grants.
pub(super) fn give_map(shared: &SharedState, volume: u64) -> Result<(), Failure> {
    // The lock is held until the order is sent, so that a grant that is opened meanwhile has the new map or gets it.
    let everybody = shared.registry.lock();
    let (found, mapped) = shared.store.thin_mapping(volume)?;
    let extents = grant_extents(&everybody, &found, &mapped);
    let mut grants: Vec<_> = (0..shared.cores.count()).map(|_| Vec::new()).collect();
    for ThinHolder { client, grant, device, access, bytes } in everybody.holders_of(volume) {
        // A grant keeps its size when the volume becomes larger.
        let ranges = extents.iter().take_while(|extent| extent.offset.0 < bytes).map(|extent| {
            let length = Bytes(extent.range.length.0.min(bytes - extent.offset.0));
            GrantExtent { range: ByteRange { length, ..extent.range }, ..*extent }
        });
        grants[client.core].push((client, grant, Grant::with_holes(device, access, Bytes(bytes), ranges)?));
    }
    for (core, grants) in grants.into_iter().enumerate().filter(|(_, grants)| !grants.is_empty()) {
        shared.cores.send(core, CoreOrder::Remap { grants })?;
    }
    Ok(())
}

/// Converts extents of a volume to those of its grants, without what is withheld, and with nothing to be written if the
/// volume is frozen.
pub(super) fn grant_extents(
    everybody: &RegistryState,
    found: &Volume,
    mapped: &[MappedExtent],
) -> Vec<GrantExtent> {
    let (mapped, _) = without(mapped, everybody.withheld(found.id));
    let is_frozen = everybody.is_frozen(found.id);
    let extent = |one: &MappedExtent| {
        let (offset, range) = (found.block.bytes(one.logical)?, found.block.span(one.extent)?);
        Some(GrantExtent { offset, range, is_shared: one.is_shared || is_frozen })
    };
    mapped.iter().filter_map(extent).collect()
}

/// Returns the extents of a volume outside of these ranges of its blocks, and the blocks of the device inside.
pub(super) fn without(mapped: &[MappedExtent], ranges: &[Extent]) -> (Vec<MappedExtent>, Vec<Extent>) {
    let (mut left, mut removed) = (mapped.to_vec(), Vec::new());
    for range in ranges {
        let (from, to) = (range.start.0, range.start.0.saturating_add(range.length.0));
        let mut outside = Vec::with_capacity(left.len() + 1);
        for one in left {
            outside.extend(one.within(0, from));
            removed.extend(one.within(from, to).map(|inside| inside.extent));
            outside.extend(one.within(to, u64::MAX));
        }
        left = outside;
    }
    (left, removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_volume::Blocks;

    fn mapped(rows: &[(u64, u64, u64)]) -> Vec<MappedExtent> {
        let one = |&(logical, start, length): &(u64, u64, u64)| MappedExtent {
            logical: Blocks(logical),
            extent: Extent::new(start, length),
            is_shared: false,
        };
        rows.iter().map(one).collect()
    }

    #[test]
    fn what_is_withheld_is_in_no_map() {
        let all = mapped(&[(0, 100, 10), (10, 50, 10), (40, 0, 20)]);
        let (left, removed) = without(&all, &[Extent::new(5, 10), Extent::new(45, 5)]);
        assert_eq!(left, mapped(&[(0, 100, 5), (15, 55, 5), (40, 0, 5), (50, 10, 10)]));
        assert_eq!(removed, [Extent::new(105, 5), Extent::new(50, 5), Extent::new(5, 5)]);
        assert_eq!(without(&all, &[]), (all.clone(), Vec::new()));
        assert_eq!(without(&all, &[Extent::new(0, u64::MAX)]).0, []);
    }
}
