//! Copies of shared clusters, which are made before one of their volumes is written.
//!
//! ```text
//!   plan_copies: blocks for the copy, to be cleared ──► the caller copies them on the device, durably ──► copied: the map
//! ```
//!
//! A copy goes to blocks that are *to be cleared*: they hold nothing that anybody may see, and after a crash before
//! [`Store::copied`] they still are to be cleared, with a part of the copy. Only the caller knows which of them it is
//! writing, and names them to the next plan. So a copy takes one transaction, unless too few blocks are to be cleared:
//! then the plan takes free ones first, [`ROOM_BYTES`] at a time.

use super::change::{WriteTables, device_of_number};
use super::layout::VolumeRecord;
use super::thin::{MappedExtent, ThinRecord, kept_of, map, overlapping, with_sharing};
use super::{DEVICE_EXTENTS_MAX, Device, Store, space};
use crate::error::Error;
use crate::extent::{Blocks, Bytes, Extent};
use redb::ReadableTable;

/// Least size of what is taken from the free blocks for copies at a time, in bytes.
const ROOM_BYTES: u64 = 16 << 20;

/// Blocks of a thin volume that are to be copied, as other volumes have them, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// Number of the first block, counted from the volume's beginning.
    pub logical: Blocks,
    /// Blocks of the device that the volume has now.
    pub from: Extent,
    /// Blocks that it gets instead: as many, recorded as to be cleared until then.
    pub to: Extent,
}

/// Restrictions on the blocks of the device that copies may go to.
#[derive(Clone, Copy, Debug)]
pub struct CopyRoom<'a> {
    /// Greatest number of blocks to copy at a time; one cluster at least is copied.
    pub most: Blocks,
    /// Blocks to be cleared that somebody is writing.
    pub taken: &'a [Extent],
    /// True if copies may only go to blocks that were free.
    pub only_free: bool,
}

impl Store {
    /// Chooses blocks for copies of the shared clusters that `ranges` of a thin volume's blocks touch: of the first ones,
    /// as many as the room allows. Nothing is to be copied if the result is empty.
    ///
    /// # Errors
    /// [`Error::NotThin`] if there is no thin volume with that id; [`Error::Size`] if a range is not within the volume;
    /// [`Error::PoolLow`] if thin volumes may not have so many more blocks; [`Error::Full`] if copies may only go to free
    /// blocks and others have to be cleared first; [`Error::Snapshot`] if the volume is a snapshot.
    pub fn plan_copies(
        &self,
        id: u64,
        ranges: &[Extent],
        room: CopyRoom<'_>,
    ) -> Result<Vec<BlockCopy>, Error> {
        if !self.has_shared(id, ranges)? {
            return Ok(Vec::new());
        }
        self.change_if(|change| {
            let (thin, record, device, on) = change.thin_volume(id)?;
            let shared = change.shared_clusters(&record, &thin, ranges)?;
            let of = |parts: &[MappedExtent]| Blocks(parts.iter().map(|part| part.extent.length.0).sum());
            let all = of(&shared);
            let first = first_clusters(shared, thin.cluster, room.most);
            let (asked, block, kept) = (of(&first), on.block.size(), kept_of(on.blocks));
            let free = space::total(&change.free, on.number)?;
            let pieces =
                space::pieces(&change.clearing, on.number)?.collect::<Result<Vec<Extent>, Error>>()?;
            let pieces = space::without(&pieces, room.taken);
            let to_clear = Blocks(pieces.iter().map(|piece| piece.length.0).sum());
            let left = Blocks(free.0.saturating_add(to_clear.0).saturating_sub(kept.0));
            if all > left {
                return Err(Error::PoolLow { volume: thin.name, device, asked: all, left, kept, block });
            }
            let pieces = if room.only_free { Vec::new() } else { pieces };
            let has = Blocks(pieces.iter().map(|piece| piece.length.0).sum());
            if let Some(chosen) = space::choose(&pieces, asked, None) {
                return Ok((false, pair(&first, &chosen)));
            }
            let needed = Blocks(asked.0 - has.0);
            if needed > free {
                // With all that is to be cleared there is enough.
                return Err(Error::Full { device, asked: needed, free, to_clear, block });
            }
            let more = if room.only_free { needed.0 } else { needed.0.max(ROOM_BYTES / block.0) };
            let more = Blocks(more.min(free.0.saturating_sub(kept.0)).max(needed.0));
            let free = space::pieces(&change.free, on.number)?.collect::<Result<Vec<Extent>, Error>>()?;
            let taken = space::choose(&free, more, None);
            let taken = taken.ok_or_else(|| Error::damaged("its free blocks are miscounted"))?;
            for extent in &taken {
                if !space::remove_extent(&mut change.free, on.number, *extent)? {
                    return Err(Error::damaged(format!("what is free on device '{device}' overlaps")));
                }
                space::add_extent(&mut change.clearing, on.number, *extent)?;
            }
            let pieces: Vec<Extent> = pieces.into_iter().chain(taken).collect();
            let chosen = space::choose(&super::shared::union(pieces), asked, None);
            let chosen = chosen.ok_or_else(|| Error::damaged("its blocks to be cleared are miscounted"))?;
            Ok((true, pair(&first, &chosen)))
        })
    }

