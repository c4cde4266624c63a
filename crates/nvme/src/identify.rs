//! Data structures that Identify returns: controller, namespace, list of active namespaces (Base Specification 2.0,
//! section 5.17.2; NVM Command Set Specification, section 4.1.5). Pure.
//!
//! The driver supports logical blocks of 512 and 4096 bytes without metadata and end-to-end protection, and refuses all
//! others, naming the format.

use crate::dma::PAGE;
use crate::error::Error;

/// Size of the data structures, in bytes.
pub const IDENTIFY_BYTES: usize = PAGE;

/// Values of Controller or Namespace Structure (CNS).
pub mod structure {
    /// Namespace, as its NVM command set describes it.
    pub const NAMESPACE: u8 = 0x00;
    /// Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespaces: numbers in ascending order, greater than the command's.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Limits of the controller for the NVM command set.
    pub const NVM_LIMITS: u8 = 0x06;
}

/// Properties of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerIdentity {
    /// Serial number (SN).
    pub serial: String,
    /// Model number (MN).
    pub model: String,
    /// Firmware revision (FR).
    pub firmware: String,
    /// Greatest number of bytes that a command moves (MDTS); `None` for no limit.
    pub transfer_max: Option<u64>,
    /// True if the controller has shadow doorbells (OACS bit 8).
    pub has_doorbell_buffers: bool,
    /// True if Compare is supported (ONCS bit 0).
    pub has_compare: bool,
    /// True if Dataset Management is supported (ONCS bit 2).
    pub has_deallocate: bool,
    /// True if Write Zeroes is supported (ONCS bit 3).
    pub has_write_zeroes: bool,
    /// True if Verify is supported (ONCS bit 7).
    pub has_verify: bool,
    /// True if commands of the NVM command set may use scatter/gather lists (SGLS).
    pub has_sgl: bool,
    /// True if addresses and lengths in scatter/gather lists have to be multiples of 4 bytes (SGLS bits 1:0 = 10b).
    pub sgl_is_aligned: bool,
}

impl ControllerIdentity {
    /// Reads the data structure; `page_min` is the controller's smallest page, in bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the controller does not take commands of 64 bytes and completions of 16 bytes, or is
    /// not an I/O controller.
    pub fn read(data: &[u8; IDENTIFY_BYTES], page_min: u64) -> Result<ControllerIdentity, Error> {
        let is_possible = |sizes: u8, exponent: u8| (sizes & 0xf) <= exponent && exponent <= sizes >> 4;
        if !is_possible(data[512], 6) || !is_possible(data[513], 4) {
            return Err(unsupported("its queue entries have other sizes than 64 and 16 bytes".into()));
        }
        // CNTRLTYPE: 0 is not reported (before 1.4), 1 an I/O controller.
        if data[111] > 1 {
            return Err(unsupported(format!("it is of type {} and no I/O controller", data[111])));
        }
        let (oacs, oncs, sgls) = (word16(data, 256), word16(data, 520), word32(data, 536));
        Ok(ControllerIdentity {
            serial: text(&data[4..24]),
            model: text(&data[24..64]),
            firmware: text(&data[64..72]),
            transfer_max: exponent(data[77], page_min),
            has_doorbell_buffers: oacs >> 8 & 1 == 1,
            has_compare: oncs & 1 == 1,
            has_deallocate: oncs >> 2 & 1 == 1,
            has_write_zeroes: oncs >> 3 & 1 == 1,
            has_verify: oncs >> 7 & 1 == 1,
            has_sgl: matches!(sgls & 3, 1 | 2),
            sgl_is_aligned: sgls & 3 == 2,
        })
    }
}

/// Limits of commands that move no data, from the structure [`structure::NVM_LIMITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmLimits {
    /// Greatest number of bytes that Verify checks (VSL); `None` for no limit.
    pub verify_max: Option<u64>,
    /// Greatest number of bytes that Write Zeroes sets (WZSL); `None` for no limit.
    pub zeroes_max: Option<u64>,
    /// Greatest number of blocks that a range of Dataset Management has (DMRSL); `None` for no limit.
    pub deallocate_blocks_max: Option<u32>,
}

impl NvmLimits {
    /// Limits of a controller that does not report any.
    pub const NONE: NvmLimits = NvmLimits { verify_max: None, zeroes_max: None, deallocate_blocks_max: None };

