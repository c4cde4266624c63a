//! Thin volumes: volumes whose blocks are allocated at the first write.
//!
//! A thin volume has a size, but at first no blocks. Its blocks are allocated in *clusters*, consecutive blocks of
//! the volume from a multiple of the cluster's size on; what is not allocated reads as zeros. A cluster need not be
//! contiguous on the device. The sizes of all volumes together may exceed the device's, so allocating can fail at
//! any time: while a write waits.
//!
//! ```text
//!   volume    | cluster 0 | cluster 1 | cluster 2 | cluster 3 |
//!                  |                   |         |
//!   mapped     0 -> 700             128 -> 300 ──┘ (one extent: contiguous in the volume and on the device)
//! ```
//!
//! Invariant: the blocks that a volume is given are zeros, durably, and no request to them is in flight, as all
//! free blocks. So a crash between the allocation and the first write leaves zeros, as before both. Blocks that a
//! volume releases are to be cleared from the same transaction on, like those of a removed volume.
//!
//! A commit takes longer than a write, so a volume that is written in order gets clusters *ahead*: behind the hole that a write
//! needs, a fourth of what it has without a gap before ([`Store::allocate_ahead`]). A cluster that is allocated ahead is one like
//! any other, and what was guessed wrongly stays the volume's until it is discarded or removed.
//!
//! A part of the device ([`Device::kept`](super::Device)) is never allocated to thin volumes. So administrators
//! hear of the shortage while they can still act. Called by the server while requests wait.
//!
//! Snapshots and clones are thin volumes, too, and share blocks ([`super::shared`]).

use super::change::{READING, WRITING, WriteTables, describe, device_of_number, extents_of, failed};
use super::devices::moved;
use super::layout::{DeviceRecord, ThinValue, VolumeRecord};
use super::{BlockMove, DEVICE_EXTENTS_MAX, Device, Store, Volume, blocks_of, shared, space};
use crate::error::Error;
use crate::extent::{BlockSize, Blocks, Bytes, Extent};
use crate::right::Ownership;
use redb::{ReadableTable, Table};

/// Greatest number of clusters of a thin volume.
pub const THIN_CLUSTERS_MAX: u64 = 1 << 18;
/// Least size of a cluster, in bytes: what one turn at a device moves.
const CLUSTER_BYTES_MIN: u64 = 256 << 10;
/// Fraction of a device's blocks that thin volumes do not get, as its denominator.
const KEPT_FRACTION: u64 = 64;
/// Fraction of the blocks that a volume has without a gap before a hole, as its denominator, that is allocated behind the hole
/// ahead of a write.
const AHEAD_FRACTION: u64 = 4;
/// Greatest number of clusters that are allocated ahead at a time.
const AHEAD_CLUSTERS_MAX: u64 = 64;
/// Fraction of a device, as its denominator, that allocating ahead leaves to thin volumes.
const AHEAD_LEFT_FRACTION: u64 = 8;

/// Extent of a volume, and its position in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Number of the extent's first block, counted from the volume's beginning.
    pub logical: Blocks,
    /// Blocks of the device.
    pub extent: Extent,
    /// True if other volumes have the blocks, too: they must not be written.
    pub is_shared: bool,
}

impl MappedExtent {
    /// Returns the number of the volume's block after the extent.
    pub fn logical_end(&self) -> Blocks {
        Blocks(self.logical.0 + self.extent.length.0)
    }

    /// Returns the part of the extent within the blocks `from..to` of the volume; `None` if there is none.
    pub fn within(&self, from: u64, to: u64) -> Option<MappedExtent> {
        let start = self.logical.0.max(from);
        let end = self.logical_end().0.min(to);
        let skipped = start - self.logical.0;
        (start < end).then(|| MappedExtent {
            logical: Blocks(start),
            extent: Extent::new(self.extent.start.0 + skipped, end - start),
            is_shared: self.is_shared,
        })
    }

    /// Returns true if `next` continues the extent in the volume and on the device.
    fn is_continued_by(&self, next: &MappedExtent) -> bool {
        self.logical_end() == next.logical && self.extent.end() == Some(next.extent.start)
    }
}

/// Properties that only thin volumes have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThinRecord {
    pub(super) cluster: Blocks,
    pub(super) allocated: Blocks,
    pub(super) name: String,
}

