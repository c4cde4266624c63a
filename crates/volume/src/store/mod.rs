//! The store: devices and the volumes on them, in one file. Called by the server and by commands that change
//! volumes.
//!
//! Each operation is a transaction of redb: when the operation returns, either all of it is durable in the
//! file, or none of it. Commits have two phases, so the choice of the last state does not depend on a
//! checksum. Only one process has the store open at a time; redb locks the file.
//!
//! Each change of a volume gives it a new generation, a number that no volume of the store ever had. As long
//! as a volume's generation is the same, its name means the same extents and rights. The server compares
//! generations to find the grants to revoke.
//!
//! A *thin* volume ([`thin`]) has blocks only where something was written. Its snapshots and their clones ([`snapshots`])
//! have the same blocks, until one of them is written: then the caller copies a cluster ([`copies`]).
//!
//! The store reads and writes no device. The caller clears the blocks that volumes gave up:
//! [`Store::to_clear`] returns them, and [`Store::cleared`] reports that they were cleared, *after* that is
//! durable on the device and no request to them is in flight any more. Until then no volume gets those
//! blocks.

#[cfg(feature = "testing")]
pub(crate) mod altered;
mod change;
mod copies;
#[cfg(test)]
mod device_tests;
mod devices;
mod layout;
mod opening;
#[cfg(test)]
mod power_tests;
mod shared;
mod snapshots;
mod space;
#[cfg(test)]
mod tests;
mod thin;
mod verify;

pub use copies::{BlockCopy, CopyRoom};
pub use devices::{BlockMove, Identity};
pub use snapshots::SNAPSHOT_EXTENTS_MAX;
pub use thin::{MappedExtent, THIN_CLUSTERS_MAX};

use crate::error::Error;
use crate::extent::{BlockSize, Blocks, ByteRange, Bytes, Extent};
use crate::right::Ownership;
use change::{READING, WRITING, describe, describe_device, device_of_number, extents_of, failed, lost};
use layout::{DeviceRecord, VolumeRecord};
use redb::{Database, ReadableTable};
use std::collections::BTreeMap;
use std::path::Path;

/// Greatest number of devices in a store.
pub const DEVICES_MAX: u64 = 1 << 10;
/// Greatest number of volumes in a store.
pub const VOLUMES_MAX: u64 = 1 << 16;
/// Greatest number of extents of a volume.
pub const EXTENTS_MAX: usize = 1 << 16;
/// Greatest number of extents of all volumes of a device together.
pub const DEVICE_EXTENTS_MAX: u64 = 1 << 20;
/// Greatest length of a name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Device in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// Identity by which the store recognises the device.
    pub identity: Identity,
    /// Size of the blocks that volumes are allocated in.
    pub block: BlockSize,
    /// Size of the device, in whole blocks.
    pub blocks: Blocks,
    /// Number of blocks at the beginning of the device that are for its labels.
    pub reserved: Blocks,
    /// Number of blocks that are in no volume and can be used.
    pub free: Blocks,
    /// Number of blocks that are in no volume and must be cleared before they can be used.
    pub to_clear: Blocks,
    /// Number of blocks that are kept from thin volumes, so that they are refused more blocks before the device is full.
    pub kept: Blocks,
    /// Number of extents of all its volumes.
    pub extents: u64,
}

/// Volume in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Name of the volume.
    pub name: String,
    /// Number of the volume, which no other volume of this store ever had.
    pub id: u64,
    /// Number of the volume's last change, which no earlier change of the store had.
    pub generation: u64,
    /// Name of the device that the volume is on.
    pub device: String,
    /// Size of the device's blocks.
    pub block: BlockSize,
    /// Size of the volume, in blocks.
    pub blocks: Blocks,
    /// Number of blocks that are allocated at a time, if the volume is thin; `None` if all its blocks are allocated.
    pub cluster: Option<Blocks>,
    /// Number of blocks that the volume has on its device.
    pub allocated: Blocks,
    /// Number of its extents.
    pub extents: u32,
    /// Owner, group and rights.
    pub ownership: Ownership,
    /// True if the volume's device was memory that has ended. Only the name is left, to be removed or created
    /// anew.
    pub is_gone: bool,
    /// True if the volume is a snapshot, which nobody can write.
    pub is_snapshot: bool,
    /// Name of the volume that this snapshot was taken of, or of the snapshot that this clone was made of; `None` for any
    /// other volume, and if the other one was removed.
    pub origin: Option<String>,
}

