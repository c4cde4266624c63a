//! Devices of a store: attaching them by their identity, giving them labels, renaming and forgetting them.
//!
//! A device with a label is recorded in the store before its label is written: the record says that the label
//! has not been written ([`Identity::Label`]), until [`Store::label_written`]. If the server ends between the
//! two steps, the next server finds the record, and knows that the device without a label is to get this one.

use super::change::{READING, WRITING, WriteTables, extents_of, failed};
use super::layout::{self, DeviceRecord, VolumeRecord};
use super::{DEVICE_EXTENTS_MAX, Device, EXTENTS_MAX, NewBlocks, Store, check_name, shared, space};
use crate::error::Error;
use crate::extent::{BlockSize, Blocks, Bytes, Extent};
use crate::identity::DeviceId;
use crate::label::RESERVED_BYTES;
use redb::ReadableTable;
use std::fmt;

/// Identity by which the store recognises a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// No identity: the caller who attaches the device vouches for it, or the store is older than labels.
    None,
    /// The identity in the label on the device.
    Label {
        /// Identity in the label.
        id: DeviceId,
        /// True if the label is known to have been written.
        is_written: bool,
    },
    /// Memory, which is another device each time that a server starts.
    Memory(DeviceId),
}

impl Identity {
    /// Returns the identity, if there is one.
    pub fn id(&self) -> Option<DeviceId> {
        match self {
            Identity::None => None,
            Identity::Label { id, .. } | Identity::Memory(id) => Some(*id),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::None => out.write_str("no label"),
            Identity::Label { id, .. } => write!(out, "label {id}"),
            Identity::Memory(id) => write!(out, "memory {id}"),
        }
    }
}

/// Blocks of a volume whose contents have to move, to make room for the device's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMove {
    /// Blocks that the volume has now, in the place of the labels.
    pub from: Extent,
    /// Blocks that the volume gets instead: as many, recorded as to be cleared until the move is complete.
    pub to: Extent,
}

impl Store {
    /// Attaches a device by its name, without an identity; the caller vouches for it. Adds the device to the
    /// store, or finds it there, and returns the store's record. If the device has grown, the record grows
    /// too; `contents` applies to the new blocks.
    ///
    /// # Errors
    /// [`Error::OtherIdentity`] if the device of that name has a label or is memory; [`Error::OtherDevice`]
    /// if the device has shrunk or has another block size; [`Error::Name`] if the name is not valid;
    /// [`Error::Size`] if the device has no whole block; [`Error::LimitReached`] if there are too many
    /// devices.
    pub fn attach_device(
        &self,
        name: &str,
        size: Bytes,
        block: BlockSize,
        contents: NewBlocks,
    ) -> Result<Device, Error> {
        self.attach(name, Identity::None, Blocks(0), size, block, contents)
    }

    /// Like [`Store::attach_device`], but attaches a device by the identity in its label. The first
    /// [`RESERVED_BYTES`] of a new device, rounded up to blocks, are for its labels and part of no volume.
    ///
    /// # Errors
    /// Same as [`Store::attach_device`], but [`Error::OtherIdentity`] if the device of that name has another
    /// identity or none; [`Error::OtherName`] if the store knows the identity by another name;
    /// [`Error::Size`] also if the device has no block beside those for its labels.
    pub fn attach_labelled(
        &self,
        name: &str,
        id: DeviceId,
        size: Bytes,
        block: BlockSize,
        contents: NewBlocks,
    ) -> Result<Device, Error> {
        let identity = Identity::Label { id, is_written: false };
        self.attach(name, identity, block.blocks_ceil(Bytes(RESERVED_BYTES)), size, block, contents)
    }

