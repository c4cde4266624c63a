//! Units made of the packets whose time has come, and of earlier ones where packets are missing.
//!
//! Sound is played in blocks and video in frames, at even times: a block or frame whose packets are missing is made up
//! from the one before, for at most [`CONCEALED_MAX_NS`] in a row. Invariant: each call makes one unit, so that a sender's
//! timestamps cannot make the output grow faster than time passes.

use super::format::{RtpFormat, ticks};
use super::jitter_buffer::JitterBuffer;
use super::raw_video::FrameBuffer;
use crate::media::{TS_PACKET_BYTES, header_of_stream};
use crate::timing::Reception;
use crate::video::{Picture, PixelFormat, Rate};

/// Longest time that is made up in a row, in nanoseconds. A longer gap is left out.
const CONCEALED_MAX_NS: i64 = 500_000_000;
/// Longest block of sound, in samples.
const BLOCK_MAX: i64 = 1 << 14;

/// Replacement for sound whose packets are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Concealment {
    /// The block before.
    #[default]
    Repeat,
    Silence,
}

/// Makes units of packets.
#[derive(Debug)]
pub(crate) struct Player {
    clock_hz: i64,
    kind: Kind,
    /// Time that was made up since the last packet, in nanoseconds.
    concealed_ns: i64,
}

#[derive(Debug)]
enum Kind {
    Sound(Sound),
    Video(Box<Video>),
    Transport,
}

#[derive(Debug)]
struct Sound {
    frame_bytes: usize,
    concealment: Concealment,
    /// Samples of a block, as many as the first packet had.
    block: i64,
    /// Number of the first sample of the next block; `None` before the first packet.
    position: Option<i64>,
    /// Samples from there on that have come.
    samples: Vec<u8>,
    /// The last block.
    last: Vec<u8>,
}

#[derive(Debug)]
struct Video {
    rate: Rate,
    /// Time of frame 0, in ticks; `None` before the first packet.
    start: Option<i64>,
    /// Number of the next frame.
    number: u64,
    frame: FrameBuffer,
    /// The last frame that was played.
    shown: Vec<u8>,
    has_shown: bool,
}

/// Result of playing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Played {
    /// True if a unit was made.
    pub(crate) is_unit: bool,
    /// Frames that were left out, since others came in their time.
    pub(crate) dropped: u64,
}

impl Player {
    pub(crate) fn new(format: RtpFormat, concealment: Concealment) -> Player {
        let kind = match format {
            RtpFormat::Sound { channels, .. } => Kind::Sound(Sound {
                frame_bytes: 2 * usize::from(channels),
                concealment,
                block: 0,
                position: None,
                samples: Vec::new(),
                last: Vec::new(),
            }),
            RtpFormat::Video { picture, rate } => Kind::Video(Box::new(Video {
                rate,
                start: None,
                number: 0,
                frame: FrameBuffer::new(picture),
                shown: black(&picture),
                has_shown: false,
            })),
            RtpFormat::Transport => Kind::Transport,
        };
        Player { clock_hz: i64::from(format.clock_hz()), kind, concealed_ns: 0 }
    }

    /// Begins anew, since the times of the stream do.
    pub(crate) fn restart(&mut self) {
        self.concealed_ns = 0;
        match &mut self.kind {
            Kind::Sound(sound) => {
                sound.position = None;
                sound.samples.clear();
            }
            Kind::Video(video) => {
                video.start = None;
                video.frame.clear();
            }
            Kind::Transport => {}
        }
    }

    /// Returns the time in the stream of the next unit, in ticks; `None` if there is none until a packet comes.
    pub(crate) fn next_ticks(&self, buffer: &JitterBuffer) -> Option<i64> {
        let next = buffer.next_ticks();
        if self.concealed_ns >= CONCEALED_MAX_NS {
            return next;
        }
        match &self.kind {
            Kind::Sound(Sound { position: Some(position), .. }) => Some(*position),
            Kind::Video(video) if video.start.is_some() => video.ticks(),
            _ => next,
        }
    }