impl Volume {
    /// Returns the size in bytes.
    pub fn size(&self) -> Bytes {
        // No overflow: the store has checked that the device ends within 64 bits.
        self.block.bytes(self.blocks).unwrap_or(Bytes(u64::MAX))
    }

    /// Converts extents of the volume to byte ranges of the device, as grants are made of.
    pub fn spans<'a>(&self, extents: &'a [Extent]) -> impl Iterator<Item = ByteRange> + 'a {
        let block = self.block;
        extents.iter().filter_map(move |extent| block.span(*extent))
    }
}

/// Contents of the blocks of a new device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewBlocks {
    /// The blocks are zeros.
    Cleared,
    /// The blocks may have other contents, so they must be cleared before they are used.
    Uncleared,
}

/// Devices and volumes, in one file.
///
/// Besides the errors that are named, every operation can return [`Error::Store`] if the file cannot be read
/// or written, and [`Error::Damaged`] if its contents are corrupt.
#[derive(Debug)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the store in a file, or creates one if the file does not exist. Checks the consistency of all
    /// its contents.
    ///
    /// # Errors
    /// [`Error::InUse`] if the store is open elsewhere; [`Error::NotAStore`] if the file is not a store;
    /// [`Error::Newer`] if a later version wrote it; [`Error::Damaged`] if its contents are corrupt;
    /// [`Error::Store`] if the file cannot be opened, created, read or written.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, Error> {
        let store = opening::open(path.as_ref())?;
        store.verify()?;
        Ok(store)
    }

    /// Opens the store on some backend, or creates one if the backend is empty. Checks the consistency of all its contents.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn over(path: &Path, backend: impl redb::StorageBackend) -> Result<Store, Error> {
        let is_empty =
            backend.len().map_err(|why| Error::Store { what: "open the store", why: why.to_string() })? == 0;
        let store = opening::open_backend(path, backend)?;
        match is_empty {
            true => store.lay_out()?,
            false => store.check_layout(path)?,
        }
        store.verify()?;
        Ok(store)
    }

    /// Makes a store in memory, which ends when it is dropped.
    ///
    /// # Errors
    /// [`Error::Store`] if redb fails.
    pub fn in_memory() -> Result<Store, Error> {
        opening::make_in_memory()
    }

    /// Returns a device.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no device of that name.
    pub fn device(&self, name: &str) -> Result<Device, Error> {
        self.view(|view| {
            let record = view.devices.get(name).map_err(failed(READING))?;
            let record = record.ok_or_else(|| Error::NoDevice(name.to_owned()))?;
            describe_device(name, DeviceRecord::from_bytes(record.value())?, &view.free, &view.clearing)
        })
    }

    /// Returns all devices, sorted by name.
    ///
    /// # Errors
    /// [`Error::Store`] or [`Error::Damaged`] if the store cannot be read.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        self.view(|view| {
            let rows = view.devices.iter().map_err(failed(READING))?;
            rows.map(|row| {
                let (name, record) = row.map_err(failed(READING))?;
                let record = DeviceRecord::from_bytes(record.value())?;
                describe_device(name.value(), record, &view.free, &view.clearing)
            })
            .collect()
        })
    }

    /// Creates a volume of at least `size`, rounded up to whole blocks of its device. A volume of the same
    /// name that is gone is replaced.
    ///
    /// # Errors
    /// [`Error::Name`] if the name is not valid; [`Error::Exists`] if there is a volume of that name;
    /// [`Error::NoDevice`] if there is no such device; [`Error::Size`] if the size is zero or too large;
    /// [`Error::Full`] if too few blocks are free; [`Error::Fragmented`] if the volume would need too many
    /// extents; [`Error::LimitReached`] if there are too many volumes.
    pub fn create(
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
            let id = change.next()?;
            let record = VolumeRecord {
                id,
                generation: id,
                device: on.number,
                ownership,
                is_gone: false,
                is_thin: false,
                is_snapshot: false,
                blocks: Blocks(0),
                extents: 0,
            };
            change.grow(name, record, (device, on), Vec::new(), blocks)
        })
    }

    /// Returns a volume, and its extents in the order of its blocks. [`Store::mapping`] tells which blocks of a thin
    /// volume have an extent.
    ///
    /// # Errors
    /// [`Error::NoVolume`] if there is no volume of that name; [`Error::VolumeLost`] if it was on a
    /// memory device, whose contents have ended with the server.
    pub fn get(&self, name: &str) -> Result<(Volume, Vec<Extent>), Error> {
        self.view(|view| {
            let record = view.volumes.get(name).map_err(failed(READING))?;
            let record = record.ok_or_else(|| Error::NoVolume(name.to_owned()))?;
            let record = VolumeRecord::from_bytes(record.value())?;
            let (device, on) = device_of_number(&view.devices, record.device)?;
            if record.is_gone {
                return Err(Error::VolumeLost { volume: name.to_owned(), device });
            }
            let extents = match record.is_thin {
                true => {
                    thin::mapped_of(&view.mapped, record.id)?.iter().map(|mapped| mapped.extent).collect()
                }
                false => extents_of(&view.extents, record.id)?,
            };
            let thin = thin::record_of(&view.thin, &record)?;
            let origin = thin::origin_of(&view.origins, &view.thin, record.id)?;
            Ok((describe(name, record, device, on.block, thin, origin), extents))
        })
    }

    /// Returns all volumes, sorted by name.
    ///
    /// # Errors
    /// [`Error::Store`] or [`Error::Damaged`] if the store cannot be read.
    pub fn list(&self) -> Result<Vec<Volume>, Error> {
        self.view(|view| {
            let mut devices = BTreeMap::new();
            for row in view.devices.iter().map_err(failed(READING))? {
                let (name, record) = row.map_err(failed(READING))?;
                let record = DeviceRecord::from_bytes(record.value())?;
                devices.insert(record.number, (name.value().to_owned(), record.block));
            }
            let rows = view.volumes.iter().map_err(failed(READING))?;
            rows.map(|row| {
                let (name, record) = row.map_err(failed(READING))?;
                let record = VolumeRecord::from_bytes(record.value())?;
                let (device, block) = devices.get(&record.device).ok_or_else(|| lost(record.device))?;
                let thin = thin::record_of(&view.thin, &record)?;
                let origin = thin::origin_of(&view.origins, &view.thin, record.id)?;
                Ok(describe(name.value(), record, device.clone(), *block, thin, origin))
            })
            .collect()
        })
    }

    /// Changes the size of a volume to at least `size`, rounded up to whole blocks, or to whole clusters if it is
    /// thin. New blocks are appended; surplus blocks are removed from the end and must be cleared before they are
    /// used again.
    ///
    /// # Errors
    /// [`Error::NoVolume`] if there is no volume of that name; [`Error::VolumeLost`] if it ended with its
    /// device; [`Error::Size`], [`Error::Full`] or [`Error::Fragmented`] as for [`Store::create`];
    /// [`Error::ThinSize`] if a thin volume would have too many clusters; [`Error::Snapshot`] if the volume is a snapshot.
    pub fn resize(&self, name: &str, size: Bytes) -> Result<Volume, Error> {
        self.change(|change| {
            let mut record = change.volume(name)?;
            let (device, on) = device_of_number(&change.devices, record.device)?;
            if record.is_gone {
                return Err(Error::VolumeLost { volume: name.to_owned(), device });
            }
            if record.is_snapshot {
                return Err(Error::Snapshot { name: name.to_owned(), what: "keeps its size" });
            }
            let blocks = blocks_of(name, size, on.block)?;
            if record.is_thin {
                return change.resize_thin(name, record, (&device, on), blocks);
            }
            let mut extents = extents_of(&change.extents, record.id)?;
            record.generation = change.next()?;
            if blocks > record.blocks {
                return change.grow(name, record, (&device, on), extents, blocks);
            }
            for freed in space::shorten(&mut extents, blocks) {
                space::add_extent(&mut change.clearing, on.number, freed)?;
            }
            record.blocks = blocks;
            change.put_extents(name, record, (&device, on), &extents)
        })
    }

    /// Renames a volume.
    ///
    /// # Errors
    /// [`Error::NoVolume`] if there is no volume of that name; [`Error::Name`] if the new name is not valid;
    /// [`Error::Exists`] if there is a volume of the new name.
    pub fn rename(&self, name: &str, to: &str) -> Result<Volume, Error> {
        check_name(to)?;
        self.change(|change| {
            let mut record = change.volume(name)?;
            if change.volume_if_known(to)?.is_some() {
                return Err(Error::Exists(to.to_owned()));
            }
            change.volumes.remove(name).map_err(failed(WRITING))?;
            record.generation = change.next()?;
            change.rename_thin(&record, to)?;
            change.put_volume(to, record)
        })
    }

    /// Removes a volume. All its blocks that no other volume has must be cleared before they are used again.
    ///
    /// # Errors
    /// [`Error::NoVolume`] if there is no volume of that name.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.change(|change| {
            let record = change.volume(name)?;
            let (device, mut on) = device_of_number(&change.devices, record.device)?;
            if !record.is_gone {
                for extent in change.blocks_of(&record)? {
                    change.give_up(on.number, extent)?;
                }
                on.extents = on.extents.saturating_sub(u64::from(record.extents));
                change.put_device(&device, on)?;
                change.forget_extents(&record)?;
            }
            change.volumes.remove(name).map_err(failed(WRITING))?;
            // Removal counts as a change too, so a later volume of that name gets another generation.
            change.next().map(drop)
        })
    }

    /// Changes owner, group and rights of a volume by a function.
    ///
    /// # Errors
    /// [`Error::NoVolume`] if there is no volume of that name; [`Error::Snapshot`] if a snapshot could be written then.
    pub fn set_ownership(&self, name: &str, edit: impl FnOnce(&mut Ownership)) -> Result<Volume, Error> {
        self.change(|change| {
            let mut record = change.volume(name)?;
            edit(&mut record.ownership);
            if record.is_snapshot && !record.ownership.read_only {
                return Err(Error::Snapshot { name: name.to_owned(), what: "nobody can write" });
            }
            record.generation = change.next()?;
            change.put_volume(name, record)
        })
    }

    /// Returns the first `at_most` extents that are to be cleared on a device.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no device of that name.
    pub fn to_clear(&self, device: &str, at_most: usize) -> Result<Vec<Extent>, Error> {
        self.view(|view| {
            let record = view.devices.get(device).map_err(failed(READING))?;
            let record = record.ok_or_else(|| Error::NoDevice(device.to_owned()))?;
            let number = DeviceRecord::from_bytes(record.value())?.number;
            space::pieces(&view.clearing, number)?.take(at_most).collect()
        })
    }

    /// Reports that blocks were cleared, all or a part of what [`Store::to_clear`] returned; they are free
    /// from now on. The zeros must be durable on the device, and no request to the blocks may be in flight
    /// any more.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no device of that name; [`Error::NotToClear`] if `extent` is empty, or
    /// not all of it is to be cleared.
    pub fn cleared(&self, device: &str, extent: Extent) -> Result<(), Error> {
        self.change(|change| {
            let number = change.device(device)?.number;
            if !space::remove_extent(&mut change.clearing, number, extent)? {
                return Err(Error::NotToClear { device: device.to_owned(), extent });
            }
            space::add_extent(&mut change.free, number, extent)
        })
    }
}

/// Checks that a name is valid: it needs no quotes in a shell, in a file's name or in a list.
fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if begins && name.len() <= NAME_BYTES_MAX && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::Name(name.chars().take(NAME_BYTES_MAX).flat_map(char::escape_debug).collect()))
}

fn blocks_of(name: &str, size: Bytes, block: BlockSize) -> Result<Blocks, Error> {
    let blocks = block.blocks_ceil(size);
    if blocks.0 == 0 || block.bytes(blocks).is_none() {
        return Err(Error::Size { name: name.to_owned(), size });
    }
    Ok(blocks)
}
