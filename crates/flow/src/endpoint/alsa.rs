//! `alsa:[DEVICE]`: a sound device that plays or records ([`bywash_sound`]).
//!
//! The device's clock paces the flow: it takes samples when it has room, and gives some when they were recorded. Samples go
//! from the memory that they come in straight to the device, but for those of which a block has only a part. Invariant: a
//! device that opens, takes or gives nothing within the timeout ends the flow with an error.

use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::block_io::{Input, Output};
use crate::control::{Control, UNCANCELLABLE_WAIT_MAX};
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use crate::media::{WavFormat, WavHeader, WavInfo, header};
use crate::timing::{LiveStream, Omitted, SoundStream, Times};
use bywash_options::{Escaped, OptionRow, Row, Side, Value, Words, number, option};
use bywash_quantity::TimeUnit;
use bywash_sound::{Direction, Pcm, PcmOptions, Pending, SampleFormat};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A sound device as an end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alsa {
    /// Name in ALSA's configuration; empty for `default`.
    device: String,
    format: Option<SampleFormat>,
    channels: Option<u16>,
    rate: Option<u32>,
    latency: Option<Duration>,
    timeout: Option<Duration>,
    /// Source: time after which the recording ends.
    length: Option<Duration>,
}

/// Samples, where the user says none of it.
const RATE: u32 = 48_000;
const CHANNELS: u16 = 2;
/// Greatest rate and number of channels.
const RATE_MAX: u32 = 768_000;
const CHANNELS_MAX: u16 = 64;
/// Time of the samples in the device, if the user says none, and the longest one.
const LATENCY: Duration = Duration::from_millis(100);
const LATENCY_MAX: Duration = Duration::from_secs(10);
/// Time in which the device must do something, if the user says none.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which what a device still has is played when the flow has failed or was cancelled.
const LAST_SOUND_MAX: Duration = Duration::from_millis(500);
/// Shortest sleep of a flow whose device is full or empty.
const SLEEP_MIN: Duration = Duration::from_millis(1);

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row {
        name: "alsa",
        address: "[DEVICE]",
        sentence: "a sound device by its name in ALSA, such as hw:0, pipewire or pulse; without one, default; sink: plays WAV \
                   and RF64, or raw samples with rate=, channels= or format=; source: records as WAV",
        options: &[
            OptionRow::new("rate", Value::Number, "samples a second").or("48000"),
            OptionRow::new("channels", Value::Number, "channels").or("2"),
            OptionRow::new(
                "format",
                Value::Choice(&["s16", "s24", "s32"]),
                "integers of so many bits, the low byte first",
            )
            .or("s16"),
            OptionRow::new(
                "latency",
                Value::Duration(TimeUnit::Second),
                "time of the sound in the device's buffer; playing begins when that is full",
            )
            .or("0.1"),
            OptionRow::new(
                "timeout",
                Value::Duration(TimeUnit::Second),
                "time in which the device must open, and take or give samples; longer than latency=",
            )
            .or("5"),
            OptionRow::new(
                "length",
                Value::Duration(TimeUnit::Second),
                "time after which the recording ends; none: when the flow is ended",
            )
            .only(Side::Source),
        ],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Endpoint, Error> {
    let alsa = Alsa {
        device: words.address()?.to_owned(),
        format: words.choice("format")?.map(|number| SampleFormat::ALL[number]),
        channels: words.value("channels", number)?,
        rate: words.value("rate", number)?,
        latency: words.duration("latency")?,
        timeout: words.duration("timeout")?,
        length: words.duration("length")?,
    };
    if let Err(error) = words.check_all_taken() {
        let part = error.reason().split('\'').nth(1).unwrap_or_default();
        let is_of_name =
            part.is_empty() || part.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        return Err(match is_of_name {
            true => {
                words.error(format!("{}; a comma of the device's name is written \\,", error.reason())).into()
            }
            false => error.into(),
        });
    }
    if let Err(reason) = check_samples(alsa.channels(), alsa.rate()) {
        return Err(words.error(reason).into());
    }
    if alsa.latency().is_zero() || alsa.latency() > LATENCY_MAX {
        return Err(words.error("the latency has more than 0 and at most 10 seconds").into());
    }
    if alsa.timeout() <= alsa.latency() {
        return Err(words.error("the timeout has to be longer than the latency").into());
    }
    Ok(Endpoint::new(alsa))
}

fn check_samples(channels: u16, rate: u32) -> Result<(), String> {
    match (1..=CHANNELS_MAX).contains(&channels) && (1..=RATE_MAX).contains(&rate) {
        true => Ok(()),
        false => Err(format!(
            "sound has 1 to {CHANNELS_MAX} channels and 1 to {RATE_MAX} samples a second, and not {channels} and {rate}"
        )),
    }
}

impl EndpointType for Alsa {
    fn inspect_source(&self) -> Result<End, Error> {
        Ok(End { is_lossy: true, ..End::new(self.to_string(), Kind::Memory) })
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        match self.length {
            None => Ok(End::new(self.to_string(), Kind::Memory)),
            Some(_) => Err(Error::Usage(format!(
                "{self}: length= is for a recording; 'limit' shortens what is played"
            ))),
        }
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        let OpenContext { name, control, .. } = *context;
        let format = self.format.unwrap_or_default();
        let device = self.open(Direction::Capture, format, self.channels(), self.rate(), name, control)?;
        let frames = self.length.map(|length| (length.as_secs_f64() * f64::from(self.rate())).round() as u64);
        let data_bytes = frames.map(|frames| frames.saturating_mul(device.pcm.frame_bytes() as u64));
        let ready = header(8 * format.bytes() as u16, self.channels(), self.rate(), data_bytes).into();
        let left = data_bytes.unwrap_or(u64::MAX);
        Ok(OpenedStream::OneWay(Source::Other(Box::new(Recorder { device, ready, left, is_started: false }))))
    }

    fn open_sink(
        &self,
        context: &OpenContext<'_>,
        settings: &SinkSettings,
    ) -> Result<OpenedStream<Sink>, Error> {
        let OpenContext { name, control, .. } = *context;
        let mut player = Player {
            endpoint: self.clone(),
            name: name.to_owned(),
            header: None,
            device: None,
            data_bytes: None,
            taken: 0,
            omitted: settings.omitted.clone(),
            part: Vec::new(),
        };
        if self.format.is_some() || self.channels.is_some() || self.rate.is_some() {
            let format = self.format.unwrap_or_default();
            let device =
                self.open(Direction::Playback, format, self.channels(), self.rate(), name, control)?;
            player.device = Some(device);
        } else {
            // The device is opened when the header has told the format; that there is no library is told now.
            bywash_sound::load().map_err(|error| failed(name, error))?;
            player.header = Some(WavHeader::new(name));
        }
        Ok(OpenedStream::OneWay(Sink::Other(Box::new(player))))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(Error::Usage(format!("{self} cannot be the sink of several connections at once")))
    }
}

impl Alsa {
    fn channels(&self) -> u16 {
        self.channels.unwrap_or(CHANNELS)
    }

    fn rate(&self) -> u32 {
        self.rate.unwrap_or(RATE)
    }

    fn latency(&self) -> Duration {
        self.latency.unwrap_or(LATENCY)
    }

    fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }

    /// Opens the device, within the timeout.
    fn open(
        &self,
        direction: Direction,
        format: SampleFormat,
        channels: u16,
        rate: u32,
        name: &str,
        control: &Control,
    ) -> Result<Device, Error> {
        let options = PcmOptions::default().samples(format, channels.into(), rate).latency(self.latency());
        let device = if self.device.is_empty() { "default" } else { &self.device };
        let opening = Pcm::open(direction, device, &options).map_err(|error| failed(name, error))?;
        let pcm = wait_for(&opening, self.timeout(), "opened", name, control)?;
        Ok(Device {
            name: name.to_owned(),
            pcm,
            timeout: self.timeout(),
            account: SoundStream { format: format.name().into(), channels, rate, ..SoundStream::default() },
            is_recording: direction == Direction::Capture,
            blocks: 0,
            latency: Times::new(),
        })
    }
}

