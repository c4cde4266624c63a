//! Identities of devices: what a server does before it believes that a device is the one it had.
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
//! A device is *blank* if nothing but zeros is where file systems and partition tables have their beginning and their
//! end. Memory is another device each time.
//!
//! Order of what becomes durable: the store knows an identity before its label is written, and that it was written after.
//! A server that ends in between leaves a state in which the next one goes on, or names the command that does.
//! [`adopt`] has the commands.

mod adopt;
mod contents;
mod error;
mod labels;
#[cfg(test)]
mod tests;

pub use adopt::{adopt, relabel};
pub use error::IdentityError;

use crate::error::Error;
use bywash_device::{Access, Device, Medium, Spec};
use bywash_volume::{Bytes, Contents, DeviceId, Identity, Label, RESERVED_BYTES, Store};
use labels::{Found, look, write_first, write_next};

/// Devices that are to be served, and what they have turned out to be.
pub(crate) struct Identities<'a> {
    store: &'a Store,
    /// Volumes end with the server, since there is no file with a store.
    is_temporary: bool,
    seen: Vec<(DeviceId, String)>,
}

/// A device while it is found out which one it is.
struct Subject<'a> {
    name: &'a str,
    device: &'a mut dyn Device,
    /// Blocks that volumes are made of.
    block: bywash_volume::BlockSize,
}

impl<'a> Identities<'a> {
    pub(crate) fn new(store: &'a Store, is_temporary: bool) -> Identities<'a> {
        Identities { store, is_temporary, seen: Vec::new() }
    }

    /// Holds a device's identity against what the store knows, and makes the device known to it.
    ///
    /// # Errors
    /// [`Error::Identity`] if it may be another device than the one that the store knows, or has somebody's data.
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
        if let Medium::Memory(_) = spec.medium {
            let id = DeviceId::random().map_err(Error::io("get random numbers"))?;
            self.store.attach_memory(&spec.name, id, bytes, block)?;
            return Ok(());
        }
        check_room(&spec.name, bytes.0, block)?;
        let mut subject = Subject { name: &spec.name, device, block };
        let id = match look(subject.device)? {
            Found::Label(label) => self.with_label(&mut subject, label)?,
            found => self.without_label(&mut subject, found)?,
        };
        if let Some((_, other)) = self.seen.iter().find(|(seen, _)| *seen == id) {
            let (name, other) = (spec.name.clone(), other.clone());
            return Err(IdentityError::Twice { name, other, id }.into());
        }
        self.seen.push((id, spec.name.clone()));
        Ok(())
    }

    fn with_label(&self, subject: &mut Subject<'_>, label: Label) -> Result<DeviceId, Error> {
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
            // Nothing of it is in any store: its volumes ended with a server.
            return match label.is_temporary {
                true => self.label_anew(subject, Some(&label)),
                false => Err(IdentityError::foreign(name, &label, self.is_temporary).into()),
            };
        }
        self.store.attach_labelled(&name, label.id, size, subject.block, Contents::Unknown)?;
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

    fn without_label(&self, subject: &mut Subject<'_>, found: Found) -> Result<DeviceId, Error> {
        let name = subject.name.to_owned();
        let known = self.store.devices()?.into_iter().find(|device| device.name == name);
        match (known.map(|known| known.identity), found) {
            (None, Found::Blank) => self.label_anew(subject, None),
            (Some(Identity::Label { id, is_written: false }), Found::Blank | Found::Damaged) => {
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

    /// Gives a device an identity that it never had. `before`: the label that it had with another.
    fn label_anew(&self, subject: &mut Subject<'_>, before: Option<&Label>) -> Result<DeviceId, Error> {
        if subject.device.geometry().access == Access::Read {
            return Err(IdentityError::ReadOnly(subject.name.to_owned()).into());
        }
        let id = DeviceId::random().map_err(Error::io("get random numbers"))?;
        let size = Bytes(subject.device.geometry().bytes);
        self.store.attach_labelled(subject.name, id, size, subject.block, Contents::Unknown)?;
        self.write(subject, id, before)
    }

    fn write(
        &self,
        subject: &mut Subject<'_>,
        id: DeviceId,
        before: Option<&Label>,
    ) -> Result<DeviceId, Error> {
        let size = Bytes(subject.device.geometry().bytes);
        self.store.attach_labelled(subject.name, id, size, subject.block, Contents::Unknown)?;
        write_first(subject.device, id, subject.name, self.is_temporary, before)?;
        self.store.label_written(subject.name)?;
        Ok(id)
    }
}

/// What volumes are made of on a device that has no chunks, if its own block is not larger.
const VOLUME_BLOCK: u64 = 4096;

/// The blocks that volumes on a device are made of.
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

/// Whether there is room for a label and a volume.
fn check_room(name: &str, has: u64, block: bywash_volume::BlockSize) -> Result<(), Error> {
    let least = RESERVED_BYTES + block.size().0;
    match has < least {
        true => Err(Error::Small { name: name.to_owned(), has, least }),
        false => Ok(()),
    }
}

/// Refuses a file that would be made and then not be served, before it is made.
///
/// # Errors
/// [`Error::Small`]; [`Error::Identity`] if the store knows the device that there is no file of.
pub(crate) fn check_before_made(store: &Store, spec: &Spec) -> Result<(), Error> {
    let Medium::File(options) = &spec.medium else { return Ok(()) };
    let Some(bytes) = options.bytes.filter(|_| !options.path.exists()) else { return Ok(()) };
    check_room(&spec.name, bytes, bywash_volume::BlockSize::new(Bytes(VOLUME_BLOCK))?)?;
    match store.devices()?.into_iter().find(|device| device.name == spec.name).map(|known| known.identity) {
        None | Some(Identity::Label { is_written: false, .. }) => Ok(()),
        Some(known) => {
            let path = options.path.clone();
            Err(IdentityError::Missing { name: spec.name.clone(), known: known.to_string(), path }.into())
        }
    }
}
