//! Snapshots of thin volumes, clones of snapshots, and rolling back to a snapshot.
//!
//! A *snapshot* is a thin volume that nobody can write. It has the blocks that its origin had when it was taken, and
//! takes none itself. A *clone* is a thin volume that begins with a snapshot's blocks. Rolling back gives a volume the
//! blocks of one of its snapshots. Each of them is one transaction, so that after a crash it was made wholly or not at all.
//!
//! Blocks that several volumes have ([`super::shared`]) are never written. Whoever writes one of them has the cluster
//! copied first ([`super::copies`]). The device has all contents of a snapshot durably: the caller flushes it before
//! [`Store::snapshot`], when no write to the volume is in flight.

use super::change::{READING, WRITING, WriteTables, device_of_number, failed};
use super::layout::{DeviceRecord, VolumeRecord};
use super::thin::{self, ThinRecord};
use super::{DEVICE_EXTENTS_MAX, Store, Volume, shared};
use crate::error::Error;
use crate::extent::{Blocks, Extent};
use redb::ReadableTable;
use std::collections::BTreeMap;

/// Greatest number of extents of all volumes of a device up to which snapshots and clones are made, which have as many as
/// their origins. The rest is left for writes.
pub const SNAPSHOT_EXTENTS_MAX: u64 = DEVICE_EXTENTS_MAX / 2;

impl Store {
    /// Takes a snapshot of a thin volume, with the volume's owner, group and mode. All writes to the volume that are to be
    /// in the snapshot are durable on the device, and none is in flight.
    ///
    /// # Errors
    /// [`Error::NoVolume`] if there is no volume of that name; [`Error::VolumeLost`] if it ended with its device;
    /// [`Error::NotThinVolume`] if it is not thin; [`Error::Snapshot`] if it is a snapshot itself; [`Error::Name`] if the
    /// new name is not valid; [`Error::Exists`] if there is a volume of that name; [`Error::LimitReached`] if there are too
    /// many volumes; [`Error::Fragmented`] if the device would have too many extents.
    pub fn snapshot(&self, volume: &str, name: &str) -> Result<Volume, Error> {
        self.change(|change| {
            let (record, thin, on) = change.thin_of_name(volume)?;
            if record.is_snapshot {
                return Err(Error::Snapshot { name: volume.to_owned(), what: "has no snapshots of its own" });
            }
            let mut copy = VolumeRecord { is_snapshot: true, ..record };
            copy.ownership.read_only = true;
            change.share(copy, thin, on, name)
        })
    }

    /// Makes a thin volume that has the contents of a snapshot, and its owner, group and mode.
    ///
    /// # Errors
    /// As for [`Store::snapshot`], except that [`Error::NotSnapshot`] is returned if the first name is not that of a
    /// snapshot.
    pub fn clone_snapshot(&self, snapshot: &str, name: &str) -> Result<Volume, Error> {
        self.change(|change| {
            let (record, thin, on) = change.thin_of_name(snapshot)?;
            if !record.is_snapshot {
                return Err(Error::NotSnapshot(snapshot.to_owned()));
            }
            let mut copy = VolumeRecord { is_snapshot: false, ..record };
            copy.ownership.read_only = false;
            change.share(copy, thin, on, name)
        })
    }

    /// Gives a volume the contents and the size that one of its snapshots has. Blocks that only the volume had must be
    /// cleared before they are used again.
    ///
    /// # Errors
    /// [`Error::NoVolume`], [`Error::VolumeLost`] or [`Error::NotThinVolume`] as for [`Store::snapshot`], for both names;
    /// [`Error::Snapshot`] if the volume is a snapshot; [`Error::NotSnapshot`] if the other is none;
    /// [`Error::OtherOrigin`] if it is a snapshot of another volume; [`Error::Fragmented`] if the device would have too many
    /// extents.
    pub fn rollback(&self, volume: &str, snapshot: &str) -> Result<Volume, Error> {
        self.change(|change| {
            let (from, from_thin, _) = change.thin_of_name(snapshot)?;
            let (mut record, mut thin, (device, mut on)) = change.thin_of_name(volume)?;
            if record.is_snapshot {
                return Err(Error::Snapshot { name: volume.to_owned(), what: "stays as it is" });
            }
            if !from.is_snapshot {
                return Err(Error::NotSnapshot(snapshot.to_owned()));
            }
            let origin = change.origins.get(from.id).map_err(failed(READING))?.map(|origin| origin.value());
            if origin != Some(record.id) {
                let (snapshot, volume) = (snapshot.to_owned(), volume.to_owned());
                return Err(Error::OtherOrigin { snapshot, volume });
            }
            change.unmap(&mut thin, &mut record, &mut on, (0, u64::MAX))?;
            check_extents(&device, on, u64::from(from.extents), DEVICE_EXTENTS_MAX, from_thin.allocated)?;
            change.share_extents(from.id, record.id, on.number)?;
            (record.extents, record.blocks, thin.allocated) =
                (from.extents, from.blocks, from_thin.allocated);
            on.extents += u64::from(from.extents);
            record.generation = change.next()?;
            change.put_allocation(&thin, record, (&device, on))?;
            change.put_volume(volume, record)
        })
    }

