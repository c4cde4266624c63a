//! The configuration space and the requests of a virtio block device, byte by byte: virtio 1.2, section 5.2.
//!
//! ```text
//!   configuration, 60 bytes, little-endian (5.2.4)
//!
//!    0 capacity, sectors, 8  |  8 size_max, 4     | 12 seg_max, 4
//!   16 geometry, 4           | 20 blk_size, 4     | 24 topology: exponent, offset, min 2, opt 4
//!   32 writeback, unused     | 34 num_queues, 2   | 36 max_discard_sectors, 4 | 40 max_discard_seg, 4
//!   44 discard_alignment, 4  | 48 max_write_zeroes_sectors, 4 | 52 max_write_zeroes_seg, 4 | 56 may_unmap, 1, unused 3
//!
//!   a request (5.2.6)                         a range, of those to discard and to write zeros (5.2.6)
//!
//!   readable:  type 4 | reserved 4 | sector 8 | data, or ranges      sector 8 | sectors 4 | flags 4
//!   writable:  data | status 1
//! ```
//!
//! The boundaries between descriptors have no meaning (2.7.4): the first 16 readable bytes are the head, and
//! the last writable byte is the status.
//!
//! Called by `request`, `disk`, `messages` and `export`.

use bywash_device::{Access, Geometry};
use bywash_export::Error;
use virtio_bindings::{virtio_blk as blk, virtio_config, virtio_ring};

/// Size of a sector, in bytes, whatever the block size is (5.2.4).
pub(crate) const SECTOR: u64 = 512;
/// Size of a request's head, in bytes.
pub(crate) const HEAD_BYTES: usize = 16;
/// Size of a range, in bytes.
pub(crate) const RANGE_BYTES: usize = 16;
/// Greatest length of a disk's name, in bytes.
pub(crate) const NAME_BYTES: usize = blk::VIRTIO_BLK_ID_BYTES as usize;
/// Size of the configuration, in bytes.
const CONFIGURATION_BYTES: usize = 60;
/// Number of bytes that a frontend may read; those behind the configuration are zeros.
const CONFIGURATION_BYTES_MAX: usize = 256;

/// Statuses of a completed request.
pub(crate) const OK: u8 = blk::VIRTIO_BLK_S_OK as u8;
pub(crate) const FAILED: u8 = blk::VIRTIO_BLK_S_IOERR as u8;
pub(crate) const UNSUPPORTED: u8 = blk::VIRTIO_BLK_S_UNSUPP as u8;

/// Feature bit: the driver flushes when it wants writes to be durable.
pub(crate) const FLUSHES: u64 = 1 << blk::VIRTIO_BLK_F_FLUSH;
/// Feature bit: each side tells the index from which on it wants to be notified.
pub(crate) const EVENT_INDEX: u64 = 1 << virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Returns the feature bits that a guest is offered, without those of vhost-user itself.
pub(crate) fn features(geometry: &Geometry) -> u64 {
    let ring = [virtio_ring::VIRTIO_RING_F_EVENT_IDX, virtio_ring::VIRTIO_RING_F_INDIRECT_DESC];
    let disk = [
        blk::VIRTIO_BLK_F_SIZE_MAX,
        blk::VIRTIO_BLK_F_SEG_MAX,
        blk::VIRTIO_BLK_F_BLK_SIZE,
        blk::VIRTIO_BLK_F_FLUSH,
        blk::VIRTIO_BLK_F_TOPOLOGY,
        blk::VIRTIO_BLK_F_MQ,
    ];
    let changes: &[u32] = match geometry.access == Access::Read {
        true => &[blk::VIRTIO_BLK_F_RO],
        false => &[blk::VIRTIO_BLK_F_DISCARD, blk::VIRTIO_BLK_F_WRITE_ZEROES],
    };
    let all = ring.iter().chain(&disk).chain(changes).chain(&[virtio_config::VIRTIO_F_VERSION_1]);
    all.fold(0, |features, bit| features | 1 << bit)
}