    fn attach(
        &self,
        name: &str,
        identity: Identity,
        reserved: Blocks,
        size: Bytes,
        block: BlockSize,
        contents: NewBlocks,
    ) -> Result<Device, Error> {
        check_name(name)?;
        let blocks = block.blocks_floor(size);
        if blocks <= reserved {
            return Err(Error::Size { name: name.to_owned(), size });
        }
        self.change(|change| {
            let known = change.device_if_identical(name, identity)?;
            if let Some(known) = known.filter(|known| known.block != block || known.blocks > blocks) {
                return Err(other_device(name, known, block, blocks));
            }
            let record = match known {
                Some(known) => known,
                None => DeviceRecord {
                    number: change.new_device_number()?,
                    block,
                    blocks: reserved,
                    extents: 0,
                    reserved,
                    identity,
                },
            };
            if record.blocks < blocks {
                let new = Extent { start: record.blocks, length: Blocks(blocks.0 - record.blocks.0) };
                match contents {
                    NewBlocks::Cleared => space::add_extent(&mut change.free, record.number, new)?,
                    NewBlocks::Uncleared => space::add_extent(&mut change.clearing, record.number, new)?,
                }
                change.put_device(name, DeviceRecord { blocks, ..record })?;
            }
            change.describe_device(name)
        })
    }

    /// Attaches a memory device, all of whose blocks are zeros. A device of that name is replaced if it was
    /// memory, or has no identity and the same block size. Its volumes are gone then
    /// ([`Volume::is_gone`](super::Volume)): their names stay in the store without extents.
    ///
    /// # Errors
    /// [`Error::OtherIdentity`] if the device of that name has a label; [`Error::OtherDevice`] if it has no
    /// identity and another block size; [`Error::Name`] if the name is not valid; [`Error::Size`] if the
    /// memory has no whole block; [`Error::LimitReached`] if there are too many devices.
    pub fn attach_memory(
        &self,
        name: &str,
        id: DeviceId,
        size: Bytes,
        block: BlockSize,
    ) -> Result<Device, Error> {
        check_name(name)?;
        let blocks = block.blocks_floor(size);
        if blocks.0 == 0 {
            return Err(Error::Size { name: name.to_owned(), size });
        }
        self.change(|change| {
            let known = change.device_if_known(name)?;
            let number = match known {
                None => change.new_device_number()?,
                Some(known) => {
                    match known.identity {
                        Identity::Memory(_) => {}
                        Identity::None if known.block == block => {}
                        Identity::None => return Err(other_device(name, known, block, blocks)),
                        Identity::Label { .. } => {
                            return Err(other_identity(name, known.identity, Identity::Memory(id)));
                        }
                    }
                    change.lose_volumes(known.number)?;
                    change.forget_pieces(known.number)?;
                    known.number
                }
            };
            space::add_extent(&mut change.free, number, Extent { start: Blocks(0), length: blocks })?;
            let identity = Identity::Memory(id);
            let record = DeviceRecord { number, block, blocks, extents: 0, reserved: Blocks(0), identity };
            change.put_device(name, record)?;
            change.describe_device(name)
        })
    }

    /// Records that the label of a device has been written durably.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if no device of that name has a label.
    pub fn label_written(&self, name: &str) -> Result<(), Error> {
        self.change(|change| match change.device(name)? {
            DeviceRecord { identity: Identity::Label { id, is_written: false }, .. } => {
                let record = change.device(name)?;
                let identity = Identity::Label { id, is_written: true };
                change.put_device(name, DeviceRecord { identity, ..record })
            }
            DeviceRecord { identity: Identity::Label { .. }, .. } => Ok(()),
            _ => Err(Error::NoDevice(name.to_owned())),
        })
    }