type MappedTable<'a> = Table<'a, (u64, u64), (u64, u64)>;

/// Returns the number of a device's blocks that thin volumes do not get.
pub(super) fn kept_of(blocks: Blocks) -> Blocks {
    Blocks(blocks.0.div_ceil(KEPT_FRACTION))
}

/// Returns the number of blocks of a cluster of a volume that has `blocks` blocks.
fn cluster_of(block: BlockSize, blocks: Blocks) -> Blocks {
    let least = block.blocks_ceil(Bytes(CLUSTER_BYTES_MIN)).0;
    let needed = blocks.0.div_ceil(THIN_CLUSTERS_MAX).checked_next_power_of_two().unwrap_or(1 << 63);
    Blocks(least.max(needed))
}

/// Returns what is recorded about a thin volume only; `None` if the volume is not thin.
pub(super) fn record_of(
    table: &impl ReadableTable<u64, ThinValue>,
    volume: &VolumeRecord,
) -> Result<Option<ThinRecord>, Error> {
    if !volume.is_thin {
        return Ok(None);
    }
    let record = thin_record(table, volume.id)?;
    record.map(Some).ok_or_else(|| Error::damaged(format!("volume {} is thin without a record", volume.id)))
}

fn thin_record(table: &impl ReadableTable<u64, ThinValue>, volume: u64) -> Result<Option<ThinRecord>, Error> {
    let found = table.get(volume).map_err(failed(READING))?;
    Ok(found.map(|found| {
        let (cluster, allocated, name) = found.value();
        ThinRecord { cluster: Blocks(cluster), allocated: Blocks(allocated), name: name.to_owned() }
    }))
}

/// Returns the name of the volume that a snapshot or clone was made of, if that is still there.
pub(super) fn origin_of(
    origins: &impl ReadableTable<u64, u64>,
    thin: &impl ReadableTable<u64, ThinValue>,
    volume: u64,
) -> Result<Option<String>, Error> {
    let Some(origin) = origins.get(volume).map_err(failed(READING))? else { return Ok(None) };
    Ok(thin_record(thin, origin.value())?.map(|origin| origin.name))
}

/// Returns the extents of a thin volume, in the order of its blocks.
pub(super) fn mapped_of(
    table: &impl ReadableTable<(u64, u64), (u64, u64)>,
    volume: u64,
) -> Result<Vec<MappedExtent>, Error> {
    overlapping(table, volume, 0, u64::MAX)
}

/// Returns the extents of a thin volume that overlap its blocks `from..to`, in order.
pub(super) fn overlapping(
    table: &impl ReadableTable<(u64, u64), (u64, u64)>,
    volume: u64,
    from: u64,
    to: u64,
) -> Result<Vec<MappedExtent>, Error> {
    let decode = |logical: u64, (start, length): (u64, u64)| {
        let extent = Extent::new(start, length);
        let mapped = MappedExtent { logical: Blocks(logical), extent, is_shared: false };
        let is_valid =
            length > 0 && logical.checked_add(length).is_some() && start.checked_add(length).is_some();
        is_valid
            .then_some(mapped)
            .ok_or_else(|| Error::damaged("an extent of a thin volume ends beyond 64 bits"))
    };
    let mut found = Vec::new();
    let mut before = table.range((volume, 0)..(volume, from)).map_err(failed(READING))?;
    if let Some(row) = before.next_back() {
        let (key, value) = row.map_err(failed(READING))?;
        let mapped = decode(key.value().1, value.value())?;
        found.extend((mapped.logical_end().0 > from).then_some(mapped));
    }
    for row in table.range((volume, from)..(volume, to)).map_err(failed(READING))? {
        let (key, value) = row.map_err(failed(READING))?;
        found.push(decode(key.value().1, value.value())?);
    }
    Ok(found)
}

