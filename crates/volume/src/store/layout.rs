//! Layout of a store's file: its version, its tables, and their records.
//!
//! The file is a redb database with these tables. Numbers are little-endian.
//!
//! ```text
//!   header     "layout"        -> 4                        this layout
//!              "changes"       -> how many changes there were; each gives its number to what it changes
//!
//!   labelled   name            -> 0       4          8          16         24        32              48     52    56
//!                                 | number | shift    | blocks   | extents  | reserved | identity     | kind | 0  |
//!
//!   volumes    name            -> 0       8            16       20     24     28    30     32       40       44
//!                                 | id     | generation | device | owner| group| mode| flags| blocks | extents|
//!
//!   extents    id of a volume  -> start, length; start, length; ...      in the order of the volume's blocks
//!
//!   thin       id of a volume  -> cluster, allocated, name   of thin volumes, which have no entry in `extents`
//!   mapped     id, logical     -> start, length            an extent of a thin volume, from its block `logical` on
//!   origins    id of a volume  -> id                       of the volume that a snapshot or clone was made of
//!   shared     device, start   -> length, users            blocks that several thin volumes have
//!
//!   free       device, start   -> length                   in no volume, and without anybody's data
//!   clearing   device, start   -> length                   in no volume, with data that nobody may see
//! ```
//!
//! *shift*: a block has 1 << shift bytes. *extents*: number of extents, of all volumes on the device or of
//! the volume. *mode*: bits as of a file's mode. *flags*: 1 means read-only; 2 means gone: the volume's
//! device was memory that ended, so the volume has no extents; 4 means thin; 8 means a snapshot. *cluster*: number of blocks
//! that a thin volume allocates at a time. *allocated*: number of blocks that it has. *users*: number of volumes that have
//! the blocks, two or more. *reserved*: number of blocks at the beginning
//! of a device that are for its labels. *identity*: of the device, or zeros. *kind*: 0 is a device without an
//! identity, 1 one with a label, 2 one whose label has not been written yet, 3 memory.
//!
//! Invariant: on each device, the reserved blocks, the extents of volumes, the free pieces and the pieces to
//! be cleared cover all blocks and do not overlap, but for extents of thin volumes: each block that several of them have is
//! in `shared`, with their number, and no other block is. No two free pieces are adjacent, no two pieces to be cleared are,
//! and no two shared pieces of as many users. The mapped blocks of a thin volume are whole clusters, and no two of its
//! extents could be one.
//!
//! Layout 3 had no snapshots. Layout 2 had no thin volumes either. Layout 1 had, besides, instead of `labelled` a table `devices` with the first 24
//! bytes of each record. Opening a store of these layouts converts it to this one; no device of layout 1 has an
//! identity then.

use super::Identity;
use crate::error::Error;
use crate::extent::{BlockSize, Blocks, Extent};
use crate::identity::DeviceId;
use crate::right::{Mode, Ownership};
use redb::TableDefinition;

/// Number of the layout that this module writes.
pub(super) const LAYOUT: u64 = 4;
/// Number of the layout without snapshots, which is converted.
pub(super) const LAYOUT_WITHOUT_SNAPSHOTS: u64 = 3;
/// Number of the layout without thin volumes, which is converted.
pub(super) const LAYOUT_WITHOUT_THIN: u64 = 2;
/// Number of the layout without identities of devices, which is converted.
pub(super) const LAYOUT_WITHOUT_LABELS: u64 = 1;

pub(super) const HEADER: TableDefinition<&str, u64> = TableDefinition::new("header");
pub(super) const DEVICES: TableDefinition<&str, DeviceBytes> = TableDefinition::new("labelled");
/// Table of devices in [`LAYOUT_WITHOUT_LABELS`].
pub(super) const DEVICES_BEFORE: TableDefinition<&str, &[u8; DEVICE_BYTES_BEFORE]> =
    TableDefinition::new("devices");
pub(super) const VOLUMES: TableDefinition<&str, VolumeBytes> = TableDefinition::new("volumes");
pub(super) const EXTENTS: TableDefinition<u64, &[u8]> = TableDefinition::new("extents");
pub(super) const THIN: TableDefinition<u64, ThinValue> = TableDefinition::new("thin");
pub(super) const MAPPED: TableDefinition<(u64, u64), (u64, u64)> = TableDefinition::new("mapped");
pub(super) const ORIGINS: TableDefinition<u64, u64> = TableDefinition::new("origins");
pub(super) const SHARED: TableDefinition<(u32, u64), (u64, u64)> = TableDefinition::new("shared");
pub(super) const FREE: Pieces = TableDefinition::new("free");
pub(super) const CLEARING: Pieces = TableDefinition::new("clearing");