    /// Returns true if something has come that was not played.
    pub(crate) fn has_rest(&self) -> bool {
        matches!(&self.kind, Kind::Sound(sound) if !sound.samples.is_empty())
    }

    /// Appends the next unit to `out`. Nothing is made up behind the last packet once the stream `has_ended`.
    pub(crate) fn play(
        &mut self,
        buffer: &mut JitterBuffer,
        has_ended: bool,
        account: &mut Reception,
        out: &mut Vec<u8>,
    ) -> Played {
        let next = buffer.next_ticks();
        if let Some(next) = next.filter(|_| self.concealed_ns >= CONCEALED_MAX_NS) {
            self.skip_to(next);
        }
        if next.is_some() {
            self.concealed_ns = 0;
        }
        let hz = self.clock_hz;
        match &mut self.kind {
            Kind::Sound(sound) => {
                let has_packets = next.is_some();
                let played = sound.play(buffer, has_ended, account, out);
                if !has_packets {
                    self.concealed_ns += sound.block * 1_000_000_000 / hz;
                }
                played
            }
            Kind::Video(video) => {
                if next.is_none() {
                    self.concealed_ns += video.rate.time_ns(1) as i64;
                }
                video.play(buffer, has_ended, account, out)
            }
            Kind::Transport => {
                let packet = buffer.take_before(i64::MAX, &mut account.packets_lost);
                let Some(packet) = packet else { return Played::default() };
                let is_unit = packet.payload.len().is_multiple_of(TS_PACKET_BYTES);
                match is_unit {
                    true => out.extend_from_slice(&packet.payload),
                    false => account.packets_foreign += 1,
                }
                buffer.give_back(packet);
                Played { is_unit, dropped: 0 }
            }
        }
    }

    /// Leaves out what is missing up to a time, in ticks.
    fn skip_to(&mut self, next: i64) {
        match &mut self.kind {
            Kind::Sound(sound) => {
                sound.position = None;
                sound.samples.clear();
            }
            Kind::Video(video) => {
                if let Some(start) = video.start {
                    let passed_ns = (next - start).max(0) as u128 * 1_000_000_000 / self.clock_hz as u128;
                    let passed_ns = u64::try_from(passed_ns).unwrap_or(u64::MAX);
                    video.number = video.number.max(video.rate.number_at(passed_ns));
                }
            }
            Kind::Transport => {}
        }
    }
}

impl Sound {
    fn play(
        &mut self,
        buffer: &mut JitterBuffer,
        has_ended: bool,
        account: &mut Reception,
        out: &mut Vec<u8>,
    ) -> Played {
        let mut position = match (self.position, buffer.next_ticks()) {
            (Some(position), _) => position,
            (None, Some(next)) => next,
            (None, None) => return Played::default(),
        };
        let mut is_concealed = false;
        loop {
            // The first packet tells the length of a block.
            let end = if self.block == 0 { i64::MAX } else { position + self.block };
            let Some(packet) = buffer.take_before(end, &mut account.packets_lost) else { break };
            let samples = (packet.payload.len() / self.frame_bytes) as i64;
            if samples == 0 || !packet.payload.len().is_multiple_of(self.frame_bytes) {
                account.packets_foreign += 1;
                buffer.give_back(packet);
                continue;
            }
            if self.block == 0 {
                (self.block, position) = (samples.min(BLOCK_MAX), packet.ticks);
            }
            let have = position + self.samples_there();
            if packet.ticks > have {
                is_concealed = true;
                self.conceal(packet.ticks - have);
            }
            let skipped = (have - packet.ticks).clamp(0, samples) as usize * self.frame_bytes;
            self.samples
                .extend(packet.payload[skipped..].chunks_exact(2).flat_map(|pair| [pair[1], pair[0]]));
            buffer.give_back(packet);
        }
        if self.block == 0 {
            // No packet had a sample.
            return Played::default();
        }
        let missing = self.block - self.samples_there();
        if missing > 0 && !(has_ended && buffer.next_ticks().is_none()) {
            is_concealed = true;
            self.conceal(missing);
        }
        let bytes = (self.block as usize * self.frame_bytes).min(self.samples.len());
        out.extend_from_slice(&self.samples[..bytes]);
        self.last.clear();
        self.last.extend(self.samples.drain(..bytes));
        self.position = Some(position + self.block);
        account.units_concealed += u64::from(is_concealed);
        Played { is_unit: bytes > 0, dropped: 0 }
    }

