//! What can go wrong.

use crate::extent::{Blocks, Bytes, Extent, Span};
use crate::identity::DeviceId;
use std::path::PathBuf;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No block can have that size.
    #[error("a block of {0} was asked for; it must be a power of two from 512 B to 1 GiB")]
    BlockSize(Bytes),
    /// No volume can have that mode.
    #[error("{0:o} is no mode of a volume, which has bits to read and to write: 666 or less, in octal")]
    Mode(u16),
    /// A stretch that no device has.
    #[error("{length} from {start} on are no part of any device", length = .0.length, start = .0.start)]
    Span(Span),
    /// A grant of too many extents.
    #[error("the grant has more than {most} extents; copy the volume to one in fewer pieces")]
    GrantExtents {
        /// How many it may have.
        most: usize,
    },
    /// As many grants are given as there may be.
    #[error("{most} grants are given, as many as there may be; close one first")]
    Grants {
        /// How many.
        most: u32,
    },

    /// Another process has the store, or this one has it already.
    #[error(
        "{path} is in use: a server or another command has it open; ask the server, or wait for the command"
    )]
    InUse {
        /// The store.
        path: PathBuf,
    },
    /// There is a file, and it is no store.
    #[error("{path} is no store of volumes; name another file")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The store was written by a version that knows more.
    #[error("{path} has layout {found}, and this version knows {known}; use the version that wrote it")]
    Newer {
        /// The store.
        path: PathBuf,
        /// Its layout.
        found: u64,
        /// The newest that is known here.
        known: u64,
    },
    /// What the store says cannot be.
    #[error("the store is damaged: {0}; bring it back from a copy")]
    Damaged(String),
    /// Reading or writing the store failed. What was being changed may or may not have been.
    #[error("cannot {what}: {why}")]
    Store {
        /// What was to be done.
        what: &'static str,
        /// What redb or the kernel said.
        why: String,
    },

    /// That cannot be a name.
    #[error(
        "'{0}' cannot be a name: 1 to {most} letters, digits, '.', '_' and '-', of which the first is a letter, a digit \
         or '_'",
        most = crate::store::NAME_BYTES_MAX
    )]
    Name(String),
    /// There is no such device.
    #[error("there is no device '{0}' in the store; attach it first")]
    NoDevice(String),
    /// There is no such volume.
    #[error("there is no volume '{0}'; create it first")]
    NoVolume(String),
    /// There is such a volume.
    #[error("there is a volume '{0}' already; remove it first, or use another name")]
    Exists(String),
    /// Volumes are on the device.
    #[error(
        "there are volumes on device '{device}', of which one is '{volume}'; remove them first, or forget them with it \
         (--volumes)"
    )]
    Occupied {
        /// The device.
        device: String,
        /// One of them.
        volume: String,
    },
    /// The device is not what it was.
    #[error(
        "device '{device}' had {had} of {had_block}, and has {has} of {has_block} now; attach the one that it was, \
         or forget it (bywash volume --policy STORE forget {device})"
    )]
    OtherDevice {
        /// Its name.
        device: String,
        /// Blocks that it had.
        had: Blocks,
        /// How large they were.
        had_block: Bytes,
        /// Blocks that it has.
        has: Blocks,
        /// How large they are.
        has_block: Bytes,
    },
    /// The device has another identity than the one that the store knows by its name.
    #[error(
        "device '{device}' is known with {known}, and the one that was given has {found}; give the device that it was, or          forget it (bywash volume --policy STORE forget {device})"
    )]
    OtherIdentity {
        /// Its name.
        device: String,
        /// Identity that the store knows.
        known: String,
        /// Identity of the one that was given.
        found: String,
    },
    /// The store knows the device by another name.
    #[error(
        "the device that was given as '{given}' is '{known}' by its label {id}; give it as {known}=..., or give it the          other name (bywash volume --policy STORE relabel {known}=... --to {given})"
    )]
    OtherName {
        /// Name that it was given by.
        given: String,
        /// Name that the store knows.
        known: String,
        /// Its identity.
        id: DeviceId,
    },
    /// There is such a device.
    #[error("there is a device '{0}' already; forget it first, or use another name")]
    DeviceExists(String),
    /// The volume was on memory that is no more.
    #[error(
        "volume '{volume}' is gone: its device '{device}' was memory, and ended with the server that had it; create it          anew, or remove it"
    )]
    Gone {
        /// Its name.
        volume: String,
        /// The device.
        device: String,
    },
    /// A device or a volume has at least one block, and no more than there are numbers.
    #[error(
        "{size} cannot be the size of '{name}': it must have at least one block, a device with a label a MiB besides, and \
         end within 64 bits"
    )]
    Size {
        /// What it is for.
        name: String,
        /// As asked.
        size: Bytes,
    },
    /// There are not so many free blocks.
    #[error(
        "{asked} of {block} were asked for on device '{device}', and {free} are free, with {to_clear} more to be cleared; \
         remove something first"
    )]
    Full {
        /// The device.
        device: String,
        /// Blocks asked for.
        asked: Blocks,
        /// Free.
        free: Blocks,
        /// Freed, but not to be used before they were cleared.
        to_clear: Blocks,
        /// How large each is.
        block: Bytes,
    },
    /// What is free is in too many pieces.
    #[error(
        "device '{device}' is fragmented: {asked} would have to be in {needed} extents more, and {most} more can be; \
         remove or copy volumes so that larger pieces are free, or ask for less"
    )]
    Fragmented {
        /// The device.
        device: String,
        /// Blocks asked for.
        asked: Blocks,
        /// Extents that they would have to be in.
        needed: usize,
        /// Extents that there can be.
        most: usize,
    },
    /// As many devices or volumes are in the store as can be.
    #[error("there are {most} {what} in the store, as many as there can be; remove one first")]
    Many {
        /// Devices or volumes.
        what: &'static str,
        /// How many.
        most: u64,
    },
    /// Something was said to have been cleared that did not have to be.
    #[error("{length} from block {start} on of device '{device}' are not all to be cleared", length = .extent.length, start = .extent.start.0)]
    NotToClear {
        /// The device.
        device: String,
        /// What was said to have been cleared.
        extent: Extent,
    },
}

impl Error {
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged(what.into())
    }

    /// What redb says while something is done.
    pub(crate) fn store(what: &'static str) -> impl Fn(redb::Error) -> Error {
        move |why| match why {
            redb::Error::Corrupted(said) => Error::Damaged(said),
            redb::Error::TableTypeMismatch { .. } | redb::Error::TypeDefinitionChanged { .. } => {
                Error::Damaged(why.to_string())
            }
            why => Error::Store { what, why: why.to_string() },
        }
    }
}