/// Key in [`HEADER`] of the layout's number.
pub(super) const KEY_LAYOUT: &str = "layout";
/// Key in [`HEADER`] of the number of changes made so far.
pub(super) const KEY_CHANGES: &str = "changes";

/// Table of pieces that are in no volume: device number and first block, and the number of blocks.
pub(super) type Pieces = TableDefinition<'static, (u32, u64), u64>;
pub(super) type DeviceBytes = &'static [u8; DEVICE_BYTES];
pub(super) type VolumeBytes = &'static [u8; VOLUME_BYTES];
/// Record of a thin volume: blocks of a cluster, allocated blocks, and the volume's name.
pub(super) type ThinValue = (u64, u64, &'static str);

pub(super) const DEVICE_BYTES: usize = 56;
pub(super) const DEVICE_BYTES_BEFORE: usize = 24;
pub(super) const VOLUME_BYTES: usize = 44;
pub(super) const EXTENT_BYTES: usize = 16;

const FLAG_READ_ONLY: u16 = 1;
const FLAG_GONE: u16 = 2;
const FLAG_THIN: u16 = 4;
const FLAG_SNAPSHOT: u16 = 8;

const KIND_NONE: u32 = 0;
const KIND_LABELLED: u32 = 1;
const KIND_UNWRITTEN: u32 = 2;
const KIND_MEMORY: u32 = 3;

/// Record of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceRecord {
    pub(super) number: u32,
    pub(super) block: BlockSize,
    pub(super) blocks: Blocks,
    pub(super) extents: u64,
    pub(super) reserved: Blocks,
    pub(super) identity: Identity,
}

/// Record of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VolumeRecord {
    pub(super) id: u64,
    pub(super) generation: u64,
    pub(super) device: u32,
    pub(super) ownership: Ownership,
    pub(super) is_gone: bool,
    pub(super) is_thin: bool,
    pub(super) is_snapshot: bool,
    pub(super) blocks: Blocks,
    pub(super) extents: u32,
}

/// Encoder that appends numbers to a record.
struct Writer<const BYTES: usize> {
    bytes: [u8; BYTES],
    at: usize,
}

impl<const BYTES: usize> Writer<BYTES> {
    fn new() -> Self {
        Writer { bytes: [0; BYTES], at: 0 }
    }

    fn put<const N: usize>(mut self, number: [u8; N]) -> Self {
        self.bytes[self.at..self.at + N].copy_from_slice(&number);
        self.at += N;
        self
    }

    fn end(self) -> [u8; BYTES] {
        assert_eq!(self.at, BYTES);
        self.bytes
    }
}

/// Returns the `N` bytes of a record from byte `at` on.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

impl DeviceRecord {
    pub(super) fn to_bytes(self) -> [u8; DEVICE_BYTES] {
        let kind = match self.identity {
            Identity::None => KIND_NONE,
            Identity::Label { is_written: true, .. } => KIND_LABELLED,
            Identity::Label { is_written: false, .. } => KIND_UNWRITTEN,
            Identity::Memory(_) => KIND_MEMORY,
        };
        Writer::new()
            .put(self.number.to_le_bytes())
            .put(self.block.shift().to_le_bytes())
            .put(self.blocks.0.to_le_bytes())
            .put(self.extents.to_le_bytes())
            .put(self.reserved.0.to_le_bytes())
            .put(self.identity.id().map_or([0; DeviceId::BYTES], DeviceId::to_bytes))
            .put(kind.to_le_bytes())
            .put([0; 4])
            .end()
    }

    /// Converts a record of [`LAYOUT_WITHOUT_LABELS`]: it gets no identity and no reserved blocks.
    pub(super) fn from_before(before: &[u8; DEVICE_BYTES_BEFORE]) -> Result<DeviceRecord, Error> {
        let mut bytes = [0; DEVICE_BYTES];
        bytes[..DEVICE_BYTES_BEFORE].copy_from_slice(before);
        DeviceRecord::from_bytes(&bytes)
    }

