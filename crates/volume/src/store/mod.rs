//! Devices and the volumes on them, in one file.
//!
//! Each operation is a transaction of redb: all of it is in the file when the operation returns, on the device that
//! the file is on, or none of it is. Commits are in two phases, so that which state is the last one does not hang on a
//! checksum. One process has the store at a time; redb locks the file.
//!
//! A name can be trusted for as long as a volume's generation is what it was: every change of a volume gives it a new
//! one, which no volume of the store ever had. Whoever hands out grants looks at it to know which ones to revoke.
//!
//! The store reads and writes no device. Clearing what volumes gave up is the duty of who does:
//! [`Store::to_clear`] tells what, and [`Store::cleared`] that it was done, *after* the device has it durably and no
//! request to it is under way any more. Before that nobody gets those blocks.

mod change;
#[cfg(test)]
mod device_tests;
mod devices;
mod layout;
mod opening;
#[cfg(test)]
mod power_tests;
mod space;
#[cfg(test)]
mod tests;
mod verify;

pub use devices::{Identity, Move};

use crate::error::Error;
use crate::extent::{BlockSize, Blocks, Bytes, Extent, Span};
use crate::right::Ownership;
use change::{READING, WRITING, describe, describe_device, device_of_number, extents_of, failed, lost};
use layout::{DeviceRecord, VolumeRecord};
use redb::{Database, ReadableTable};
use std::collections::BTreeMap;
use std::path::Path;

/// Most devices of a store.
pub const DEVICES_MAX: u64 = 1 << 10;
/// Most volumes of a store.
pub const VOLUMES_MAX: u64 = 1 << 16;
/// Most extents of a volume.
pub const EXTENTS_MAX: usize = 1 << 16;
/// Most extents that the volumes of a device have together.
pub const DEVICE_EXTENTS_MAX: u64 = 1 << 20;
/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 128;

/// A device, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: Identity,
    /// What its volumes are made of.
    pub block: BlockSize,
    /// Whole blocks that it has.
    pub blocks: Blocks,
    /// Those at its beginning that its labels have.
    pub reserved: Blocks,
    /// Those that are in no volume and can be used.
    pub free: Blocks,
    /// Those that are in no volume and cannot be used before they were cleared.
    pub to_clear: Blocks,
    /// Extents of its volumes.
    pub extents: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// A number that no other volume of this store ever had.
    pub id: u64,
    /// New with every change of it.
    pub generation: u64,
    /// The device that it is on.
    pub device: String,
    /// The device's block.
    pub block: BlockSize,
    /// How many of them it has.
    pub blocks: Blocks,
    /// In how many extents.
    pub extents: u32,
    /// Whose it is and who may do what with it.
    pub ownership: Ownership,
    /// Whether its device was memory that has ended: only the name is left, to be removed or created anew.
    pub is_gone: bool,
}

impl Volume {
    /// Its bytes.
    pub fn size(&self) -> Bytes {
        // The store has checked that the device ends within 64 bits.
        self.block.bytes(self.blocks).unwrap_or(Bytes(u64::MAX))
    }

    /// Its extents in bytes of the device, as a grant is made of.
    pub fn spans<'a>(&self, extents: &'a [Extent]) -> impl Iterator<Item = Span> + 'a {
        let block = self.block;
        extents.iter().filter_map(move |extent| block.span(*extent))
    }
}

/// What a new device's blocks have in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Zeroes, or nothing that anybody could mind.
    Cleared,
    /// Something: they are to be cleared before they are used.
    Unknown,
}

