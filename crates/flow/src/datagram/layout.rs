//! Header of a packet of a sequenced transfer, byte by byte. Numbers are big-endian.
//!
//! ```text
//!      0       2         3      4      6        8          16         24         32
//!     +-------+---------+------+------+--------+----------+----------+----------+---------
//!     | magic | version | kind | port | length | transfer | sequence | position | payload
//!     +-------+---------+------+------+--------+----------+----------+----------+---------
//! ```
//!
//! | kind | sequence | position | payload |
//! |---|---|---|---|
//! | data | the packet's number, from 0 | position of the payload in the stream | bytes of the stream |
//! | end | number of packets | number of bytes | none |
//! | probe | the packet's number in its step | the step's number | padding |
//! | report | 0 | 0 | a [`Report`] |
//! | ask | packets of the step | the step's number | none |
//! | sync | packets so far | bytes so far | none |
//! | done | 0 | 0 | none |
//!
//! A report:
//!
//! ```text
//!      0       4      8         16     24           32             40        48         56       64
//!     +-------+------+---------+------+------------+--------------+---------+----------+--------+
//!     | about | step | packets | lost | duplicated | kernel_drops | span_ns | position | buffer |
//!     +-------+------+---------+------+------------+--------------+---------+----------+--------+
//! ```
//!
//! Invariant: the payload that [`Header::read`] returns is not longer than the packet. The length is in the
//! header because Ethernet pads short frames. The port is for Ethernet only; it is 0 over UDP, which has
//! ports of its own.

/// EtherType of the frames, which no registered protocol has.
pub(crate) const ETHER_TYPE: u16 = 0x0A0A;
/// Offset of the magic number in a packet, for filters.
pub(crate) const MAGIC_OFFSET: u32 = 0;
/// Offset of the port in a packet, for filters.
pub(crate) const PORT_OFFSET: u32 = 4;
pub(crate) const MAGIC: u16 = 0xB7A5;
/// Size of a header, in bytes.
pub(crate) const HEADER_BYTES: usize = 32;
/// Size of a report, in bytes.
pub(crate) const REPORT_BYTES: usize = 64;
/// Greatest payload in bytes, limited by the field of its length.
pub(crate) const PAYLOAD_BYTES_MAX: usize = u16::MAX as usize;

const VERSION: u8 = 1;

/// PacketKind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PacketKind {
    /// Bytes of the stream.
    Data = 1,
    /// End of the stream, with the number of its bytes; answered by a report.
    End = 2,
    /// Padding, to measure loss at a rate.
    Probe = 3,
    /// Report of the receiver.
    Report = 4,
    /// Request for a report about a step of probes.
    Ask = 5,
    /// Request for a report about the data so far.
    Sync = 6,
    /// Acknowledgement of the last report.
    Done = 7,
}

/// Header in front of every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: PacketKind,
    pub port: u16,
    pub length: u16,
    /// Random number of the transfer, which tells a restarted sender from the earlier one.
    pub transfer: u64,
    pub sequence: u64,
    pub position: u64,
}

/// Subject of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum About {
    /// One step of probes.
    Probe = 1,
    /// The data so far.
    Progress = 2,
    /// All data.
    End = 3,
}

/// Report of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub about: About,
    /// Number of the step of probes.
    pub step: u32,
    /// Number of packets received, of the step or of the data.
    pub packets: u64,
    /// Number of missing packets below the highest number received.
    pub lost: u64,
    pub duplicated: u64,
    pub kernel_drops: u64,
    /// Time from the first probe of the step to its last, in nanoseconds.
    pub span_ns: u64,
    /// Highest position of the stream that was received.
    pub position: u64,
    /// Size of the receiver's socket buffer, in bytes.
    pub buffer: u64,
}