    /// Gives a thin volume the copies of its blocks, which are durable on the device: all of them, or none after an error.
    /// Blocks that no other volume has must be cleared before they are used again. Returns the device. The volume's
    /// generation stays the same.
    ///
    /// # Errors
    /// [`Error::NotThin`] if there is no thin volume with that id; [`Error::CopyOutdated`] if the volume does not have the
    /// blocks that were copied; [`Error::NotToClear`] if the blocks of a copy are not recorded as to be cleared;
    /// [`Error::Fragmented`] if the device would have too many extents.
    pub fn copied(&self, id: u64, copies: &[BlockCopy]) -> Result<Device, Error> {
        self.change(|change| {
            let (mut thin, mut record, device, mut on) = change.thin_volume(id)?;
            let before = on.extents;
            for BlockCopy { logical, from, to } in copies {
                let end = logical.0 + from.length.0;
                if from.length != to.length || !is_mapped(&change.mapped, id, *logical, *from)? {
                    return Err(Error::CopyOutdated(thin.name));
                }
                if !space::remove_extent(&mut change.clearing, on.number, *to)? {
                    return Err(Error::NotToClear { device, extent: *to });
                }
                change.unmap(&mut thin, &mut record, &mut on, (logical.0, end))?;
                let new = MappedExtent { logical: *logical, extent: *to, is_shared: false };
                let added = map(&mut change.mapped, id, new)?;
                on.extents = on.extents.saturating_add_signed(added);
                record.extents = record.extents.saturating_add_signed(added as i32);
                thin.allocated.0 += to.length.0;
            }
            if on.extents > DEVICE_EXTENTS_MAX {
                let asked = Blocks(copies.iter().map(|copy| copy.to.length.0).sum());
                let needed = (on.extents - before) as usize;
                let most = DEVICE_EXTENTS_MAX.saturating_sub(before) as usize;
                return Err(Error::Fragmented { device, asked, needed, most });
            }
            change.put_allocation(&thin, record, (&device, on))?;
            change.describe_device(&device)
        })
    }

    /// Returns true if a cluster that `ranges` of a thin volume's blocks touch is shared, without a transaction that
    /// writes.
    fn has_shared(&self, id: u64, ranges: &[Extent]) -> Result<bool, Error> {
        let (volume, mapped) = self.thin_mapping(id)?;
        let cluster = volume.cluster.ok_or(Error::NotThin(id))?;
        let touched = touched_clusters(ranges, cluster);
        Ok(mapped.iter().filter(|part| part.is_shared).any(|part| {
            let first = touched.partition_point(|(_, to)| *to <= part.logical.0);
            touched.get(first).is_some_and(|(from, _)| *from < part.logical_end().0)
        }))
    }
}