/// Devices and volumes, in one file.
#[derive(Debug)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the store in a file, and makes one if there is no file. Everything in it is held against everything else.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Foreign`], [`Error::Newer`], [`Error::Damaged`], or what the kernel says.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, Error> {
        let store = opening::open(path.as_ref())?;
        store.verify()?;
        Ok(store)
    }

    /// A store in memory, which is gone when it is dropped.
    ///
    /// # Errors
    /// What redb says.
    pub fn in_memory() -> Result<Store, Error> {
        opening::make_in_memory()
    }

    /// A device.
    ///
    /// # Errors
    /// [`Error::NoDevice`].
    pub fn device(&self, name: &str) -> Result<Device, Error> {
        self.view(|view| {
            let record = view.devices.get(name).map_err(failed(READING))?;
            let record = record.ok_or_else(|| Error::NoDevice(name.to_owned()))?;
            describe_device(name, DeviceRecord::from_bytes(record.value())?, &view.free, &view.clearing)
        })
    }

    /// All devices, by name.
    ///
    /// # Errors
    /// What redb says.
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

    /// Makes a volume of at least `size`, in whole blocks of its device. It takes the place of one that is gone.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Exists`], [`Error::NoDevice`], [`Error::Size`], [`Error::Full`],
    /// [`Error::Fragmented`], [`Error::Many`].
    pub fn create(
        &self,
        name: &str,
        device: &str,
        size: Bytes,
        ownership: Ownership,
    ) -> Result<Volume, Error> {
        check_name(name)?;
        self.change(|change| {
            if change.volume_if_known(name)?.is_some_and(|known| !known.is_gone) {
                return Err(Error::Exists(name.to_owned()));
            }
            if change.volume_count()? >= VOLUMES_MAX {
                return Err(Error::Many { what: "volumes", most: VOLUMES_MAX });
            }
            let on = change.device(device)?;
            let blocks = blocks_of(name, size, on.block)?;
            let id = change.next()?;
            let record = VolumeRecord {
                id,
                generation: id,
                device: on.number,
                ownership,
                is_gone: false,
                blocks: Blocks(0),
                extents: 0,
            };
            change.grow(name, record, (device, on), Vec::new(), blocks)
        })
    }

    /// A volume, and its extents in the order of its blocks.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::Gone`] if it ended with its device.
    pub fn get(&self, name: &str) -> Result<(Volume, Vec<Extent>), Error> {
        self.view(|view| {
            let record = view.volumes.get(name).map_err(failed(READING))?;
            let record = record.ok_or_else(|| Error::NoVolume(name.to_owned()))?;
            let record = VolumeRecord::from_bytes(record.value())?;
            let (device, on) = device_of_number(&view.devices, record.device)?;
            if record.is_gone {
                return Err(Error::Gone { volume: name.to_owned(), device });
            }
            Ok((describe(name, record, device, on.block), extents_of(&view.extents, record.id)?))
        })
    }

    /// All volumes, by name.
    ///
    /// # Errors
    /// What redb says.
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
                Ok(describe(name.value(), record, device.clone(), *block))
            })
            .collect()
        })
    }

    /// Makes a volume at least `size` long, in whole blocks of its device: new ones come behind its last, and what is
    /// too much is taken off the end and is to be cleared.
    ///
    /// # Errors
    /// [`Error::NoVolume`], [`Error::Gone`], [`Error::Size`], [`Error::Full`], [`Error::Fragmented`].
    pub fn resize(&self, name: &str, size: Bytes) -> Result<Volume, Error> {
        self.change(|change| {
            let mut record = change.volume(name)?;
            let (device, on) = device_of_number(&change.devices, record.device)?;
            if record.is_gone {
                return Err(Error::Gone { volume: name.to_owned(), device });
            }
            let blocks = blocks_of(name, size, on.block)?;
            let mut extents = extents_of(&change.extents, record.id)?;
            record.generation = change.next()?;
            if blocks > record.blocks {
                return change.grow(name, record, (&device, on), extents, blocks);
            }
            for freed in space::shorten(&mut extents, blocks) {
                space::give(&mut change.clearing, on.number, freed)?;
            }
            record.blocks = blocks;
            change.put_extents(name, record, (&device, on), &extents)
        })
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// [`Error::NoVolume`], [`Error::Name`], [`Error::Exists`].
    pub fn rename(&self, name: &str, to: &str) -> Result<Volume, Error> {
        check_name(to)?;
        self.change(|change| {
            let mut record = change.volume(name)?;
            if change.volume_if_known(to)?.is_some() {
                return Err(Error::Exists(to.to_owned()));
            }
            change.volumes.remove(name).map_err(failed(WRITING))?;
            record.generation = change.next()?;
            change.put_volume(to, record)
        })
    }

    /// Removes a volume. All its blocks are to be cleared.
    ///
    /// # Errors
    /// [`Error::NoVolume`].
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.change(|change| {
            let record = change.volume(name)?;
            let (device, mut on) = device_of_number(&change.devices, record.device)?;
            if !record.is_gone {
                for extent in extents_of(&change.extents, record.id)? {
                    space::give(&mut change.clearing, on.number, extent)?;
                }
                on.extents = on.extents.saturating_sub(u64::from(record.extents));
                change.put_device(&device, on)?;
                change.extents.remove(record.id).map_err(failed(WRITING))?;
            }
            change.volumes.remove(name).map_err(failed(WRITING))?;
            // A change like all others: what comes by that name later has another generation.
            change.next().map(drop)
        })
    }

    /// Changes whose a volume is and who may do what with it, as `edit` says.
    ///
    /// # Errors
    /// [`Error::NoVolume`].
    pub fn set_ownership(&self, name: &str, edit: impl FnOnce(&mut Ownership)) -> Result<Volume, Error> {
        self.change(|change| {
            let mut record = change.volume(name)?;
            edit(&mut record.ownership);
            record.generation = change.next()?;
            change.put_volume(name, record)
        })
    }

    /// What is to be cleared on a device: the first so many pieces.
    ///
    /// # Errors
    /// [`Error::NoDevice`].
    pub fn to_clear(&self, device: &str, at_most: usize) -> Result<Vec<Extent>, Error> {
        self.view(|view| {
            let record = view.devices.get(device).map_err(failed(READING))?;
            let record = record.ok_or_else(|| Error::NoDevice(device.to_owned()))?;
            let number = DeviceRecord::from_bytes(record.value())?.number;
            space::pieces(&view.clearing, number)?.take(at_most).collect()
        })
    }

    /// Says that blocks were cleared, all or a part of what [`Store::to_clear`] told: they are free from now on. The
    /// device must have that durably, and no request to them may be under way any more.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::NotToClear`].
    pub fn cleared(&self, device: &str, extent: Extent) -> Result<(), Error> {
        self.change(|change| {
            let number = change.device(device)?.number;
            if !space::take(&mut change.clearing, number, extent)? {
                return Err(Error::NotToClear { device: device.to_owned(), extent });
            }
            space::give(&mut change.free, number, extent)
        })
    }
}

/// Whether that can be a name: one that needs no quotes, in a shell, a file's name or a list.
fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if begins && name.len() <= NAME_BYTES_MAX && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::Name(name.chars().take(NAME_BYTES_MAX).flat_map(char::escape_debug).collect()))
}

fn blocks_of(name: &str, size: Bytes, block: BlockSize) -> Result<Blocks, Error> {
    let blocks = block.holding(size);
    if blocks.0 == 0 || block.bytes(blocks).is_none() {
        return Err(Error::Size { name: name.to_owned(), size });
    }
    Ok(blocks)
}
