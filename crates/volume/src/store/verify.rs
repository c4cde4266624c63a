//! Consistency check of a store, made when the store is opened.
//!
//! redb has checked that the file is as it was written. This module checks that its records are consistent:
//! in a store in which two volumes overlap, one client would see the other's data.

use super::change::{READING, extents_of, failed};
use super::layout::{CLEARING, DeviceRecord, FREE, HEADER, KEY_CHANGES, VolumeRecord};
use super::shared;
use super::space;
use super::thin::{self, ThinRecord};
use super::{DEVICE_EXTENTS_MAX, EXTENTS_MAX, Identity, MappedExtent, Store, check_name};
use crate::error::Error;
use crate::extent::Extent;
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};
use std::collections::BTreeMap;

/// Device, and the records found for it so far.
struct Device {
    name: String,
    record: DeviceRecord,
    extents: u64,
    /// All extents of the device's blocks, and their use, without thin volumes.
    parts: Vec<(Extent, StorePart)>,
    /// Extents of thin volumes, which may share blocks.
    thin: Vec<Extent>,
    /// Blocks that are recorded as shared, and the numbers of their users.
    shared: Vec<(Extent, u64)>,
}

/// Use of blocks of a device.
#[derive(Clone, Copy, PartialEq)]
enum StorePart {
    Volume,
    Free,
    Clearing,
}

impl Store {
    /// Checks that all records of the store are consistent.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first contradiction found.
    pub(super) fn verify(&self) -> Result<(), Error> {
        let mut devices = self.all_devices()?;
        self.add_volumes(&mut devices)?;
        self.add_pieces(&mut devices)?;
        devices.into_values().try_for_each(Device::check)
    }

    fn all_devices(&self) -> Result<BTreeMap<u32, Device>, Error> {
        self.view(|view| {
            let mut devices = BTreeMap::new();
            for row in view.devices.iter().map_err(failed(READING))? {
                let (name, record) = row.map_err(failed(READING))?;
                let (name, record) = (name.value().to_owned(), DeviceRecord::from_bytes(record.value())?);
                check_name(&name).map_err(|why| Error::damaged(why.to_string()))?;
                let shared = shared::pieces(&view.shared, record.number)?;
                let device = Device { name, record, extents: 0, parts: Vec::new(), thin: Vec::new(), shared };
                let same = devices.values().find(|other: &&Device| {
                    record.identity.id().is_some_and(|id| other.record.identity.id() == Some(id))
                });
                if let Some(other) = same {
                    let what = format!("devices '{}' and '{}' have one identity", other.name, device.name);
                    return Err(Error::damaged(what));
                }
                if let Some(other) = devices.insert(record.number, device) {
                    return Err(Error::damaged(format!("device '{}' is there twice", other.name)));
                }
            }
            let shared: usize = devices.values().map(|device| device.shared.len()).sum();
            if view.shared.len().map_err(failed(READING))? != shared as u64 {
                return Err(Error::damaged("blocks of a device that there is not are shared"));
            }
            Ok(devices)
        })
    }

    fn add_volumes(&self, devices: &mut BTreeMap<u32, Device>) -> Result<(), Error> {
        let header = self.database.begin_read().map_err(failed(READING))?;
        let header = header.open_table(HEADER).map_err(failed(READING))?;
        let changes = header.get(KEY_CHANGES).map_err(failed(READING))?.map_or(0, |changes| changes.value());
        self.view(|view| {
            let (mut volumes, mut thin_volumes, mut thin_extents, mut origins) = (0, 0, 0, 0);
            for row in view.volumes.iter().map_err(failed(READING))? {
                let (name, record) = row.map_err(failed(READING))?;
                let (name, record) = (name.value(), VolumeRecord::from_bytes(record.value())?);
                check_name(name).map_err(|why| Error::damaged(why.to_string()))?;
                let wrong = |what: &str| Error::damaged(format!("volume '{name}' {what}"));
                let device = devices.get_mut(&record.device).ok_or_else(|| wrong("is on no device"))?;
                if record.is_gone {
                    if record.extents != 0 || !matches!(device.record.identity, Identity::Memory(_)) {
                        return Err(wrong("is gone, and has extents or is on a device that lasts"));
                    }
                    continue;
                }
                let extents = match thin::record_of(&view.thin, &record)? {
                    None => extents_of(&view.extents, record.id)?,
                    Some(thin) => {
                        let mapped = thin::mapped_of(&view.mapped, record.id)?;
                        check_mapped(name, &record, &thin, &mapped).map_err(wrong)?;
                        let origin = view.origins.get(record.id).map_err(failed(READING))?;
                        // Numbers of volumes grow.
                        if origin.as_ref().is_some_and(|origin| origin.value() >= record.id) {
                            return Err(wrong("was made of one that is younger"));
                        }
                        if record.is_snapshot && origin.is_none() {
                            return Err(wrong("is a snapshot of nothing"));
                        }
                        origins += u64::from(origin.is_some());
                        thin_volumes += 1;
                        thin_extents += mapped.len() as u64;
                        check_change(&record, changes).map_err(wrong)?;
                        device.extents += mapped.len() as u64;
                        device.thin.extend(mapped.iter().map(|mapped| mapped.extent));
                        continue;
                    }
                };
                let blocks = extents.iter().try_fold(0u64, |sum, extent| sum.checked_add(extent.length.0));
                if blocks != Some(record.blocks.0) || extents.len() != record.extents as usize {
                    return Err(wrong("has other extents than it should have"));
                }
                if extents.is_empty() || extents.len() > EXTENTS_MAX {
                    return Err(wrong("has none or too many extents"));
                }
                check_change(&record, changes).map_err(wrong)?;
                device.extents += extents.len() as u64;
                device.parts.extend(extents.into_iter().map(|extent| (extent, StorePart::Volume)));
                volumes += 1;
            }
            // Two volumes with the same id would have the same extents; `check` finds that they overlap.
            if view.extents.len().map_err(failed(READING))? != volumes {
                return Err(Error::damaged(format!(
                    "there are extents of others than its {volumes} volumes"
                )));
            }
            let records = view.thin.len().map_err(failed(READING))?;
            let found = (records, view.mapped.len().map_err(failed(READING))?);
            if (found, view.origins.len().map_err(failed(READING))?)
                != ((thin_volumes, thin_extents), origins)
            {
                return Err(Error::damaged(format!(
                    "there are records of others than its {thin_volumes} thin volumes"
                )));
            }
            Ok(())
        })
    }

