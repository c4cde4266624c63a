//! An export: a device, its name and its description.
//!
//! Called by programs that serve devices, and by `handshake`, which tells clients about them.

use crate::layout::{STRING_MAX, check};
use bywash_device::{Device, Geometry};
use bywash_export::Error;
use std::fmt;

/// Greatest length of a description, in bytes.
const DESCRIPTION_MAX: usize = 256;

/// A device that clients find by a name.
pub struct Disk {
    pub(crate) device: Box<dyn Device>,
    pub(crate) face: Face,
}

/// Properties of an export that clients are told.
#[derive(Clone, Debug)]
pub(crate) struct Face {
    /// Number of the disk in the engine.
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) geometry: Geometry,
}

impl Disk {
    /// Exports `device` by `name`. A client that gives no name gets the only export of a listener.
    pub fn new(name: impl Into<String>, device: impl Device + 'static) -> Disk {
        let (geometry, description) = (device.geometry(), String::new());
        let face = Face { number: 0, name: name.into(), description, geometry };
        Disk { device: Box::new(device), face }
    }

    /// Sets a description, which clients show: at most 256 bytes of text.
    pub fn description(mut self, description: impl Into<String>) -> Disk {
        self.face.description = description.into();
        self
    }

    /// Checks the name, the description and the device.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Face { name, description, geometry, .. } = &self.face;
        if name.len() > STRING_MAX || name.contains('\0') {
            let allowed = format!("at most {STRING_MAX} bytes of text, without zero bytes");
            return Err(Error::Option {
                option: "the name of an export",
                value: format!("'{name}'"),
                allowed,
            });
        }
        if description.len() > DESCRIPTION_MAX || description.contains('\0') {
            let allowed = format!("at most {DESCRIPTION_MAX} bytes of text, without zero bytes");
            return Err(Error::Option {
                option: "a description",
                value: format!("'{description}'"),
                allowed,
            });
        }
        check(geometry)
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Disk").field("face", &self.face).finish_non_exhaustive()
    }
}