    /// Chooses new blocks for the volumes that occupy the beginning of a device without a label, where its
    /// labels will be. The new blocks are recorded as to be cleared, so that no other volume gets them. The
    /// caller copies the contents of each move, and then calls [`Store::take_label`].
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no device of that name; [`Error::OtherIdentity`] if it has an
    /// identity; [`Error::Size`] if it is too small for labels; [`Error::Full`] if it has too few blocks that
    /// are not in use.
    pub fn make_room_for_label(&self, name: &str) -> Result<Vec<BlockMove>, Error> {
        self.change(|change| {
            let (record, reserved) = change.without_label(name)?;
            let number = record.number;
            let occupied = change.occupied_before(number, reserved)?;
            let asked = Blocks(occupied.iter().map(|extent| extent.length.0).sum());
            let behind = |piece: Extent| {
                let end = piece.start.0 + piece.length.0;
                let start = piece.start.0.max(reserved.0);
                (start < end).then(|| Extent::new(start, end - start))
            };
            let clearing = space::pieces(&change.clearing, number)?.collect::<Result<Vec<_>, Error>>()?;
            let free = space::pieces(&change.free, number)?.collect::<Result<Vec<_>, Error>>()?;
            // Blocks that are to be cleared are chosen first, so that as many cleared blocks as possible stay
            // free.
            let mut room: Vec<Extent> = clearing.into_iter().filter_map(behind).collect();
            let mut found = space::choose(&room, asked, None);
            if found.is_none() {
                room.extend(free.into_iter().filter_map(behind));
                found = space::choose(&room, asked, None);
            }
            let Some(chosen) = found else {
                let sum = |pieces: &[Extent]| Blocks(pieces.iter().map(|piece| piece.length.0).sum());
                let (free, block) = (sum(&room), record.block.size());
                return Err(Error::Full { device: name.into(), asked, free, to_clear: Blocks(0), block });
            };
            for extent in &chosen {
                if space::remove_extent(&mut change.free, number, *extent)? {
                    space::add_extent(&mut change.clearing, number, *extent)?;
                }
            }
            Ok(pair(&occupied, &chosen))
        })
    }

    /// Gives a device without a label an identity. The caller has copied the contents of `moves` durably; the
    /// volumes get the new blocks, and the first blocks of the device are reserved for its labels.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::OtherIdentity`] or [`Error::Size`] as for
    /// [`Store::make_room_for_label`]; [`Error::NotToClear`] if new blocks of a move are not recorded as to
    /// be cleared; [`Error::Fragmented`] if a volume would have too many extents.
    pub fn take_label(&self, name: &str, id: DeviceId, moves: &[BlockMove]) -> Result<Device, Error> {
        self.change(|change| {
            let (record, reserved) = change.without_label(name)?;
            for moved in moves {
                if !space::remove_extent(&mut change.clearing, record.number, moved.to)? {
                    return Err(Error::NotToClear { device: name.to_owned(), extent: moved.to });
                }
            }
            change.move_extents(name, record.number, moves)?;
            let before = Extent { start: Blocks(0), length: reserved };
            for table in [&mut change.free, &mut change.clearing] {
                let pieces = space::pieces(&*table, record.number)?.collect::<Result<Vec<_>, Error>>()?;
                for piece in pieces.iter().filter(|piece| piece.start < before.length) {
                    let end = (piece.start.0 + piece.length.0).min(reserved.0);
                    space::remove_extent(
                        table,
                        record.number,
                        Extent::new(piece.start.0, end - piece.start.0),
                    )?;
                }
            }
            let identity = Identity::Label { id, is_written: false };
            let record = change.device(name)?;
            change.put_device(name, DeviceRecord { identity, reserved, ..record })?;
            change.describe_device(name)
        })
    }

    /// Renames a device. Its volumes stay on it.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no device of that name; [`Error::Name`] if the new name is not valid;
    /// [`Error::DeviceExists`] if there is a device of the new name.
    pub fn rename_device(&self, name: &str, to: &str) -> Result<Device, Error> {
        check_name(to)?;
        self.change(|change| {
            let record = change.device(name)?;
            if change.device_if_known(to)?.is_some() {
                return Err(Error::DeviceExists(to.to_owned()));
            }
            change.devices.remove(name).map_err(failed(WRITING))?;
            change.put_device(to, record)?;
            change.describe_device(to)
        })
    }

    /// Removes a device without volumes from the store, together with the record of its blocks.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no device of that name; [`Error::Occupied`] if it has volumes.
    pub fn forget_device(&self, name: &str) -> Result<(), Error> {
        self.change(|change| {
            let number = change.device(name)?.number;
            match change.volumes_on(number)?.into_iter().next() {
                None => change.forget_device(name, number),
                Some((volume, _)) => Err(Error::Occupied { device: name.to_owned(), volume }),
            }
        })
    }

