//! Descriptions of sessions (SDP, RFC 8866), as far as they describe one stream of a format that is carried here.

use super::format::RtpFormat;
use crate::video::{Picture, PixelFormat};
use std::fmt::Write;
use std::net::SocketAddr;

/// Description of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) format: RtpFormat,
    pub(crate) payload_type: u8,
}

impl Description {
    /// Returns the text of the description of a stream that is sent from one address to another.
    pub(crate) fn text(&self, session: u32, from: SocketAddr, to: SocketAddr) -> String {
        let Description { format, payload_type } = self;
        let net =
            |address: SocketAddr| format!("IN IP{} {}", if address.is_ipv4() { 4 } else { 6 }, address.ip());
        let mut text = format!("v=0\r\no=- {session} 1 {}\r\ns=bywash\r\nc={}", net(from), net(to));
        if to.ip().is_multicast() && to.is_ipv4() {
            text += "/1";
        }
        text += "\r\nt=0 0\r\n";
        let kind = if matches!(format, RtpFormat::Sound { .. }) { "audio" } else { "video" };
        // Writing to a string cannot fail, so results are ignored.
        let _ = write!(text, "m={kind} {} RTP/AVP {payload_type}\r\n", to.port());
        let _ = match format {
            RtpFormat::Sound { channels, rate } => {
                write!(text, "a=rtpmap:{payload_type} L16/{rate}/{channels}\r\n")
            }
            RtpFormat::Transport => write!(text, "a=rtpmap:{payload_type} MP2T/90000\r\n"),
            RtpFormat::Video { picture, rate } => {
                let Picture { width, height, format, is_full_range } = picture;
                let sampling = if *format == PixelFormat::Yuv420 { "4:2:0" } else { "4:2:2" };
                // The matrix is chosen by the size, as for files.
                let colorimetry = if *width > 1024 || *height > 576 { "BT709-2" } else { "BT601-5" };
                let range = if *is_full_range { "; RANGE=FULL" } else { "" };
                write!(
                    text,
                    "a=rtpmap:{payload_type} raw/90000\r\n\
                     a=fmtp:{payload_type} sampling=YCbCr-{sampling}; width={width}; height={height}; depth=8; \
                     colorimetry={colorimetry}; exactframerate={rate}{range}\r\n\
                     a=framerate:{}\r\n",
                    f64::from(rate.frames) / f64::from(rate.seconds)
                )
            }
        };
        text
    }
}

impl Description {
    /// Reads the description of the first stream that a session has.
    ///
    /// # Errors
    /// The reason, if it is no description or that of a format that is not carried here.
    pub(crate) fn parse(text: &str) -> Result<Description, String> {
        let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("m="));
        let media = lines.next().ok_or("it has no stream (m=)")?;
        let words: Vec<&str> = media.split_whitespace().collect();
        let number = match words.as_slice() {
            [_, _, "RTP/AVP" | "RTP/AVPF", number, ..] => number.parse().ok().filter(|number| *number <= 127),
            _ => None,
        };
        let payload_type: u8 =
            number.ok_or_else(|| format!("its stream is not sent by RTP/AVP: '{media}'"))?;
        let prefix = |name: &str| format!("a={name}:{payload_type} ");
        let (mut map, mut parameters, mut framerate) = (None, String::new(), None);
        for line in lines.take_while(|line| !line.starts_with("m=")) {
            if let Some(value) = line.strip_prefix(&prefix("rtpmap")) {
                map = Some(value.to_owned());
            } else if let Some(value) = line.strip_prefix(&prefix("fmtp")) {
                parameters = value.to_owned();
            } else if let Some(value) = line.strip_prefix("a=framerate:") {
                framerate = Some(value.to_owned());
            }
        }
        let format = match map {
            Some(map) => described(&map, &parameters, framerate.as_deref())?,
            None => RtpFormat::of_payload_type(payload_type)
                .ok_or_else(|| format!("it does not say what payload type {payload_type} is (a=rtpmap)"))?,
        };
        format.check()?;
        Ok(Description { format, payload_type })
    }
}

