//! Transactions of a store, and reading and writing its records.
//!
//! The rules of the operations are in [`super::Store`] and [`super::devices`], which call this module.

use super::layout::{
    self, CLEARING, DEVICES, DeviceBytes, DeviceRecord, EXTENTS, FREE, HEADER, MAPPED, ORIGINS, SHARED, THIN,
    ThinValue, VOLUMES, VolumeBytes, VolumeRecord,
};
use super::thin::{self, ThinRecord};
use super::{DEVICE_EXTENTS_MAX, DEVICES_MAX, Device, EXTENTS_MAX, Store, VOLUMES_MAX, Volume, check_name};
use super::{shared, space};
use crate::error::Error;
use crate::extent::{BlockSize, Blocks, Extent};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table, WriteTransaction};

/// Returns a function that converts an error of redb; `what` is the action that failed.
pub(super) fn failed<E: Into<redb::Error>>(what: &'static str) -> impl Fn(E) -> Error {
    move |why| Error::store(what)(why.into())
}

pub(super) const READING: &str = "read the store";
pub(super) const WRITING: &str = "change the store";

/// Tables of the store for reading.
pub(super) struct ReadTables {
    pub(super) devices: redb::ReadOnlyTable<&'static str, DeviceBytes>,
    pub(super) volumes: redb::ReadOnlyTable<&'static str, VolumeBytes>,
    pub(super) extents: redb::ReadOnlyTable<u64, &'static [u8]>,
    pub(super) thin: redb::ReadOnlyTable<u64, ThinValue>,
    pub(super) mapped: redb::ReadOnlyTable<(u64, u64), (u64, u64)>,
    pub(super) origins: redb::ReadOnlyTable<u64, u64>,
    pub(super) shared: redb::ReadOnlyTable<(u32, u64), (u64, u64)>,
    pub(super) free: redb::ReadOnlyTable<(u32, u64), u64>,
    pub(super) clearing: redb::ReadOnlyTable<(u32, u64), u64>,
}

/// Tables of the store in a write transaction.
pub(super) struct WriteTables<'a> {
    pub(super) header: Table<'a, &'static str, u64>,
    pub(super) devices: Table<'a, &'static str, DeviceBytes>,
    pub(super) volumes: Table<'a, &'static str, VolumeBytes>,
    pub(super) extents: Table<'a, u64, &'static [u8]>,
    pub(super) thin: Table<'a, u64, ThinValue>,
    pub(super) mapped: Table<'a, (u64, u64), (u64, u64)>,
    pub(super) origins: Table<'a, u64, u64>,
    pub(super) shared: shared::SharedTable<'a>,
    pub(super) free: space::PieceTable<'a>,
    pub(super) clearing: space::PieceTable<'a>,
}

impl Store {
    /// Runs a function on a snapshot of the store.
    pub(super) fn view<T>(&self, look: impl FnOnce(&ReadTables) -> Result<T, Error>) -> Result<T, Error> {
        let transaction = self.database.begin_read().map_err(failed(READING))?;
        look(&ReadTables {
            devices: transaction.open_table(DEVICES).map_err(failed(READING))?,
            volumes: transaction.open_table(VOLUMES).map_err(failed(READING))?,
            extents: transaction.open_table(EXTENTS).map_err(failed(READING))?,
            thin: transaction.open_table(THIN).map_err(failed(READING))?,
            mapped: transaction.open_table(MAPPED).map_err(failed(READING))?,
            origins: transaction.open_table(ORIGINS).map_err(failed(READING))?,
            shared: transaction.open_table(SHARED).map_err(failed(READING))?,
            free: transaction.open_table(FREE).map_err(failed(READING))?,
            clearing: transaction.open_table(CLEARING).map_err(failed(READING))?,
        })
    }