impl Store {
    /// Creates a thin volume of at least `size`, rounded up to whole clusters, without allocating any blocks. A
    /// volume of the same name that is gone is replaced.
    ///
    /// # Errors
    /// [`Error::Name`] if the name is not valid; [`Error::Exists`] if there is a volume of that name;
    /// [`Error::NoDevice`] if there is no such device; [`Error::Size`] if the size is zero or too large;
    /// [`Error::LimitReached`] if there are too many volumes.
    pub fn create_thin(
        &self,
        name: &str,
        device: &str,
        size: Bytes,
        ownership: Ownership,
    ) -> Result<Volume, Error> {
        self.change(|change| {
            change.check_new(name)?;
            let on = change.device(device)?;
            let blocks = blocks_of(name, size, on.block)?;
            let cluster = cluster_of(on.block, blocks);
            let blocks = whole_clusters(name, on.block, blocks, cluster)?;
            let id = change.next()?;
            change.put_thin(id, &ThinRecord { cluster, allocated: Blocks(0), name: name.to_owned() })?;
            let record = VolumeRecord {
                id,
                generation: id,
                device: on.number,
                ownership,
                is_gone: false,
                is_thin: true,
                is_snapshot: false,
                blocks,
                extents: 0,
            };
            change.put_volume(name, record)
        })
    }

    /// Returns a volume, and its extents with their positions in the volume, in the order of its blocks. Of a
    /// volume that is not thin they have no gaps, and none is shared.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn mapping(&self, name: &str) -> Result<(Volume, Vec<MappedExtent>), Error> {
        self.view(|view| {
            let record = view.volumes.get(name).map_err(failed(READING))?;
            let record = record.ok_or_else(|| Error::NoVolume(name.to_owned()))?;
            let record = VolumeRecord::from_bytes(record.value())?;
            let (device, on) = device_of_number(&view.devices, record.device)?;
            if record.is_gone {
                return Err(Error::VolumeLost { volume: name.to_owned(), device });
            }
            let mapped = match record.is_thin {
                true => with_sharing(&view.shared, on.number, mapped_of(&view.mapped, record.id)?)?,
                false => in_sequence(&extents_of(&view.extents, record.id)?),
            };
            let thin = record_of(&view.thin, &record)?;
            let origin = origin_of(&view.origins, &view.thin, record.id)?;
            Ok((describe(name, record, device, on.block, thin, origin), mapped))
        })
    }

    /// Like [`Store::mapping`], but finds a thin volume by its id.
    ///
    /// # Errors
    /// [`Error::NotThin`] if there is no thin volume with that id.
    pub fn thin_mapping(&self, id: u64) -> Result<(Volume, Vec<MappedExtent>), Error> {
        let name = self.view(|view| thin_record(&view.thin, id))?.ok_or(Error::NotThin(id))?.name;
        match self.mapping(&name) {
            Ok((volume, mapped)) if volume.id == id => Ok((volume, mapped)),
            // The volume was renamed or removed between the two transactions.
            Ok(_) | Err(Error::NoVolume(_)) => Err(Error::NotThin(id)),
            Err(error) => Err(error),
        }
    }

    /// Allocates all clusters of a thin volume that the `ranges` of its blocks touch and that are not allocated: all
    /// of them, or none after an error. Returns the device. The volume's generation stays the same.
    ///
    /// # Errors
    /// [`Error::NotThin`] if there is no thin volume with that id; [`Error::Size`] if a range is not within the
    /// volume; [`Error::PoolLow`] if thin volumes may not have so many more blocks; [`Error::Full`] if too few
    /// blocks are cleared; [`Error::Fragmented`] if the device would have too many extents; [`Error::Snapshot`] if the
    /// volume is a snapshot.
    pub fn allocate(&self, id: u64, ranges: &[Extent]) -> Result<Device, Error> {
        self.allocate_with(id, ranges, 0)
    }

    /// Like [`Store::allocate`], and allocates clusters behind the last hole as well if the volume seems to be written in order: at
    /// most a fourth of what it has without a gap before that hole, at most 64 clusters, up to the next cluster that it has, and
    /// only while an eighth of the device is left to thin volumes.
    ///
    /// # Errors
    /// Same as [`Store::allocate`]: too little space for clusters ahead is none.
    pub fn allocate_ahead(&self, id: u64, ranges: &[Extent]) -> Result<Device, Error> {
        self.allocate_with(id, ranges, AHEAD_CLUSTERS_MAX)
    }

    fn allocate_with(&self, id: u64, ranges: &[Extent], ahead_clusters: u64) -> Result<Device, Error> {
        self.change_if(|change| {
            let (mut thin, mut record, device, mut on) = change.thin_volume(id)?;
            let mut holes = change.holes(&record, &thin, on.block, ranges)?;
            let mut asked = Blocks(holes.iter().map(|hole| hole.length.0).sum());
            let Some(last) = holes.last_mut() else {
                // All was allocated meanwhile, or only copied.
                return Ok((false, change.describe_device(&device)?));
            };
            change.check_space(&thin.name, (&device, on), asked)?;
            let ahead = change.ahead(&record, &thin, on, (*last, asked), ahead_clusters)?;
            last.length.0 += ahead.0;
            asked.0 += ahead.0;
            let before = on.extents;
            for hole in holes {
                let last = overlapping(&change.mapped, id, hole.start.0.saturating_sub(1), hole.start.0)?;
                let last = last.last().map(|mapped| mapped.extent);
                let free = space::pieces(&change.free, on.number)?.collect::<Result<Vec<Extent>, Error>>()?;
                let chosen = space::choose(&free, hole.length, last);
                let chosen = chosen.ok_or_else(|| Error::damaged("its free blocks are miscounted"))?;
                let mut logical = hole.start;
                for extent in chosen {
                    if !space::remove_extent(&mut change.free, on.number, extent)? {
                        return Err(Error::damaged(format!("what is free on device '{device}' overlaps")));
                    }
                    let new = MappedExtent { logical, extent, is_shared: false };
                    let added = map(&mut change.mapped, id, new)?;
                    on.extents = on.extents.saturating_add_signed(added);
                    record.extents = record.extents.saturating_add_signed(added as i32);
                    logical.0 += extent.length.0;
                }
            }
            if on.extents > DEVICE_EXTENTS_MAX {
                let needed = (on.extents - before) as usize;
                let most = DEVICE_EXTENTS_MAX.saturating_sub(before) as usize;
                return Err(Error::Fragmented { device, asked, needed, most });
            }
            thin.allocated.0 += asked.0;
            change.put_allocation(&thin, record, (&device, on))?;
            Ok((true, change.describe_device(&device)?))
        })
    }

    /// Releases all clusters of a thin volume that are wholly within one of the `ranges` of its blocks. Blocks that no
    /// other volume has must be cleared before they are used again. Returns the device. The volume's generation stays the
    /// same.
    ///
    /// # Errors
    /// [`Error::NotThin`] if there is no thin volume with that id; [`Error::Snapshot`] if it is a snapshot.
    pub fn release(&self, id: u64, ranges: &[Extent]) -> Result<Device, Error> {
        self.change(|change| {
            let (mut thin, mut record, device, mut on) = change.thin_volume(id)?;
            for range in ranges {
                let Some((from, to)) = inner_clusters(*range, thin.cluster) else { continue };
                change.unmap(&mut thin, &mut record, &mut on, (from, to))?;
            }
            change.put_allocation(&thin, record, (&device, on))?;
            change.describe_device(&device)
        })
    }
}

