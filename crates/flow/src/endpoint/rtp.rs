//! `rtp:[HOST:]PORT`: a stream of sound or video by RTP, in real time.

use super::host::{Host, host_and_port};
use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use crate::rtp::{
    self, Concealment, Description, PACKET_BYTES_MAX, ReceiverOptions, RtpFormat, SenderOptions,
};
use crate::video::{Picture, PixelFormat, Rate};
use bywash_options::{OptionRow, Row, Side, Value, Words, number, option};
use bywash_quantity::TimeUnit;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// An RTP stream as an end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rtp {
    /// Host name or address; empty for a receiver at all addresses of this machine.
    host: String,
    /// UDP port number; RTCP has the next one.
    port: u16,
    /// Payload type; `None` for that of the format.
    payload_type: Option<u8>,
    /// File of the stream's description.
    sdp: Option<PathBuf>,
    /// Sender: greatest size of a packet with its header, in bytes.
    packet_bytes: Option<usize>,
    /// Receiver: format of the stream; `None` for that of the description or of the payload type.
    format: Option<RtpFormat>,
    /// Receiver: time that packets wait.
    buffer: Option<Duration>,
    /// Receiver: silence after which the stream has ended.
    timeout: Option<Duration>,
    concealment: Concealment,
}

/// Greatest size of a packet, if the user says none: what an Ethernet carries, less the headers of tunnels.
const PACKET_BYTES: usize = 1400;
/// Smallest size of a packet.
const PACKET_BYTES_MIN: usize = 64;
/// Greatest payload type.
const PAYLOAD_TYPE_MAX: u8 = 127;
/// Time that packets wait, if the user says none, and the longest one.
const BUFFER: Duration = Duration::from_millis(100);
const BUFFER_MAX: Duration = Duration::from_secs(10);
/// Silence after which a stream has ended, if the user says none, and the shortest one.
const TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Pixels that are carried.
const PIXELS: &[&str] = &["yuv420", "yuv422"];

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row {
        name: "rtp",
        address: "[HOST:]PORT",
        sentence: "sink: sends a y4m, WAV or MPEG transport stream to HOST by RTP, in real time; source: receives one at HOST, \
                   an address of this machine (none: at all of them), of the format that sdp= or the options say",
        options: &[
            OptionRow::new(
                "type",
                Value::Number,
                "payload type, 0 to 127; none: 10 or 11 for sound of CDs, 33 for transport streams, else 96",
            ),
            OptionRow::new(
                "sdp",
                Value::Text("FILE"),
                "description of the stream, which a sender writes and a receiver reads",
            ),
            OptionRow::new("mtu", Value::Number, "greatest size of a packet, with the RTP header")
                .or("1400")
                .only(Side::Sink),
            OptionRow::new("rate", Value::Number, "sound: samples a second").only(Side::Source),
            OptionRow::new("channels", Value::Number, "sound: channels (with rate=, 2 if none)")
                .only(Side::Source),
            OptionRow::new("size", Value::Text("WxH"), "video: size of the frames").only(Side::Source),
            OptionRow::new("format", Value::Choice(PIXELS), "video: pixels (with size=, yuv420 if none)")
                .only(Side::Source),
            OptionRow::new("fps", Value::Text("N"), "video: frames a second, such as 25 or 30000/1001")
                .only(Side::Source),
            OptionRow::new(
                "buffer",
                Value::Duration(TimeUnit::Second),
                "time that packets wait, so that later ones are there in time; longer than a frame",
            )
            .or("0.1")
            .only(Side::Source),
            OptionRow::new(
                "timeout",
                Value::Duration(TimeUnit::Second),
                "silence after which the stream has ended",
            )
            .or("5")
            .only(Side::Source),
            OptionRow::new(
                "loss",
                Value::Choice(&["repeat", "silence"]),
                "sound: what is played where packets are missing",
            )
            .or("repeat")
            .only(Side::Source),
        ],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Endpoint, Error> {
    let (host, port) = host_and_port(words, true)?;
    let rate = words.value("rate", positive)?;
    let channels = words.value("channels", number)?;
    let size = words.value("size", size)?;
    let pixels = words.choice("format")?.map(|number| [PixelFormat::Yuv420, PixelFormat::Yuv422][number]);
    let fps: Option<Rate> = words.value("fps", str::parse)?;
    let format = match (rate, channels, size, pixels, fps) {
        (None, None, None, None, None) => None,
        (Some(rate), channels, None, None, None) => {
            Some(RtpFormat::Sound { channels: channels.unwrap_or(2), rate })
        }
        (None, None, Some((width, height)), pixels, Some(rate)) => {
            let format = pixels.unwrap_or(PixelFormat::Yuv420);
            Some(RtpFormat::Video { picture: Picture { width, height, format, is_full_range: false }, rate })
        }
        _ => {
            return Err(words
                .error("sound has rate= (and channels=), video has size= and fps= (and format=), and no stream has both")
                .into());
        }
    };
    let rtp = Rtp {
        host,
        port,
        payload_type: words.value("type", payload_type)?,
        sdp: words.path_value("sdp")?,
        packet_bytes: words.value("mtu", packet_bytes)?,
        format,
        buffer: words.duration("buffer")?,
        timeout: words.duration("timeout")?,
        concealment: match words.choice("loss")? {
            Some(1) => Concealment::Silence,
            _ => Concealment::Repeat,
        },
    };
    words.check_all_taken()?;
    if rtp.format.is_some() && rtp.sdp.is_some() {
        return Err(words
            .error("the description (sdp=) says the format: leave the options of the format out")
            .into());
    }
    if let Some(Err(reason)) = rtp.format.map(RtpFormat::check) {
        return Err(words.error(reason).into());
    }
    if rtp.timeout.is_some_and(|timeout| timeout < TIMEOUT_MIN) {
        return Err(words.error("a timeout has 0.1 seconds at least").into());
    }
    if rtp.buffer.is_some_and(|buffer| buffer.is_zero() || buffer > BUFFER_MAX) {
        return Err(words.error("a buffer has more than 0 and at most 10 seconds").into());
    }
    Ok(Endpoint::new(rtp))
}

fn positive(text: &str) -> Result<u32, String> {
    number(text).and_then(|number| match number {
        0 => Err("0 samples a second are no sound".into()),
        number => Ok(number),
    })
}

/// Parses WIDTHxHEIGHT.
fn size(text: &str) -> Result<(usize, usize), String> {
    let sides =
        text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    sides.ok_or_else(|| format!("'{text}' is no size: give WIDTHxHEIGHT, such as 640x480"))
}

fn payload_type(text: &str) -> Result<u8, String> {
    match number(text) {
        Ok(number @ 0..=PAYLOAD_TYPE_MAX) => Ok(number),
        _ => Err(format!("'{text}' is no payload type: give 0 to {PAYLOAD_TYPE_MAX}")),
    }
}

fn packet_bytes(text: &str) -> Result<usize, String> {
    match number(text) {
        Ok(bytes @ PACKET_BYTES_MIN..=PACKET_BYTES_MAX) => Ok(bytes),
        _ => Err(format!(
            "'{text}' is no size of a packet: give {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX} bytes"
        )),
    }
}

impl EndpointType for Rtp {
    fn inspect_source(&self) -> Result<End, Error> {
        if self.packet_bytes.is_some() {
            return Err(Error::Usage(format!(
                "{self}: mtu= is for a sender, which says how long its packets are"
            )));
        }
        Ok(End { is_lossy: true, ..End::new(self.to_string(), Kind::Memory) })
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        if self.host.is_empty() {
            return Err(Error::Usage(format!("{self}: to whom? Give HOST:PORT, as in rtp:example.org:5004")));
        }
        let receives = self.format.is_some()
            || self.buffer.is_some()
            || self.timeout.is_some()
            || self.concealment != Concealment::default();
        if receives {
            return Err(Error::Usage(format!(
                "{self}: a sender takes the format from its data, and buffer=, timeout= and loss= are for a receiver"
            )));
        }
        Ok(End { is_lossy: true, ..End::new(self.to_string(), Kind::Memory) })
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        let description = self.description()?;
        let buffer = self.buffer.unwrap_or(BUFFER);
        if let RtpFormat::Video { rate, .. } = description.format
            && buffer <= Duration::from_nanos(rate.time_ns(1))
        {
            return Err(Error::Usage(format!(
                "{self}: the packets of a frame come in the frame's time, so that buffer= has to be longer than that: give \
                 more than {:.3} seconds",
                rate.time_ns(1) as f64 / 1e9
            )));
        }
        let options = ReceiverOptions {
            description,
            buffer,
            timeout: self.timeout.unwrap_or(TIMEOUT),
            concealment: self.concealment,
        };
        let input = rtp::open_receiver(&self.host, self.port, options, context.name, context.control)?;
        Ok(OpenedStream::OneWay(Source::Other(input)))
    }

    fn open_sink(
        &self,
        context: &OpenContext<'_>,
        settings: &SinkSettings,
    ) -> Result<OpenedStream<Sink>, Error> {
        let options = SenderOptions {
            host: self.host.clone(),
            port: self.port,
            packet_bytes: self.packet_bytes.unwrap_or(PACKET_BYTES),
            payload_type: self.payload_type,
            sdp: self.sdp.clone(),
            omitted: settings.omitted.clone(),
        };
        let output = rtp::open_sender(options, context.name, context.control)?;
        Ok(OpenedStream::OneWay(Sink::Other(output)))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(Error::Usage(format!("{self} cannot be the sink of several connections at once")))
    }
}

impl Rtp {
    /// Returns the description of the stream to be received.
    fn description(&self) -> Result<Description, Error> {
        let told = match (&self.sdp, self.format) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Error::io(format!("read the description {}", path.display()), error))?;
                let told = Description::parse(&text);
                told.map_err(|reason| Error::Data(format!("{}: {reason}", path.display())))?
            }
            (None, Some(format)) => Description { format, payload_type: format.payload_type() },
            (None, None) => {
                let by_number = self.payload_type.map(|number| (number, RtpFormat::of_payload_type(number)));
                let Some((payload_type, Some(format))) = by_number else {
                    return Err(Error::Usage(format!(
                        "{self}: what comes there? Give sdp=FILE, rate= for sound, size= and fps= for video, or type=33 for \
                         an MPEG transport stream"
                    )));
                };
                Description { format, payload_type }
            }
        };
        Ok(Description { payload_type: self.payload_type.unwrap_or(told.payload_type), ..told })
    }
}

