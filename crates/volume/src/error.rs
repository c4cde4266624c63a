//! Errors of the store and of granting.

use crate::extent::{Blocks, ByteRange, Bytes, Extent};
use crate::identity::DeviceId;
use std::path::PathBuf;

/// Error of an operation on the store, on a table of grants, or on a size or mode.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The block size is not a power of two from 512 B to 1 GiB.
    #[error("a block of {0} was asked for; it must be a power of two from 512 B to 1 GiB")]
    BlockSize(Bytes),
    /// The mode has other bits than those of 0o666.
    #[error("{0:o} is no mode of a volume; give bits to read and to write, at most 666 in octal")]
    Mode(u16),
    /// The range is empty, ends beyond 64 bits, or there is none.
    #[error("{length} from {start} on are no part of any device", length = .0.length, start = .0.start)]
    Span(ByteRange),
    /// The grant has too many extents.
    #[error("the grant has more than {most} extents; copy the volume to one in fewer pieces")]
    GrantExtents {
        /// Greatest number of extents of a grant.
        most: usize,
    },
    /// The table has the greatest number of grants that it may have.
    #[error("the client has {most} grants, the greatest number; close one first")]
    Grants {
        /// Greatest number of grants of the table.
        most: u32,
    },

    /// Another process, or this one, has the store open already.
    #[error(
        "{path} is in use: a server or another command has it open; ask the server, or wait for the command"
    )]
    InUse {
        /// Path of the store.
        path: PathBuf,
    },
    /// The file exists, but is not a store.
    #[error("{path} is no store of volumes; name another file")]
    NotAStore {
        /// Path of the file.
        path: PathBuf,
    },
    /// The store was written by a later version.
    #[error("{path} has layout {found}, and this version knows {known}; use the version that wrote it")]
    Newer {
        /// Path of the store.
        path: PathBuf,
        /// Layout of the store.
        found: u64,
        /// Latest layout that this version knows.
        known: u64,
    },
    /// The contents of the store are corrupt or contradict themselves.
    #[error("the store is damaged: {0}; restore it from a copy")]
    Damaged(String),
    /// Reading or writing the store failed. A change that was being made may or may not have been made.
    #[error("cannot {what}: {why}")]
    Store {
        /// Action that failed, such as "read the store".
        what: &'static str,
        /// Message of redb or of the kernel.
        why: String,
    },

    /// The text is not a valid name.
    #[error(
        "'{0}' cannot be a name: 1 to {most} letters, digits, '.', '_' and '-', of which the first is a letter, a digit \
         or '_'",
        most = crate::store::NAME_BYTES_MAX
    )]
    Name(String),
    /// The store has no device of that name.
    #[error("there is no device '{0}' in the store; attach it first")]
    NoDevice(String),
    /// The store has no volume of that name.
    #[error("there is no volume '{0}'; create it first")]
    NoVolume(String),
    /// The store already has a volume of that name.
    #[error("there is a volume '{0}' already; remove it first, or use another name")]
    Exists(String),
    /// The device still has volumes.
    #[error(
        "there are volumes on device '{device}', of which one is '{volume}'; remove them first, or forget them with it \
         (--volumes)"
    )]
    Occupied {
        /// Name of the device.
        device: String,
        /// Name of one of the volumes.
        volume: String,
    },
    /// The device has fewer blocks than before, or another block size.
    #[error(
        "device '{device}' had {had} of {had_block}, and has {has} of {has_block} now; attach the one that it was, \
         or forget it (bywash volume --policy STORE forget {device})"
    )]
    OtherDevice {
        /// Name of the device.
        device: String,
        /// Number of blocks that it had.
        had: Blocks,
        /// Size of those blocks, in bytes.
        had_block: Bytes,
        /// Number of blocks that it has now.
        has: Blocks,
        /// Size of these blocks, in bytes.
        has_block: Bytes,
    },
    /// The device has another identity than the one in the store under its name.
    #[error(
        "device '{device}' is known with {known}, and the one that was given has {found}; give the device that it was, or forget it (bywash volume --policy STORE forget {device})"
    )]
    OtherIdentity {
        /// Name of the device.
        device: String,
        /// Identity in the store.
        known: String,
        /// Identity of the given device.
        found: String,
    },
    /// The store has the device under another name.
    #[error(
        "the device that was given as '{given}' is '{known}' by its label {id}; give it as {known}=..., or give it the other name (bywash volume --policy STORE relabel {known}=... --to {given})"
    )]
    OtherName {
        /// Name under which the device was given.
        given: String,
        /// Name in the store.
        known: String,
        /// Identity of the device.
        id: DeviceId,
    },
    /// The store already has a device of that name.
    #[error("there is a device '{0}' already; forget it first, or use another name")]
    DeviceExists(String),
    /// The volume was on a memory device, which ended with its server.
    #[error(
        "volume '{volume}' is gone: its device '{device}' was memory, and ended with the server that had it; create it anew, or remove it"
    )]
    VolumeLost {
        /// Name of the volume.
        volume: String,
        /// Name of the device.
        device: String,
    },
    /// The size of a device or a volume is out of range.
    #[error(
        "{size} cannot be the size of '{name}': it must have at least one block, a device with a label a MiB besides, and \
         end within 64 bits"
    )]
    Size {
        /// Name of the device or volume.
        name: String,
        /// Size that was asked for.
        size: Bytes,
    },
    /// The device has too few free blocks.
    #[error(
        "{asked} of {block} were asked for on device '{device}', and {free} are free, with {to_clear} more to be cleared; \
         remove something first"
    )]
    Full {
        /// Name of the device.
        device: String,
        /// Number of blocks asked for.
        asked: Blocks,
        /// Number of free blocks.
        free: Blocks,
        /// Number of freed blocks that cannot be used before they are cleared.
        to_clear: Blocks,
        /// Size of a block, in bytes.
        block: Bytes,
    },
    /// The device has too few blocks that thin volumes may have.
    #[error(
        "thin volume '{volume}' needs {asked} of {block} more, and device '{device}' has {left} for thin volumes, besides \
         {kept} that are kept; remove volumes on it, discard what is not needed in thin ones, or make the device larger"
    )]
    PoolLow {
        /// Name of the volume.
        volume: String,
        /// Name of the device.
        device: String,
        /// Number of blocks that the volume needs.
        asked: Blocks,
        /// Number of blocks that thin volumes can still have.
        left: Blocks,
        /// Number of blocks that thin volumes never get.
        kept: Blocks,
        /// Size of a block, in bytes.
        block: Bytes,
    },
    /// The thin volume would have more than the greatest number of clusters.
    #[error(
        "thin volume '{name}' can have {most} at most, as its clusters were chosen when it was created; copy it to a \
         larger one"
    )]
    ThinSize {
        /// Name of the volume.
        name: String,
        /// Greatest size of the volume, in bytes.
        most: Bytes,
    },
    /// The store has no thin volume with that id.
    #[error("there is no thin volume with the number {0}; it was removed, or never was thin")]
    NotThin(u64),
    /// The volume is not thin, so that it has no snapshots.
    #[error("volume '{0}' is not thin, and only thin volumes have snapshots; copy it into a thin one")]
    NotThinVolume(String),
    /// The volume is a snapshot, which never changes.
    #[error("'{name}' is a snapshot, which {what}; clone it, and change the clone")]
    Snapshot {
        /// Name of the snapshot.
        name: String,
        /// Property of snapshots that the operation would change.
        what: &'static str,
    },
    /// The volume is not a snapshot.
    #[error("volume '{0}' is not a snapshot; name one, or take one of it first")]
    NotSnapshot(String),
    /// The snapshot is of another volume.
    #[error(
        "'{snapshot}' is not a snapshot of volume '{volume}'; name one of its own, or clone '{snapshot}' and use the clone"
    )]
    OtherOrigin {
        /// Name of the snapshot.
        snapshot: String,
        /// Name of the volume.
        volume: String,
    },
    /// The volume does not have the blocks that were copied any more.
    #[error("thin volume '{0}' was changed while blocks of it were copied; copy them anew")]
    CopyOutdated(String),
    /// The free blocks are in too many pieces.
    #[error(
        "device '{device}' is fragmented: {asked} would have to be in {needed} extents more, and {most} more can be; \
         remove or copy volumes so that larger pieces are free, or ask for less"
    )]
    Fragmented {
        /// Name of the device.
        device: String,
        /// Number of blocks asked for.
        asked: Blocks,
        /// Number of extents that they would need.
        needed: usize,
        /// Greatest number of extents that can be added.
        most: usize,
    },
    /// The store has the greatest number of devices or volumes.
    #[error("the store has {most} {what}, the greatest number; remove one first")]
    LimitReached {
        /// "devices" or "volumes".
        what: &'static str,
        /// Greatest number of them.
        most: u64,
    },
    /// Blocks were reported as cleared that are not to be cleared.
    #[error("{length} from block {start} on of device '{device}' are not all to be cleared", length = .extent.length, start = .extent.start.0)]
    NotToClear {
        /// Name of the device.
        device: String,
        /// Extent that was reported as cleared.
        extent: Extent,
    },
}

impl Error {
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged(what.into())
    }

    /// Returns a function that turns an error of redb into an error of this crate; `what` is the action that
    /// failed.
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
