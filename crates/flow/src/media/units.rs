//! Units of a stream: a stream of bytes is cut into its header, units that have a time, and what stands behind them.
//!
//! The stream is fed with bytes as they come, however they are cut. Invariant: the header, the units and the rest, one
//! behind the other, are the bytes of the stream. A unit has a greatest length, so nothing here grows without bound.

use super::ts::{TS_PACKET_BYTES, TsClock};
use super::wav::{WavFormat, WavHeader, WavInfo};
use crate::error::Error;
use crate::video::{FrameStream, Picture, Rate, Step};
use std::time::Duration;

/// Greatest length of a unit, in bytes: a frame of 8192x8192 pixels with full chroma.
const UNIT_BYTES_MAX: u64 = 192 << 20;
/// Greatest number of packets of a transport stream in a unit, which are as many as an Ethernet frame carries.
const TS_PACKETS_MAX: usize = 7;

/// Format of a stream, as far as its first bytes or its user tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Video with a header (YUV4MPEG2).
    Y4m,
    /// Samples of sound with a header.
    Wav,
    /// An MPEG transport stream.
    Ts,
    /// Units of so many bytes, at so many bytes a second.
    Raw { bytes_per_s: u64, unit_bytes: u64 },
}

/// A stream that is cut into units.
#[derive(Debug)]
pub(crate) struct Units {
    name: String,
    /// Longest time of a unit of sound.
    block: Duration,
    /// Greatest length of a unit of sound and of a transport stream, in bytes.
    block_bytes_max: u64,
    /// `None` until the first byte has come.
    cutter: Option<Cutter>,
}

/// Content of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Frames, and how many come in a second.
    Video(Picture, Rate),
    /// Samples.
    Sound(WavFormat),
    /// Packets of an MPEG transport stream.
    Transport,
    /// Data of which nothing is known but its rate.
    Raw,
}

/// Result of feeding a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// All bytes were taken, and nothing is whole.
    More,
    /// The header of the stream is whole after this number of bytes: see [`Units::header`].
    Header(usize),
    /// A unit is whole after this number of bytes: see [`Units::unit`].
    Unit(usize),
    /// This number of bytes have no time: they stand behind the units.
    Rest(usize),
}

/// A unit that is whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit<'a> {
    /// Header of the unit, which a frame of y4m has.
    pub(crate) header: &'a [u8],
    pub(crate) body: &'a [u8],
    /// Time in the stream at which the unit begins, in nanoseconds.
    pub(crate) begin_ns: u64,
    /// Time in the stream at which the unit ends, in nanoseconds.
    pub(crate) end_ns: u64,
}

#[derive(Debug)]
enum Cutter {
    Frames { stream: Box<FrameStream>, rate: Option<Rate>, frames: u64 },
    Wav { header: WavHeader, format: Option<WavFormat>, blocks: Blocks },
    Ts { clock: TsClock, unit: Vec<u8>, bytes: usize, times: (u64, u64), packets: u64 },
    Raw(Blocks),
}

/// Blocks of the same length, but for the last one.
#[derive(Debug)]
struct Blocks {
    block: Vec<u8>,
    /// Length of a block, in bytes.
    bytes: usize,
    /// Blocks a second.
    rate: Rate,
    /// Number of whole blocks.
    number: u64,
    /// Bytes that are still to come; `u64::MAX` if unknown.
    left: u64,
    is_whole: bool,
}

impl Units {
    /// Makes a stream of the format, or of the one that its first byte tells. `name` stands for the stream in messages.
    /// Units of sound have the time `block`, or less if that has more than `block_bytes_max` bytes; those of a transport
    /// stream have as many packets as that.
    ///
    /// # Errors
    /// [`Error::Usage`] if a format's rate and length do not go together.
    pub(crate) fn new(
        name: &str,
        format: Option<Format>,
        block: Duration,
        block_bytes_max: u64,
    ) -> Result<Units, Error> {
        let mut units = Units { name: name.into(), block, block_bytes_max, cutter: None };
        units.cutter = format.map(|format| units.cutter_for(format)).transpose()?;
        Ok(units)
    }