impl fmt::Display for Rtp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "rtp:{}:{}", Host(&self.host), self.port)?;
        option(out, "type", self.payload_type)?;
        option(out, "sdp", self.sdp.as_ref().map(|path| path.display()))?;
        option(out, "mtu", self.packet_bytes)?;
        match self.format {
            Some(RtpFormat::Sound { channels, rate }) => write!(out, ",rate={rate},channels={channels}")?,
            Some(RtpFormat::Video { picture: Picture { width, height, format, .. }, rate }) => {
                write!(out, ",size={width}x{height},format={},fps={rate}", format.name())?;
            }
            Some(RtpFormat::Transport) | None => {}
        }
        option(out, "buffer", self.buffer.map(|buffer| buffer.as_secs_f64()))?;
        option(out, "timeout", self.timeout.map(|timeout| timeout.as_secs_f64()))?;
        option(out, "loss", Some("silence").filter(|_| self.concealment == Concealment::Silence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_comes_from_the_options_or_the_payload_type() {
        let told = |text: &str| {
            let endpoint = text.parse::<Endpoint>()?;
            endpoint.kind.inspect_source()?;
            let context = crate::control::Control::new()?;
            let open = OpenContext {
                name: "x",
                listener: None,
                role: crate::end::Role { sends: false, receives: true },
                via: None,
                control: &context,
            };
            endpoint.kind.open_source(&open).map(drop)
        };
        for (text, reason) in [
            ("rtp:127.0.0.1:0", "what comes there?"),
            ("rtp:127.0.0.1:0,type=97", "what comes there?"),
            ("rtp:127.0.0.1:0,sdp=/nowhere/x", "read the description /nowhere/x"),
            ("rtp:127.0.0.1:0,size=64x48", "video has size= and fps="),
            ("rtp:127.0.0.1:0,rate=8000,fps=5", "no stream has both"),
            ("rtp:127.0.0.1:0,rate=8000,sdp=x", "leave the options of the format out"),
            ("rtp:127.0.0.1:0,size=65x48,fps=5", "not 65x48"),
            ("rtp:127.0.0.1:0,size=64x48,fps=5,buffer=0.2", "more than 0.200 seconds"),
            ("rtp:127.0.0.1:0,rate=8000,timeout=0", "0.1 seconds at least"),
            ("rtp:127.0.0.1:0,type=33,mtu=1000", "mtu= is for a sender"),
        ] {
            let refused = told(text).unwrap_err().to_string();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        for text in
            ["rtp:127.0.0.1:0,type=33", "rtp:127.0.0.1:0,rate=48000", "rtp:127.0.0.1:0,size=64x48,fps=50"]
        {
            told(text).unwrap();
        }
        let sink = |text: &str| text.parse::<Endpoint>()?.kind.inspect_sink();
        assert!(sink("rtp:5004").unwrap_err().to_string().contains("to whom?"));
        assert!(
            sink("rtp:h:1,rate=8000").unwrap_err().to_string().contains("takes the format from its data")
        );
    }
}