    pub(super) fn from_bytes(bytes: &[u8; DEVICE_BYTES]) -> Result<DeviceRecord, Error> {
        let shift = u32::from_le_bytes(part(bytes, 4));
        let block = BlockSize::from_shift(shift)
            .ok_or_else(|| Error::damaged(format!("a device has blocks of 2^{shift} bytes")))?;
        let blocks = Blocks(u64::from_le_bytes(part(bytes, 8)));
        if blocks.0 == 0 || block.bytes(blocks).is_none() {
            return Err(Error::damaged(format!("a device has {blocks}")));
        }
        let reserved = Blocks(u64::from_le_bytes(part(bytes, 24)));
        let kind = u32::from_le_bytes(part(bytes, 48));
        let identity = match (kind, DeviceId::from_bytes(part(bytes, 32))) {
            (KIND_NONE, None) => Identity::None,
            (KIND_LABELLED, Some(id)) => Identity::Label { id, is_written: true },
            (KIND_UNWRITTEN, Some(id)) => Identity::Label { id, is_written: false },
            (KIND_MEMORY, Some(id)) => Identity::Memory(id),
            _ => {
                return Err(Error::damaged(format!("a device is of kind {kind}, which its identity is not")));
            }
        };
        if reserved >= blocks {
            return Err(Error::damaged(format!("of {blocks} of a device {reserved} are reserved")));
        }
        let number = u32::from_le_bytes(part(bytes, 0));
        let extents = u64::from_le_bytes(part(bytes, 16));
        Ok(DeviceRecord { number, block, blocks, extents, reserved, identity })
    }
}