/// Returns the whole clusters that some ranges of a volume's blocks touch, as first blocks and the ones behind the last,
/// in order and without overlap.
fn touched_clusters(ranges: &[Extent], cluster: Blocks) -> Vec<(u64, u64)> {
    let whole = ranges.iter().filter(|range| range.length.0 > 0).map(|range| {
        let end = range.start.0.saturating_add(range.length.0);
        let from = range.start.0 / cluster.0 * cluster.0;
        Extent::new(from, end.checked_next_multiple_of(cluster.0).unwrap_or(u64::MAX) - from)
    });
    let whole = super::shared::union(whole.collect());
    whole.into_iter().map(|clusters| (clusters.start.0, clusters.start.0 + clusters.length.0)).collect()
}

/// Returns the first parts that are of at most `most` blocks together, in whole clusters; one cluster at least.
fn first_clusters(parts: Vec<MappedExtent>, cluster: Blocks, most: Blocks) -> Vec<MappedExtent> {
    let most = (most.0 / cluster.0).max(1) * cluster.0;
    let (mut first, mut left) = (Vec::new(), most);
    for part in parts {
        let taken = part.within(part.logical.0, part.logical.0.saturating_add(left));
        left -= taken.map_or(0, |taken| taken.extent.length.0);
        first.extend(taken);
    }
    first
}

/// Pairs parts of a volume with blocks, of as many altogether, divided at the boundaries of both.
fn pair(parts: &[MappedExtent], chosen: &[Extent]) -> Vec<BlockCopy> {
    let (mut copies, mut chosen, mut room) = (Vec::new(), chosen.iter().copied(), Extent::new(0, 0));
    for part in parts {
        let (mut at, end) = (part.logical.0, part.logical_end().0);
        while at < end {
            if room.length.0 == 0 {
                // The caller has chosen as many blocks as the parts have.
                let Some(next) = chosen.next() else { return copies };
                room = next;
            }
            let length = room.length.0.min(end - at);
            let from = Extent::new(part.extent.start.0 + (at - part.logical.0), length);
            copies.push(BlockCopy { logical: Blocks(at), from, to: Extent::new(room.start.0, length) });
            room = Extent::new(room.start.0 + length, room.length.0 - length);
            at += length;
        }
    }
    copies
}

/// Returns true if the blocks of a thin volume from `logical` on are these of the device.
fn is_mapped(
    table: &impl ReadableTable<(u64, u64), (u64, u64)>,
    volume: u64,
    logical: Blocks,
    extent: Extent,
) -> Result<bool, Error> {
    let end = logical.0.saturating_add(extent.length.0);
    let mut at = logical.0;
    for mapped in overlapping(table, volume, logical.0, end)? {
        let Some(inside) = mapped.within(logical.0, end) else { continue };
        if inside.logical.0 != at || inside.extent.start.0 != extent.start.0 + (at - logical.0) {
            return Ok(false);
        }
        at = inside.logical_end().0;
    }
    Ok(at == end)
}

impl WriteTables<'_> {
    /// Returns the shared parts of the clusters that ranges of a thin volume's blocks touch, in order.
    fn shared_clusters(
        &self,
        record: &VolumeRecord,
        thin: &ThinRecord,
        ranges: &[Extent],
    ) -> Result<Vec<MappedExtent>, Error> {
        let (_, on) = device_of_number(&self.devices, record.device)?;
        let mut found = Vec::new();
        for (from, to) in touched_clusters(ranges, thin.cluster) {
            if to > record.blocks.0 {
                let size = on.block.bytes(Blocks(to)).unwrap_or(Bytes(u64::MAX));
                return Err(Error::Size { name: thin.name.clone(), size });
            }
            let mapped = overlapping(&self.mapped, record.id, from, to)?;
            let inside = mapped.iter().filter_map(|mapped| mapped.within(from, to)).collect();
            let parts = with_sharing(&self.shared, on.number, inside)?;
            found.extend(parts.into_iter().filter(|part| part.is_shared));
        }
        Ok(found)
    }
}