impl fmt::Display for Alsa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "alsa:{}", Escaped(&self.device))?;
        option(out, "rate", self.rate)?;
        option(out, "channels", self.channels)?;
        option(out, "format", self.format.map(SampleFormat::name))?;
        option(out, "latency", self.latency.map(|latency| latency.as_secs_f64()))?;
        option(out, "timeout", self.timeout.map(|timeout| timeout.as_secs_f64()))?;
        option(out, "length", self.length.map(|length| length.as_secs_f64()))
    }
}

fn failed(name: &str, error: bywash_sound::Error) -> Error {
    Error::io(format!("use {name}"), std::io::Error::other(error))
}

/// Waits for an operation of the sound library, at most this long.
fn wait_for<T: Send + 'static>(
    pending: &Pending<T>,
    limit: Duration,
    what: &str,
    name: &str,
    control: &Control,
) -> Result<T, Error> {
    let until = Instant::now() + limit;
    loop {
        control.check()?;
        let left = until.saturating_duration_since(Instant::now());
        match pending.wait(left.min(UNCANCELLABLE_WAIT_MAX)) {
            Some(result) => return result.map_err(|error| failed(name, error)),
            None if left.is_zero() => return Err(hangs(name, what, limit)),
            None => {}
        }
    }
}

fn hangs(name: &str, what: &str, limit: Duration) -> Error {
    let seconds = limit.as_secs_f64();
    let reason = format!(
        "the device has not {what} within {seconds} s: it hangs, or its daemon is stopped; see to it, or give a longer timeout="
    );
    Error::io(format!("use {name}"), std::io::Error::new(std::io::ErrorKind::TimedOut, reason))
}

