//! The bytes of a device's label.
//!
//! ```text
//!   0        8         12      16                   32       40        48         56       60       64
//!   | magic  | version | flags | identity           | size   | created | sequence | length | 0      |
//!
//!   64                                                      128                              508    512
//!   | name, as many bytes as `length` says, then zeros      | zeros                          | check  |
//! ```
//!
//! Numbers are little-endian. *size*: size of the device, in bytes. *created*: seconds since 1970.
//! *sequence*: number of the label, one more for each label written to the device. *check*: CRC-32C of all
//! bytes before it. *flags*: 1 means that the volumes on the device ended with the server that had it.
//!
//! There are two places for labels, at byte 0 and at byte [`SECOND_AT`]. A new label is written at the place
//! that has the older label or none, so a torn write damages only the label that it replaces. The first
//! [`RESERVED_BYTES`] of a device are for its labels, and are part of no volume.

use super::{Label, LabelError};
use crate::extent::Bytes;
use crate::identity::DeviceId;

/// Size of a label, in bytes.
pub const LABEL_BYTES: usize = 512;
/// Size of the part at the beginning of a device that is for labels only, in bytes.
pub const RESERVED_BYTES: u64 = 1 << 20;
/// Offsets of the two places for labels, in bytes.
pub const LABEL_OFFSETS: [u64; 2] = [0, SECOND_AT];

const SECOND_AT: u64 = 512 << 10;
pub(super) const MAGIC: [u8; 8] = *b"BYWASHdv";
pub(super) const VERSION: u32 = 1;
pub(super) const FLAG_TEMPORARY: u32 = 1;
/// Greatest length of a name in a label, in bytes.
pub const LABEL_NAME_BYTES_MAX: usize = 64;

const VERSION_AT: usize = 8;
const FLAGS_AT: usize = VERSION_AT + 4;
const ID_AT: usize = FLAGS_AT + 4;
const SIZE_AT: usize = ID_AT + DeviceId::BYTES;
const CREATED_AT: usize = SIZE_AT + 8;
const SEQUENCE_AT: usize = CREATED_AT + 8;
const NAME_LENGTH_AT: usize = SEQUENCE_AT + 8;
const NAME_AT: usize = 64;
const NAME_END: usize = NAME_AT + LABEL_NAME_BYTES_MAX;
const CHECK_AT: usize = LABEL_BYTES - 4;

const _: () = assert!(NAME_LENGTH_AT + 8 == NAME_AT && NAME_END <= CHECK_AT);
const _: () = assert!(SECOND_AT + LABEL_BYTES as u64 <= RESERVED_BYTES);

