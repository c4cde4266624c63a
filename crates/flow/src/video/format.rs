//! Formats of pixels, and sizes of frames.

use std::fmt;
use std::str::FromStr;

/// Format of the pixels of a frame, with 8 bits a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PixelFormat {
    /// Luma, then blue and red difference, each of half the width and height.
    Yuv420,
    /// Like [`PixelFormat::Yuv420`], but of half the width and full height.
    Yuv422,
    /// Like [`PixelFormat::Yuv420`], but of full width and height.
    Yuv444,
    /// Luma alone.
    Gray,
    /// Words of blue, green, red and a byte that is ignored.
    Xrgb,
    /// Bytes of red, green and blue.
    Rgb,
}

impl PixelFormat {
    /// All formats, in the order of [`FORMAT_NAMES`].
    const ALL: [PixelFormat; 6] = [
        PixelFormat::Xrgb,
        PixelFormat::Rgb,
        PixelFormat::Gray,
        PixelFormat::Yuv420,
        PixelFormat::Yuv422,
        PixelFormat::Yuv444,
    ];

    /// Returns the format with this number in [`FORMAT_NAMES`].
    pub(crate) fn numbered(number: usize) -> PixelFormat {
        PixelFormat::ALL[number]
    }

    /// Returns the name, as in `format=`.
    pub(crate) fn name(self) -> &'static str {
        let number = PixelFormat::ALL.iter().position(|format| *format == self).unwrap_or_default();
        FORMAT_NAMES[number]
    }

    /// Returns the width and height of a chroma plane of a frame of this size; `None` if the format has no
    /// chroma planes.
    pub(crate) fn chroma(self, width: usize, height: usize) -> Option<(usize, usize)> {
        match self {
            PixelFormat::Yuv420 => Some((width.div_ceil(2), height.div_ceil(2))),
            PixelFormat::Yuv422 => Some((width.div_ceil(2), height)),
            PixelFormat::Yuv444 => Some((width, height)),
            PixelFormat::Gray | PixelFormat::Xrgb | PixelFormat::Rgb => None,
        }
    }
}

/// Names of the formats, for the table of options.
pub(crate) const FORMAT_NAMES: &[&str] = &["xrgb", "rgb", "gray", "yuv420", "yuv422", "yuv444"];

/// Size and pixels of the frames of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Width, in pixels.
    pub(crate) width: usize,
    /// Height, in pixels.
    pub(crate) height: usize,
    pub(crate) format: PixelFormat,
    /// True if luma uses all of 0 to 255, and not 16 to 235.
    pub(crate) is_full_range: bool,
}

impl Picture {
    /// Returns the size of a frame, in bytes.
    pub(crate) fn frame_bytes(&self) -> usize {
        let pixels = self.width * self.height;
        let chroma = self.format.chroma(self.width, self.height).map_or(0, |(width, height)| width * height);
        match self.format {
            PixelFormat::Xrgb => 4 * pixels,
            PixelFormat::Rgb => 3 * pixels,
            _ => pixels + 2 * chroma,
        }
    }
}

/// Frames a second, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) frames: u32,
    pub(crate) seconds: u32,
}

impl Rate {
    /// Returns the time of frame `number` after the first one, in nanoseconds.
    pub(crate) fn time_ns(self, number: u64) -> u64 {
        let time = u128::from(number) * u128::from(self.seconds) * 1_000_000_000 / u128::from(self.frames);
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Returns the number of the frame that is shown at a time after the first one, in nanoseconds.
    pub(crate) fn number_at(self, time_ns: u64) -> u64 {
        let number =
            u128::from(time_ns) * u128::from(self.frames) / (u128::from(self.seconds) * 1_000_000_000);
        u64::try_from(number).unwrap_or(u64::MAX)
    }
}

/// Parses `N` or `N/D`, such as `25` and `30000/1001`.
impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let (frames, seconds) = text.split_once(['/', ':']).unwrap_or((text, "1"));
        match (frames.parse(), seconds.parse()) {
            (Ok(frames @ 1..), Ok(seconds @ 1..)) => Ok(Rate { frames, seconds }),
            _ => {
                Err(format!("'{text}' is no rate of frames; give frames a second, such as 25 or 30000/1001"))
            }
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            1 => write!(out, "{}", self.frames),
            seconds => write!(out, "{}/{seconds}", self.frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_size_of_their_planes() {
        let bytes =
            |format, width, height| Picture { width, height, format, is_full_range: false }.frame_bytes();
        assert_eq!(bytes(PixelFormat::Yuv420, 4, 4), 24);
        assert_eq!(bytes(PixelFormat::Yuv420, 5, 3), 15 + 2 * 6);
        assert_eq!(bytes(PixelFormat::Yuv422, 5, 3), 15 + 2 * 9);
        assert_eq!(bytes(PixelFormat::Yuv444, 5, 3), 45);
        assert_eq!(bytes(PixelFormat::Gray, 5, 3), 15);
        assert_eq!(bytes(PixelFormat::Rgb, 5, 3), 45);
        assert_eq!(bytes(PixelFormat::Xrgb, 5, 3), 60);
    }

    #[test]
    fn names_are_those_of_the_table() {
        for (number, name) in FORMAT_NAMES.iter().enumerate() {
            assert_eq!(PixelFormat::numbered(number).name(), *name);
        }
    }

    #[test]
    fn rates_are_fractions() {
        let ntsc: Rate = "30000/1001".parse().unwrap();
        assert_eq!((ntsc.time_ns(0), ntsc.time_ns(30000)), (0, 1_001_000_000_000));
        assert_eq!((ntsc.number_at(1_001_000_000_000), ntsc.number_at(1_000_999_999_999)), (30000, 29999));
        assert_eq!("25:1".parse(), Ok(Rate { frames: 25, seconds: 1 }));
        assert_eq!(
            ("25".parse::<Rate>().unwrap().to_string(), ntsc.to_string()),
            ("25".into(), "30000/1001".into())
        );
        for text in ["", "0", "25/0", "-1", "25.5", "x"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