    /// Removes a device and all its volumes from the store, and returns the names of those volumes.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no device of that name.
    pub fn forget_device_with_volumes(&self, name: &str) -> Result<Vec<String>, Error> {
        self.change(|change| {
            let number = change.device(name)?.number;
            let mut names = Vec::new();
            for (volume, record) in change.volumes_on(number)? {
                change.forget_extents(&record)?;
                change.volumes.remove(volume.as_str()).map_err(failed(WRITING))?;
                names.push(volume);
            }
            change.forget_device(name, number)?;
            change.next()?;
            Ok(names)
        })
    }
}

impl WriteTables<'_> {
    /// Returns the device of that name, if there is one. Fails if its identity is another, or if another
    /// device has this one.
    fn device_if_identical(&self, name: &str, identity: Identity) -> Result<Option<DeviceRecord>, Error> {
        if let Some(id) = identity.id() {
            for row in self.devices.iter().map_err(failed(READING))? {
                let (other, record) = row.map_err(failed(READING))?;
                let record = DeviceRecord::from_bytes(record.value())?;
                if record.identity.id() == Some(id) && other.value() != name {
                    let known = other.value().to_owned();
                    return Err(Error::OtherName { given: name.to_owned(), known, id });
                }
            }
        }
        let known = self.device_if_known(name)?;
        match known {
            Some(known) if known.identity.id() != identity.id() => {
                Err(other_identity(name, known.identity, identity))
            }
            known => Ok(known),
        }
    }

    /// Returns a device that has no identity, and the number of blocks that its labels would occupy.
    fn without_label(&self, name: &str) -> Result<(DeviceRecord, Blocks), Error> {
        let record = self.device(name)?;
        let reserved = record.block.blocks_ceil(Bytes(RESERVED_BYTES));
        match record.identity {
            Identity::None if reserved < record.blocks => Ok((record, reserved)),
            Identity::None => {
                let size = record.block.bytes(record.blocks).unwrap_or(Bytes(u64::MAX));
                Err(Error::Size { name: name.to_owned(), size })
            }
            identity => Err(other_identity(name, identity, Identity::None)),
        }
    }

    /// Returns the volumes of a device, with their names.
    fn volumes_on(&self, device: u32) -> Result<Vec<(String, VolumeRecord)>, Error> {
        let mut found = Vec::new();
        for row in self.volumes.iter().map_err(failed(READING))? {
            let (name, record) = row.map_err(failed(READING))?;
            let record = VolumeRecord::from_bytes(record.value())?;
            if record.device == device {
                found.push((name.value().to_owned(), record));
            }
        }
        Ok(found)
    }

    /// Records that all volumes of a device are gone.
    fn lose_volumes(&mut self, device: u32) -> Result<(), Error> {
        for (name, record) in self.volumes_on(device)? {
            self.forget_extents(&record)?;
            let generation = self.next()?;
            let kind = VolumeRecord { is_gone: true, is_thin: false, is_snapshot: false, ..record };
            let gone = VolumeRecord { generation, extents: 0, ..kind };
            self.volumes.insert(name.as_str(), &gone.to_bytes()).map_err(failed(WRITING))?;
        }
        Ok(())
    }

    fn forget_pieces(&mut self, device: u32) -> Result<(), Error> {
        let range = (device, 0)..=(device, u64::MAX);
        self.free.retain_in(range.clone(), |_, _| false).map_err(failed(WRITING))?;
        self.shared.retain_in(range.clone(), |_, _| false).map_err(failed(WRITING))?;
        self.clearing.retain_in(range, |_, _| false).map_err(failed(WRITING))
    }

    fn forget_device(&mut self, name: &str, number: u32) -> Result<(), Error> {
        self.forget_pieces(number)?;
        self.devices.remove(name).map_err(failed(WRITING))?;
        Ok(())
    }

    /// Returns the blocks before block `end` that volumes have, in the order of the device.
    fn occupied_before(&self, device: u32, end: Blocks) -> Result<Vec<Extent>, Error> {
        let mut found = Vec::new();
        for (_, record) in self.volumes_on(device)? {
            let extents = self.blocks_of(&record)?;
            found.extend(
                extents
                    .iter()
                    .filter(|extent| extent.start < end)
                    .map(|extent| Extent::new(extent.start.0, extent.length.0.min(end.0 - extent.start.0))),
            );
        }
        Ok(shared::union(found))
    }

    /// Replaces the blocks that moved in all volumes of a device.
    fn move_extents(&mut self, name: &str, device: u32, moves: &[BlockMove]) -> Result<(), Error> {
        for (volume, mut record) in self.volumes_on(device)? {
            if record.is_thin {
                self.move_mapped(&volume, record, moves)?;
                continue;
            }
            let before = extents_of(&self.extents, record.id)?;
            let after = moved(&before, moves);
            if after == before {
                continue;
            }
            let on = self.device(name)?;
            let most = DEVICE_EXTENTS_MAX.saturating_sub(on.extents).min((EXTENTS_MAX - before.len()) as u64);
            let needed = after.len().saturating_sub(before.len());
            if needed as u64 > most {
                let asked = Blocks(moves.iter().map(|moved| moved.to.length.0).sum());
                return Err(Error::Fragmented { device: name.into(), asked, needed, most: most as usize });
            }
            record.generation = self.next()?;
            let bytes = layout::extents_to_bytes(&after);
            self.put_device(
                name,
                DeviceRecord { extents: on.extents - before.len() as u64 + after.len() as u64, ..on },
            )?;
            record.extents = after.len() as u32;
            self.extents.insert(record.id, bytes.as_slice()).map_err(failed(WRITING))?;
            self.volumes.insert(volume.as_str(), &record.to_bytes()).map_err(failed(WRITING))?;
        }
        shared::move_pieces(&mut self.shared, device, |piece| moved(&[piece], moves))
    }
}

