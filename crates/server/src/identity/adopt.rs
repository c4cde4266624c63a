//! Commands that write labels, for a store that no server is using: adopting a device, and writing its label
//! again.

use super::labels::{LabelArea, look, write_first, write_next};
use super::{check_room, volume_block};
use crate::error::{Error, IdentityError};
use bywash_device::{Device, Spec, read_exclusive, write_exclusive};
use bywash_volume::{BlockSize, Bytes, DeviceId, Identity, Label, NewBlocks, Store};

/// Adopts a device into a store and writes a label on it. Returns the identity on the label.
///
/// A device that the store knows from before devices had labels keeps its volumes; data in the place of the
/// labels is moved. Any other device is new, and its contents are lost: `lose` must name them, as the error
/// does. After a crash, the same call finishes what was begun.
///
/// # Errors
/// [`Error::Identity`] if the device is memory, has contents that `lose` does not name, or the store already
/// knows the name or the device. [`Error::Store`] if there is no room for moved data. [`Error::Small`] if
/// there is no room for a label. [`Error::Device`] if the device fails.
pub fn adopt(store: &Store, spec: &Spec, lose: Option<&str>) -> Result<DeviceId, Error> {
    let mut device = open(spec)?;
    adopt_open(store, &spec.name, &mut *device, lose)
}

pub(super) fn adopt_open(
    store: &Store,
    name: &str,
    device: &mut dyn Device,
    lose: Option<&str>,
) -> Result<DeviceId, Error> {
    let block = volume_block(name, device)?;
    let size = Bytes(device.geometry().bytes);
    check_room(name, size.0, block)?;
    let found = look(device)?;
    let devices = store.devices()?;
    if let LabelArea::Label(label) = &found
        && let Some(other) = devices.iter().find(|other| other.identity.id() == Some(label.id))
        && other.identity != (Identity::Label { id: label.id, is_written: false })
    {
        let (name, known) = (other.name.clone(), other.identity.to_string());
        return Err(IdentityError::Known { name, known }.into());
    }
    let known = devices.into_iter().find(|device| device.name == name).map(|device| device.identity);
    let id = match known {
        Some(Identity::Label { id, is_written: false }) => id,
        Some(Identity::None) => {
            check_lost(name, &found, lose, |found| matches!(found, LabelArea::Label(_)))?;
            let id = DeviceId::random().map_err(Error::io("get random numbers"))?;
            make_room(store, name, device, block)?;
            let moves = store.make_room_for_label(name)?;
            copy(device, block, &moves)?;
            store.take_label(name, id, &moves)?;
            id
        }
        Some(known) => {
            return Err(IdentityError::Known { name: name.to_owned(), known: known.to_string() }.into());
        }
        None => {
            check_lost(name, &found, lose, |found| !matches!(found, LabelArea::Blank))?;
            DeviceId::random().map_err(Error::io("get random numbers"))?
        }
    };
    store.attach_labelled(name, id, size, block, NewBlocks::Uncleared)?;
    write_first(device, id, name, false, None)?;
    store.label_written(name)?;
    Ok(id)
}

/// Writes a device's label again: with another name (`to`), or because the label was lost (`is_vouched`: the
/// caller knows that this is the device that the store has by that name). Returns the identity on the label.
///
/// # Errors
/// [`Error::Identity`] if it is memory or another device, if it has no label and `is_vouched` is false, or if
/// its label is whole and no other name is given. [`Error::Store`] if the store has no device of that name,
/// or has one of the new name. [`Error::Device`] if the device fails.
pub fn relabel(store: &Store, spec: &Spec, to: Option<&str>, is_vouched: bool) -> Result<DeviceId, Error> {
    let mut device = open(spec)?;
    relabel_open(store, &spec.name, &mut *device, to, is_vouched)
}

pub(super) fn relabel_open(
    store: &Store,
    name: &str,
    device: &mut dyn Device,
    to: Option<&str>,
    is_vouched: bool,
) -> Result<DeviceId, Error> {
    let block = volume_block(name, device)?;
    let size = Bytes(device.geometry().bytes);
    check_room(name, size.0, block)?;
    let known = store.device(name)?.identity;
    let Identity::Label { id, .. } = known else {
        return Err(IdentityError::NeverLabelled(name.to_owned()).into());
    };
    let found = look(device)?;
    match found {
        LabelArea::Label(label) if label.id == id => {
            let to = to.filter(|to| *to != name || label.name != name);
            let to = to.ok_or_else(|| IdentityError::Unchanged(name.to_owned()))?;
            if to != name {
                store.rename_device(name, to)?;
            }
            write_next(device, &Label { name: to.to_owned(), size, ..label })?;
        }
        // A label of another device is never overwritten, even if the caller vouches for the device.
        LabelArea::Label(label) => return Err(IdentityError::foreign(name.to_owned(), &label, false).into()),
        found if !is_vouched => {
            let (name, known) = (name.to_owned(), known.to_string());
            return Err(IdentityError::NoLabel { name, known, found: found.what() }.into());
        }
        _ => {
            store.attach_labelled(name, id, size, block, NewBlocks::Uncleared)?;
            let new_name = to.unwrap_or(name);
            if new_name != name {
                store.rename_device(name, new_name)?;
            }
            write_first(device, id, new_name, false, None)?;
        }
    }
    store.label_written(to.unwrap_or(name))?;
    Ok(id)
}

fn open(spec: &Spec) -> Result<Box<dyn Device>, Error> {
    match spec.is_volatile() {
        true => Err(IdentityError::Memory(spec.name.clone()).into()),
        false => Ok(spec.open()?),
    }
}

/// Checks that `lose` names the contents of the device, if they would be lost.
fn check_lost(
    name: &str,
    found: &LabelArea,
    lose: Option<&str>,
    is_loss: impl Fn(&LabelArea) -> bool,
) -> Result<(), Error> {
    let what = found.what();
    if !is_loss(found) || lose == Some(what.as_str()) {
        return Ok(());
    }
    Err(match found {
        LabelArea::Label(label) => IdentityError::foreign(name.to_owned(), label, false),
        _ => IdentityError::Holds { name: name.to_owned(), what },
    }
    .into())
}

/// Makes a device's growth known to the store, which may give room for data that has to move.
fn make_room(store: &Store, name: &str, device: &dyn Device, block: BlockSize) -> Result<(), Error> {
    let size = Bytes(device.geometry().bytes);
    store.attach_device(name, size, block, NewBlocks::Uncleared)?;
    Ok(())
}

/// Copies the contents of blocks that move, durably.
fn copy(device: &mut dyn Device, block: BlockSize, moves: &[bywash_volume::BlockMove]) -> Result<(), Error> {
    for moved in moves {
        // Both ranges are on the device: the store has checked them.
        let (Some(from), Some(to)) = (block.span(moved.from), block.span(moved.to)) else { continue };
        let bytes = read_exclusive(device, from.start.0, from.length.0 as usize)?;
        write_exclusive(device, to.start.0, &bytes)?;
    }
    Ok(())
}