impl Header {
    pub(crate) fn write(&self, to: &mut [u8; HEADER_BYTES]) {
        to[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        to[2] = VERSION;
        to[3] = self.kind as u8;
        to[4..6].copy_from_slice(&self.port.to_be_bytes());
        to[6..8].copy_from_slice(&self.length.to_be_bytes());
        to[8..16].copy_from_slice(&self.transfer.to_be_bytes());
        to[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        to[24..32].copy_from_slice(&self.position.to_be_bytes());
    }

    /// Splits a packet into header and payload; `None` if it is not a packet of this protocol.
    pub(crate) fn read(packet: &[u8]) -> Option<(Header, &[u8])> {
        let (head, rest) = packet.split_first_chunk::<HEADER_BYTES>()?;
        if short(head, 0) != MAGIC || head[2] != VERSION {
            return None;
        }
        let kind = match head[3] {
            1 => PacketKind::Data,
            2 => PacketKind::End,
            3 => PacketKind::Probe,
            4 => PacketKind::Report,
            5 => PacketKind::Ask,
            6 => PacketKind::Sync,
            7 => PacketKind::Done,
            _ => return None,
        };
        let header = Header {
            kind,
            port: short(head, 4),
            length: short(head, 6),
            transfer: long(head, 8),
            sequence: long(head, 16),
            position: long(head, 24),
        };
        Some((header, rest.get(..usize::from(header.length))?))
    }
}

/// Overwrites the port in a header.
pub(crate) fn set_port(head: &mut [u8; HEADER_BYTES], port: u16) {
    head[PORT_OFFSET as usize..][..2].copy_from_slice(&port.to_be_bytes());
}

impl Report {
    pub(crate) fn write(&self) -> [u8; REPORT_BYTES] {
        let mut to = [0; REPORT_BYTES];
        to[0..4].copy_from_slice(&(self.about as u32).to_be_bytes());
        to[4..8].copy_from_slice(&self.step.to_be_bytes());
        let numbers = [
            self.packets,
            self.lost,
            self.duplicated,
            self.kernel_drops,
            self.span_ns,
            self.position,
            self.buffer,
        ];
        for (place, number) in to[8..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        to
    }

    pub(crate) fn read(payload: &[u8]) -> Option<Report> {
        let bytes = payload.first_chunk::<REPORT_BYTES>()?;
        let about = match u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) {
            1 => About::Probe,
            2 => About::Progress,
            3 => About::End,
            _ => return None,
        };
        Some(Report {
            about,
            step: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            packets: long(bytes, 8),
            lost: long(bytes, 16),
            duplicated: long(bytes, 24),
            kernel_drops: long(bytes, 32),
            span_ns: long(bytes, 40),
            position: long(bytes, 48),
            buffer: long(bytes, 56),
        })
    }
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(number)
}

const _: () = assert!(HEADER_BYTES == 2 + 1 + 1 + 2 + 2 + 3 * 8);
const _: () = assert!(REPORT_BYTES == 4 + 4 + 7 * 8);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header = Header {
        kind: PacketKind::Data,
        port: 0x0102,
        length: 3,
        transfer: 0x1112_1314_1516_1718,
        sequence: 0x2122_2324_2526_2728,
        position: 0x3132_3334_3536_3738,
    };

    #[test]
    fn golden_bytes_of_a_packet() {
        let mut head = [0; HEADER_BYTES];
        HEADER.write(&mut head);
        let golden = [
            0xB7, 0xA5, 1, 1, 1, 2, 0, 3, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23,
            0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
        ];
        assert_eq!(head, golden);
        set_port(&mut head, 0x0708);
        assert_eq!(head[4..6], [7, 8]);
    }

    #[test]
    fn golden_bytes_of_a_report() {
        let report = Report {
            about: About::End,
            step: 2,
            packets: 3,
            lost: 4,
            duplicated: 5,
            kernel_drops: 6,
            span_ns: 7,
            position: 8,
            buffer: 9,
        };
        let mut golden = [0; REPORT_BYTES];
        golden[3] = 3;
        golden[7] = 2;
        for number in 3..=9 {
            golden[8 * (number - 2) + 7] = number as u8;
        }
        assert_eq!(report.write(), golden);
        assert_eq!(Report::read(&golden), Some(report));
    }

    #[test]
    fn padding_is_cut_off_and_what_is_cut_short_is_no_packet() {
        let mut packet = [0; HEADER_BYTES + 14];
        HEADER.write(packet.first_chunk_mut().unwrap());
        packet[HEADER_BYTES..][..3].copy_from_slice(b"abc");
        assert_eq!(Header::read(&packet), Some((HEADER, &b"abc"[..])));
        assert_eq!(Header::read(&packet[..HEADER_BYTES + 2]), None);
        for (place, byte) in [(0, 0), (2, 9), (3, 0), (3, 8)] {
            let mut other = packet;
            other[place] = byte;
            assert_eq!(Header::read(&other), None);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_without_harm(packet in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((header, payload)) = Header::read(&packet) {
                prop_assert_eq!(payload.len(), usize::from(header.length));
            }
            let _ = Report::read(&packet);
        }
    }
}