    fn cutter_for(&self, format: Format) -> Result<Cutter, Error> {
        Ok(match format {
            Format::Y4m => {
                Cutter::Frames { stream: Box::new(FrameStream::y4m(&self.name)), rate: None, frames: 0 }
            }
            Format::Wav => {
                Cutter::Wav { header: WavHeader::new(&self.name), format: None, blocks: Blocks::none() }
            }
            Format::Ts => Cutter::Ts {
                clock: TsClock::default(),
                unit: Vec::with_capacity(TS_PACKETS_MAX * TS_PACKET_BYTES),
                bytes: ts_bytes(self.block_bytes_max),
                times: (0, 0),
                packets: 0,
            },
            Format::Raw { bytes_per_s, unit_bytes } => {
                let rate = reduced(bytes_per_s, unit_bytes).ok_or_else(|| {
                    Error::Usage(format!(
                        "{}: {bytes_per_s} bytes a second in units of {unit_bytes} have a time that cannot be told \
                         exactly; give rounder numbers",
                        self.name
                    ))
                })?;
                Cutter::Raw(Blocks::new(unit_bytes, rate, None, &self.name)?)
            }
        })
    }

    /// Returns the header of the stream, once it is whole.
    pub(crate) fn header(&self) -> &[u8] {
        match &self.cutter {
            Some(Cutter::Frames { stream, .. }) => stream.header(),
            Some(Cutter::Wav { header, .. }) => header.bytes(),
            Some(Cutter::Ts { .. } | Cutter::Raw(_)) | None => &[],
        }
    }

    /// Returns what the header or the first byte told of the stream; `None` if they have not come.
    pub(crate) fn content(&self) -> Option<Content> {
        match self.cutter.as_ref()? {
            Cutter::Frames { stream, rate, .. } => {
                stream.picture().zip(*rate).map(|(picture, rate)| Content::Video(picture, rate))
            }
            Cutter::Wav { format, .. } => format.map(Content::Sound),
            Cutter::Ts { .. } => Some(Content::Transport),
            Cutter::Raw(_) => Some(Content::Raw),
        }
    }