/// An open device, and the account of its samples.
struct Device {
    name: String,
    pcm: Pcm,
    timeout: Duration,
    account: SoundStream,
    is_recording: bool,
    /// Number of times that samples were handed over.
    blocks: u64,
    latency: Times,
}

impl Device {
    /// Calls `turn` until it moves samples, and sleeps in between for half of a period. Returns the bytes moved.
    fn moved(
        &mut self,
        what: &str,
        control: &Control,
        mut turn: impl FnMut(&mut Pcm) -> Result<usize, bywash_sound::Error>,
    ) -> Result<usize, Error> {
        let until = Instant::now() + self.timeout;
        loop {
            control.check()?;
            // What was recorded first is the oldest.
            let age = if self.is_recording { self.pcm.delay() } else { None };
            let moved = turn(&mut self.pcm).map_err(|error| failed(&self.name, error))?;
            if moved > 0 {
                self.blocks += 1;
                self.account.samples += (moved / self.pcm.frame_bytes()) as u64;
                let delay = if self.is_recording { age } else { self.pcm.delay() };
                delay.into_iter().for_each(|delay| self.latency.note(delay));
                return Ok(moved);
            }
            let now = Instant::now();
            if now >= until {
                return Err(hangs(&self.name, what, self.timeout));
            }
            control.sleep_until(now + (self.pcm.period() / 2).max(SLEEP_MIN))?;
        }
    }

    /// Plays all of the samples, which are whole frames.
    fn play(&mut self, mut samples: &[u8], control: &Control) -> Result<(), Error> {
        while !samples.is_empty() {
            let taken = self.moved("taken a sample", control, |pcm| pcm.write(samples))?;
            samples = &samples[taken..];
        }
        Ok(())
    }

    fn account(&self) -> LiveStream {
        let xruns = self.pcm.xruns();
        let (underruns, overruns) = if self.is_recording { (0, xruns) } else { (xruns, 0) };
        let latency = self.latency.percentiles();
        LiveStream {
            name: self.name.clone(),
            units: self.blocks,
            sound: Some(SoundStream { underruns, overruns, latency, ..self.account.clone() }),
            ..LiveStream::default()
        }
    }
}

/// Sink that plays.
struct Player {
    endpoint: Alsa,
    name: String,
    /// Header of the WAV, as far as it has come; `None` for raw samples.
    header: Option<WavHeader>,
    /// The device; `None` until the format is known.
    device: Option<Device>,
    /// Bytes of samples that the header tells; `None` for all that comes.
    data_bytes: Option<u64>,
    /// Bytes of samples that have come.
    taken: u64,
    /// Time of the samples that a stage has left out.
    omitted: Arc<Omitted>,
    /// Bytes of a frame of which more is to come.
    part: Vec<u8>,
}

impl Player {
    /// Opens the device for the samples that the header tells.
    fn open(&mut self, info: WavInfo, control: &Control) -> Result<Device, Error> {
        let WavFormat { is_pcm, channels, rate, frame_bytes, bits } = info.format;
        let known = SampleFormat::ALL.into_iter().find(|format| {
            let bytes = format.bytes() as u16;
            is_pcm && bits == 8 * bytes && Some(frame_bytes) == channels.checked_mul(bytes)
        });
        let wrong = |reason| Err(Error::Data(format!("{}: {reason}", self.name)));
        let Some(format) = known else {
            let kind = if is_pcm { "integers" } else { "no integers" };
            return wrong(format!(
                "its samples are {kind} of {bits} bits, and integers of 16, 24 or 32 bits are played; convert them, as by \
                 'ffmpeg -i FILE -c:a pcm_s16le -f wav -'"
            ));
        };
        if let Err(reason) = check_samples(channels, rate) {
            return wrong(reason);
        }
        self.data_bytes = info.data_bytes;
        self.endpoint.open(Direction::Playback, format, channels, rate, &self.name, control)
    }
}