/// Returns the whole clusters within a range of blocks, as its first block and the one behind its last; `None` if
/// there are none.
fn inner_clusters(range: Extent, cluster: Blocks) -> Option<(u64, u64)> {
    let from = range.start.0.checked_next_multiple_of(cluster.0)?;
    let to = range.end()?.0 / cluster.0 * cluster.0;
    (from < to).then_some((from, to))
}

/// Rounds a number of blocks up to whole clusters.
fn whole_clusters(name: &str, block: BlockSize, blocks: Blocks, cluster: Blocks) -> Result<Blocks, Error> {
    let clusters = blocks.0.div_ceil(cluster.0);
    if clusters > THIN_CLUSTERS_MAX {
        let most =
            block.bytes(Blocks(THIN_CLUSTERS_MAX.saturating_mul(cluster.0))).unwrap_or(Bytes(u64::MAX));
        return Err(Error::ThinSize { name: name.to_owned(), most });
    }
    let whole = clusters.checked_mul(cluster.0).map(Blocks).filter(|whole| block.bytes(*whole).is_some());
    whole.ok_or_else(|| Error::Size {
        name: name.to_owned(),
        size: block.bytes(blocks).unwrap_or(Bytes(u64::MAX)),
    })
}

/// Divides extents of a thin volume where blocks that other volumes have meet others, and marks them.
pub(super) fn with_sharing(
    table: &impl ReadableTable<(u32, u64), (u64, u64)>,
    device: u32,
    mapped: Vec<MappedExtent>,
) -> Result<Vec<MappedExtent>, Error> {
    if !shared::has_any(table, device)? {
        return Ok(mapped);
    }
    let mut divided: Vec<MappedExtent> = Vec::with_capacity(mapped.len());
    for one in mapped {
        let mut logical = one.logical;
        for (extent, users) in shared::parts(table, device, one.extent)? {
            let part = MappedExtent { logical, extent, is_shared: users > 1 };
            logical.0 += extent.length.0;
            match divided.last_mut() {
                // Blocks of two users and blocks of three are all shared.
                Some(last) if last.is_shared == part.is_shared && last.is_continued_by(&part) => {
                    last.extent.length.0 += extent.length.0;
                }
                _ => divided.push(part),
            }
        }
    }
    Ok(divided)
}