/// Returns the extents of a volume after some of its blocks moved.
pub(super) fn moved(extents: &[Extent], moves: &[BlockMove]) -> Vec<Extent> {
    let mut after = Vec::new();
    for extent in extents {
        let (mut at, end) = (extent.start.0, extent.start.0 + extent.length.0);
        while at < end {
            let holder = moves
                .iter()
                .find(|moved| (moved.from.start.0..moved.from.start.0 + moved.from.length.0).contains(&at));
            let next = moves.iter().map(|moved| moved.from.start.0).filter(|start| *start > at).min();
            let piece = match holder {
                Some(BlockMove { from, to }) => {
                    let within = at - from.start.0;
                    Extent::new(to.start.0 + within, (from.length.0 - within).min(end - at))
                }
                None => Extent::new(at, next.unwrap_or(end).min(end) - at),
            };
            at += piece.length.0;
            space::append(&mut after, &[piece]);
        }
    }
    after
}

/// Pairs the blocks of two lists in order, split at the boundaries of both.
fn pair(from: &[Extent], to: &[Extent]) -> Vec<BlockMove> {
    let (mut moves, mut rooms, mut room) = (Vec::new(), to.iter().copied(), Extent::new(0, 0));
    for extent in from {
        let (mut at, mut left) = (extent.start.0, extent.length.0);
        while left > 0 {
            if room.length.0 == 0 {
                // The caller has chosen as many blocks as are to be moved.
                let Some(next) = rooms.next() else { return moves };
                room = next;
            }
            let length = left.min(room.length.0);
            moves.push(BlockMove { from: Extent::new(at, length), to: Extent::new(room.start.0, length) });
            room = Extent::new(room.start.0 + length, room.length.0 - length);
            (at, left) = (at + length, left - length);
        }
    }
    moves
}

fn other_device(name: &str, known: DeviceRecord, block: BlockSize, blocks: Blocks) -> Error {
    Error::OtherDevice {
        device: name.to_owned(),
        had: known.blocks,
        had_block: known.block.size(),
        has: blocks,
        has_block: block.size(),
    }
}

fn other_identity(name: &str, known: Identity, found: Identity) -> Error {
    Error::OtherIdentity { device: name.to_owned(), known: known.to_string(), found: found.to_string() }
}
