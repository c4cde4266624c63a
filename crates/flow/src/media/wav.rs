//! Header of WAV files: RIFF, and RF64 or BW64 for more than 4 GiB (EBU Tech 3306, ITU-R BS.2088).
//!
//! The header is fed with bytes as they come. It has a greatest length, so nothing here grows without bound. The crates
//! that read WAV want a whole file, or know no RF64.

use crate::error::Error;

/// Greatest length of what stands before the samples, in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Length that tells nothing: it stands elsewhere, or the file was written before its length was known.
const UNKNOWN: u32 = u32::MAX;
/// Length of the header that is written, in bytes.
const HEADER_BYTES: u32 = 44;
const PCM: u16 = 1;
const EXTENSIBLE: u16 = 0xfffe;

/// Format of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WavFormat {
    /// True for integers, false for floating point and compressed samples.
    pub(crate) is_pcm: bool,
    pub(crate) channels: u16,
    /// Samples a second, of each channel.
    pub(crate) rate: u32,
    /// Bytes of one sample of all channels.
    pub(crate) frame_bytes: u16,
    /// Bits of one sample of one channel.
    pub(crate) bits: u16,
}

/// The header of a WAV stream, as far as it has come.
#[derive(Debug)]
pub(crate) struct WavHeader {
    name: String,
    bytes: Vec<u8>,
    /// Offset of the chunk that is read next.
    chunk: usize,
    format: Option<WavFormat>,
    /// Length of the samples that a ds64 chunk tells, in bytes.
    long_bytes: Option<u64>,
}

/// Contents of a whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WavInfo {
    pub(crate) format: WavFormat,
    /// Bytes of samples that follow; `None` for all that comes.
    pub(crate) data_bytes: Option<u64>,
}

impl WavHeader {
    pub(crate) fn new(name: &str) -> WavHeader {
        WavHeader { name: name.into(), bytes: Vec::new(), chunk: 0, format: None, long_bytes: None }
    }

    /// Returns the bytes of the header that have come.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes bytes up to the first sample. Returns how many it took, and what the header says once it is whole.
    ///
    /// # Errors
    /// [`Error::Data`] if it is no header of WAV.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<WavInfo>), Error> {
        let mut taken = 0;
        loop {
            let info = match self.read()? {
                Next::Bytes(length) => {
                    if length > HEADER_BYTES_MAX {
                        return Err(self.wrong(format!(
                            "its header has more than {HEADER_BYTES_MAX} bytes before the samples"
                        )));
                    }
                    let more = (length - self.bytes.len()).min(bytes.len() - taken);
                    if more == 0 {
                        return Ok((taken, None));
                    }
                    self.bytes.extend_from_slice(&bytes[taken..taken + more]);
                    taken += more;
                    continue;
                }
                Next::Samples(info) => info,
            };
            return Ok((taken, Some(info)));
        }
    }

    /// Reads the chunk that begins at `chunk`, if enough of it has come.
    fn read(&mut self) -> Result<Next, Error> {
        loop {
            let at = self.chunk;
            let head = if at == 0 { 12 } else { 8 };
            if self.bytes.len() < at + head {
                return Ok(Next::Bytes(at + head));
            }
            let name: [u8; 4] = [0, 1, 2, 3].map(|byte| self.bytes[at + byte]);
            if at == 0 {
                if !matches!(&name, b"RIFF" | b"RF64" | b"BW64") || &self.bytes[8..12] != b"WAVE" {
                    return Err(self.wrong("the data is no WAV: it should begin with RIFF or RF64, and WAVE"));
                }
                self.chunk = 12;
                continue;
            }
            let length = self.word(at + 4);
            if &name == b"data" {
                let format = self.format.ok_or_else(|| self.wrong("its samples come before their format"))?;
                let data_bytes = match (self.long_bytes, length) {
                    (Some(bytes), UNKNOWN) => Some(bytes),
                    // Programs that write to a pipe leave one of these.
                    (None, UNKNOWN | 0) => None,
                    (_, length) => Some(u64::from(length)),
                };
                return Ok(Next::Samples(WavInfo { format, data_bytes }));
            }
            let end = at + 8 + length as usize + (length % 2) as usize;
            if self.bytes.len() < end {
                return Ok(Next::Bytes(end));
            }
            match &name {
                b"fmt " => self.format = Some(self.read_format(at + 8, length)?),
                b"ds64" if length >= 16 => {
                    let low = u64::from(self.word(at + 16));
                    self.long_bytes = Some(low | u64::from(self.word(at + 20)) << 32);
                }
                _ => {}
            }
            self.chunk = end;
        }
    }

    fn read_format(&self, at: usize, length: u32) -> Result<WavFormat, Error> {
        if length < 16 {
            return Err(self.wrong(format!("its format has {length} bytes, and 16 are the least")));
        }
        let half = |offset: usize| u16::from_le_bytes([self.bytes[at + offset], self.bytes[at + offset + 1]]);
        let tag = match half(0) {
            // The first half of the format's GUID is the tag.
            EXTENSIBLE if length >= 26 => half(24),
            tag => tag,
        };
        let format = WavFormat {
            is_pcm: tag == PCM,
            channels: half(2),
            rate: self.word(at + 4),
            frame_bytes: half(12),
            bits: half(14),
        };
        match format {
            WavFormat { channels: 1.., rate: 1.., frame_bytes: 1.., .. } => Ok(format),
            WavFormat { channels, rate, frame_bytes, .. } => Err(self.wrong(format!(
                "its header says {channels} channels, {rate} samples a second and {frame_bytes} bytes a sample, \
                 and none of them may be 0"
            ))),
        }
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.bytes[at + byte]))
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::Data(format!("{}: {what}", self.name))
    }
}