/// Checks that a device of this geometry can be a disk; [`Error::Unfit`] if not.
pub(crate) fn check(geometry: &Geometry) -> Result<(), Error> {
    let Geometry { bytes, block, transfer_max, range_max, segments_max, access, .. } = *geometry;
    let block_bytes = u64::from(block);
    let reason = if !block.is_power_of_two() || block_bytes < SECTOR {
        format!("its blocks have {block} bytes, and should have a power of two from 512 on")
    } else if bytes == 0 || !bytes.is_multiple_of(block_bytes) {
        format!("its {bytes} bytes are no whole blocks of {block}, or none")
    } else if access == Access::Write {
        "it may only be written; open it to be read as well".to_owned()
    } else if segments_max == 0 {
        "it takes no memory along with a request".to_owned()
    } else if segments(geometry).1 < block_bytes.max(PAGE) {
        format!(
            "it takes {transfer_max} bytes in {segments_max} segments: less than a page, or a block, in each"
        )
    } else if range_max < block_bytes {
        format!("it discards {range_max} bytes, less than a block, at a time")
    } else {
        return Ok(());
    };
    Err(Error::Unfit(reason))
}

/// Returns the greatest number of segments of a request and the greatest size of each, in bytes. Their
/// product is at most what the device takes.
///
/// The size is a multiple of a page, since Linux accepts no smaller unit for a segment. SeaBIOS uses only the
/// lower 16 bits of the product, and reads nothing if they are zero. An odd number of pages, and a number of
/// segments that is no multiple of 16, avoid that.
fn segments(geometry: &Geometry) -> (u64, u64) {
    let most = geometry.segments_max.min(u16::MAX.into()) as u64;
    let count = if most.is_multiple_of(16) { most - 1 } else { most };
    let pages = (geometry.transfer_max / count / PAGE).min(SEGMENT_PAGES_MAX);
    (count, (pages - u64::from(pages > 0 && pages.is_multiple_of(2))) * PAGE)
}

/// Least size of a guest's page, in bytes.
const PAGE: u64 = 4096;
/// Greatest number of pages of a segment, whose size must be below 2^32 bytes.
const SEGMENT_PAGES_MAX: u64 = (1 << 30) / PAGE;

/// Encodes the configuration that a guest reads.
pub(crate) fn configuration(geometry: &Geometry, queues: u16) -> [u8; CONFIGURATION_BYTES] {
    let mut bytes = [0; CONFIGURATION_BYTES];
    let mut put = |at: usize, value: u64, length: usize| {
        bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
    };
    let block = u64::from(geometry.block);
    let blocks = |bytes: u64| (bytes / block).clamp(1, u16::MAX.into());
    let optimal = u64::from(geometry.optimal).max(block);
    // A number of whole blocks, in sectors, that fits into 32 bits.
    let range = (geometry.range_max.min(u64::from(u32::MAX) * SECTOR) / block) * block / SECTOR;
    put(0, geometry.bytes / SECTOR, 8);
    let (count, bytes_max) = segments(geometry);
    put(8, bytes_max, 4);
    put(12, count, 4);
    put(20, block, 4);
    // The number of blocks in a physical block, as an exponent of two.
    put(24, u64::from((optimal / block).ilog2().min(u8::MAX.into())), 1);
    put(26, blocks(optimal), 2);
    put(28, optimal / block, 4);
    put(34, queues.into(), 2);
    if geometry.access != Access::Read {
        put(36, range, 4);
        put(40, RANGES_MAX as u64, 4);
        put(44, block / SECTOR, 4);
        put(48, range, 4);
        put(52, RANGES_MAX as u64, 4);
    }
    bytes
}

/// Greatest number of ranges in a request to discard or to write zeros; each becomes one request of the
/// device.
pub(crate) const RANGES_MAX: usize = 1;

/// Returns a part of the configuration; `None` if it extends beyond the readable bytes.
pub(crate) fn part(configuration: &[u8], offset: u32, bytes: u32) -> Option<Vec<u8>> {
    let (offset, bytes) = (offset as usize, bytes as usize);
    let end = offset.checked_add(bytes).filter(|end| *end <= CONFIGURATION_BYTES_MAX)?;
    let mut all = configuration.to_vec();
    all.resize(CONFIGURATION_BYTES_MAX, 0);
    Some(all[offset..end].to_vec())
}

/// Head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) kind: u32,
    pub(crate) sector: u64,
}

impl RequestHeader {
    pub(crate) fn from_bytes(bytes: [u8; HEAD_BYTES]) -> RequestHeader {
        RequestHeader { kind: word(&bytes, 0), sector: long(&bytes, 8) }
    }
}

