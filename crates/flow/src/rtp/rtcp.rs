//! RTCP (RFC 3550, section 6): the reports that a sender makes of itself, and its goodbye.
//!
//! A sender's report ties its timestamps to the clock of the day, from which a receiver knows how old a unit is.
//! Invariant: a packet of another host is read only within its bounds.

/// Port of RTCP, which is the one behind that of RTP.
pub(crate) fn port(rtp: u16) -> Option<u16> {
    rtp.checked_add(1)
}

/// Types of packets.
const SENDER_REPORT: u8 = 200;
const DESCRIPTION: u8 = 202;
const GOODBYE: u8 = 203;
/// Version 2, in the upper two bits.
const VERSION: u8 = 2 << 6;
/// Item of a source description: the canonical name.
const NAME: u8 = 1;
/// Seconds from the epoch of NTP (1900) to that of Unix (1970).
const NTP_EPOCH_S: u64 = 2_208_988_800;

/// Statement of a sender about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SenderReport {
    pub(crate) ssrc: u32,
    /// Time of the day, in nanoseconds since 1970.
    pub(crate) unix_ns: u64,
    /// Timestamp of that time.
    pub(crate) timestamp: u32,
    pub(crate) packets: u32,
    pub(crate) payload_bytes: u32,
}

impl SenderReport {
    /// Returns the report as a compound packet, with a goodbye behind it if the stream ends.
    pub(crate) fn encode(&self, name: &str, is_goodbye: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(96);
        let seconds = (self.unix_ns / 1_000_000_000 + NTP_EPOCH_S) as u32;
        let fraction = ((self.unix_ns % 1_000_000_000) << 32).div_ceil(1_000_000_000) as u32;
        put_header(&mut bytes, 0, SENDER_REPORT, 6);
        for word in [self.ssrc, seconds, fraction, self.timestamp, self.packets, self.payload_bytes] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        // One chunk: the source, its name, and zeros up to the next word, one at least.
        let name = &name.as_bytes()[..name.len().min(255)];
        let words = 1 + (2 + name.len()) / 4 + 1;
        put_header(&mut bytes, 1, DESCRIPTION, words);
        let end = bytes.len() + 4 * words;
        bytes.extend_from_slice(&self.ssrc.to_be_bytes());
        bytes.extend_from_slice(&[NAME, name.len() as u8]);
        bytes.extend_from_slice(name);
        bytes.resize(end, 0);
        if is_goodbye {
            put_header(&mut bytes, 1, GOODBYE, 1);
            bytes.extend_from_slice(&self.ssrc.to_be_bytes());
        }
        bytes
    }
}

/// Statements of a compound packet about the source `ssrc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statements {
    pub(crate) report: Option<SenderReport>,
    pub(crate) is_goodbye: bool,
}

/// Reads what a packet of another host says about a source.
pub(crate) fn decode(mut bytes: &[u8], ssrc: u32) -> Statements {
    let mut statements = Statements::default();
    while let Some((header, rest)) = bytes.split_at_checked(4) {
        let words = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let Some((body, next)) = rest.split_at_checked(4 * words) else { break };
        if header[0] & 0xc0 != VERSION {
            break;
        }
        let word = |at: usize| {
            body.get(4 * at..4 * at + 4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
        };
        match header[1] {
            SENDER_REPORT if word(0) == Some(ssrc) => statements.report = report(word).or(statements.report),
            GOODBYE => {
                let sources = usize::from(header[0] & 0x1f);
                statements.is_goodbye |= (0..sources).any(|at| word(at) == Some(ssrc));
            }
            _ => {}
        }
        bytes = next;
    }
    statements
}

/// Reads the words of a sender's report; `None` if they are too few.
fn report(word: impl Fn(usize) -> Option<u32>) -> Option<SenderReport> {
    let seconds = u64::from(word(1)?).checked_sub(NTP_EPOCH_S)?;
    let fraction_ns = (u64::from(word(2)?) * 1_000_000_000) >> 32;
    Some(SenderReport {
        ssrc: word(0)?,
        unix_ns: seconds * 1_000_000_000 + fraction_ns,
        timestamp: word(3)?,
        packets: word(4)?,
        payload_bytes: word(5)?,
    })
}

fn put_header(bytes: &mut Vec<u8>, count: u8, kind: u8, words: usize) {
    bytes.extend_from_slice(&[VERSION | count, kind]);
    bytes.extend_from_slice(&(words as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: SenderReport = SenderReport {
        ssrc: 0x0102_0304,
        unix_ns: 1_500_000_000,
        timestamp: 5,
        packets: 6,
        payload_bytes: 7,
    };

    #[test]
    fn a_report_has_the_bytes_of_the_standard() {
        let golden: [&[u8]; 4] = [
            b"\x80\xc8\0\x06\x01\x02\x03\x04\x83\xaa\x7e\x81\x80\0\0\0\0\0\0\x05\0\0\0\x06\0\0\0\x07",
            b"\x81\xca\0\x03\x01\x02\x03\x04\x01\x03abc\0\0\0",
            b"\x81\xcb\0\x01\x01\x02\x03\x04",
            b"",
        ];
        assert_eq!(REPORT.encode("abc", true), golden.concat());
        assert_eq!(REPORT.encode("abc", false), golden[..2].concat());
        for length in 0..9 {
            assert_eq!(REPORT.encode(&"x".repeat(length), true).len() % 4, 0);
        }
    }

    #[test]
    fn what_a_sender_says_is_read_and_lies_do_no_harm() {
        let bytes = REPORT.encode("someone", true);
        assert_eq!(decode(&bytes, REPORT.ssrc), Statements { report: Some(REPORT), is_goodbye: true });
        assert_eq!(decode(&bytes, 7), Statements::default());
        for length in 0..bytes.len() {
            let told = decode(&bytes[..length], REPORT.ssrc);
            assert_eq!((told.report.is_some(), told.is_goodbye), (length >= 28, false), "{length}");
            let mut wrong = bytes.clone();
            wrong[length] ^= 0xff;
            decode(&wrong, REPORT.ssrc);
        }
    }
}