/// Result of reading a header: the bytes that it lacks, or its contents.
enum Next {
    /// The header needs this many bytes to be read further.
    Bytes(usize),
    Samples(WavInfo),
}

/// Returns a header of 16-bit samples that come without an end, as programs write it to pipes.
pub(crate) fn header_of_stream(channels: u16, rate: u32) -> Vec<u8> {
    header(16, channels, rate, None)
}

/// Returns a header of integers of so many bits. `data_bytes` is the size of the samples that follow; a size that is unknown,
/// or that the header has no room for, is written as programs write it to pipes.
pub(crate) fn header(bits: u16, channels: u16, rate: u32, data_bytes: Option<u64>) -> Vec<u8> {
    let frame_bytes = bits / 8 * channels;
    let data_bytes = data_bytes.and_then(|bytes| u32::try_from(bytes).ok());
    let whole_bytes = data_bytes.and_then(|bytes| bytes.checked_add(HEADER_BYTES - 8));
    let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
    bytes.extend_from_slice(b"RIFF");
    bytes.extend_from_slice(&whole_bytes.unwrap_or(UNKNOWN).to_le_bytes());
    bytes.extend_from_slice(b"WAVEfmt ");
    bytes.extend_from_slice(&16u32.to_le_bytes());
    bytes.extend_from_slice(&PCM.to_le_bytes());
    bytes.extend_from_slice(&channels.to_le_bytes());
    bytes.extend_from_slice(&rate.to_le_bytes());
    bytes.extend_from_slice(&(rate * u32::from(frame_bytes)).to_le_bytes());
    bytes.extend_from_slice(&frame_bytes.to_le_bytes());
    bytes.extend_from_slice(&bits.to_le_bytes());
    bytes.extend_from_slice(b"data");
    bytes.extend_from_slice(&whole_bytes.and(data_bytes).unwrap_or(UNKNOWN).to_le_bytes());
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn chunk(name: &[u8; 4], length: u32, body: &[u8]) -> Vec<u8> {
        [name.as_slice(), &length.to_le_bytes(), body].concat()
    }

    pub(crate) fn format(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
        let frame = channels * bits / 8;
        let mut body = [tag.to_le_bytes(), channels.to_le_bytes()].concat();
        body.extend(rate.to_le_bytes());
        body.extend((rate * u32::from(frame)).to_le_bytes());
        body.extend(frame.to_le_bytes());
        body.extend(bits.to_le_bytes());
        chunk(b"fmt ", 16, &body)
    }

    /// Feeds a header in pieces of so many bytes; checks that no sample is taken.
    fn read(bytes: &[u8], piece: usize) -> Result<Option<WavInfo>, Error> {
        let (mut header, mut at) = (WavHeader::new("x"), 0);
        for piece in bytes.chunks(piece) {
            let (taken, info) = header.feed(piece)?;
            at += taken;
            if info.is_some() {
                assert_eq!(header.bytes(), &bytes[..at]);
                assert_eq!(&bytes[at - 8..at - 4], b"data");
                return Ok(info);
            }
        }
        Ok(None)
    }

    fn riff(parts: &[Vec<u8>]) -> Vec<u8> {
        [b"RIFF\xff\xff\xff\xffWAVE".to_vec(), parts.concat()].concat()
    }

    #[test]
    fn headers_are_read_however_they_are_cut() {
        let samples = [7; 9];
        let list = chunk(b"LIST", 3, b"abc\0");
        let ds64 = chunk(b"ds64", 28, &[[0; 8].as_slice(), &(5u64 << 32).to_le_bytes(), &[0; 12]].concat());
        let long = [b"RF64\xff\xff\xff\xffWAVE".to_vec(), ds64, format(PCM, 1, 8000, 8)].concat();
        let stereo = WavFormat { is_pcm: true, channels: 2, rate: 48_000, frame_bytes: 4, bits: 16 };
        let mono = WavFormat { is_pcm: true, channels: 1, rate: 8000, frame_bytes: 1, bits: 8 };
        for (bytes, format, data_bytes) in [
            (riff(&[format(PCM, 2, 48_000, 16), list, chunk(b"data", 100, &samples)]), stereo, Some(100)),
            (riff(&[format(PCM, 2, 48_000, 16), chunk(b"data", UNKNOWN, &samples)]), stereo, None),
            (riff(&[format(PCM, 2, 48_000, 16), chunk(b"data", 0, &samples)]), stereo, None),
            ([long, chunk(b"data", UNKNOWN, &samples)].concat(), mono, Some(5 << 32)),
            ([header_of_stream(2, 48_000), samples.to_vec()].concat(), stereo, None),
            ([header(16, 2, 48_000, Some(8)), samples.to_vec()].concat(), stereo, Some(8)),
            ([header(16, 2, 48_000, Some(5 << 32)), samples.to_vec()].concat(), stereo, None),
        ] {
            for piece in 1..bytes.len() {
                assert_eq!(read(&bytes, piece).unwrap(), Some(WavInfo { format, data_bytes }));
            }
        }
    }

    #[test]
    fn what_is_no_header_is_told() {
        let refused = |bytes: &[u8]| {
            let reason = read(bytes, 1000).unwrap_err().to_string();
            assert_eq!(read(bytes, 1).unwrap_err().to_string(), reason);
            reason
        };
        assert!(refused(b"RIFF....AVI ").contains("no WAV"));
        assert!(refused(b"YUV4MPEG2 W2").contains("no WAV"));
        assert!(refused(&riff(&[chunk(b"data", 1, b"x")])).contains("before their format"));
        assert!(refused(&riff(&[format(PCM, 0, 48_000, 16)])).contains("none of them may be 0"));
        assert!(refused(&riff(&[chunk(b"fmt ", 4, b"abcd")])).contains("16 are the least"));
        assert!(refused(&riff(&[chunk(b"JUNK", 1 << 30, b"x")])).contains("more than"));
        assert_eq!(read(b"RIFF", 1).unwrap(), None);
    }
}
