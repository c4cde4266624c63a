//! Named volumes on devices, and the table of a client's grants that every request is checked against.
//!
//! A *volume* is a name for extents of a device, with an owner, a group and a mode like a file's. Volumes are
//! kept in a small transactional store. When a client opens a volume, its credentials, as told by the kernel,
//! decide ([`Ownership::decide`]), and the client is given a *grant*: a right to the volume's extents.
//! Afterwards a request names the grant and an offset, and the client's own [`Table`] returns the ranges of
//! the device, or the reason for a refusal.
//!
//! ```
//! use bywash_volume::{
//!     Access, BlockSize, ByteRange, Bytes, DeviceNumber, Grant, GrantError, Mode, NewBlocks, Ownership, Store, Table, User,
//! };
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("volumes");
//! let store = Store::open(path)?;
//! store.attach_device("fast", Bytes(1 << 30), BlockSize::new(Bytes(4096))?, NewBlocks::Cleared)?;
//! let ownership = Ownership { owner: 1000, group: 100, mode: Mode::new(0o640)?, read_only: false };
//! store.create("log", "fast", Bytes(1 << 20), ownership)?;
//!
//! // Somebody of its group opens it for reading.
//! let (volume, extents) = store.get("log")?;
//! let user = User { uid: 1001, gid: 100, groups: &[] };
//! let right = volume.ownership.decide(&user, Access::Read)?;
//! let mut table = Table::new(1024);
//! let log = table.add(Grant::new(DeviceNumber(0), right, volume.spans(&extents))?)?;
//!
//! // A request.
//! let mut pieces = table.check(log, Bytes(4096), Bytes(512), Access::Read)?;
//! assert_eq!(pieces.next(), Some(ByteRange::new(4096, 512)));
//! assert!(matches!(
//!     table.check(log, Bytes(4096), Bytes(512), Access::Write),
//!     Err(GrantError::Right { .. })
//! ));
//! table.revoke(log)?;
//! assert!(matches!(table.check(log, Bytes(0), Bytes(1), Access::Read), Err(GrantError::Revoked { .. })));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate reads or writes no device, talks to no client and starts no thread.
//!
//! - [`Store`], [`Volume`], [`Device`], [`NewBlocks`]: volumes, and the free blocks of devices
//! - [`MappedExtent`]: the extents of a thin volume, whose blocks are allocated at the first write
//! - [`BlockCopy`], [`CopyRoom`]: copies of blocks that a volume shares with its snapshots, before it is written
//! - [`DeviceId`], [`Label`]: the identity of a device, and the label on the device that holds it
//! - [`Ownership`], [`Mode`], [`User`], [`Access`], [`AccessDenied`]: rights to volumes
//! - [`Table`], [`Grant`], [`GrantNumber`], [`DeviceRanges`], [`GrantError`]: a client's grants, and the
//!   check of its requests
//! - [`GrantExtent`], [`RangeParts`], [`RangePart`]: extents of a grant of a thin volume, and the parts of a request to it
//! - [`Bytes`], [`Blocks`], [`BlockSize`], [`Extent`], [`ByteRange`]: sizes, offsets and ranges
//! - [`Error`]: errors of the store and of granting
//!
//! With the feature `testing` there is also `testing`: the file of a store, which loses power on demand.

#![forbid(unsafe_code)]

mod error;
mod extent;
mod identity;
mod label;
mod right;
mod store;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use bywash_protocol::Access;
pub use error::Error;
pub use extent::{BlockSize, Blocks, ByteRange, Bytes, Extent};
pub use identity::{DeviceId, ParseDeviceIdError};
pub use label::{LABEL_BYTES, LABEL_NAME_BYTES_MAX, LABEL_OFFSETS, Label, LabelError, RESERVED_BYTES};
pub use right::{AccessDenied, Mode, Ownership, User, UserClass};
pub use store::{
    BlockCopy, BlockMove, CopyRoom, DEVICE_EXTENTS_MAX, DEVICES_MAX, Device, EXTENTS_MAX, Identity,
    MappedExtent, NAME_BYTES_MAX, NewBlocks, SNAPSHOT_EXTENTS_MAX, Store, THIN_CLUSTERS_MAX, VOLUMES_MAX,
    Volume,
};
pub use table::{
    DeviceNumber, DeviceRanges, GRANT_EXTENTS_MAX, GRANTS_MAX, Grant, GrantError, GrantExtent, GrantNumber,
    PIECES_MAX, RangePart, RangeParts, Table,
};
