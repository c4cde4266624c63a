//! Reasons not to serve a device for what its label says, with the commands that help.

use bywash_volume::{Bytes, DeviceId, Label};
use std::path::PathBuf;

/// A device is not the one that the store knows, or may be somebody else's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Another store has the device, or one that is not there.
    #[error(
        "device '{name}' has the label {id}, of a device '{labelled}', which {store}; give the store that knows it \
         (--policy), or take the device and lose what is on it: \
         bywash volume --policy STORE adopt {name}=... --force {id}"
    )]
    Foreign {
        /// Name that it was given by.
        name: String,
        /// Name on the label.
        labelled: String,
        /// Identity on the label.
        id: DeviceId,
        /// What is the matter with the store.
        store: &'static str,
    },
    /// The device is smaller than its label says.
    #[error("device '{name}' has {is}, and {was} when its label was written; give all of it")]
    Shrunk {
        /// Name of the device.
        name: String,
        /// Size on the label.
        was: Bytes,
        /// Size now.
        is: Bytes,
    },
    /// Two devices have one label: one is a copy of the other, or they are one device by two names.
    #[error(
        "devices '{other}' and '{name}' have the same label {id}: one is a copy of the other, or the same by another \
         name; leave one out"
    )]
    Twice {
        /// Name of the second.
        name: String,
        /// Name of the first.
        other: String,
        /// Their identity.
        id: DeviceId,
    },
    /// The store was written before devices had labels.
    #[error(
        "device '{0}' has no label yet, so that nobody can tell whether it is the one that the store knows; if it is: \
         bywash volume --policy STORE adopt {0}=..."
    )]
    NeverLabelled(String),
    /// A device that the store knows by its label has none.
    #[error(
        "device '{name}' is known with {known}, and what was given has no label, but {found}; give the device that it was. \
         If it is that one, and the label was lost: bywash volume --policy STORE relabel {name}=... --force"
    )]
    NoLabel {
        /// Name of the device.
        name: String,
        /// Identity that the store knows.
        known: String,
        /// What was found in its place.
        found: String,
    },
    /// The device is not blank.
    #[error(
        "device '{name}' holds {what}, and no server has had it; to take it and lose that: \
         bywash volume --policy STORE adopt {name}=... --force '{what}'"
    )]
    Holds {
        /// Name of the device.
        name: String,
        /// What it seems to hold.
        what: String,
    },
    /// A new device cannot be labelled.
    #[error("device '{0}' has no label and may only be read; serve it once without read-only")]
    ReadOnly(String),
    /// The file of a known device is not there.
    #[error(
        "device '{name}' is known with {known}, and there is no file {}; bring the file back, or forget the device and \
         its volumes: bywash volume --policy STORE forget {name} --volumes", .path.display()
    )]
    Missing {
        /// Name of the device.
        name: String,
        /// Identity that the store knows.
        known: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The store knows a device of that name.
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
    /// Memory has no label.
    #[error("device '{0}' is memory, which has no label: it is another device each time")]
    Memory(String),
    /// A device keeps its name, and its label is whole.
    #[error("device '{0}' has its label; say what to change (--to NAME)")]
    Unchanged(String),
}

impl IdentityError {
    pub(super) fn foreign(name: String, label: &Label, is_temporary: bool) -> IdentityError {
        let store = match is_temporary {
            true => "is in a store, and none was given",
            false => "this store does not know",
        };
        IdentityError::Foreign { name, labelled: label.name.clone(), id: label.id, store }
    }
}
