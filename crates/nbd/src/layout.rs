//! Numbers and messages of the NBD protocol, named as in its specification (proto.md of the NBD project).
//!
//! ```text
//!   request             magic 4 │ flags 2 │ type 2 │ cookie 8 │ offset 8 │ length 4 │ payload of a write
//!   simple reply        magic 4 │ error 4 │ cookie 8 │ payload of a read
//!   structured chunk    magic 4 │ flags 2 │ type 2 │ cookie 8 │ length 4 │ payload
//!   option              magic 8 │ option 4 │ length 4 │ data
//!   option reply        magic 8 │ option 4 │ type 4 │ length 4 │ data
//! ```
//!
//! All numbers are big-endian. Called by `handshake`, `request` and `reply`.

use bywash_device::{Access, Geometry};
use bywash_export::Error;

/// First eight bytes that a server sends: `NBDMAGIC`.
pub(crate) const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Bytes before each option, and after the server's first magic number: `IHAVEOPT`.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First eight bytes of the reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First four bytes of a request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First four bytes of a simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First four bytes of a chunk of a structured reply.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Size of the header of a request, in bytes.
pub(crate) const REQUEST_BYTES: usize = 28;
/// Size of the header of an option, in bytes.
pub(crate) const OPTION_BYTES: usize = 16;
/// Size of a simple reply without payload, in bytes.
pub(crate) const SIMPLE_REPLY_BYTES: usize = 16;
/// Size of the header of a structured chunk, in bytes.
pub(crate) const CHUNK_BYTES: usize = 20;
/// Number of zeros that end the reply to `EXPORT_NAME`, unless the client has declined them.
pub(crate) const EXPORT_NAME_ZEROES: usize = 124;
/// Greatest length of a string of the protocol, in bytes.
pub(crate) const STRING_MAX: usize = 4096;
/// Greatest length of the payload of a request or reply, in bytes: clients may assume that a server takes as
/// much.
pub(crate) const PAYLOAD_MAX: u32 = 32 << 20;
/// Greatest minimum block size, in bytes, that a server may advertise.
const BLOCK_MAX: u32 = 64 << 10;

/// Handshake flags of the server: fixed newstyle, and no zeros at the end of the handshake.
pub(crate) const HANDSHAKE_FLAGS: u16 = (CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) as u16;
/// Client flag: the client speaks fixed newstyle.
pub(crate) const CLIENT_FIXED_NEWSTYLE: u32 = 1;
/// Client flag: the reply to `EXPORT_NAME` ends without zeros.
pub(crate) const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// Options that a client sends (`NBD_OPT_*`).
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options (`NBD_REP_*`).
pub(crate) mod option_reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(crate) const ERR_UNSUP: u32 = ERROR + 1;
    pub(crate) const ERR_POLICY: u32 = ERROR + 2;
    pub(crate) const ERR_INVALID: u32 = ERROR + 3;
    pub(crate) const ERR_TLS_REQD: u32 = ERROR + 5;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR + 6;
    pub(crate) const ERR_BLOCK_SIZE_REQD: u32 = ERROR + 8;
    pub(crate) const ERR_TOO_BIG: u32 = ERROR + 9;
}

/// Types of information about an export (`NBD_INFO_*`).
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export (`NBD_FLAG_*`).
pub(crate) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of requests (`NBD_CMD_*`).
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests (`NBD_CMD_FLAG_*`).
pub(crate) mod flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Types of structured chunks (`NBD_REPLY_TYPE_*`), and the flag of the last chunk.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
    pub(crate) const ERROR_OFFSET: u16 = (1 << 15) + 2;
    pub(crate) const DONE: u16 = 1;
}

/// Error values of replies (`NBD_E*`).
pub(crate) mod errno {
    pub(crate) const EPERM: u32 = 1;
    pub(crate) const EIO: u32 = 5;
    pub(crate) const ENOMEM: u32 = 12;
    pub(crate) const EINVAL: u32 = 22;
    pub(crate) const ENOSPC: u32 = 28;
    pub(crate) const EOVERFLOW: u32 = 75;
    pub(crate) const ENOTSUP: u32 = 95;
}