    /// Reads the data structure; `page_min` is the controller's smallest page, in bytes.
    pub fn read(data: &[u8; IDENTIFY_BYTES], page_min: u64) -> NvmLimits {
        let blocks = word32(data, 4);
        NvmLimits {
            verify_max: exponent(data[0], page_min),
            zeroes_max: exponent(data[1], page_min),
            deallocate_blocks_max: (blocks > 0).then_some(blocks),
        }
    }
}

/// Properties of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceIdentity {
    /// Number of the namespace (NSID).
    pub number: u32,
    /// Size of the namespace, in blocks (NSZE).
    pub blocks: u64,
    /// Size of a block, in bytes: 512 or 4096.
    pub block: u32,
    /// True if the namespace is write protected (NSATTR bit 0).
    pub is_read_only: bool,
}

impl NamespaceIdentity {
    /// Reads the data structure of namespace `number`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the namespace is not active, its blocks have another size than 512 or 4096 bytes, or
    /// its format has metadata or end-to-end protection.
    pub fn read(data: &[u8; IDENTIFY_BYTES], number: u32) -> Result<NamespaceIdentity, Error> {
        let blocks = word64(data, 0);
        if blocks == 0 {
            return Err(unsupported(format!(
                "it has no active namespace {number}: give none, and its only one is used, or all are named"
            )));
        }
        // FLBAS: bits 3:0 and, if there are more than 16 formats (NLBAF is zero-based), 6:5.
        let (formats, selected) = (usize::from(data[25]) + 1, data[26]);
        let upper = if formats > 16 { usize::from(selected >> 5 & 3) << 4 } else { 0 };
        let format = word32(data, 128 + 4 * (usize::from(selected & 0xf) | upper));
        let (metadata, exponent) = (format & 0xffff, format >> 16 & 0xff);
        let advice = "give it back to the kernel; `nvme format --lbaf` chooses another format, and erases the namespace";
        if metadata > 0 {
            return Err(unsupported(format!(
                "the blocks of namespace {number} have {metadata} bytes of metadata each, and only formats without \
                 metadata are supported: {advice}"
            )));
        }
        // DPS bits 2:0: type of protection information.
        if data[29] & 7 != 0 {
            return Err(unsupported(format!(
                "namespace {number} has end-to-end protection of type {}, which is not supported: {advice}",
                data[29] & 7
            )));
        }
        if exponent != 9 && exponent != 12 {
            return Err(unsupported(format!(
                "the blocks of namespace {number} have 2^{exponent} bytes, and only 512 and 4096 are supported: {advice}"
            )));
        }
        if blocks.checked_mul(1 << exponent).is_none_or(|bytes| bytes > i64::MAX as u64) {
            return Err(unsupported(format!(
                "namespace {number} has {blocks} blocks, more than a size in bytes can say"
            )));
        }
        let is_read_only = data[99] & 1 == 1;
        Ok(NamespaceIdentity { number, blocks, block: 1 << exponent, is_read_only })
    }

    /// Returns the size of the namespace, in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block)
    }
}

/// Returns the namespaces of a list of active namespaces: at most 1024, ended by a zero.
pub fn active_namespaces(data: &[u8; IDENTIFY_BYTES]) -> Vec<u32> {
    let numbers = (0..IDENTIFY_BYTES / 4).map(|index| word32(data, 4 * index));
    numbers.take_while(|number| *number != 0).collect()
}

fn unsupported(reason: String) -> Error {
    Error::Unsupported { reason }
}

/// Returns the limit that `2^exponent` pages are; an exponent of 0 stands for no limit.
fn exponent(exponent: u8, page_min: u64) -> Option<u64> {
    (exponent > 0)
        .then(|| page_min.checked_shl(exponent.into()).filter(|limit| *limit > 0).unwrap_or(u64::MAX))
}

