//! Labels on a device: read, and written so that a crash leaves the one before or the new one.

use super::contents;
use crate::error::Error;
use bywash_device::{Device, read_alone, write_alone};
use bywash_volume::{Bytes, DeviceId, LABEL_BYTES, LABEL_PLACES, Label, LabelError, RESERVED_BYTES};
use std::time::{SystemTime, UNIX_EPOCH};

/// What is where a device has its label.
pub(super) enum Found {
    /// A label.
    Label(Label),
    /// A label that is not as it was written.
    Damaged,
    /// Zeros, and at the end of the device as well.
    Blank,
    /// Something else, by its name.
    Contents(&'static str),
}

impl Found {
    /// What would be lost, in words that [`super::adopt()`] takes as its permission.
    pub(super) fn what(&self) -> String {
        match self {
            Found::Label(label) => label.id.to_string(),
            Found::Damaged => "a damaged label".to_owned(),
            Found::Blank => "zeros".to_owned(),
            Found::Contents(what) => (*what).to_owned(),
        }
    }
}

/// Looks at a device that is large enough for a label.
///
/// # Errors
/// That the device cannot be read, or that a later version wrote its label.
pub(super) fn look(device: &mut dyn Device) -> Result<Found, Error> {
    let bytes = device.geometry().bytes;
    let head = read_alone(device, 0, RESERVED_BYTES as usize)?;
    let places = LABEL_PLACES.map(|at| {
        let mut label = [0; LABEL_BYTES];
        label.copy_from_slice(&head[at as usize..at as usize + LABEL_BYTES]);
        label
    });
    match Label::choose(&places) {
        Ok(Some(label)) => return Ok(Found::Label(label)),
        Ok(None) => {}
        Err(newer @ LabelError::Newer { .. }) => return Err(Error::Label(newer)),
        Err(LabelError::Damaged(_)) => return Ok(Found::Damaged),
    }
    let tail_at = bytes.saturating_sub(contents::TAIL_BYTES).max(RESERVED_BYTES);
    let tail_at = tail_at - tail_at % u64::from(device.geometry().block);
    let tail = read_alone(device, tail_at, (bytes - tail_at) as usize)?;
    Ok(match contents::name(&head, &tail) {
        Some(what) => Found::Contents(what),
        None => Found::Blank,
    })
}

/// Writes the first label of an identity. All that labels have of the device is cleared before.
///
/// # Errors
/// That the device fails.
pub(super) fn write_first(
    device: &mut dyn Device,
    id: DeviceId,
    name: &str,
    is_temporary: bool,
    before: Option<&Label>,
) -> Result<(), Error> {
    let size = Bytes(device.geometry().bytes);
    let created_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let sequence = before.map_or(0, |before| before.sequence.saturating_add(1));
    let label = Label { id, name: name.to_owned(), size, created_s, sequence, is_temporary };
    let mut head = vec![0; RESERVED_BYTES as usize];
    if before.is_none() {
        // Whoever looks for what was there before, by its first bytes, does not find it any more.
        write_alone(device, 0, &head)?;
    }
    put(device, &label)?;
    if before.is_some() {
        // The label with the other identity.
        head.truncate(device.geometry().block.max(LABEL_BYTES as u32) as usize);
        write_alone(device, LABEL_PLACES[1 - label.place()], &head)?;
    }
    Ok(())
}

/// Writes a label behind the one that is there, which stays until this one is whole.
///
/// # Errors
/// That the device fails.
pub(super) fn write_next(device: &mut dyn Device, label: &Label) -> Result<(), Error> {
    put(device, &Label { sequence: label.sequence.saturating_add(1), ..label.clone() })
}

fn put(device: &mut dyn Device, label: &Label) -> Result<(), Error> {
    let mut block = vec![0; (device.geometry().block as usize).max(LABEL_BYTES)];
    block[..LABEL_BYTES].copy_from_slice(&label.to_bytes());
    Ok(write_alone(device, LABEL_PLACES[label.place()], &block)?)
}
