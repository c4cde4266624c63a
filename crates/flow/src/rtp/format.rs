//! Formats that RTP carries here, and the numbers by which they are announced.

use crate::video::{Picture, PixelFormat, Rate};

/// Format of an RTP stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RtpFormat {
    /// Samples of 16 bits, most significant byte first (L16, RFC 3551, section 4.5.11).
    Sound { channels: u16, rate: u32 },
    /// Uncompressed frames (RFC 4175).
    Video { picture: Picture, rate: Rate },
    /// Packets of an MPEG transport stream (RFC 2250, section 2).
    Transport,
}

/// Payload type of stereo sound of 44100 samples a second (RFC 3551, table 4), and of mono.
const STEREO: u8 = 10;
const MONO: u8 = 11;
/// Payload type of MPEG transport streams (RFC 3551, table 5).
const TRANSPORT: u8 = 33;
/// First payload type without a meaning of its own.
const DYNAMIC: u8 = 96;
/// Rate of the timestamps of video, in hertz.
const VIDEO_HZ: u32 = 90_000;
/// Greatest width and height of a frame: offsets and line numbers have 15 bits.
const SIDE_MAX: usize = 32_767;

impl RtpFormat {
    /// Returns the rate of the timestamps, in hertz.
    pub(crate) fn clock_hz(self) -> u32 {
        match self {
            RtpFormat::Sound { rate, .. } => rate,
            RtpFormat::Video { .. } | RtpFormat::Transport => VIDEO_HZ,
        }
    }

    /// Returns how many bytes come in a second at the most, without headers.
    pub(crate) fn bytes_per_s(self) -> f64 {
        match self {
            RtpFormat::Sound { channels, rate } => 2.0 * f64::from(channels) * f64::from(rate),
            RtpFormat::Video { picture, rate } => {
                picture.frame_bytes() as f64 * f64::from(rate.frames) / f64::from(rate.seconds)
            }
            // 80 Mbit/s, which is more than any broadcast has.
            RtpFormat::Transport => 10e6,
        }
    }

    /// Returns the payload type by which the format is announced unless the user says another one.
    pub(crate) fn payload_type(self) -> u8 {
        match self {
            RtpFormat::Sound { channels: 2, rate: 44_100 } => STEREO,
            RtpFormat::Sound { channels: 1, rate: 44_100 } => MONO,
            RtpFormat::Transport => TRANSPORT,
            RtpFormat::Sound { .. } | RtpFormat::Video { .. } => DYNAMIC,
        }
    }

    /// Returns the format that a payload type stands for by itself; `None` if it has to be announced.
    pub(crate) fn of_payload_type(number: u8) -> Option<RtpFormat> {
        match number {
            STEREO => Some(RtpFormat::Sound { channels: 2, rate: 44_100 }),
            MONO => Some(RtpFormat::Sound { channels: 1, rate: 44_100 }),
            TRANSPORT => Some(RtpFormat::Transport),
            _ => None,
        }
    }

    /// Checks that the format can be carried. Returns the reason if it cannot.
    pub(crate) fn check(self) -> Result<(), String> {
        match self {
            RtpFormat::Sound { channels: 1..=64, rate: 1..=768_000 } | RtpFormat::Transport => Ok(()),
            RtpFormat::Sound { channels, rate } => Err(format!(
                "sound has 1 to 64 channels and 1 to 768000 samples a second, and not {channels} and {rate}"
            )),
            RtpFormat::Video { picture: Picture { width, height, format, .. }, .. } => {
                let (across, down) = match format {
                    PixelFormat::Yuv420 => (2, 2),
                    PixelFormat::Yuv422 => (2, 1),
                    other => {
                        return Err(format!(
                            "pixels are carried as yuv420 and yuv422, and not as {}",
                            other.name()
                        ));
                    }
                };
                let fits =
                    |side: usize, step: usize| (1..=SIDE_MAX).contains(&side) && side.is_multiple_of(step);
                match fits(width, across) && fits(height, down) {
                    true => Ok(()),
                    false => Err(format!(
                        "a frame of {} pixels has a width that is a multiple of {across} and a height that is a multiple \
                         of {down}, up to {SIDE_MAX}, and not {width}x{height}",
                        format.name()
                    )),
                }
            }
        }
    }
}

/// Returns `time_ns` in ticks of a clock, to the nearest one.
pub(crate) fn ticks(time_ns: u64, clock_hz: u32) -> u64 {
    ((u128::from(time_ns) * u128::from(clock_hz) + 500_000_000) / 1_000_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_that_has_a_number_of_its_own_is_announced_by_it() {
        for (channels, rate, number) in [(2, 44_100, 10), (1, 44_100, 11), (2, 48_000, 96), (3, 44_100, 96)] {
            let format = RtpFormat::Sound { channels, rate };
            assert_eq!(format.payload_type(), number);
            assert_eq!(RtpFormat::of_payload_type(number), Some(format).filter(|_| number < 96));
        }
        assert_eq!(RtpFormat::of_payload_type(33), Some(RtpFormat::Transport));
    }

    #[test]
    fn what_cannot_be_carried_is_told() {
        let video = |width, height, format| RtpFormat::Video {
            picture: Picture { width, height, format, is_full_range: false },
            rate: Rate { frames: 25, seconds: 1 },
        };
        assert!(video(640, 480, PixelFormat::Yuv420).check().is_ok());
        assert!(video(640, 481, PixelFormat::Yuv422).check().is_ok());
        for (format, reason) in [
            (video(640, 481, PixelFormat::Yuv420), "not 640x481"),
            (video(641, 480, PixelFormat::Yuv422), "not 641x480"),
            (video(40_000, 480, PixelFormat::Yuv422), "up to 32767"),
            (video(640, 480, PixelFormat::Yuv444), "not as yuv444"),
            (RtpFormat::Sound { channels: 0, rate: 8000 }, "1 to 64 channels"),
        ] {
            let told = format.check().unwrap_err();
            assert!(told.contains(reason), "{told}");
        }
    }

    #[test]
    fn samples_have_their_numbers_whatever_the_rounding_of_their_times() {
        for rate in [8000, 44_100, 48_000, 96_000] {
            let of_block = Rate { frames: rate, seconds: 337 };
            for number in [0, 1, 2, 1000, 123_456_789] {
                assert_eq!(ticks(of_block.time_ns(number), rate), number * 337);
            }
        }
    }
}
