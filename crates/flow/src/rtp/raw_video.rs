//! Frames in packets, by RFC 4175: rows are cut into segments of pixel groups, each with its row and offset.
//!
//! ```text
//!     0       2        4       6            8         ...
//!     +-------+--------+-------+------------+--------...+-------------...
//!     | high  | length | F line| C offset   | more      | groups of the segments, one behind the other
//!     | 16    |        |       |            | segments  |
//!     +-------+--------+-------+------------+--------...+-------------...
//! ```
//!
//! `high` are the upper bits of the sequence number, `F` is the field of interlaced video, and `C` tells that another
//! segment follows. A group of 4:2:2 has 2 pixels (Cb Y0 Cr Y1), one of 4:2:0 has 2 of each of 2 rows
//! (Y00 Y01 Y10 Y11 Cb Cr). Invariant: what another host wrote into a packet is checked before a byte is written.

use crate::video::{Picture, PixelFormat};

/// Size of the upper bits of the sequence number, in bytes.
const HIGH_BYTES: usize = 2;
/// Size of the header of a segment, in bytes.
const SEGMENT_BYTES: usize = 6;

/// Shape of the pixel groups of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Groups {
    /// Bytes of a group.
    bytes: usize,
    /// Rows of a group.
    down: usize,
    /// Groups of a row.
    in_row: usize,
    /// Rows of groups.
    rows: usize,
}

/// Columns of a group.
const ACROSS: usize = 2;

impl Groups {
    fn in_picture(picture: &Picture) -> Groups {
        let (bytes, down) = match picture.format {
            PixelFormat::Yuv420 => (6, 2),
            PixelFormat::Yuv422 => (4, 1),
            other => unreachable!("{} was refused by RtpFormat::check", other.name()),
        };
        Groups { bytes, down, in_row: picture.width / ACROSS, rows: picture.height / down }
    }
}

/// Cuts frames into the payloads of packets.
#[derive(Debug)]
pub(crate) struct VideoPacker {
    picture: Picture,
    groups: Groups,
    /// Greatest size of a payload, in bytes.
    payload_bytes: usize,
    /// Row of groups and group at which the next payload begins.
    row: usize,
    group: usize,
}

/// Smallest payload that carries a group.
pub(crate) const PAYLOAD_BYTES_MIN: usize = HIGH_BYTES + SEGMENT_BYTES + 6;

impl VideoPacker {
    /// Makes a packer of frames that [`super::format::RtpFormat::check`] accepts, for payloads of
    /// [`PAYLOAD_BYTES_MIN`] bytes or more.
    pub(crate) fn new(picture: Picture, payload_bytes: usize) -> VideoPacker {
        debug_assert!(payload_bytes >= PAYLOAD_BYTES_MIN);
        VideoPacker { picture, groups: Groups::in_picture(&picture), payload_bytes, row: 0, group: 0 }
    }