impl Output for Player {
    fn put(&mut self, mut block: &[u8], control: &Control) -> Result<(), Error> {
        if self.device.is_none()
            && let Some(header) = &mut self.header
        {
            let (taken, info) = header.feed(block)?;
            let Some(info) = info else { return Ok(()) };
            block = &block[taken..];
            self.device = Some(self.open(info, control)?);
        }
        let Player { device: Some(device), data_bytes, taken, omitted, part, header, name, .. } = self else {
            return Ok(());
        };
        if header.is_none() && device.account.samples == 0 && block.starts_with(b"RIFF") {
            return Err(Error::Data(format!(
                "{name}: the data is a WAV, whose header says the format; leave rate=, channels= and format= out"
            )));
        }
        let frame_bytes = device.pcm.frame_bytes();
        // What stands behind the samples of a WAV file is not sound.
        let left = data_bytes.map_or(u64::MAX, |bytes| {
            let frames = (omitted.time_ns() as f64 * f64::from(device.account.rate) / 1e9).round() as u64;
            bytes.saturating_sub(*taken + frames * frame_bytes as u64)
        });
        let mut samples = &block[..(block.len() as u64).min(left) as usize];
        *taken += samples.len() as u64;
        if !part.is_empty() {
            let more = samples.len().min(frame_bytes - part.len());
            part.extend_from_slice(&samples[..more]);
            samples = &samples[more..];
            if part.len() < frame_bytes {
                return Ok(());
            }
            device.play(part, control)?;
            part.clear();
        }
        let (whole, rest) = samples.split_at(samples.len() - samples.len() % frame_bytes);
        device.play(whole, control)?;
        part.extend_from_slice(rest);
        Ok(())
    }

    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        let Some(device) = &mut self.device else {
            return Err(Error::Data(format!("{}: the data ended before the first sample", self.name)));
        };
        let limit = device.pcm.buffer() + device.timeout;
        let draining = device.pcm.drain().map_err(|error| failed(&self.name, error))?;
        wait_for(&draining, limit, "played to the end", &self.name, control)?;
        match self.part.len() {
            0 => Ok(()),
            bytes => Err(Error::Data(format!(
                "{}: the data ended within a sample, {bytes} bytes behind its beginning",
                self.name
            ))),
        }
    }

    fn live(&self) -> Option<LiveStream> {
        let none = || LiveStream {
            name: self.name.clone(),
            sound: Some(SoundStream::default()),
            ..LiveStream::default()
        };
        Some(self.device.as_ref().map_or_else(none, Device::account))
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Of a flow that has failed or was cancelled. Nothing is left to play after `finish`.
        if let Some(device) = &mut self.device
            && let Ok(draining) = device.pcm.drain()
        {
            let _ = draining.wait(LAST_SOUND_MAX);
        }
    }
}

/// Source that records.
struct Recorder {
    device: Device,
    /// Bytes that come before those that the device gives: the header, or a frame for which there was no room.
    ready: VecDeque<u8>,
    /// Bytes of samples that are still to be recorded; `u64::MAX` if there is no end.
    left: u64,
    is_started: bool,
}

impl Recorder {
    /// Records whole frames into `room`. Returns their bytes.
    fn record(&mut self, room: &mut [u8], control: &Control) -> Result<usize, Error> {
        let device = &mut self.device;
        if !std::mem::replace(&mut self.is_started, true) {
            device.pcm.start().map_err(|error| failed(&device.name, error))?;
        }
        let most = (room.len() as u64).min(self.left) as usize;
        let taken = device.moved("given a sample", control, |pcm| pcm.read(&mut room[..most]))?;
        if self.left != u64::MAX {
            self.left -= taken as u64;
        }
        Ok(taken)
    }
}

impl Input for Recorder {
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        let frame_bytes = self.device.pcm.frame_bytes();
        if self.ready.is_empty() && self.left > 0 && room.len() < frame_bytes {
            let mut frame = vec![0; frame_bytes];
            self.record(&mut frame, control)?;
            self.ready = frame.into();
        }
        if self.ready.is_empty() {
            let taken = if self.left == 0 { 0 } else { self.record(room, control)? };
            return Ok(&room[..taken]);
        }
        let bytes = room.len().min(self.ready.len());
        room.iter_mut().zip(self.ready.drain(..bytes)).for_each(|(to, byte)| *to = byte);
        Ok(&room[..bytes])
    }

    fn live(&self) -> Option<LiveStream> {
        Some(self.device.account())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, reason) in [
            ("alsa:hw:1,0", r"a comma of the device's name is written \,"),
            ("alsa:hw:CARD=1,DEV=0", r"written \,"),
            ("alsa:,latancy=1", "did you mean 'latency'"),
            ("alsa:,rate=0", "1 to 768000 samples a second"),
            ("alsa:,channels=65", "1 to 64 channels"),
            ("alsa:,format=u8", "there is no 'u8'"),
            ("alsa:,latency=0", "the latency has"),
            ("alsa:,latency=11,timeout=20", "the latency has"),
            ("alsa:,latency=1,timeout=1", "longer than the latency"),
        ] {
            let refused = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        let sink = "alsa:,length=1".parse::<Endpoint>().unwrap().kind.inspect_sink().unwrap_err().to_string();
        assert!(sink.contains("length= is for a recording"), "{sink}");
    }
}