    fn add_pieces(&self, devices: &mut BTreeMap<u32, Device>) -> Result<(), Error> {
        let transaction = self.database.begin_read().map_err(failed(READING))?;
        for (table, part) in [(FREE, StorePart::Free), (CLEARING, StorePart::Clearing)] {
            let table = transaction.open_table(table).map_err(failed(READING))?;
            let mut found = 0;
            for (number, device) in devices.iter_mut() {
                for piece in space::pieces(&table, *number)? {
                    device.parts.push((piece?, part));
                    found += 1;
                }
            }
            if table.len().map_err(failed(READING))? != found {
                return Err(Error::damaged("there are pieces of a device that there is not"));
            }
        }
        Ok(())
    }
}

/// Checks that a volume's last change is one that was made.
fn check_change(record: &VolumeRecord, changes: u64) -> Result<(), &'static str> {
    match record.id > record.generation || record.generation > changes || record.id == 0 {
        true => Err("is of a change that was never made"),
        false => Ok(()),
    }
}

/// Checks the extents of a thin volume: whole clusters within the volume, as few extents as possible, and as many
/// blocks as its record says.
fn check_mapped(
    name: &str,
    record: &VolumeRecord,
    thin: &ThinRecord,
    mapped: &[MappedExtent],
) -> Result<(), &'static str> {
    let cluster = thin.cluster.0;
    if thin.name != name || cluster == 0 || record.blocks.0 == 0 || !record.blocks.0.is_multiple_of(cluster) {
        return Err("has another name or size than its record as a thin volume");
    }
    if mapped.len() != record.extents as usize
        || mapped.iter().map(|mapped| mapped.extent.length.0).sum::<u64>() != thin.allocated.0
    {
        return Err("has other extents than it should have");
    }
    let mut end = 0;
    let mut device_end = None;
    for one in mapped {
        let is_contiguous = one.logical.0 == end;
        let is_apart =
            one.logical.0 > end && one.logical.0.is_multiple_of(cluster) && end.is_multiple_of(cluster);
        if !is_contiguous && !is_apart {
            return Err("has overlapping extents, or a part of a cluster");
        }
        if is_contiguous && device_end == Some(one.extent.start) {
            return Err("has two extents that should be one");
        }
        (end, device_end) = (one.logical_end().0, one.extent.end());
    }
    match end > record.blocks.0 || !end.is_multiple_of(cluster) {
        true => Err("has extents behind its end, or a part of a cluster"),
        false => Ok(()),
    }
}

impl Device {
    /// Checks that the parts cover the device behind its reserved blocks, and that none overlap, except those of thin
    /// volumes that are recorded as shared.
    fn check(mut self) -> Result<(), Error> {
        let counted = shared::count(&self.thin);
        let is_shared = |(_, users): &&(Extent, u64)| *users > 1;
        if !counted.iter().filter(is_shared).eq(&self.shared) {
            let what = format!("on device '{}' other blocks are shared than should be", self.name);
            return Err(Error::damaged(what));
        }
        self.parts.extend(counted.into_iter().map(|(extent, _)| (extent, StorePart::Volume)));
        let wrong = |what: String| Error::damaged(format!("on device '{}' {what}", self.name));
        if self.extents != self.record.extents || self.extents > DEVICE_EXTENTS_MAX {
            return Err(wrong(format!("there are {} extents, not {}", self.extents, self.record.extents)));
        }
        self.parts.sort_unstable_by_key(|(extent, _)| *extent);
        let (mut end, mut before) = (self.record.reserved.0, StorePart::Volume);
        for (extent, part) in &self.parts {
            let behind = extent.end().filter(|_| extent.length.0 > 0).map_or(0, |end| end.0);
            if extent.start.0 != end || behind == 0 {
                return Err(wrong(format!("something overlaps or is missing at block {end}")));
            }
            if *part != StorePart::Volume && *part == before {
                return Err(wrong(format!("there are two pieces at block {end} that should be one")));
            }
            (end, before) = (behind, *part);
        }
        if end != self.record.blocks.0 {
            return Err(wrong(format!("its parts end at block {end}, and it has {}", self.record.blocks)));
        }
        Ok(())
    }
}