    /// Returns the part of the frame that was packed, 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        let all = (self.groups.rows * self.groups.in_row) as f64;
        (self.row * self.groups.in_row + self.group) as f64 / all
    }

    /// Appends the next payload of a frame to `packet`. `high` are the upper bits of the packet's sequence number.
    /// Returns true if the frame ends with it; the next call begins another frame.
    pub(crate) fn pack(&mut self, frame: &[u8], high: u16, packet: &mut Vec<u8>) -> bool {
        let Groups { bytes, down, in_row, rows } = self.groups;
        packet.extend_from_slice(&high.to_be_bytes());
        let mut room = self.payload_bytes - HIGH_BYTES;
        let headers = packet.len();
        let (first_row, first_group) = (self.row, self.group);
        let mut segments = 0;
        while self.row < rows && room >= SEGMENT_BYTES + bytes {
            let count = ((room - SEGMENT_BYTES) / bytes).min(in_row - self.group);
            room -= SEGMENT_BYTES + count * bytes;
            let continues =
                self.group + count == in_row && self.row + 1 < rows && room >= SEGMENT_BYTES + bytes;
            // The numbers fit, since a side has 15 bits and a payload 16.
            packet.extend_from_slice(&((count * bytes) as u16).to_be_bytes());
            packet.extend_from_slice(&((self.row * down) as u16).to_be_bytes());
            packet.extend_from_slice(
                &((self.group * ACROSS) as u16 | u16::from(continues) << 15).to_be_bytes(),
            );
            segments += 1;
            self.group += count;
            if self.group == in_row {
                (self.row, self.group) = (self.row + 1, 0);
            }
        }
        let (mut row, mut group) = (first_row, first_group);
        for segment in 0..segments {
            let at = headers + SEGMENT_BYTES * segment;
            let count = usize::from(u16::from_be_bytes([packet[at], packet[at + 1]])) / bytes;
            self.read_groups(frame, row, group, count, packet);
            (row, group) = (row + 1, 0);
        }
        let is_last = self.row == rows;
        if is_last {
            self.row = 0;
        }
        is_last
    }

    /// Appends groups of a frame to a packet.
    fn read_groups(&self, frame: &[u8], row: usize, group: usize, count: usize, packet: &mut Vec<u8>) {
        let Picture { width, height, .. } = self.picture;
        let Groups { bytes, down, in_row, rows } = self.groups;
        let (luma, chroma) = frame.split_at(width * height);
        let (blue, red) = chroma.split_at(in_row * rows);
        let at = packet.len();
        packet.resize(at + count * bytes, 0);
        let samples = row * in_row + group..row * in_row + group + count;
        let pairs = |line: usize| {
            let begin = line * width + ACROSS * group;
            luma[begin..begin + ACROSS * count].chunks_exact(ACROSS)
        };
        let colours = blue[samples.clone()].iter().zip(&red[samples]);
        let into = packet[at..].chunks_exact_mut(bytes);
        if down == 1 {
            for ((group, pair), (blue, red)) in into.zip(pairs(row)).zip(colours) {
                group.copy_from_slice(&[*blue, pair[0], *red, pair[1]]);
            }
        } else {
            let lines = pairs(down * row).zip(pairs(down * row + 1));
            for ((group, (upper, lower)), (blue, red)) in into.zip(lines).zip(colours) {
                group.copy_from_slice(&[upper[0], upper[1], lower[0], lower[1], *blue, *red]);
            }
        }
    }
}

/// A frame that is put together from packets.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    picture: Picture,
    groups: Groups,
    frame: Vec<u8>,
    /// Bit for each group: whether it has come.
    covered: Vec<u64>,
    /// Groups that have not come.
    missing: usize,
}

impl FrameBuffer {
    /// Makes an empty frame of a picture that [`super::format::RtpFormat::check`] accepts.
    pub(crate) fn new(picture: Picture) -> FrameBuffer {
        let groups = Groups::in_picture(&picture);
        let count = groups.in_row * groups.rows;
        let frame = vec![0; picture.frame_bytes()];
        FrameBuffer { picture, groups, frame, covered: vec![0; count.div_ceil(64)], missing: count }
    }

    /// Returns the frame; what has not come is as it was in the frame before, or in [`FrameBuffer::conceal`]'s.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Exchanges the frame for another one of the same picture.
    pub(crate) fn swap(&mut self, other: &mut Vec<u8>) {
        std::mem::swap(&mut self.frame, other);
    }

    /// Empties the frame for the next one.
    pub(crate) fn clear(&mut self) {
        self.covered.fill(0);
        self.missing = self.groups.in_row * self.groups.rows;
    }