/// Reads a format from what an rtpmap, an fmtp and a framerate say.
fn described(map: &str, parameters: &str, framerate: Option<&str>) -> Result<RtpFormat, String> {
    let mut parts = map.split('/');
    let (name, clock) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let unknown = || format!("its format is '{map}', and L16, raw and MP2T are known");
    match name.to_ascii_lowercase().as_str() {
        "l16" => {
            let channels = parts.next().unwrap_or("1").parse().map_err(|_| unknown())?;
            Ok(RtpFormat::Sound { channels, rate: clock.parse().map_err(|_| unknown())? })
        }
        "mp2t" => Ok(RtpFormat::Transport),
        "raw" => {
            let value = |name: &str| {
                let mut known = parameters.split(';').filter_map(|pair| pair.trim().split_once('='));
                known.find(|pair| pair.0 == name).map(|pair| pair.1.trim())
            };
            let side = |name: &str| {
                let told = value(name).and_then(|side| side.parse().ok());
                told.ok_or_else(|| format!("it does not say the frames' {name}"))
            };
            let format = match (value("sampling"), value("depth")) {
                (Some("YCbCr-4:2:0"), Some("8")) => PixelFormat::Yuv420,
                (Some("YCbCr-4:2:2"), Some("8")) => PixelFormat::Yuv422,
                (sampling, depth) => {
                    return Err(format!(
                        "its pixels are {} of {} bits, and YCbCr-4:2:0 and YCbCr-4:2:2 of 8 bits are known",
                        sampling.unwrap_or("unknown"),
                        depth.unwrap_or("unknown")
                    ));
                }
            };
            let rate =
                value("exactframerate").or(framerate).ok_or("it does not say the rate of the frames")?;
            let is_full_range = value("RANGE") == Some("FULL");
            let picture = Picture { width: side("width")?, height: side("height")?, format, is_full_range };
            Ok(RtpFormat::Video { picture, rate: rate.parse()? })
        }
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::Rate;

    #[test]
    fn descriptions_have_the_lines_of_the_standards() {
        let text = |format: RtpFormat, to: &str| {
            let description = Description { format, payload_type: format.payload_type() };
            description.text(7, "192.0.2.1:9".parse().unwrap(), to.parse().unwrap())
        };
        assert_eq!(
            text(RtpFormat::Sound { channels: 2, rate: 48_000 }, "192.0.2.2:5004"),
            "v=0\r\no=- 7 1 IN IP4 192.0.2.1\r\ns=bywash\r\nc=IN IP4 192.0.2.2\r\nt=0 0\r\n\
             m=audio 5004 RTP/AVP 96\r\na=rtpmap:96 L16/48000/2\r\n"
        );
        let told = text(RtpFormat::Transport, "[2001:db8::1]:6");
        assert!(
            told.contains("c=IN IP6 2001:db8::1\r\n") && told.contains("m=video 6 RTP/AVP 33\r\n"),
            "{told}"
        );
        let picture = Picture { width: 64, height: 48, format: PixelFormat::Yuv422, is_full_range: false };
        let told =
            text(RtpFormat::Video { picture, rate: Rate { frames: 30_000, seconds: 1001 } }, "239.1.2.3:6");
        assert!(told.contains("c=IN IP4 239.1.2.3/1\r\n"), "{told}");
        assert!(
            told.contains(
                "a=fmtp:96 sampling=YCbCr-4:2:2; width=64; height=48; depth=8; colorimetry=BT601-5; \
                 exactframerate=30000/1001\r\na=framerate:29.97002997"
            ),
            "{told}"
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let to = "127.0.0.1:5004".parse().unwrap();
        let picture = Picture { width: 64, height: 48, format: PixelFormat::Yuv420, is_full_range: true };
        for format in [
            RtpFormat::Transport,
            RtpFormat::Sound { channels: 1, rate: 44_100 },
            RtpFormat::Sound { channels: 6, rate: 96_000 },
            RtpFormat::Video { picture, rate: Rate { frames: 24_000, seconds: 1001 } },
        ] {
            let description = Description { format, payload_type: format.payload_type() };
            assert_eq!(Description::parse(&description.text(1, to, to)), Ok(description));
        }
    }

    #[test]
    fn descriptions_of_others_are_read_or_refused() {
        // The lines of ffmpeg, and of a host that relies on the table of payload types.
        let video = "v=0\nm=video 5004 RTP/AVP 96\nb=AS:1\na=rtpmap:96 raw/90000\n\
                     a=fmtp:96 sampling=YCbCr-4:2:2; width=320; height=240; depth=8\na=framerate:25\n";
        let picture = Picture { width: 320, height: 240, format: PixelFormat::Yuv422, is_full_range: false };
        let rate = Rate { frames: 25, seconds: 1 };
        assert_eq!(Description::parse(video).unwrap().format, RtpFormat::Video { picture, rate });
        let sound = Description::parse("m=audio 5004 RTP/AVP 10\n").unwrap();
        assert_eq!(sound.format, RtpFormat::Sound { channels: 2, rate: 44_100 });
        for (text, reason) in [
            ("v=0", "no stream"),
            ("m=audio 5004 TCP 10", "not sent by RTP/AVP"),
            ("m=audio 5004 RTP/AVP 97", "what payload type 97 is"),
            ("m=audio 5004 RTP/AVP 97\na=rtpmap:97 opus/48000/2", "'opus/48000/2'"),
            ("m=video 5004 RTP/AVP 97\na=rtpmap:97 raw/90000", "unknown of unknown bits"),
            (&video.replace("a=framerate:25", ""), "rate of the frames"),
            (&video.replace("width=320", "width=321"), "not 321x240"),
        ] {
            let refused = Description::parse(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }
}