pub(crate) fn word16(data: &[u8; IDENTIFY_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([data[at], data[at + 1]])
}

pub(crate) fn word32(data: &[u8; IDENTIFY_BYTES], at: usize) -> u32 {
    u32::from(word16(data, at)) | u32::from(word16(data, at + 2)) << 16
}

fn word64(data: &[u8; IDENTIFY_BYTES], at: usize) -> u64 {
    u64::from(word32(data, at)) | u64::from(word32(data, at + 4)) << 32
}

/// Returns an ASCII string of a data structure, without the spaces at its end and without control characters.
fn text(bytes: &[u8]) -> String {
    let letters = bytes.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' });
    letters.collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(blocks: u64, format: u32) -> [u8; IDENTIFY_BYTES] {
        let mut data = [0; IDENTIFY_BYTES];
        data[..8].copy_from_slice(&blocks.to_le_bytes());
        (data[25], data[26]) = (3, 2);
        data[136..140].copy_from_slice(&format.to_le_bytes());
        data
    }

    #[test]
    fn blocks_of_512_and_4096_bytes_are_taken() {
        for (exponent, block) in [(9, 512), (12, 4096)] {
            let read = NamespaceIdentity::read(&namespace(1000, exponent << 16), 7).unwrap();
            assert_eq!(read, NamespaceIdentity { number: 7, blocks: 1000, block, is_read_only: false });
            assert_eq!(read.bytes(), 1000 * u64::from(block));
        }
    }

    #[test]
    fn other_formats_are_refused_by_name() {
        let mut protected = namespace(8, 9 << 16);
        protected[29] = 1;
        for (data, what) in [
            (namespace(0, 9 << 16), "no active namespace 7"),
            (namespace(8, 9 << 16 | 8), "8 bytes of metadata"),
            (namespace(8, 12 << 16 | 64), "64 bytes of metadata"),
            (namespace(8, 11 << 16), "2^11 bytes"),
            (namespace(8, 0), "2^0 bytes"),
            (namespace(8, 0xff << 16), "2^255 bytes"),
            (namespace(u64::MAX, 9 << 16), "more than a size"),
            (protected, "end-to-end protection of type 1"),
        ] {
            let error = NamespaceIdentity::read(&data, 7).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_format_beyond_the_sixteenth_is_found() {
        let mut data = namespace(8, 0);
        // Format 17: 1 in bits 3:0, 1 in bits 6:5.
        (data[25], data[26]) = (31, 0x21);
        data[128 + 4 * 17 + 2] = 12;
        assert_eq!(NamespaceIdentity::read(&data, 1).unwrap().block, 4096);
    }

    #[test]
    fn a_controller_is_read() {
        let mut data = [0; IDENTIFY_BYTES];
        data[4..12].copy_from_slice(b"test0001");
        data[24..28].copy_from_slice(b"QEMU");
        (data[77], data[512], data[513]) = (7, 0x66, 0x44);
        (data[257], data[520], data[536]) = (1, 0x0d, 1);
        let read = ControllerIdentity::read(&data, 4096).unwrap();
        assert_eq!((read.serial.as_str(), read.model.as_str()), ("test0001", "QEMU"));
        assert_eq!(read.transfer_max, Some(512 << 10));
        assert!(read.has_compare && read.has_deallocate && read.has_write_zeroes);
        assert!(read.has_doorbell_buffers && read.has_sgl && !read.sgl_is_aligned && !read.has_verify);
        data[520] = 1 << 7;
        assert!(ControllerIdentity::read(&data, 4096).unwrap().has_verify);
        data[77] = 0;
        assert_eq!(ControllerIdentity::read(&data, 4096).unwrap().transfer_max, None);
        data[111] = 3;
        assert!(ControllerIdentity::read(&data, 4096).unwrap_err().to_string().contains("type 3"));
        (data[111], data[512]) = (0, 0x77);
        assert!(ControllerIdentity::read(&data, 4096).unwrap_err().to_string().contains("64 and 16"));
    }

    #[test]
    fn limits_of_absurd_size_are_none() {
        let mut data = [0; IDENTIFY_BYTES];
        assert_eq!(NvmLimits::read(&data, 4096), NvmLimits::NONE);
        (data[0], data[1], data[4]) = (7, 255, 9);
        let read = NvmLimits::read(&data, 4096);
        assert_eq!((read.zeroes_max, read.deallocate_blocks_max), (Some(u64::MAX), Some(9)));
        assert_eq!(read.verify_max, Some(512 << 10));
        data[1] = 60;
        assert_eq!(NvmLimits::read(&data, 4096).zeroes_max, Some(u64::MAX));
    }

    #[test]
    fn a_list_of_namespaces_ends_with_a_zero_or_the_page() {
        let mut data = [0; IDENTIFY_BYTES];
        (data[0], data[4], data[12]) = (1, 9, 5);
        assert_eq!(active_namespaces(&data), [1, 9]);
        assert_eq!(active_namespaces(&[1; IDENTIFY_BYTES]).len(), 1024);
    }
}
