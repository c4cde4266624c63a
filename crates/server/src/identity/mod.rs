//! Identities of devices: checks that a device is the one that the store knows before the server uses it.
//!
//! ```text
//!                     store knows the name    store knows the name,      store does not
//!                     by this identity        by another identity        know the name
//!   label             served                  refused                    refused: adopt
//!   blank             label written if that   refused                    labelled
//!                     was begun, else refused
//!   anything else     refused                 refused                    refused: adopt
//! ```
//!
//! A device is *blank* if its first and last MiB, where file systems and partition tables begin and end,
//! contain only zeros. Memory is a new device each time. Two cases that the table leaves out: a *temporary*
//! label, of a server without a store, is replaced if no store knows it; and a damaged label is written again
//! if its writing was begun.
//!
//! Order of durable steps: the store records an identity, then the label is written, then the store records
//! that the label is written. After a crash between two steps the next server continues, or names the command
//! that does. [`adopt`] has these commands.

mod adopt;
mod contents;
mod labels;
#[cfg(test)]
mod tests;

pub use adopt::{adopt, relabel};

pub use crate::error::IdentityError;

use crate::error::Error;
use bywash_device::{Access, Device, Spec};
use bywash_volume::{Bytes, DeviceId, Identity, Label, NewBlocks, RESERVED_BYTES, Store};
use labels::{LabelArea, look, write_first, write_next};

/// Devices that a server is about to serve, and the identities found so far.
pub(crate) struct Identities<'a> {
    store: &'a Store,
    /// True if the store has no file, so that volumes end with the server.
    is_temporary: bool,
    seen: Vec<(DeviceId, String)>,
}

/// A device whose identity is being checked.
struct CheckedDevice<'a> {
    name: &'a str,
    device: &'a mut dyn Device,
    /// Size of the blocks that volumes on the device consist of.
    block: bywash_volume::BlockSize,
}