/// Returns consecutive extents with their positions.
fn in_sequence(extents: &[Extent]) -> Vec<MappedExtent> {
    let mut logical = 0;
    let place = |extent: &Extent| {
        let mapped = MappedExtent { logical: Blocks(logical), extent: *extent, is_shared: false };
        logical += extent.length.0;
        mapped
    };
    extents.iter().map(place).collect()
}

/// Adds an extent to a thin volume, and merges it with its neighbours. Returns the change of the number of
/// extents.
pub(super) fn map(table: &mut MappedTable<'_>, volume: u64, new: MappedExtent) -> Result<i64, Error> {
    let (mut merged, mut added) = (new, 1);
    let before = overlapping(table, volume, new.logical.0.saturating_sub(1), new.logical.0)?;
    if let Some(last) = before.last().filter(|last| last.is_continued_by(&new)) {
        let length = Blocks(last.extent.length.0 + new.extent.length.0);
        merged = MappedExtent { extent: Extent { start: last.extent.start, length }, ..*last };
        added -= 1;
    }
    let end = merged.logical_end().0;
    let next = overlapping(table, volume, end, end.saturating_add(1))?;
    if let Some(next) = next.first().filter(|next| merged.is_continued_by(next)) {
        table.remove((volume, end)).map_err(failed(WRITING))?;
        merged.extent.length.0 += next.extent.length.0;
        added -= 1;
    }
    put(table, volume, merged)?;
    Ok(added)
}

pub(super) fn put(table: &mut MappedTable<'_>, volume: u64, mapped: MappedExtent) -> Result<(), Error> {
    let value = (mapped.extent.start.0, mapped.extent.length.0);
    table.insert((volume, mapped.logical.0), value).map_err(failed(WRITING)).map(drop)
}