    /// Returns the last whole unit, after [`Found::Unit`].
    pub(crate) fn unit(&self) -> Unit<'_> {
        match &self.cutter {
            Some(Cutter::Frames { stream, rate: Some(rate), frames }) => Unit {
                header: stream.header(),
                body: stream.frame(),
                begin_ns: rate.time_ns(*frames - 1),
                end_ns: rate.time_ns(*frames),
            },
            Some(Cutter::Ts { unit, times, .. }) => {
                Unit { header: &[], body: unit, begin_ns: times.0, end_ns: times.1 }
            }
            Some(Cutter::Wav { blocks, .. } | Cutter::Raw(blocks)) => blocks.unit(),
            Some(Cutter::Frames { rate: None, .. }) | None => {
                unreachable!("a unit is whole only behind a header that told its rate")
            }
        }
    }

    /// Takes bytes, up to the next thing that is whole.
    ///
    /// # Errors
    /// [`Error::Data`] if they are no stream of the format, or of no format that is known.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Found, Error> {
        let Some(first) = bytes.first() else { return Ok(Found::More) };
        if self.cutter.is_none() {
            let format = match first {
                b'Y' => Format::Y4m,
                b'R' | b'B' => Format::Wav,
                0x47 => Format::Ts,
                _ => {
                    return Err(self.wrong(
                        "the data is neither y4m, nor WAV, nor an MPEG transport stream; of other data say how much \
                         comes in a second, and in what units (rate=, unit=)",
                    ));
                }
            };
            self.cutter = Some(self.cutter_for(format)?);
        }
        let Units { name, block, block_bytes_max, cutter: Some(cutter) } = self else {
            return Ok(Found::More);
        };
        let wrong = |what: String| Error::Data(format!("{name}: {what}"));
        match cutter {
            Cutter::Frames { stream, rate, frames } => match stream.feed(bytes)? {
                Step::More => Ok(Found::More),
                Step::Picture(taken) => {
                    let told = stream.rate().ok_or_else(|| {
                        wrong("its header says no rate of frames (F), so they have no time".into())
                    })?;
                    *rate = Some(told);
                    let bytes = stream.picture().map_or(0, |picture| picture.frame_bytes());
                    check_length(bytes as u64, name)?;
                    Ok(Found::Header(taken))
                }
                Step::Frame(taken) => {
                    *frames += 1;
                    Ok(Found::Unit(taken))
                }
            },
            Cutter::Wav { header, format: format @ None, blocks } => match header.feed(bytes)? {
                (_, None) => Ok(Found::More),
                (taken, Some(WavInfo { format: told, data_bytes })) => {
                    *format = Some(told);
                    let samples = (block.as_secs_f64() * f64::from(told.rate)).round() as u64;
                    let samples = samples.min(*block_bytes_max / u64::from(told.frame_bytes)).max(1) as u32;
                    let rate = Rate { frames: told.rate, seconds: samples };
                    let bytes = u64::from(samples) * u64::from(told.frame_bytes);
                    *blocks = Blocks::new(bytes, rate, data_bytes, name)?;
                    Ok(Found::Header(taken))
                }
            },
            Cutter::Wav { blocks, .. } | Cutter::Raw(blocks) => Ok(blocks.feed(bytes)),
            Cutter::Ts { clock, unit, bytes: whole, times, packets } => {
                if unit.len() == *whole {
                    unit.clear();
                }
                let in_packet = unit.len() % TS_PACKET_BYTES;
                let taken = bytes.len().min(TS_PACKET_BYTES - in_packet);
                unit.extend_from_slice(&bytes[..taken]);
                if in_packet + taken < TS_PACKET_BYTES {
                    return Ok(Found::More);
                }
                let begin = unit.len() - TS_PACKET_BYTES;
                let time = clock.time_ns(&unit[begin..]).ok_or_else(|| {
                    wrong(format!("packet {packets} of the transport stream does not begin with 0x47"))
                })?;
                *packets += 1;
                if begin == 0 {
                    times.0 = time;
                }
                times.1 = time;
                Ok(match unit.len() == *whole {
                    true => Found::Unit(taken),
                    // It is a whole packet, and the caller goes on behind it.
                    false if taken < bytes.len() => return self.feed_behind(bytes, taken),
                    false => Found::More,
                })
            }
        }
    }

    /// Feeds what stands behind the first `taken` bytes, which were taken.
    fn feed_behind(&mut self, bytes: &[u8], taken: usize) -> Result<Found, Error> {
        Ok(match self.feed(&bytes[taken..])? {
            Found::Unit(more) => Found::Unit(taken + more),
            other => other,
        })
    }

    /// Ends the stream. Returns true if a last, shorter unit is there: see [`Units::unit`].
    ///
    /// # Errors
    /// [`Error::Data`] if the stream has no header, or ends within a frame or packet.
    pub(crate) fn finish(&mut self) -> Result<bool, Error> {
        match &mut self.cutter {
            None => Err(self.wrong("the data ended before its first byte")),
            Some(Cutter::Frames { stream, .. }) => stream.finish().map(|()| false),
            Some(Cutter::Wav { format: None, .. }) => Err(self.wrong("the data ended within the header")),
            Some(Cutter::Wav { blocks, .. } | Cutter::Raw(blocks)) => Ok(blocks.finish()),
            Some(Cutter::Ts { unit, bytes, packets, .. }) => match unit.len() % TS_PACKET_BYTES {
                0 => Ok(!unit.is_empty() && unit.len() < *bytes),
                _ => {
                    let packets = *packets;
                    Err(self.wrong(format!("the data ended within packet {packets} of the transport stream")))
                }
            },
        }
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::Data(format!("{}: {what}", self.name))
    }
}

impl Blocks {
    /// Makes blocks of a stream whose header has not come.
    fn none() -> Blocks {
        let rate = Rate { frames: 1, seconds: 1 };
        Blocks { block: Vec::new(), bytes: 0, rate, number: 0, left: 0, is_whole: false }
    }

    fn new(bytes: u64, rate: Rate, left: Option<u64>, name: &str) -> Result<Blocks, Error> {
        check_length(bytes, name)?;
        Ok(Blocks { bytes: bytes as usize, rate, left: left.unwrap_or(u64::MAX), ..Blocks::none() })
    }

    fn feed(&mut self, bytes: &[u8]) -> Found {
        if std::mem::take(&mut self.is_whole) {
            self.block.clear();
        }
        if self.left == 0 && self.block.is_empty() {
            return Found::Rest(bytes.len());
        }
        let room = (self.bytes - self.block.len()) as u64;
        let taken = (bytes.len() as u64).min(room).min(self.left) as usize;
        self.block.extend_from_slice(&bytes[..taken]);
        if self.left != u64::MAX {
            self.left -= taken as u64;
        }
        if self.block.len() < self.bytes && self.left > 0 {
            return Found::More;
        }
        self.close();
        Found::Unit(taken)
    }

    fn close(&mut self) {
        self.number += 1;
        self.is_whole = true;
    }

    fn finish(&mut self) -> bool {
        let has_rest = !self.is_whole && !self.block.is_empty();
        if has_rest {
            self.close();
        }
        has_rest
    }