/// Name of the one metadata context.
pub(crate) const ALLOCATION: &str = "base:allocation";
/// Namespace of the context, which lists all its contexts as a query.
pub(crate) const BASE: &str = "base:";
/// Identifier of the context in replies.
pub(crate) const ALLOCATION_ID: u32 = 1;

/// Header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    /// Flags of the request (`flag`).
    pub(crate) flags: u16,
    /// Type of the request (`command`).
    pub(crate) kind: u16,
    /// Number that the client chose, which the reply returns.
    pub(crate) cookie: u64,
    /// Offset of the range in the export, in bytes.
    pub(crate) offset: u64,
    /// Length of the range, in bytes.
    pub(crate) length: u32,
}

impl RequestHeader {
    /// Decodes a header; `None` if the magic number is wrong.
    #[inline]
    pub(crate) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<RequestHeader> {
        let [m0, m1, m2, m3, f0, f1, k0, k1, rest @ ..] = *bytes;
        let [c @ .., _, _, _, _, _, _, _, _, _, _, _, _] = rest;
        let [_, _, _, _, _, _, _, _, o @ .., l0, l1, l2, l3] = rest;
        (u32::from_be_bytes([m0, m1, m2, m3]) == REQUEST_MAGIC).then(|| RequestHeader {
            flags: u16::from_be_bytes([f0, f1]),
            kind: u16::from_be_bytes([k0, k1]),
            cookie: u64::from_be_bytes(c),
            offset: u64::from_be_bytes(o),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }
}

/// Header of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionHeader {
    /// Number of the option (`option`).
    pub(crate) option: u32,
    /// Length of the option's data, in bytes.
    pub(crate) length: u32,
}

impl OptionHeader {
    /// Decodes a header; `None` if the magic number is wrong.
    pub(crate) fn decode(bytes: &[u8; OPTION_BYTES]) -> Option<OptionHeader> {
        let [magic @ .., o0, o1, o2, o3, l0, l1, l2, l3] = *bytes;
        (u64::from_be_bytes(magic) == OPTION_MAGIC).then(|| OptionHeader {
            option: u32::from_be_bytes([o0, o1, o2, o3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }
}

/// Encodes a simple reply.
#[inline]
pub(crate) fn simple_reply(error: u32, cookie: u64) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Encodes the header of a structured chunk whose payload has `length` bytes.
#[inline]
pub(crate) fn chunk_header(flags: u16, kind: u16, cookie: u64, length: u32) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Appends a reply to an option.
pub(crate) fn option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[&[u8]]) {
    let length: usize = data.iter().map(|part| part.len()).sum();
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    // The data are names, descriptions and messages, each shorter than `STRING_MAX`.
    out.extend((length as u32).to_be_bytes());
    data.iter().for_each(|part| out.extend(*part));
}

/// Returns the transmission flags of an export.
pub(crate) fn transmission_flags(geometry: &Geometry, is_structured: bool) -> u16 {
    use transmission as flags;
    let always = flags::HAS_FLAGS | flags::SEND_FLUSH | flags::SEND_FUA | flags::CAN_MULTI_CONN;
    let writing = match geometry.access {
        Access::Read => flags::READ_ONLY,
        _ => flags::SEND_TRIM | flags::SEND_WRITE_ZEROES | flags::SEND_FAST_ZERO,
    };
    always | writing | if is_structured { flags::SEND_DF } else { 0 }
}

/// Block sizes of an export, in bytes: minimum, preferred and maximum.
pub(crate) fn block_sizes(geometry: &Geometry) -> [u32; 3] {
    let preferred = geometry.optimal.max(geometry.block).checked_next_power_of_two();
    [geometry.block, preferred.unwrap_or(geometry.block).min(PAYLOAD_MAX), PAYLOAD_MAX]
}

/// Checks that a device can be an export.
///
/// # Errors
/// [`Error::Unfit`] if its blocks are no power of two from 512 bytes to 64 KiB, if it is empty or may only be
/// written, or if its commands take less than a block.
pub(crate) fn check(geometry: &Geometry) -> Result<(), Error> {
    let Geometry { bytes, block, transfer_max, range_max, segments_max, access, .. } = *geometry;
    let block_bytes = u64::from(block);
    let reason = if !block.is_power_of_two() || !(512..=BLOCK_MAX).contains(&block) {
        format!("its blocks have {block} bytes, and should have a power of two from 512 to {BLOCK_MAX}")
    } else if bytes == 0 || !bytes.is_multiple_of(block_bytes) {
        format!("its {bytes} bytes are no whole blocks of {block}, or none")
    } else if access == Access::Write {
        "it may only be written; open it to be read as well".to_owned()
    } else if segments_max == 0 || transfer_max < block_bytes || range_max < block_bytes {
        format!("its commands take {transfer_max} or {range_max} bytes, less than a block")
    } else {
        return Ok(());
    };
    Err(Error::Unfit(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_bytes_of_the_specification() {
        assert_eq!(MAGIC.to_be_bytes(), *b"NBDMAGIC");
        assert_eq!(OPTION_MAGIC.to_be_bytes(), *b"IHAVEOPT");
        let request =
            b"\x25\x60\x95\x13\x00\x01\x00\x02abcdefgh\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x10\x00";
        let header = RequestHeader {
            flags: 1,
            kind: 2,
            cookie: u64::from_be_bytes(*b"abcdefgh"),
            offset: 0x0102_0304_0506_0708,
            length: 4096,
        };
        assert_eq!(RequestHeader::decode(request), Some(header));
        let mut wrong = *request;
        wrong[3] ^= 1;
        assert_eq!(RequestHeader::decode(&wrong), None);
        let option = OptionHeader::decode(b"IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x0a");
        assert_eq!(option, Some(OptionHeader { option: 7, length: 10 }));
        assert_eq!(OptionHeader::decode(b"IHAVEOPX\x00\x00\x00\x07\x00\x00\x00\x0a"), None);
        assert_eq!(simple_reply(22, header.cookie), *b"\x67\x44\x66\x98\x00\x00\x00\x16abcdefgh");
        let chunk = chunk_header(1, 5, header.cookie, 12);
        assert_eq!(chunk, *b"\x66\x8e\x33\xef\x00\x01\x00\x05abcdefgh\x00\x00\x00\x0c");
        let mut out = Vec::new();
        option_reply(&mut out, 3, option_reply::SERVER, &[b"\x00\x00\x00\x01", b"x"]);
        let reply = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00\x05\x00\x00\x00\x01x";
        assert_eq!(out, reply);
    }

    const GEOMETRY: Geometry = Geometry {
        bytes: 1 << 20,
        block: 512,
        optimal: 3000,
        transfer_max: 4096,
        range_max: 4096,
        segments_max: 1,
        access: Access::ReadWrite,
    };

    #[test]
    fn the_sizes_of_blocks_are_valid_ones() {
        assert_eq!(block_sizes(&GEOMETRY), [512, 4096, 32 << 20]);
        assert_eq!(block_sizes(&Geometry { optimal: u32::MAX, ..GEOMETRY }), [512, 512, 32 << 20]);
    }

    #[test]
    fn devices_that_cannot_be_exports_are_refused() {
        assert!(check(&GEOMETRY).is_ok());
        for (geometry, reason) in [
            (Geometry { block: 256, ..GEOMETRY }, "power of two"),
            (Geometry { block: 128 << 10, ..GEOMETRY }, "power of two"),
            (Geometry { bytes: 0, ..GEOMETRY }, "or none"),
            (Geometry { bytes: 1000, ..GEOMETRY }, "whole blocks"),
            (Geometry { access: Access::Write, ..GEOMETRY }, "only be written"),
            (Geometry { transfer_max: 511, ..GEOMETRY }, "less than a block"),
            (Geometry { segments_max: 0, ..GEOMETRY }, "less than a block"),
        ] {
            let error = check(&geometry).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
