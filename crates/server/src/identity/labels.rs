//! Labels on a device: reads them, and writes them so that a crash leaves the old or the new one.

use super::contents;
use crate::error::Error;
use bywash_device::{Device, read_exclusive, write_exclusive};
use bywash_volume::{Bytes, DeviceId, LABEL_BYTES, LABEL_OFFSETS, Label, LabelError, RESERVED_BYTES};
use std::time::{SystemTime, UNIX_EPOCH};

/// Contents that were found in the place of a device's label.
pub(super) enum LabelArea {
    /// A valid label.
    Label(Label),
    /// A label that was not written completely, or has changed since.
    Damaged,
    /// Only zeros, there and at the end of the device.
    Blank,
    /// Other contents, with their name.
    Contents(&'static str),
}

impl LabelArea {
    /// Describes the contents, in the words by which [`super::adopt()`] must be allowed to lose them.
    pub(super) fn what(&self) -> String {
        match self {
            LabelArea::Label(label) => label.id.to_string(),
            LabelArea::Damaged => "a damaged label".to_owned(),
            LabelArea::Blank => "zeros".to_owned(),
            LabelArea::Contents(what) => (*what).to_owned(),
        }
    }
}

/// Reads the beginning and the end of a device, and returns its label, or the kind of contents found instead:
/// zeros, a damaged label, a partition table, a file system, or other data. The device must be large enough for
/// a label.
///
/// # Errors
/// [`Error::Device`] if the device cannot be read, [`Error::Label`] if a later version wrote its label.
pub(super) fn look(device: &mut dyn Device) -> Result<LabelArea, Error> {
    let bytes = device.geometry().bytes;
    let head = read_exclusive(device, 0, RESERVED_BYTES as usize)?;
    let places = LABEL_OFFSETS.map(|at| {
        let mut label = [0; LABEL_BYTES];
        label.copy_from_slice(&head[at as usize..at as usize + LABEL_BYTES]);
        label
    });
    match Label::choose(&places) {
        Ok(Some(label)) => return Ok(LabelArea::Label(label)),
        Ok(None) => {}
        Err(newer @ LabelError::Newer { .. }) => return Err(Error::Label(newer)),
        Err(LabelError::Damaged(_)) => return Ok(LabelArea::Damaged),
    }
    let tail_at = bytes.saturating_sub(contents::TAIL_BYTES).max(RESERVED_BYTES);
    let tail_at = tail_at - tail_at % u64::from(device.geometry().block);
    let tail = read_exclusive(device, tail_at, (bytes - tail_at) as usize)?;
    Ok(match contents::name(&head, &tail) {
        Some(what) => LabelArea::Contents(what),
        None => LabelArea::Blank,
    })
}

/// Writes the first label of an identity. If the device had no label before, first clears the space reserved
/// for labels.
///
/// # Errors
/// [`Error::Device`] if the device fails.
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
        // Tools that look for the former contents by their first bytes find nothing any more.
        write_exclusive(device, 0, &head)?;
    }
    put(device, &label)?;
    if before.is_some() {
        // Clears the label with the former identity.
        head.truncate(device.geometry().block.max(LABEL_BYTES as u32) as usize);
        write_exclusive(device, LABEL_OFFSETS[1 - label.slot_index()], &head)?;
    }
    Ok(())
}

/// Writes the next version of a label at the other place. The current label stays until the new one is
/// complete.
///
/// # Errors
/// [`Error::Device`] if the device fails.
pub(super) fn write_next(device: &mut dyn Device, label: &Label) -> Result<(), Error> {
    put(device, &Label { sequence: label.sequence.saturating_add(1), ..label.clone() })
}

fn put(device: &mut dyn Device, label: &Label) -> Result<(), Error> {
    let mut block = vec![0; (device.geometry().block as usize).max(LABEL_BYTES)];
    block[..LABEL_BYTES].copy_from_slice(&label.to_bytes());
    Ok(write_exclusive(device, LABEL_OFFSETS[label.slot_index()], &block)?)
}