impl VolumeRecord {
    pub(super) fn to_bytes(self) -> [u8; VOLUME_BYTES] {
        let Ownership { owner, group, mode, read_only } = self.ownership;
        let flags = [
            (read_only, FLAG_READ_ONLY),
            (self.is_gone, FLAG_GONE),
            (self.is_thin, FLAG_THIN),
            (self.is_snapshot, FLAG_SNAPSHOT),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
        Writer::new()
            .put(self.id.to_le_bytes())
            .put(self.generation.to_le_bytes())
            .put(self.device.to_le_bytes())
            .put(owner.to_le_bytes())
            .put(group.to_le_bytes())
            .put(mode.bits().to_le_bytes())
            .put(flags.to_le_bytes())
            .put(self.blocks.0.to_le_bytes())
            .put(self.extents.to_le_bytes())
            .end()
    }

    pub(super) fn from_bytes(bytes: &[u8; VOLUME_BYTES]) -> Result<VolumeRecord, Error> {
        let mode = u16::from_le_bytes(part(bytes, 28));
        let mode = Mode::new(mode).map_err(|_| Error::damaged(format!("a volume has the mode {mode:o}")))?;
        let flags = u16::from_le_bytes(part(bytes, 30));
        let of_snapshot = FLAG_SNAPSHOT | FLAG_THIN | FLAG_READ_ONLY;
        let is_snapshot = flags & FLAG_SNAPSHOT != 0;
        if flags & !(of_snapshot | FLAG_GONE) != 0 || (is_snapshot && flags & of_snapshot != of_snapshot) {
            return Err(Error::damaged(format!("a volume has the flags {flags:x}")));
        }
        let owner = u32::from_le_bytes(part(bytes, 20));
        let group = u32::from_le_bytes(part(bytes, 24));
        let ownership = Ownership { owner, group, mode, read_only: flags & FLAG_READ_ONLY != 0 };
        Ok(VolumeRecord {
            id: u64::from_le_bytes(part(bytes, 0)),
            generation: u64::from_le_bytes(part(bytes, 8)),
            device: u32::from_le_bytes(part(bytes, 16)),
            ownership,
            is_gone: flags & FLAG_GONE != 0,
            is_thin: flags & FLAG_THIN != 0,
            is_snapshot,
            blocks: Blocks(u64::from_le_bytes(part(bytes, 32))),
            extents: u32::from_le_bytes(part(bytes, 40)),
        })
    }
}

pub(super) fn extents_to_bytes(extents: &[Extent]) -> Vec<u8> {
    extents.iter().flat_map(|extent| [extent.start.0, extent.length.0]).flat_map(u64::to_le_bytes).collect()
}

pub(super) fn extents_from_bytes(bytes: &[u8]) -> Result<Vec<Extent>, Error> {
    let (whole, rest) = bytes.as_chunks::<EXTENT_BYTES>();
    if !rest.is_empty() {
        return Err(Error::damaged(format!("the extents of a volume have {} bytes", bytes.len())));
    }
    let number = |bytes: &[u8], at| u64::from_le_bytes(part(bytes, at));
    Ok(whole.iter().map(|bytes| Extent::new(number(bytes, 0), number(bytes, 8))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Bytes;

    #[test]
    fn golden_device() {
        let device = DeviceRecord {
            number: 0x0403_0201,
            block: BlockSize::new(Bytes(4096)).unwrap(),
            blocks: Blocks(0x0000_0706_0504_0302),
            extents: 0x1817_1615_1413_1211,
            reserved: Blocks(0x0000_0000_0a09_0807),
            identity: Identity::Label {
                id: DeviceId::from_bytes(*b"0123456789abcdef").unwrap(),
                is_written: false,
            },
        };
        let mut bytes = [0; DEVICE_BYTES];
        let before = [
            0x01, 0x02, 0x03, 0x04, 12, 0, 0, 0, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0, 0, 0x11, 0x12, 0x13,
            0x14, 0x15, 0x16, 0x17, 0x18,
        ];
        bytes[..24].copy_from_slice(&before);
        bytes[24..28].copy_from_slice(&[7, 8, 9, 10]);
        bytes[32..48].copy_from_slice(b"0123456789abcdef");
        bytes[48] = 2;
        assert_eq!(device.to_bytes(), bytes);
        assert_eq!(DeviceRecord::from_bytes(&bytes).unwrap(), device);
        let before = DeviceRecord::from_before(&before).unwrap();
        assert_eq!(before, DeviceRecord { reserved: Blocks(0), identity: Identity::None, ..device });
    }

    #[test]
    fn golden_volume() {
        let ownership = Ownership {
            owner: 0x2423_2221,
            group: 0x2827_2625,
            mode: Mode::new(0o640).unwrap(),
            read_only: true,
        };
        let volume = VolumeRecord {
            id: 0x0807_0605_0403_0201,
            generation: 0x100f_0e0d_0c0b_0a09,
            device: 0x1413_1211,
            ownership,
            is_gone: true,
            is_thin: true,
            is_snapshot: true,
            blocks: Blocks(0x3837_3635_3433_3231),
            extents: 0x4443_4241,
        };
        let bytes = [
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23,
            0x24, 0x25, 0x26, 0x27, 0x28, 0xa0, 0x01, 15, 0, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
            0x41, 0x42, 0x43, 0x44,
        ];
        assert_eq!(volume.to_bytes(), bytes);
        assert_eq!(VolumeRecord::from_bytes(&bytes).unwrap(), volume);
    }

    #[test]
    fn golden_extents() {
        let extents = [Extent::new(1, 2), Extent::new(0x0102, u64::MAX)];
        let mut bytes = [0; 32];
        (bytes[0], bytes[8], bytes[16], bytes[17]) = (1, 2, 2, 1);
        bytes[24..].fill(0xff);
        assert_eq!(extents_to_bytes(&extents), bytes);
        assert_eq!(extents_from_bytes(&bytes).unwrap(), extents);
    }

    #[test]
    fn what_cannot_be_is_damage() {
        let good = DeviceRecord {
            number: 1,
            block: BlockSize::new(Bytes(512)).unwrap(),
            blocks: Blocks(1),
            extents: 0,
            reserved: Blocks(0),
            identity: Identity::None,
        }
        .to_bytes();
        for (at, byte) in [(4, 8), (4, 31), (8, 0), (15, 0xff), (24, 1), (32, 1), (48, 1), (48, 4)] {
            let mut bytes = good;
            bytes[at] = byte;
            assert!(matches!(DeviceRecord::from_bytes(&bytes), Err(Error::Damaged(_))), "{at}");
        }
        for (at, byte) in [(28, 1), (29, 2), (30, 8), (31, 1)] {
            let mut bytes = [0; VOLUME_BYTES];
            bytes[at] = byte;
            assert!(matches!(VolumeRecord::from_bytes(&bytes), Err(Error::Damaged(_))), "{at}");
        }
        assert!(matches!(extents_from_bytes(&[0; 17]), Err(Error::Damaged(_))));
    }
}