    fn unit(&self) -> Unit<'_> {
        Unit {
            header: &[],
            body: &self.block,
            begin_ns: self.rate.time_ns(self.number - 1),
            end_ns: self.rate.time_ns(self.number),
        }
    }
}

/// Returns the length of a unit of a transport stream: one packet at least.
fn ts_bytes(bytes_max: u64) -> usize {
    let packets = usize::try_from(bytes_max / TS_PACKET_BYTES as u64).unwrap_or(TS_PACKETS_MAX);
    packets.clamp(1, TS_PACKETS_MAX) * TS_PACKET_BYTES
}

fn check_length(bytes: u64, name: &str) -> Result<(), Error> {
    match bytes {
        0 => Err(Error::Data(format!("{name}: a unit has no bytes"))),
        1..=UNIT_BYTES_MAX => Ok(()),
        _ => Err(Error::Data(format!("{name}: a unit has {bytes} bytes, and {UNIT_BYTES_MAX} are the most"))),
    }
}

/// Returns `units / seconds` in lowest terms; `None` if they do not fit.
fn reduced(units: u64, seconds: u64) -> Option<Rate> {
    let (mut one, mut other) = (units, seconds);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    let part = |number: u64| u32::try_from(number.checked_div(one)?).ok().filter(|part| *part > 0);
    Some(Rate { frames: part(units)?, seconds: part(seconds)? })
}

#[cfg(test)]
mod tests {
    use super::super::ts::tests::packet;
    use super::super::wav::tests::{chunk, format};
    use super::*;

