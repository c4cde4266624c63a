//! Opening devices: those of the options, and those that administrators add to a running server.
//!
//! Called by `server` at its start and by `control`.

use crate::error::Error;
use crate::identity::{Identities, check_before_made, volume_block};
use bywash_device::{Device, DevicePart, Grantable, Spec};
use bywash_volume::{Bytes, NewBlocks, Store};
use std::sync::Arc;

/// A device that the caller has opened, for [`crate::Server::with_devices`].
pub struct OpenDevice {
    /// Name of the device, by which volumes refer to it.
    pub name: String,
    /// The open device.
    pub device: Box<dyn Device>,
    /// State of blocks that the store has not known before: cleared or unknown.
    pub contents: NewBlocks,
    /// True if the contents are lost when the server ends.
    pub is_volatile: bool,
}

impl OpenDevice {
    /// Makes the device known to the store by its name. The caller who has opened the device vouches for its
    /// identity.
    pub(crate) fn attach(&self, store: &Store) -> Result<(), Error> {
        let block = volume_block(&self.name, &*self.device)?;
        let bytes = Bytes(self.device.geometry().bytes);
        store.attach_device(&self.name, bytes, block, self.contents)?;
        Ok(())
    }
}

/// A device that is to be served, and the hardware behind it.
pub(crate) struct ServableDevice {
    pub(crate) device: OpenDevice,
    /// Hardware behind the device, if it can be handed to a process.
    pub(crate) grantable: Option<Arc<dyn Grantable>>,
}

impl From<OpenDevice> for ServableDevice {
    fn from(device: OpenDevice) -> ServableDevice {
        ServableDevice { device, grantable: None }
    }
}

/// Opens a device, or all parts of one that has parts, and checks their identities against the store.
///
/// # Errors
/// [`Error::Device`] if the device cannot be opened, and the errors of [`Identities::identify`].
pub(crate) fn open_device(
    store: &Store,
    identities: &mut Identities<'_>,
    spec: &Spec,
) -> Result<Vec<ServableDevice>, Error> {
    check_before_made(store, spec)?;
    let is_volatile = spec.is_volatile();
    let mut open = |DevicePart { name, mut device, grantable }| {
        let spec = spec.part(name.as_deref());
        identities.identify(&spec, &mut *device)?;
        let device = OpenDevice { name: spec.name, device, contents: NewBlocks::Uncleared, is_volatile };
        Ok(ServableDevice { device, grantable })
    };
    spec.open_parts()?.into_iter().map(&mut open).collect()
}