    /// Returns true if all groups have come.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Returns true if no group has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.missing == self.groups.in_row * self.groups.rows
    }

    /// Takes the groups of a payload. Returns false if it is no payload of such frames; groups of segments in front of the
    /// wrong one have been taken then.
    pub(crate) fn take(&mut self, payload: &[u8]) -> bool {
        let Groups { bytes, down, in_row, rows } = self.groups;
        let mut header = HIGH_BYTES;
        // Where the groups begin: behind the last header.
        let mut at = HIGH_BYTES;
        loop {
            let Some(segment) = payload.get(at..at + SEGMENT_BYTES) else { return false };
            at += SEGMENT_BYTES;
            if segment[4] & 0x80 == 0 {
                break;
            }
        }
        loop {
            let half = |offset: usize| {
                usize::from(u16::from_be_bytes([payload[header + offset], payload[header + offset + 1]]))
            };
            let (length, line, offset) = (half(0), half(2), half(4));
            let (continues, offset) = (offset & 0x8000 != 0, offset & 0x7fff);
            let fits =
                length.is_multiple_of(bytes) && line.is_multiple_of(down) && offset.is_multiple_of(ACROSS);
            let (count, row, group) = (length / bytes, line / down, offset / ACROSS);
            // The bit of the second field is the upper one of the line, which no frame has.
            if !fits || row >= rows || group + count > in_row {
                return false;
            }
            let Some(samples) = payload.get(at..at + length) else { return false };
            self.write_groups(samples, row, group, count);
            at += length;
            header += SEGMENT_BYTES;
            if !continues {
                return true;
            }
        }
    }

    /// Fills what has not come from another frame. Returns true if there was something to fill.
    pub(crate) fn conceal(&mut self, other: &[u8]) -> bool {
        if self.is_whole() {
            return false;
        }
        let Picture { width, height, .. } = self.picture;
        let Groups { down, in_row, rows, .. } = self.groups;
        let chroma = [width * height, width * height + in_row * rows];
        for row in 0..rows {
            for group in 0..in_row {
                let number = row * in_row + group;
                if self.covered[number / 64] >> (number % 64) & 1 == 1 {
                    continue;
                }
                for line in 0..down {
                    let begin = (row * down + line) * width + ACROSS * group;
                    self.frame[begin..begin + ACROSS].copy_from_slice(&other[begin..begin + ACROSS]);
                }
                for plane in chroma {
                    self.frame[plane + number] = other[plane + number];
                }
            }
        }
        true
    }

    fn write_groups(&mut self, samples: &[u8], row: usize, group: usize, count: usize) {
        let Picture { width, height, .. } = self.picture;
        let Groups { bytes, down, in_row, rows } = self.groups;
        for number in row * in_row + group..row * in_row + group + count {
            let (word, bit) = (&mut self.covered[number / 64], 1 << (number % 64));
            self.missing -= usize::from(*word & bit == 0);
            *word |= bit;
        }
        let (luma, chroma) = self.frame.split_at_mut(width * height);
        let (blue, red) = chroma.split_at_mut(in_row * rows);
        let place = row * in_row + group..row * in_row + group + count;
        let colours = blue[place.clone()].iter_mut().zip(&mut red[place]);
        let across = ACROSS * group..ACROSS * (group + count);
        let lines = &mut luma[row * down * width..(row + 1) * down * width];
        let (upper, lower) = lines.split_at_mut(width);
        let upper = upper[across.clone()].chunks_exact_mut(ACROSS);
        let groups = samples.chunks_exact(bytes);
        if down == 1 {
            for ((group, pair), (blue, red)) in groups.zip(upper).zip(colours) {
                (*blue, *red) = (group[0], group[2]);
                pair.copy_from_slice(&[group[1], group[3]]);
            }
        } else {
            let lower = lower[across].chunks_exact_mut(ACROSS);
            for ((group, (upper, lower)), (blue, red)) in groups.zip(upper.zip(lower)).zip(colours) {
                upper.copy_from_slice(&group[..2]);
                lower.copy_from_slice(&group[2..4]);
                (*blue, *red) = (group[4], group[5]);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn picture(width: usize, height: usize, format: PixelFormat) -> Picture {
        Picture { width, height, format, is_full_range: false }
    }

    pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2) + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    pub(crate) fn payloads(picture: Picture, frame: &[u8], payload_bytes: usize) -> Vec<Vec<u8>> {
        let mut packer = VideoPacker::new(picture, payload_bytes);
        let mut payloads = Vec::new();
        loop {
            let mut payload = Vec::new();
            assert!(packer.progress() < 1.0);
            let is_last = packer.pack(frame, 7, &mut payload);
            assert!(payload.len() <= payload_bytes, "{}", payload.len());
            payloads.push(payload);
            if is_last {
                return payloads;
            }
        }
    }

    /// The bytes of small frames, as the pictures of RFC 4175, section 4.3, have them.
    #[test]
    fn groups_are_those_of_the_standard() {
        let frame = [b"abcd".as_slice(), b"efgh", b"12", b"34"].concat();
        let packed = payloads(picture(4, 2, PixelFormat::Yuv420), &frame, 100);
        let expected = [b"\0\x07\0\x0c\0\0\0\0".as_slice(), b"abef13cdgh24"].concat();
        assert_eq!(packed, [expected]);
        let frame = [b"abcd".as_slice(), b"efgh", b"1256", b"3478"].concat();
        let packed = payloads(picture(4, 2, PixelFormat::Yuv422), &frame, 100);
        let expected = [b"\0\x07\0\x08\0\0\x80\0\0\x08\0\x01\0\0".as_slice(), b"1a3b2c4d5e7f6g8h"].concat();
        assert_eq!(packed, [expected]);
        // Two groups in a packet: the second row begins in the middle of the second packet's segments.
        let packed = payloads(picture(4, 2, PixelFormat::Yuv422), &frame, PAYLOAD_BYTES_MIN);
        assert_eq!(packed.len(), 4);
        assert_eq!(packed[1], b"\0\x07\0\x04\0\0\0\x022c4d");
    }

    #[test]
    fn frames_come_back_and_what_is_missing_is_that_of_another_frame() {
        for format in [PixelFormat::Yuv420, PixelFormat::Yuv422] {
            for (width, height) in [(2, 2), (64, 48), (322, 6)] {
                let shape = picture(width, height, format);
                let (frame, other) = (noise(shape.frame_bytes(), 1), noise(shape.frame_bytes(), 2));
                let payloads = payloads(shape, &frame, 200);
                let mut buffer = FrameBuffer::new(shape);
                for payload in payloads.iter().rev() {
                    assert!(!buffer.is_whole() && buffer.take(payload));
                }
                assert!(buffer.is_whole() && !buffer.conceal(&other) && buffer.frame() == frame);
                buffer.clear();
                assert!(buffer.is_empty());
                // All but the second packet, so that other samples are in its place alone.
                payloads
                    .iter()
                    .enumerate()
                    .filter(|part| part.0 != 1)
                    .for_each(|part| assert!(buffer.take(part.1)));
                if payloads.len() > 1 {
                    assert!(!buffer.is_whole() && buffer.conceal(&other));
                    let mut second = FrameBuffer::new(shape);
                    second.take(&payloads[1]);
                    second.conceal(&other);
                    let mixed = buffer.frame().iter().zip(second.frame()).zip(frame.iter().zip(&other));
                    for ((got, second), (sample, other)) in mixed {
                        let is_missing = second != other;
                        assert!(if is_missing { got == other } else { got == sample || got == other });
                    }
                    assert_ne!(buffer.frame(), frame);
                }
            }
        }
    }

    proptest! {
        /// What another host wrote never breaks anything.
        #[test]
        fn any_payload_is_taken_or_refused(
            mut payload in prop::collection::vec(any::<u8>(), 0..100),
            small in prop::collection::vec(0u8..8, 6),
        ) {
            let mut buffer = FrameBuffer::new(picture(16, 8, PixelFormat::Yuv420));
            buffer.take(&payload);
            for (at, byte) in small.into_iter().enumerate() {
                if let Some(place) = payload.get_mut(2 + at) {
                    *place = byte;
                }
            }
            buffer.take(&payload);
        }
    }
}