    /// Runs a function in a transaction. Commits it durably if the function succeeds, otherwise aborts it.
    pub(super) fn change<T>(
        &self,
        make: impl FnOnce(&mut WriteTables<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.change_if(|change| Ok((true, make(change)?)))
    }

    /// Like [`Store::change`], but commits the transaction only if the function returns true with its result, since a
    /// commit takes long.
    pub(super) fn change_if<T>(
        &self,
        make: impl FnOnce(&mut WriteTables<'_>) -> Result<(bool, T), Error>,
    ) -> Result<T, Error> {
        let transaction = begin(&self.database)?;
        let made = make(&mut WriteTables::within(&transaction)?);
        match made {
            Ok((true, made)) => transaction.commit().map_err(failed(WRITING)).map(|()| made),
            Ok((false, made)) => transaction.abort().map_err(failed(WRITING)).map(|()| made),
            Err(error) => {
                transaction.abort().map_err(failed(WRITING))?;
                Err(error)
            }
        }
    }
}

/// Begins a transaction whose commit is durable and has two phases.
pub(super) fn begin(database: &Database) -> Result<WriteTransaction, Error> {
    let mut transaction = database.begin_write().map_err(failed(WRITING))?;
    transaction.set_durability(redb::Durability::Immediate).map_err(failed(WRITING))?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

impl<'a> WriteTables<'a> {
    /// Opens the tables in a transaction, which creates those that do not exist.
    pub(super) fn within(transaction: &'a WriteTransaction) -> Result<WriteTables<'a>, Error> {
        Ok(WriteTables {
            header: transaction.open_table(HEADER).map_err(failed(WRITING))?,
            devices: transaction.open_table(DEVICES).map_err(failed(WRITING))?,
            volumes: transaction.open_table(VOLUMES).map_err(failed(WRITING))?,
            extents: transaction.open_table(EXTENTS).map_err(failed(WRITING))?,
            thin: transaction.open_table(THIN).map_err(failed(WRITING))?,
            mapped: transaction.open_table(MAPPED).map_err(failed(WRITING))?,
            origins: transaction.open_table(ORIGINS).map_err(failed(WRITING))?,
            shared: transaction.open_table(SHARED).map_err(failed(WRITING))?,
            free: transaction.open_table(FREE).map_err(failed(WRITING))?,
            clearing: transaction.open_table(CLEARING).map_err(failed(WRITING))?,
        })
    }

    /// Counts a change and returns its number, which is greater than that of every earlier change.
    pub(super) fn next(&mut self) -> Result<u64, Error> {
        let made = self.header.get(layout::KEY_CHANGES).map_err(failed(READING))?;
        let made = made.map_or(0, |made| made.value());
        let next =
            made.checked_add(1).ok_or_else(|| Error::damaged("its changes are numbered up to the end"))?;
        self.header.insert(layout::KEY_CHANGES, next).map_err(failed(WRITING))?;
        Ok(next)
    }

    pub(super) fn device_if_known(&self, name: &str) -> Result<Option<DeviceRecord>, Error> {
        let record = self.devices.get(name).map_err(failed(READING))?;
        record.map(|record| DeviceRecord::from_bytes(record.value())).transpose()
    }

    pub(super) fn device(&self, name: &str) -> Result<DeviceRecord, Error> {
        self.device_if_known(name)?.ok_or_else(|| Error::NoDevice(name.to_owned()))
    }

    pub(super) fn put_device(&mut self, name: &str, record: DeviceRecord) -> Result<(), Error> {
        self.devices.insert(name, &record.to_bytes()).map_err(failed(WRITING))?;
        Ok(())
    }

    pub(super) fn describe_device(&self, name: &str) -> Result<Device, Error> {
        describe_device(name, self.device(name)?, &self.free, &self.clearing)
    }

    /// Returns the smallest number that no device has.
    pub(super) fn new_device_number(&self) -> Result<u32, Error> {
        let rows = self.devices.iter().map_err(failed(READING))?;
        let numbers = rows.map(|row| {
            let (_, record) = row.map_err(failed(READING))?;
            Ok(DeviceRecord::from_bytes(record.value())?.number)
        });
        let mut numbers = numbers.collect::<Result<Vec<u32>, Error>>()?;
        if numbers.len() as u64 >= DEVICES_MAX {
            return Err(Error::LimitReached { what: "devices", most: DEVICES_MAX });
        }
        numbers.sort_unstable();
        Ok((0..).zip(&numbers).take_while(|(next, number)| next == *number).count() as u32)
    }

    pub(super) fn volume_if_known(&self, name: &str) -> Result<Option<VolumeRecord>, Error> {
        let record = self.volumes.get(name).map_err(failed(READING))?;
        record.map(|record| VolumeRecord::from_bytes(record.value())).transpose()
    }

    pub(super) fn volume(&self, name: &str) -> Result<VolumeRecord, Error> {
        self.volume_if_known(name)?.ok_or_else(|| Error::NoVolume(name.to_owned()))
    }

    pub(super) fn volume_count(&self) -> Result<u64, Error> {
        self.volumes.len().map_err(failed(READING))
    }

    pub(super) fn put_volume(&mut self, name: &str, record: VolumeRecord) -> Result<Volume, Error> {
        self.volumes.insert(name, &record.to_bytes()).map_err(failed(WRITING))?;
        let (device, on) = device_of_number(&self.devices, record.device)?;
        let thin = thin::record_of(&self.thin, &record)?;
        let origin = thin::origin_of(&self.origins, &self.thin, record.id)?;
        Ok(describe(name, record, device, on.block, thin, origin))
    }

    /// Checks that a volume of this name can be created: the name is valid and means no volume, except one that is gone.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Exists`] or [`Error::LimitReached`].
    pub(super) fn check_new(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        if self.volume_if_known(name)?.is_some_and(|known| !known.is_gone) {
            return Err(Error::Exists(name.to_owned()));
        }
        if self.volume_count()? >= VOLUMES_MAX {
            return Err(Error::LimitReached { what: "volumes", most: VOLUMES_MAX });
        }
        Ok(())
    }

    /// Ends a volume's use of blocks. Those that no other volume has are to be cleared.
    pub(super) fn give_up(&mut self, device: u32, extent: Extent) -> Result<(), Error> {
        for freed in shared::remove_user(&mut self.shared, device, extent)? {
            space::add_extent(&mut self.clearing, device, freed)?;
        }
        Ok(())
    }

    /// Returns the blocks that a volume has on its device, in the order of the volume.
    pub(super) fn blocks_of(&self, record: &VolumeRecord) -> Result<Vec<Extent>, Error> {
        match record.is_thin {
            true => {
                Ok(thin::mapped_of(&self.mapped, record.id)?.iter().map(|mapped| mapped.extent).collect())
            }
            false => extents_of(&self.extents, record.id),
        }
    }

    /// Removes the records of a volume's extents. The caller removes or replaces the volume's own record.
    pub(super) fn forget_extents(&mut self, record: &VolumeRecord) -> Result<(), Error> {
        match record.is_thin {
            true => self.forget_mapped(record.id),
            false => self.extents.remove(record.id).map_err(failed(WRITING)).map(drop),
        }
    }

    /// Allocates blocks for a volume until it has `blocks` blocks, and writes its record.
    pub(super) fn grow(
        &mut self,
        name: &str,
        mut record: VolumeRecord,
        (device, on): (&str, DeviceRecord),
        mut extents: Vec<Extent>,
        blocks: Blocks,
    ) -> Result<Volume, Error> {
        let asked = Blocks(blocks.0 - record.blocks.0);
        let free = space::pieces(&self.free, on.number)?.collect::<Result<Vec<Extent>, Error>>()?;
        let Some(chosen) = space::choose(&free, asked, extents.last().copied()) else {
            let free = space::total(&self.free, on.number)?;
            let to_clear = space::total(&self.clearing, on.number)?;
            let block = on.block.size();
            return Err(Error::Full { device: device.to_owned(), asked, free, to_clear, block });
        };
        let had = extents.len();
        space::append(&mut extents, &chosen);
        let needed = extents.len() - had;
        let most = (EXTENTS_MAX - had).min(DEVICE_EXTENTS_MAX.saturating_sub(on.extents) as usize);
        if needed > most {
            return Err(Error::Fragmented { device: device.to_owned(), asked, needed, most });
        }
        for extent in chosen {
            if !space::remove_extent(&mut self.free, on.number, extent)? {
                return Err(Error::damaged(format!("what is free on device '{device}' overlaps")));
            }
        }
        record.blocks = blocks;
        self.put_extents(name, record, (device, on), &extents)
    }

    /// Writes a volume's extents, its record, and its device's count of extents.
    pub(super) fn put_extents(
        &mut self,
        name: &str,
        mut record: VolumeRecord,
        (device, mut on): (&str, DeviceRecord),
        extents: &[Extent],
    ) -> Result<Volume, Error> {
        on.extents = (on.extents + extents.len() as u64).saturating_sub(u64::from(record.extents));
        record.extents = extents.len() as u32;
        self.put_device(device, on)?;
        let bytes = layout::extents_to_bytes(extents);
        self.extents.insert(record.id, bytes.as_slice()).map_err(failed(WRITING))?;
        self.put_volume(name, record)
    }
}

pub(super) fn describe(
    name: &str,
    record: VolumeRecord,
    device: String,
    block: BlockSize,
    thin: Option<ThinRecord>,
    origin: Option<String>,
) -> Volume {
    let VolumeRecord { id, generation, ownership, is_gone, is_snapshot, blocks, extents, .. } = record;
    let cluster = thin.as_ref().map(|thin| thin.cluster);
    let all = if is_gone { Blocks(0) } else { blocks };
    let allocated = thin.map_or(all, |thin| thin.allocated);
    Volume {
        name: name.to_owned(),
        id,
        generation,
        device,
        block,
        blocks,
        cluster,
        allocated,
        extents,
        ownership,
        is_gone,
        is_snapshot,
        origin,
    }
}

pub(super) fn describe_device(
    name: &str,
    record: DeviceRecord,
    free: &impl ReadableTable<(u32, u64), u64>,
    clearing: &impl ReadableTable<(u32, u64), u64>,
) -> Result<Device, Error> {
    let DeviceRecord { number, block, blocks, extents, reserved, identity } = record;
    let (free, to_clear) = (space::total(free, number)?, space::total(clearing, number)?);
    let kept = thin::kept_of(blocks);
    Ok(Device { name: name.to_owned(), identity, block, blocks, reserved, free, to_clear, kept, extents })
}

pub(super) fn device_of_number(
    devices: &impl ReadableTable<&'static str, DeviceBytes>,
    number: u32,
) -> Result<(String, DeviceRecord), Error> {
    for row in devices.iter().map_err(failed(READING))? {
        let (name, record) = row.map_err(failed(READING))?;
        let record = DeviceRecord::from_bytes(record.value())?;
        if record.number == number {
            return Ok((name.value().to_owned(), record));
        }
    }
    Err(lost(number))
}

pub(super) fn lost(device: u32) -> Error {
    Error::damaged(format!("a volume is on device {device}, which there is not"))
}

pub(super) fn extents_of(
    extents: &impl ReadableTable<u64, &'static [u8]>,
    id: u64,
) -> Result<Vec<Extent>, Error> {
    let bytes = extents.get(id).map_err(failed(READING))?;
    let bytes = bytes.ok_or_else(|| Error::damaged(format!("volume {id} has no extents")))?;
    layout::extents_from_bytes(bytes.value())
}