    fn samples_there(&self) -> i64 {
        (self.samples.len() / self.frame_bytes) as i64
    }

    /// Appends made-up samples, fewer than a block.
    fn conceal(&mut self, samples: i64) {
        let bytes = samples.clamp(0, BLOCK_MAX) as usize * self.frame_bytes;
        let end = self.samples.len() + bytes;
        if self.concealment == Concealment::Repeat && !self.last.is_empty() {
            // What is missing in a block is taken from the same place of the block before.
            let begin = self.samples.len() % self.last.len();
            let repeated = self.last.iter().cycle().skip(begin).take(bytes);
            self.samples.extend(repeated);
        }
        self.samples.resize(end, 0);
    }
}

impl Video {
    /// Returns the time of the next frame, in ticks; `None` before the first packet.
    fn ticks(&self) -> Option<i64> {
        Some(self.start? + ticks(self.rate.time_ns(self.number), VIDEO_HZ) as i64)
    }

    fn play(
        &mut self,
        buffer: &mut JitterBuffer,
        has_ended: bool,
        account: &mut Reception,
        out: &mut Vec<u8>,
    ) -> Played {
        let Some(start) = self.start.or(buffer.next_ticks()) else { return Played::default() };
        if self.start.is_none() {
            (self.start, self.number) = (Some(start), 0);
        }
        let half_ns = self.rate.time_ns(1) / 2;
        let middle = |number: u64| start + ticks(self.rate.time_ns(number) + half_ns, VIDEO_HZ) as i64;
        let end = middle(self.number);
        let begin = self.number.checked_sub(1).map_or(i64::MIN, middle);
        let (mut current, mut dropped) = (None, 0);
        while let Some(packet) = buffer.take_before(end, &mut account.packets_lost) {
            if packet.ticks < begin {
                // The frame was played before this packet came.
                account.packets_late += 1;
            } else {
                if current.is_some_and(|current| current != packet.ticks) {
                    dropped += 1;
                    self.frame.clear();
                }
                current = Some(packet.ticks);
                account.packets_foreign += u64::from(!self.frame.take(&packet.payload));
            }
            buffer.give_back(packet);
        }
        self.number += 1;
        let is_empty = self.frame.is_empty();
        let is_over = has_ended && buffer.next_ticks().is_none();
        if is_empty && (is_over || !self.has_shown) {
            return Played { is_unit: false, dropped };
        }
        account.units_concealed += u64::from(self.frame.conceal(&self.shown));
        out.extend_from_slice(b"FRAME\n");
        out.extend_from_slice(self.frame.frame());
        self.frame.swap(&mut self.shown);
        self.frame.clear();
        self.has_shown = true;
        Played { is_unit: true, dropped }
    }
}

/// Rate of the timestamps of video, in hertz.
const VIDEO_HZ: u32 = 90_000;

/// Returns a black frame.
fn black(picture: &Picture) -> Vec<u8> {
    let luma = picture.width * picture.height;
    let mut frame = vec![128; picture.frame_bytes()];
    frame[..luma].fill(if picture.is_full_range { 0 } else { 16 });
    frame
}

/// Returns the header of the stream that is made of packets of a format.
pub(crate) fn header(format: RtpFormat) -> Vec<u8> {
    match format {
        RtpFormat::Sound { channels, rate } => header_of_stream(channels, rate),
        RtpFormat::Transport => Vec::new(),
        RtpFormat::Video { picture: Picture { width, height, format, is_full_range }, rate } => {
            let colours = if format == PixelFormat::Yuv420 { "420jpeg" } else { "422" };
            let range = if is_full_range { " XCOLORRANGE=FULL" } else { "" };
            let Rate { frames, seconds } = rate;
            format!("YUV4MPEG2 W{width} H{height} F{frames}:{seconds} Ip A1:1 C{colours}{range}\n")
                .into_bytes()
        }
    }
}
