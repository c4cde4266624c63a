//! Options of a sound device: the direction, and the samples.

use std::time::Duration;

/// Direction in which samples move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the program to the device.
    Playback,
    /// From the device to the program.
    Capture,
}

/// Format of one sample of one channel: signed integers, the least significant byte first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleFormat {
    /// 16 bits.
    #[default]
    S16,
    /// 24 bits in three bytes.
    S24,
    /// 32 bits.
    S32,
}

impl SampleFormat {
    /// All formats, in the order of their sizes.
    pub const ALL: [SampleFormat; 3] = [SampleFormat::S16, SampleFormat::S24, SampleFormat::S32];

    /// Returns the name, such as `s16`.
    pub fn name(self) -> &'static str {
        match self {
            SampleFormat::S16 => "s16",
            SampleFormat::S24 => "s24",
            SampleFormat::S32 => "s32",
        }
    }

    /// Returns the size of a sample, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            SampleFormat::S16 => 2,
            SampleFormat::S24 => 3,
            SampleFormat::S32 => 4,
        }
    }

    /// Returns ALSA's number of the format (`snd_pcm_format_t`): S16_LE, S24_3LE, S32_LE.
    pub(crate) fn number(self) -> i32 {
        match self {
            SampleFormat::S16 => 2,
            SampleFormat::S24 => 32,
            SampleFormat::S32 => 10,
        }
    }
}

/// Options of an open device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcmOptions {
    /// Format of the samples.
    pub format: SampleFormat,
    /// Number of channels, whose samples alternate.
    pub channels: u32,
    /// Samples a second of each channel.
    pub rate: u32,
    /// Time of the samples that the device's buffer has room for. Playing begins when it is full.
    pub latency: Duration,
}

impl Default for PcmOptions {
    /// 48,000 samples of 16 bits a second, 2 channels, a buffer of 100 ms.
    fn default() -> PcmOptions {
        let latency = Duration::from_millis(100);
        PcmOptions { format: SampleFormat::default(), channels: 2, rate: 48_000, latency }
    }
}

impl PcmOptions {
    /// Sets the samples.
    pub fn samples(self, format: SampleFormat, channels: u32, rate: u32) -> PcmOptions {
        PcmOptions { format, channels, rate, ..self }
    }

    /// Sets the time of the samples that the device's buffer has room for.
    pub fn latency(self, latency: Duration) -> PcmOptions {
        PcmOptions { latency, ..self }
    }
}