impl<'a> Identities<'a> {
    /// Begins with the devices that are served already, with their names.
    pub(crate) fn new(store: &'a Store, is_temporary: bool, seen: Vec<(DeviceId, String)>) -> Identities<'a> {
        Identities { store, is_temporary, seen }
    }

    /// Checks a device's identity against the store, labels the device if it is new, and attaches it to the
    /// store.
    ///
    /// # Errors
    /// [`Error::Identity`] if it may be another device than the one that the store knows, or holds data.
    /// [`Error::Small`] if it has no room for a label and a volume. [`Error::Label`] if a later version wrote
    /// its label. [`Error::Store`] or [`Error::Device`] if the store or the device fails. [`Error::Io`] if
    /// the kernel gives no random numbers.
    pub(crate) fn identify(&mut self, spec: &Spec, device: &mut dyn Device) -> Result<(), Error> {
        let block = volume_block(&spec.name, device)?;
        let bytes = Bytes(device.geometry().bytes);
        let left_over = bytes.0 % block.size().0;
        if left_over > 0 {
            let (name, block) = (&spec.name, block.size());
            tracing::warn!(
                "device {name}: its last {left_over} B are not used: volumes on it have blocks of {block}"
            );
        }
        if spec.is_volatile() {
            let id = DeviceId::random().map_err(Error::io("get random numbers"))?;
            self.store.attach_memory(&spec.name, id, bytes, block)?;
            return Ok(());
        }
        check_room(&spec.name, bytes.0, block)?;
        let mut subject = CheckedDevice { name: &spec.name, device, block };
        let id = match look(subject.device)? {
            LabelArea::Label(label) => self.with_label(&mut subject, label)?,
            found => self.without_label(&mut subject, found)?,
        };
        if let Some((_, other)) = self.seen.iter().find(|(seen, _)| *seen == id) {
            let (name, other) = (spec.name.clone(), other.clone());
            return Err(IdentityError::Twice { name, other, id }.into());
        }
        self.seen.push((id, spec.name.clone()));
        Ok(())
    }

    fn with_label(&self, subject: &mut CheckedDevice<'_>, label: Label) -> Result<DeviceId, Error> {
        let name = subject.name.to_owned();
        let size = Bytes(subject.device.geometry().bytes);
        if let Some((_, other)) = self.seen.iter().find(|(seen, _)| *seen == label.id) {
            return Err(IdentityError::Twice { name, other: other.clone(), id: label.id }.into());
        }
        if label.size > size {
            return Err(IdentityError::Shrunk { name, was: label.size, is: size }.into());
        }
        let devices = self.store.devices()?;
        let is_known = devices.iter().any(|device| device.identity.id() == Some(label.id));
        let has_name = devices.iter().any(|device| device.name == name);
        if !is_known && !has_name {
            // No store has the device any more: its volumes ended with the server that labelled it.
            return match label.is_temporary {
                true => self.label_anew(subject, Some(&label)),
                false => Err(IdentityError::foreign(name, &label, self.is_temporary).into()),
            };
        }
        self.store.attach_labelled(&name, label.id, size, subject.block, NewBlocks::Uncleared)?;
        let is_current = label.size == size && label.name == name && label.is_temporary == self.is_temporary;
        if !is_current && subject.device.geometry().access != Access::Read {
            write_next(
                subject.device,
                &Label { name: name.clone(), size, is_temporary: self.is_temporary, ..label },
            )?;
        }
        self.store.label_written(&name)?;
        Ok(label.id)
    }

    fn without_label(&self, subject: &mut CheckedDevice<'_>, found: LabelArea) -> Result<DeviceId, Error> {
        let name = subject.name.to_owned();
        let known = self.store.devices()?.into_iter().find(|device| device.name == name);
        match (known.map(|known| known.identity), found) {
            (None, LabelArea::Blank) => self.label_anew(subject, None),
            (Some(Identity::Label { id, is_written: false }), LabelArea::Blank | LabelArea::Damaged) => {
                self.write(subject, id, None)
            }
            (None, found) => Err(IdentityError::Holds { name, what: found.what() }.into()),
            (Some(Identity::None), _) => Err(IdentityError::NeverLabelled(name).into()),
            (Some(known), found) => {
                let known = known.to_string();
                Err(IdentityError::NoLabel { name, known, found: found.what() }.into())
            }
        }
    }

    /// Gives a device a new identity and writes its label. `before` is the label of its former identity, if
    /// any.
    fn label_anew(&self, subject: &mut CheckedDevice<'_>, before: Option<&Label>) -> Result<DeviceId, Error> {
        if subject.device.geometry().access == Access::Read {
            return Err(IdentityError::ReadOnly(subject.name.to_owned()).into());
        }
        let id = DeviceId::random().map_err(Error::io("get random numbers"))?;
        let size = Bytes(subject.device.geometry().bytes);
        self.store.attach_labelled(subject.name, id, size, subject.block, NewBlocks::Uncleared)?;
        self.write(subject, id, before)
    }

    fn write(
        &self,
        subject: &mut CheckedDevice<'_>,
        id: DeviceId,
        before: Option<&Label>,
    ) -> Result<DeviceId, Error> {
        let size = Bytes(subject.device.geometry().bytes);
        self.store.attach_labelled(subject.name, id, size, subject.block, NewBlocks::Uncleared)?;
        write_first(subject.device, id, subject.name, self.is_temporary, before)?;
        self.store.label_written(subject.name)?;
        Ok(id)
    }
}

/// Size of volume blocks on a device without chunks, in bytes, if its own block is not larger.
const VOLUME_BLOCK: u64 = 4096;

/// Returns the size of the blocks that volumes on a device consist of: a chunk, or [`VOLUME_BLOCK`] if there
/// are no chunks.
pub(crate) fn volume_block(name: &str, device: &dyn Device) -> Result<bywash_volume::BlockSize, Error> {
    let geometry = device.geometry();
    let block = match device.chunks() {
        Some(chunks) => chunks.chunk_bytes(),
        None => VOLUME_BLOCK.max(geometry.block.into()),
    };
    if geometry.bytes < block {
        return Err(Error::Small { name: name.to_owned(), has: geometry.bytes, least: block });
    }
    Ok(bywash_volume::BlockSize::new(Bytes(block))?)
}

/// Checks that a device has room for its label and one volume block.
fn check_room(name: &str, has: u64, block: bywash_volume::BlockSize) -> Result<(), Error> {
    let least = RESERVED_BYTES + block.size().0;
    match has < least {
        true => Err(Error::Small { name: name.to_owned(), has, least }),
        false => Ok(()),
    }
}

/// Refuses a file that would be created and then not be served, before it is created.
///
/// # Errors
/// [`Error::Small`] if the file would be too small. [`Error::Identity`] if the store knows a device of that
/// name, whose file is missing. [`Error::Store`] if the store cannot be read.
pub(crate) fn check_before_made(store: &Store, spec: &Spec) -> Result<(), Error> {
    let Some((path, bytes)) = spec.file_to_create() else { return Ok(()) };
    check_room(&spec.name, bytes, bywash_volume::BlockSize::new(Bytes(VOLUME_BLOCK))?)?;
    match store.devices()?.into_iter().find(|device| device.name == spec.name).map(|known| known.identity) {
        None | Some(Identity::Label { is_written: false, .. }) => Ok(()),
        Some(known) => {
            let path = path.to_owned();
            Err(IdentityError::Missing { name: spec.name.clone(), known: known.to_string(), path }.into())
        }
    }
}
