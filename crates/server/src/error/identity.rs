//! Reasons not to serve a device because of its identity, with the commands that help.

use bywash_volume::{Bytes, DeviceId, Label};
use std::path::PathBuf;

/// Error for a device that is not the one that the store knows, or may belong to another store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The device belongs to another store, or to a store that this server was not given.
    #[error(
        "device '{name}' has the label {id}, of a device '{labelled}', which {store}; give the store that knows it \
         (--policy), or take the device and lose what is on it: \
         bywash volume --policy STORE adopt {name}=... --force {id}"
    )]
    Foreign {
        /// Name that the administrator gave to the device.
        name: String,
        /// Name on the label.
        labelled: String,
        /// Identity on the label.
        id: DeviceId,
        /// Relation of the device to the store, as a part of the message.
        store: &'static str,
    },
    /// The device is smaller than its label says.
    #[error("device '{name}' has {is}, and had {was} when its label was written; give the whole device")]
    Shrunk {
        /// Name of the device.
        name: String,
        /// Size of the device on its label.
        was: Bytes,
        /// Current size of the device.
        is: Bytes,
    },
    /// Two devices have the same label: one is a copy of the other, or both names lead to one device.
    #[error(
        "devices '{other}' and '{name}' have the same label {id}: one is a copy of the other, or the same by another \
         name; leave one out"
    )]
    Twice {
        /// Name of the second device.
        name: String,
        /// Name of the first device.
        other: String,
        /// Identity on both labels.
        id: DeviceId,
    },
    /// The store knows the device from before devices had labels.
    #[error(
        "device '{0}' has no label yet, so that nobody can tell whether it is the one that the store knows; if it is: \
         bywash volume --policy STORE adopt {0}=..."
    )]
    NeverLabelled(String),
    /// The store knows the device by a label, and the device has none.
    #[error(
        "device '{name}' is known with {known}, and what was given has no label, but {found}; give the device that it was. \
         If it is that one, and the label was lost: bywash volume --policy STORE relabel {name}=... --force"
    )]
    NoLabel {
        /// Name of the device.
        name: String,
        /// Identity that the store knows.
        known: String,
        /// Description of the contents that were found instead.
        found: String,
    },
    /// The device is new to the store and not blank.
    #[error(
        "device '{name}' holds {what}, and no server has had it; to take it and lose that: \
         bywash volume --policy STORE adopt {name}=... --force '{what}'"
    )]
    Holds {
        /// Name of the device.
        name: String,
        /// Name of what the device seems to hold.
        what: String,
    },
    /// A new device is read-only, so that it cannot be labelled.
    #[error("device '{0}' has no label and may only be read; serve it once without read-only")]
    ReadOnly(String),
    /// The file of a known device does not exist.
    #[error(
        "device '{name}' is known with {known}, and there is no file {}; bring the file back, or forget the device and \
         its volumes: bywash volume --policy STORE forget {name} --volumes", .path.display()
    )]
    Missing {
        /// Name of the device.
        name: String,
        /// Identity that the store knows.
        known: String,
        /// Path of the missing file.
        path: PathBuf,
    },
    /// The store already knows a device of that name, or the device by another name.
    #[error(
        "there is a device '{name}' in the store, with {known}; forget it first \
         (bywash volume --policy STORE forget {name}), or use another name"
    )]
    Known {
        /// Name of the device.
        name: String,
        /// Identity that the store knows.
        known: String,
    },
    /// The device is memory, which has no label.
    #[error("device '{0}' is memory, which has no label: it is another device each time")]
    Memory(String),
    /// The device's label is whole and no change was asked for.
    #[error("the label of device '{0}' is valid; give a new name (--to NAME)")]
    Unchanged(String),
}

impl IdentityError {
    pub(crate) fn foreign(name: String, label: &Label, is_temporary: bool) -> IdentityError {
        let store = match is_temporary {
            true => "is in a store, and none was given",
            false => "this store does not know",
        };
        IdentityError::Foreign { name, labelled: label.name.clone(), id: label.id, store }
    }
}