    /// Returns for each thin volume, by its id, the number of its blocks that other volumes have, too.
    ///
    /// # Errors
    /// [`Error::Store`] or [`Error::Damaged`] if the store cannot be read.
    pub fn shared_blocks(&self) -> Result<BTreeMap<u64, Blocks>, Error> {
        self.view(|view| {
            let mut of_devices = BTreeMap::new();
            let mut found = BTreeMap::new();
            for row in view.volumes.iter().map_err(failed(READING))? {
                let (_, record) = row.map_err(failed(READING))?;
                let record = VolumeRecord::from_bytes(record.value())?;
                if !record.is_thin {
                    continue;
                }
                let pieces = match of_devices.get(&record.device) {
                    Some(pieces) => pieces,
                    None => of_devices
                        .entry(record.device)
                        .or_insert(shared::pieces(&view.shared, record.device)?),
                };
                let mut sum = 0;
                if !pieces.is_empty() {
                    for mapped in thin::mapped_of(&view.mapped, record.id)? {
                        sum += blocks_within(pieces, mapped.extent);
                    }
                }
                found.insert(record.id, Blocks(sum));
            }
            Ok(found)
        })
    }
}

/// Returns how many blocks of an extent are in one of these pieces, which are in order.
fn blocks_within(pieces: &[(Extent, u64)], extent: Extent) -> u64 {
    let end = extent.start.0 + extent.length.0;
    let first = pieces.partition_point(|(piece, _)| piece.start.0 + piece.length.0 <= extent.start.0);
    let overlapping = pieces[first..].iter().take_while(|(piece, _)| piece.start.0 < end);
    overlapping
        .map(|(piece, _)| (piece.start.0 + piece.length.0).min(end) - piece.start.0.max(extent.start.0))
        .sum()
}

/// Checks that a device may have `more` extents beside those that it has, at most `most` altogether.
fn check_extents(device: &str, on: DeviceRecord, more: u64, most: u64, asked: Blocks) -> Result<(), Error> {
    let left = most.saturating_sub(on.extents);
    if more <= left {
        return Ok(());
    }
    let (needed, most) = (more as usize, left as usize);
    Err(Error::Fragmented { device: device.to_owned(), asked, needed, most })
}

impl WriteTables<'_> {
    /// Returns the records of a thin volume and of its device.
    fn thin_of_name(&self, name: &str) -> Result<(VolumeRecord, ThinRecord, (String, DeviceRecord)), Error> {
        let record = self.volume(name)?;
        let (device, on) = device_of_number(&self.devices, record.device)?;
        if record.is_gone {
            return Err(Error::VolumeLost { volume: name.to_owned(), device });
        }
        let thin = thin::record_of(&self.thin, &record)?;
        let thin = thin.ok_or_else(|| Error::NotThinVolume(name.to_owned()))?;
        Ok((record, thin, (device, on)))
    }

    /// Adds a volume that has the blocks of the one that `record` was made from.
    fn share(
        &mut self,
        record: VolumeRecord,
        thin: ThinRecord,
        (device, mut on): (String, DeviceRecord),
        name: &str,
    ) -> Result<Volume, Error> {
        self.check_new(name)?;
        let more = u64::from(record.extents);
        check_extents(&device, on, more, SNAPSHOT_EXTENTS_MAX, thin.allocated)?;
        let (origin, id) = (record.id, self.next()?);
        self.share_extents(origin, id, on.number)?;
        self.origins.insert(id, origin).map_err(failed(WRITING))?;
        on.extents += more;
        let thin = ThinRecord { name: name.to_owned(), ..thin };
        let record = VolumeRecord { id, generation: id, ..record };
        self.put_allocation(&thin, record, (&device, on))?;
        self.put_volume(name, record)
    }

    /// Gives a thin volume without blocks those of another one. The caller changes the counts in the records.
    fn share_extents(&mut self, from: u64, to: u64, device: u32) -> Result<(), Error> {
        for mapped in thin::mapped_of(&self.mapped, from)? {
            thin::put(&mut self.mapped, to, mapped)?;
            shared::add_user(&mut self.shared, device, mapped.extent)?;
        }
        Ok(())
    }
}