impl WriteTables<'_> {
    pub(super) fn forget_mapped(&mut self, volume: u64) -> Result<(), Error> {
        self.thin.remove(volume).map_err(failed(WRITING))?;
        self.origins.remove(volume).map_err(failed(WRITING))?;
        self.mapped.retain_in((volume, 0)..=(volume, u64::MAX), |_, _| false).map_err(failed(WRITING))
    }

    /// Records the new name of a volume, if it is thin.
    pub(super) fn rename_thin(&mut self, volume: &VolumeRecord, to: &str) -> Result<(), Error> {
        match record_of(&self.thin, volume)? {
            Some(thin) => self.put_thin(volume.id, &ThinRecord { name: to.to_owned(), ..thin }),
            None => Ok(()),
        }
    }

    /// Changes the size of a thin volume to at least `blocks` blocks. Blocks behind its new end are to be cleared.
    pub(super) fn resize_thin(
        &mut self,
        name: &str,
        mut record: VolumeRecord,
        (device, mut on): (&str, DeviceRecord),
        blocks: Blocks,
    ) -> Result<Volume, Error> {
        let Some(mut thin) = record_of(&self.thin, &record)? else { return Err(Error::NotThin(record.id)) };
        record.blocks = whole_clusters(name, on.block, blocks, thin.cluster)?;
        record.generation = self.next()?;
        let end = record.blocks.0;
        self.unmap(&mut thin, &mut record, &mut on, (end, u64::MAX))?;
        self.put_allocation(&thin, record, (device, on))?;
        self.put_volume(name, record)
    }

    /// Replaces the blocks of a thin volume that moved.
    pub(super) fn move_mapped(
        &mut self,
        name: &str,
        mut record: VolumeRecord,
        moves: &[BlockMove],
    ) -> Result<(), Error> {
        let before = mapped_of(&self.mapped, record.id)?;
        let (device, mut on) = device_of_number(&self.devices, record.device)?;
        let mut after = Vec::new();
        for mapped in &before {
            let mut logical = mapped.logical;
            for extent in moved(&[mapped.extent], moves) {
                after.push(MappedExtent { logical, extent, is_shared: false });
                logical.0 += extent.length.0;
            }
        }
        let Some(thin) = record_of(&self.thin, &record)? else { return Err(Error::NotThin(record.id)) };
        if before == after {
            return Ok(());
        }
        let range = (record.id, 0)..=(record.id, u64::MAX);
        self.mapped.retain_in(range, |_, _| false).map_err(failed(WRITING))?;
        on.extents = on.extents.saturating_sub(u64::from(record.extents));
        record.extents = 0;
        for mapped in after {
            let added = map(&mut self.mapped, record.id, mapped)?;
            on.extents = on.extents.saturating_add_signed(added);
            record.extents = record.extents.saturating_add_signed(added as i32);
        }
        if on.extents > DEVICE_EXTENTS_MAX {
            let (asked, needed, most) = (Blocks(0), on.extents as usize, DEVICE_EXTENTS_MAX as usize);
            return Err(Error::Fragmented { device, asked, needed, most });
        }
        record.generation = self.next()?;
        self.put_allocation(&thin, record, (&device, on))?;
        self.put_volume(name, record).map(drop)
    }

    /// Returns the records of a thin volume that can be written, and of its device.
    pub(super) fn thin_volume(
        &self,
        id: u64,
    ) -> Result<(ThinRecord, VolumeRecord, String, DeviceRecord), Error> {
        let thin = thin_record(&self.thin, id)?.ok_or(Error::NotThin(id))?;
        let record = self.volume(&thin.name)?;
        if record.is_snapshot {
            return Err(Error::Snapshot { name: thin.name, what: "nobody can write" });
        }
        let (device, on) = device_of_number(&self.devices, record.device)?;
        Ok((thin, record, device, on))
    }

    /// Returns the blocks of a thin volume that have to be allocated for these ranges, in whole clusters, without
    /// overlap.
    fn holes(
        &self,
        record: &VolumeRecord,
        thin: &ThinRecord,
        block: BlockSize,
        ranges: &[Extent],
    ) -> Result<Vec<Extent>, Error> {
        let mut wanted = Vec::new();
        for range in ranges {
            let Some(end) = range.end().filter(|end| *end <= record.blocks) else {
                let size = block.bytes(range.end().unwrap_or(range.start)).unwrap_or(Bytes(u64::MAX));
                return Err(Error::Size { name: thin.name.clone(), size });
            };
            // No overflow: the size of the volume is a multiple of the cluster.
            let (from, to) =
                (range.start.0 / thin.cluster.0 * thin.cluster.0, end.0.next_multiple_of(thin.cluster.0));
            wanted.extend((range.length.0 > 0).then_some((from, to)));
        }
        wanted.sort_unstable();
        let (mut holes, mut at) = (Vec::new(), 0);
        for (from, to) in wanted {
            at = at.max(from);
            for mapped in overlapping(&self.mapped, record.id, at, to)? {
                if at < mapped.logical.0 {
                    holes.push(Extent::new(at, mapped.logical.0 - at));
                }
                at = at.max(mapped.logical_end().0);
            }
            if at < to {
                holes.push(Extent::new(at, to - at));
            }
            at = at.max(to);
        }
        Ok(holes)
    }

    /// Returns the number of blocks to be allocated behind a hole, in whole clusters, if `asked` blocks are allocated anyway.
    fn ahead(
        &self,
        record: &VolumeRecord,
        thin: &ThinRecord,
        on: DeviceRecord,
        (hole, asked): (Extent, Blocks),
        clusters_max: u64,
    ) -> Result<Blocks, Error> {
        // Blocks before the hole without a gap, as far as the greatest number ahead needs them.
        let needed = clusters_max * thin.cluster.0 * AHEAD_FRACTION;
        let from = hole.start.0.saturating_sub(needed);
        let before = overlapping(&self.mapped, record.id, from, hole.start.0)?;
        let first = before.iter().rev().fold(hole.start, |first, mapped| {
            if mapped.logical_end() == first { mapped.logical } else { first }
        });
        let run = hole.start.0 - first.0.max(from);
        // No overflow: the hole ends within the volume.
        let begin = hole.start.0 + hole.length.0;
        let end = record.blocks.0.min(begin.saturating_add(clusters_max * thin.cluster.0));
        let next = overlapping(&self.mapped, record.id, begin, end)?;
        let end = next.first().map_or(end, |mapped| mapped.logical.0);
        let free = space::total(&self.free, on.number)?.0;
        let to_clear = space::total(&self.clearing, on.number)?.0;
        let left = on.blocks.0 / AHEAD_LEFT_FRACTION + kept_of(on.blocks).0 + asked.0;
        // Nobody waits until blocks are cleared that may not be needed.
        let spare = free.saturating_add(to_clear).saturating_sub(left).min(free.saturating_sub(asked.0));
        let is_fragmented = on.extents > DEVICE_EXTENTS_MAX / 2;
        let most = if is_fragmented { 0 } else { (run / AHEAD_FRACTION).min(end - begin).min(spare) };
        Ok(Blocks(most / thin.cluster.0 * thin.cluster.0))
    }

    /// Checks that a thin volume may have `asked` blocks more, and that they are cleared.
    fn check_space(
        &self,
        volume: &str,
        (device, on): (&str, DeviceRecord),
        asked: Blocks,
    ) -> Result<(), Error> {
        let free = space::total(&self.free, on.number)?;
        let to_clear = space::total(&self.clearing, on.number)?;
        let (block, kept) = (on.block.size(), kept_of(on.blocks));
        let left = free.0.saturating_add(to_clear.0).saturating_sub(kept.0);
        if asked.0 > left {
            let (volume, device) = (volume.to_owned(), device.to_owned());
            return Err(Error::PoolLow { volume, device, asked, left: Blocks(left), kept, block });
        }
        if asked > free {
            return Err(Error::Full { device: device.to_owned(), asked, free, to_clear, block });
        }
        Ok(())
    }

    /// Removes the extents of a thin volume within its blocks `from..to`; blocks that no other volume has are to be
    /// cleared. Changes the counts in the records.
    pub(super) fn unmap(
        &mut self,
        thin: &mut ThinRecord,
        record: &mut VolumeRecord,
        on: &mut DeviceRecord,
        (from, to): (u64, u64),
    ) -> Result<(), Error> {
        for mapped in overlapping(&self.mapped, record.id, from, to)? {
            self.mapped.remove((record.id, mapped.logical.0)).map_err(failed(WRITING))?;
            let mut added = -1;
            for left in [mapped.within(0, from), mapped.within(to, u64::MAX)].into_iter().flatten() {
                put(&mut self.mapped, record.id, left)?;
                added += 1;
            }
            if let Some(removed) = mapped.within(from, to) {
                self.give_up(on.number, removed.extent)?;
                thin.allocated.0 = thin.allocated.0.saturating_sub(removed.extent.length.0);
            }
            on.extents = on.extents.saturating_add_signed(added);
            record.extents = record.extents.saturating_add_signed(added as i32);
        }
        Ok(())
    }

    pub(super) fn put_thin(&mut self, volume: u64, thin: &ThinRecord) -> Result<(), Error> {
        let value = (thin.cluster.0, thin.allocated.0, thin.name.as_str());
        self.thin.insert(volume, value).map_err(failed(WRITING)).map(drop)
    }

    /// Writes the records of a thin volume and of its device.
    pub(super) fn put_allocation(
        &mut self,
        thin: &ThinRecord,
        record: VolumeRecord,
        (device, on): (&str, DeviceRecord),
    ) -> Result<(), Error> {
        self.put_thin(record.id, thin)?;
        self.put_device(device, on)?;
        self.put_volume(&thin.name, record).map(drop)
    }
}