impl Label {
    /// Encodes the label.
    ///
    /// # Panics
    /// If the name is empty or longer than [`LABEL_NAME_BYTES_MAX`].
    pub fn to_bytes(&self) -> [u8; LABEL_BYTES] {
        let name = self.name.as_bytes();
        assert!((1..=LABEL_NAME_BYTES_MAX).contains(&name.len()), "a label has a name of 1 to 64 bytes");
        let mut bytes = [0; LABEL_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(VERSION_AT, &VERSION.to_le_bytes());
        put(FLAGS_AT, &if self.is_temporary { FLAG_TEMPORARY } else { 0 }.to_le_bytes());
        put(ID_AT, &self.id.to_bytes());
        put(SIZE_AT, &self.size.0.to_le_bytes());
        put(CREATED_AT, &self.created_s.to_le_bytes());
        put(SEQUENCE_AT, &self.sequence.to_le_bytes());
        put(NAME_LENGTH_AT, &(name.len() as u32).to_le_bytes());
        put(NAME_AT, name);
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Decodes a label; `None` if the bytes do not begin with the magic of a label.
    ///
    /// # Errors
    /// [`LabelError::Damaged`] if the checksum or a field is wrong, [`LabelError::Newer`] if a later version
    /// wrote the label.
    pub fn from_bytes(bytes: &[u8; LABEL_BYTES]) -> Result<Option<Label>, LabelError> {
        if bytes[..MAGIC.len()] != MAGIC {
            return Ok(None);
        }
        if u32_at(bytes, CHECK_AT) != crc32c(&bytes[..CHECK_AT]) {
            return Err(LabelError::Damaged("its checksum is wrong"));
        }
        match u32_at(bytes, VERSION_AT) {
            VERSION => {}
            found => return Err(LabelError::Newer { found, known: VERSION }),
        }
        let flags = u32_at(bytes, FLAGS_AT);
        let length = u32_at(bytes, NAME_LENGTH_AT) as usize;
        let mut id = [0; DeviceId::BYTES];
        id.copy_from_slice(&bytes[ID_AT..SIZE_AT]);
        let id = DeviceId::from_bytes(id).ok_or(LabelError::Damaged("its identity is zero"))?;
        if flags & !FLAG_TEMPORARY != 0 || !(1..=LABEL_NAME_BYTES_MAX).contains(&length) {
            return Err(LabelError::Damaged("its flags or the length of its name cannot be"));
        }
        let name = std::str::from_utf8(&bytes[NAME_AT..NAME_AT + length]);
        let name = name.map_err(|_| LabelError::Damaged("its name is no text"))?.to_owned();
        Ok(Some(Label {
            id,
            name,
            size: Bytes(u64_at(bytes, SIZE_AT)),
            created_s: u64_at(bytes, CREATED_AT),
            sequence: u64_at(bytes, SEQUENCE_AT),
            is_temporary: flags == FLAG_TEMPORARY,
        }))
    }
}

fn u32_at(bytes: &[u8; LABEL_BYTES], at: usize) -> u32 {
    u64_at(bytes, at) as u32
}

/// Reads eight bytes, or fewer at the end of the label, as a little-endian number.
fn u64_at(bytes: &[u8; LABEL_BYTES], at: usize) -> u64 {
    let mut number = [0; 8];
    let length = number.len().min(LABEL_BYTES - at);
    number[..length].copy_from_slice(&bytes[at..at + length]);
    u64::from_le_bytes(number)
}

/// Computes the CRC-32C (Castagnoli) as in RFC 3720, appendix B.4.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL_REVERSED: u32 = 0x82f6_3b78;
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL_REVERSED } else { 0 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        Label {
            id: DeviceId::from_bytes(*b"0123456789abcdef").unwrap(),
            name: "disk".into(),
            size: Bytes(0x0807_0605_0403_0201),
            created_s: 0x1817_1615_1413_1211,
            sequence: 0x2827_2625_2423_2221,
            is_temporary: true,
        }
    }

    /// The example of RFC 3720, and the check value in catalogues of checksums.
    #[test]
    fn the_checksum_is_the_known_one() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn golden_label() {
        let mut golden = [0; LABEL_BYTES];
        golden[..16].copy_from_slice(b"BYWASHdv\x01\0\0\0\x01\0\0\0");
        golden[16..32].copy_from_slice(b"0123456789abcdef");
        golden[32..40].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        golden[40..48].copy_from_slice(&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        golden[48..56].copy_from_slice(&[0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
        golden[56] = 4;
        golden[64..68].copy_from_slice(b"disk");
        golden[508..].copy_from_slice(&GOLDEN_CHECK);
        assert_eq!(label().to_bytes(), golden);
        assert_eq!(Label::from_bytes(&golden), Ok(Some(label())));
    }

    /// CRC-32C of the 508 bytes above, computed by another program.
    const GOLDEN_CHECK: [u8; 4] = [0xb4, 0x77, 0x5c, 0x18];

    #[test]
    fn no_change_of_a_byte_passes_for_a_label() {
        let bytes = label().to_bytes();
        for at in 0..LABEL_BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x40;
            let read = Label::from_bytes(&changed);
            assert!(if at < 8 { read == Ok(None) } else { matches!(read, Err(LabelError::Damaged(_))) });
        }
        assert_eq!(Label::from_bytes(&[0; LABEL_BYTES]), Ok(None));
    }

    /// Changed fields with a valid checksum.
    #[test]
    fn what_cannot_be_is_refused() {
        for (at, byte) in [(12, 2), (13, 1), (56, 0), (56, 65), (57, 1), (64, 0xff)] {
            let mut bytes = label().to_bytes();
            bytes[at] = byte;
            sign(&mut bytes);
            assert!(matches!(Label::from_bytes(&bytes), Err(LabelError::Damaged(_))), "{at}");
        }
        let mut newer = label().to_bytes();
        newer[8] = 2;
        sign(&mut newer);
        assert_eq!(Label::from_bytes(&newer), Err(LabelError::Newer { found: 2, known: 1 }));
    }

    fn sign(bytes: &mut [u8; LABEL_BYTES]) {
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
    }
}