/// Range of sectors to discard or to set to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    pub(crate) flags: u32,
}

impl Range {
    pub(crate) fn from_bytes(bytes: [u8; RANGE_BYTES]) -> Range {
        Range { sector: long(&bytes, 0), sectors: word(&bytes, 8), flags: word(&bytes, 12) }
    }
}

fn word(bytes: &[u8; 16], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8; 16], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        bytes: 64 << 20,
        block: 512,
        optimal: 4096,
        transfer_max: 1 << 20,
        range_max: 16 << 20,
        segments_max: 16,
        access: Access::ReadWrite,
    };

    #[test]
    fn golden_configuration() {
        let words = |geometry: &Geometry| -> Vec<u32> {
            let bytes = configuration(geometry, 3);
            bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
        };
        let common = [0x2_0000, 0, 0x1_1000, 15, 0, 512, 0x0008_0003, 8, 0x0003_0000];
        assert_eq!(words(&GEOMETRY), [&common[..], &[0x8000, 1, 1, 0x8000, 1, 0]].concat());
        let read_only = Geometry { access: Access::Read, ..GEOMETRY };
        assert_eq!(words(&read_only), [&common[..], &[0; 6]].concat());
    }

    #[test]
    fn golden_head_and_range() {
        let bytes: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(
            RequestHeader::from_bytes(bytes),
            RequestHeader { kind: 0x0302_0100, sector: 0x0f0e_0d0c_0b0a_0908 }
        );
        let range = Range { sector: 0x0706_0504_0302_0100, sectors: 0x0b0a_0908, flags: 0x0f0e_0d0c };
        assert_eq!(Range::from_bytes(bytes), range);
    }

    #[test]
    fn what_is_behind_the_configuration_are_zeros() {
        let all = configuration(&GEOMETRY, 1);
        assert_eq!(part(&all, 0, 60).unwrap(), all);
        assert_eq!(part(&all, 20, 4).unwrap(), [0, 2, 0, 0]);
        assert_eq!(part(&all, 56, 200).unwrap(), [0; 200]);
        for (offset, bytes) in [(0, 257), (256, 1), (u32::MAX, u32::MAX), (u32::MAX, 1)] {
            assert_eq!(part(&all, offset, bytes), None);
        }
    }

    #[test]
    fn segments_fill_no_more_than_the_device_takes() {
        for (transfer_max, segments_max) in
            [(1 << 20, 16), (1 << 30, 16), (u64::MAX, usize::MAX), (4096, 1), (1 << 20, 126)]
        {
            let (count, bytes) = segments(&Geometry { transfer_max, segments_max, ..GEOMETRY });
            assert!(count * bytes <= transfer_max && count <= segments_max as u64, "{count} of {bytes}");
            assert!((count * bytes) as u16 >= 4096, "{count} of {bytes}: nothing for SeaBIOS");
            assert!(u32::try_from(bytes).is_ok() && bytes.is_multiple_of(PAGE));
        }
    }

    #[test]
    fn what_is_offered_is_what_the_device_can() {
        let all = features(&GEOMETRY);
        let read_only = features(&Geometry { access: Access::Read, ..GEOMETRY });
        assert_eq!(all, 0x1_3000_7646);
        assert_eq!(read_only, 0x1_3000_1666);
    }

    #[test]
    fn what_makes_no_disk_is_named() {
        check(&GEOMETRY).unwrap();
        for (geometry, why) in [
            (Geometry { block: 1000, ..GEOMETRY }, "power of two"),
            (Geometry { block: 256, ..GEOMETRY }, "from 512"),
            (Geometry { bytes: 0, ..GEOMETRY }, "no whole blocks"),
            (Geometry { bytes: 1000, ..GEOMETRY }, "no whole blocks"),
            (Geometry { access: Access::Write, ..GEOMETRY }, "only be written"),
            (Geometry { segments_max: 0, ..GEOMETRY }, "no memory"),
            (Geometry { transfer_max: 4096, ..GEOMETRY }, "less than a page"),
            (Geometry { block: 16384, transfer_max: 16 * 8192, ..GEOMETRY }, "less than a page, or a block"),
            (Geometry { range_max: 0, ..GEOMETRY }, "less than a block, at a time"),
        ] {
            let error = check(&geometry).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