    /// Units that a stream was cut into, and what is around them.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Cut {
        header: Vec<u8>,
        units: Vec<(Vec<u8>, u64, u64)>,
        rest: Vec<u8>,
    }

    impl Cut {
        fn note(&mut self, unit: Unit<'_>) {
            self.units.push(([unit.header, unit.body].concat(), unit.begin_ns, unit.end_ns));
        }

        fn joined(&self) -> Vec<u8> {
            let units = self.units.iter().flat_map(|unit| unit.0.clone());
            self.header.iter().copied().chain(units).chain(self.rest.iter().copied()).collect()
        }
    }

    fn cut(kind: Option<Format>, bytes: &[u8], piece: usize) -> Result<Cut, Error> {
        let mut units = Units::new("x", kind, Duration::from_millis(1), u64::MAX)?;
        let mut cut = Cut::default();
        for mut piece in bytes.chunks(piece) {
            loop {
                match units.feed(piece)? {
                    Found::More => break,
                    Found::Header(taken) => {
                        cut.header.extend_from_slice(units.header());
                        piece = &piece[taken..];
                    }
                    Found::Unit(taken) => {
                        cut.note(units.unit());
                        piece = &piece[taken..];
                    }
                    Found::Rest(taken) => {
                        cut.rest.extend_from_slice(&piece[..taken]);
                        piece = &piece[taken..];
                    }
                }
            }
        }
        if units.finish()? {
            cut.note(units.unit());
        }
        Ok(cut)
    }

    fn same_in_all_pieces(kind: Option<Format>, bytes: &[u8]) -> Cut {
        let whole = cut(kind, bytes, bytes.len()).unwrap();
        assert_eq!(whole.joined(), bytes);
        for piece in [1, 2, 3, 7, 100, 187, 188, 189, 1000] {
            assert_eq!(cut(kind, bytes, piece).unwrap(), whole, "{piece}");
        }
        whole
    }

    #[test]
    fn video_is_cut_into_frames_with_their_headers() {
        let bytes = b"YUV4MPEG2 W2 H1 F50:1 Cmono\nFRAME\nabFRAME Ip\ncd";
        let cut = same_in_all_pieces(None, bytes);
        assert_eq!(cut.units[0], (b"FRAME\nab".to_vec(), 0, 20_000_000));
        assert_eq!(cut.units[1], (b"FRAME Ip\ncd".to_vec(), 20_000_000, 40_000_000));
    }

    #[test]
    fn sound_is_cut_into_blocks_and_what_stands_behind_it_has_no_time() {
        // A millisecond of 8000 samples a second of 3 bytes: 24 bytes.
        let samples: Vec<u8> = (0..60).collect();
        let head = [b"RIFF\xff\xff\xff\xffWAVE".to_vec(), format(1, 1, 8000, 24)].concat();
        let file = [head.clone(), chunk(b"data", 60, &samples), chunk(b"LIST", 2, b"ab")].concat();
        let cut = same_in_all_pieces(None, &file);
        let times: Vec<_> = cut.units.iter().map(|unit| (unit.0.len(), unit.1, unit.2)).collect();
        assert_eq!(times, [(24, 0, 1_000_000), (24, 1_000_000, 2_000_000), (12, 2_000_000, 3_000_000)]);
        assert_eq!(cut.rest, chunk(b"LIST", 2, b"ab"));
        let endless = [head, chunk(b"data", u32::MAX, &samples)].concat();
        assert_eq!(same_in_all_pieces(None, &endless).units.len(), 3);
    }

    #[test]
    fn raw_data_is_cut_by_its_rate() {
        let kind = Format::Raw { bytes_per_s: 1000, unit_bytes: 10 };
        let cut = same_in_all_pieces(Some(kind), &[7; 25]);
        let times: Vec<_> = cut.units.iter().map(|unit| (unit.0.len(), unit.1)).collect();
        assert_eq!(times, [(10, 0), (10, 10_000_000), (5, 20_000_000)]);
        for (bytes_per_s, unit_bytes, reason) in [
            (u64::MAX, 2, "rounder numbers"),
            (1000, 1 << 40, "rounder numbers"),
            (1 << 30, 1 << 30, "the most"),
        ] {
            let refused = cut_error(Format::Raw { bytes_per_s, unit_bytes });
            assert!(refused.contains(reason), "{refused}");
        }
    }

    fn cut_error(kind: Format) -> String {
        Units::new("x", Some(kind), Duration::from_millis(1), u64::MAX).unwrap_err().to_string()
    }

    #[test]
    fn transport_streams_are_cut_into_groups_of_packets() {
        let packets: Vec<_> =
            (0..25u64).map(|number| packet(256, (number % 5 == 0).then_some(number * 27_000))).collect();
        let bytes: Vec<u8> = packets.concat();
        let cut = same_in_all_pieces(None, &bytes);
        let times: Vec<_> = cut.units.iter().map(|unit| (unit.0.len() / 188, unit.1, unit.2)).collect();
        assert_eq!(
            times,
            [
                (7, 0, 6_000_000),
                (7, 7_000_000, 13_000_000),
                (7, 14_000_000, 20_000_000),
                (4, 21_000_000, 24_000_000)
            ]
        );
        let broken = [&bytes[..188], &bytes[..100], &bytes[..188], &bytes[..188]].concat();
        let refused = cut_message(&broken);
        assert!(refused.contains("packet 2 of the transport stream does not begin"), "{refused}");
    }

    fn cut_message(bytes: &[u8]) -> String {
        let reason = cut(None, bytes, 1000).unwrap_err().to_string();
        assert_eq!(cut(None, bytes, 1).unwrap_err().to_string(), reason);
        reason
    }

    #[test]
    fn what_has_no_time_is_told() {
        assert!(cut_message(b"hello").contains("rate=, unit="));
        assert!(cut_message(b"YUV4MPEG2 W2 H1 Cmono\n").contains("says no rate of frames"));
        assert!(cut_message(b"YUV4MPEG2 W2 H1 F1:1 Cmono\nFRAME\na").contains("before the first frame"));
        assert!(cut_message(b"YUV4MPEG2 W16384 H16384 F1:1 C444\n").contains("are the most"));
        assert!(cut_message(b"RIFF").contains("within the header"));
        assert!(cut_message(&packet(1, None)[..100]).contains("within packet 0"));
        assert!(cut(None, b"", 1).is_err());
    }

    #[test]
    fn units_for_packets_are_no_longer_than_those() {
        let samples = [b"RIFF\xff\xff\xff\xffWAVE".to_vec(), format(1, 2, 48_000, 16)].concat();
        let sound = [samples, chunk(b"data", u32::MAX, &[0; 4000])].concat();
        let longest = |bytes: &[u8], bytes_max| {
            let mut units = Units::new("x", None, Duration::from_millis(20), bytes_max).unwrap();
            let (mut rest, mut longest) = (bytes, 0);
            loop {
                match units.feed(rest).unwrap() {
                    Found::More => return longest,
                    Found::Header(taken) | Found::Rest(taken) => rest = &rest[taken..],
                    Found::Unit(taken) => {
                        longest = longest.max(units.unit().body.len());
                        rest = &rest[taken..];
                    }
                }
            }
        };
        assert_eq!((longest(&sound, 1390), longest(&sound, 3), longest(&sound, u64::MAX)), (1388, 4, 3840));
        let packets = packet(1, None).repeat(20);
        assert_eq!((longest(&packets, 1388), longest(&packets, 600), longest(&packets, 9)), (1316, 564, 188));
    }
}
