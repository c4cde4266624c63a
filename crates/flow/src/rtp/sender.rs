//! A stream of media as RTP packets, in real time.
//!
//! The format comes from the first bytes of the data. Packets of sound and of transport streams are sent when they are
//! due, and those of a frame are spread over [`SPREAD`] of the frame's time, so that no network or receiver gets them in
//! a burst. Invariant: a packet's timestamp is the time at which it was due on the wall, so that a receiver's clock can
//! follow; if the source gives less than real time, as behind a stage that drops frames or after a pause, timestamps skip
//! what is missing.

use super::format::{RtpFormat, ticks};
use super::raw_video::{PAYLOAD_BYTES_MIN, VideoPacker};
use super::rtcp::{self, SenderReport};
use super::sdp::Description;
use super::{HEADER_BYTES, PACKET_BYTES_MAX};
use crate::address;
use crate::block_io::Output;
use crate::control::Control;
use crate::datagram::want_send_buffer;
use crate::error::Error;
use crate::media::{Content, Found, TS_PACKET_BYTES, Units};
use crate::timing::{LiveStream, Meter, Omitted, Transmission};
use crate::video::{Clock, Tolerance, Turn};
use rtp_types::RtpPacketBuilder;
use rustix::event::PollFlags;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Part of a frame's time in which its packets are sent.
const SPREAD: f64 = 0.8;
/// Longest time of sound in one packet.
const PACKET_TIME: Duration = Duration::from_millis(20);
/// Shortest lateness that the timestamps skip, since the source has stalled. A shorter one, as of a busy machine, is made
/// up for.
const STALL_MIN: Duration = Duration::from_secs(1);
/// Shortest wait; a shorter one is skipped, since the sleep would take longer.
const WAIT_MIN: Duration = Duration::from_micros(60);
/// Interval between two reports about the stream.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Size of the send buffer, in bytes.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// What a sender has to know.
#[derive(Clone, Debug)]
pub(crate) struct SenderOptions {
    /// Host name or address.
    pub(crate) host: String,
    /// UDP port number of RTP; that of RTCP is the next one.
    pub(crate) port: u16,
    /// Greatest size of a packet with its header, in bytes.
    pub(crate) packet_bytes: usize,
    /// Payload type; `None` for that of the format.
    pub(crate) payload_type: Option<u8>,
    /// File into which the description of the stream is written.
    pub(crate) sdp: Option<PathBuf>,
    /// Time that a stage before the sender leaves out of the stream.
    pub(crate) omitted: Arc<Omitted>,
}

/// Opens a sink that sends a stream. `name` is the endpoint's text.
///
/// # Errors
/// [`Error::Io`] if the host is unknown or no socket can be set up; [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn open_sender(
    options: SenderOptions,
    name: &str,
    control: &Control,
) -> Result<Box<dyn Output>, Error> {
    let (socket, reports) = connect(&options, name, control)?;
    let payload_bytes = options.packet_bytes - HEADER_BYTES;
    Ok(Box::new(Sender {
        units: Units::new(name, None, PACKET_TIME, payload_bytes as u64)?,
        packets: Packets::new(socket, reports, name)?,
        options,
        name: name.to_owned(),
        stream: None,
        clock: Clock::tolerating(Tolerance::Never),
        skipped_ns: 0,
        meter: Meter::new(),
    }))
}

/// Connects a socket for RTP, and one for RTCP where the port has one.
fn connect(
    options: &SenderOptions,
    name: &str,
    control: &Control,
) -> Result<(UdpSocket, Option<UdpSocket>), Error> {
    let mut last = None;
    for address in address::addresses(&options.host, options.port, name, control)? {
        let reports = rtcp::port(options.port).map(|port| SocketAddr::new(address.ip(), port));
        let made = connected(address).and_then(|socket| Ok((socket, reports.map(connected).transpose()?)));
        match made {
            Ok(sockets) => return Ok(sockets),
            Err(error) => last = Some(error),
        }
    }
    Err(Error::io(format!("reach {name}"), last.unwrap_or(ErrorKind::AddrNotAvailable.into())))
}

fn connected(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    want_send_buffer(socket.as_fd(), SEND_BUFFER_BYTES)?;
    Ok(socket)
}

/// Sink that sends a stream.
struct Sender {
    name: String,
    options: SenderOptions,
    units: Units,
    /// Format of the stream; `None` until its header has come.
    stream: Option<Stream>,
    clock: Clock,
    /// Time in the stream that was skipped, since the source gave nothing for it, in nanoseconds.
    skipped_ns: u64,
    packets: Packets,
    meter: Meter,
}

/// Format of a stream that is sent.
struct Stream {
    format: RtpFormat,
    payload_type: u8,
    packer: Option<VideoPacker>,
}

impl Sender {
    /// Settles the format, and writes the description of the stream.
    fn begin(&mut self) -> Result<(), Error> {
        let format = match self.units.content() {
            Some(Content::Sound(wav))
                if wav.is_pcm && wav.bits == 16 && wav.frame_bytes == 2 * wav.channels =>
            {
                RtpFormat::Sound { channels: wav.channels, rate: wav.rate }
            }
            Some(Content::Sound(wav)) => {
                let kind = if wav.is_pcm { "integers" } else { "no integers" };
                return Err(self.wrong(format!(
                    "its samples are {kind} of {} bits, and L16 carries integers of 16 bits; convert them, as by 'ffmpeg \
                     -i FILE -c:a pcm_s16le -f wav -'",
                    wav.bits
                )));
            }
            Some(Content::Video(picture, rate)) => RtpFormat::Video { picture, rate },
            Some(Content::Transport) => RtpFormat::Transport,
            Some(Content::Raw) | None => unreachable!("the format comes from the first bytes of the data"),
        };
        format.check().map_err(|reason| self.wrong(reason))?;
        let payload_bytes = self.options.packet_bytes - HEADER_BYTES;
        let least = match format {
            RtpFormat::Sound { channels, .. } => 2 * usize::from(channels),
            RtpFormat::Video { .. } => PAYLOAD_BYTES_MIN,
            RtpFormat::Transport => TS_PACKET_BYTES,
        };
        if payload_bytes < least {
            let least = least + HEADER_BYTES;
            return Err(Error::Usage(format!("{}: this format needs mtu={least} or more", self.name)));
        }
        let payload_type = self.options.payload_type.unwrap_or(format.payload_type());
        if let Some(path) = &self.options.sdp {
            let (from, to) = self.packets.addresses()?;
            let text = Description { format, payload_type }.text(self.packets.ssrc, from, to);
            std::fs::write(path, text)
                .map_err(|error| Error::io(format!("write the description to {}", path.display()), error))?;
        }
        let packer = match format {
            RtpFormat::Video { picture, .. } => Some(VideoPacker::new(picture, payload_bytes)),
            RtpFormat::Sound { .. } | RtpFormat::Transport => None,
        };
        self.packets.clock_hz = format.clock_hz();
        self.stream = Some(Stream { format, payload_type, packer });
        Ok(())
    }

    /// Sends the last whole unit when it is due.
    fn send(&mut self, control: &Control) -> Result<(), Error> {
        if self.stream.is_none() {
            self.begin()?;
        }
        let Sender { units, stream: Some(stream), clock, packets, meter, .. } = self else { return Ok(()) };
        let unit = units.unit();
        let now = Instant::now();
        let period_ns = unit.end_ns - unit.begin_ns;
        let omitted_ns = match stream.format {
            // The clock references of the packets that come tell of those that do not.
            RtpFormat::Transport => 0,
            RtpFormat::Video { .. } | RtpFormat::Sound { .. } => self.options.omitted.time_ns(),
        };
        let mut begin_ns = unit.begin_ns + omitted_ns + self.skipped_ns;
        let Turn::At(mut due, ..) = clock.turn_between(begin_ns, begin_ns + period_ns, now) else {
            unreachable!("this clock drops nothing")
        };
        let lateness_ns = u64::try_from(now.saturating_duration_since(due).as_nanos()).unwrap_or(u64::MAX);
        if Duration::from_nanos(lateness_ns) >= STALL_MIN.max(Duration::from_nanos(period_ns)) {
            let skipped = lateness_ns - lateness_ns % period_ns.max(1);
            self.skipped_ns += skipped;
            begin_ns += skipped;
            due += Duration::from_nanos(skipped);
        }
        packets.wait_until(due, control)?;
        meter.passed(due.elapsed());
        let timestamp = ticks(begin_ns, packets.clock_hz);
        match (&mut stream.packer, stream.format) {
            (Some(packer), _) => {
                let spread = Duration::from_nanos(period_ns).mul_f64(SPREAD);
                loop {
                    packets.wait_until(due + spread.mul_f64(packer.progress()), control)?;
                    let (number, payload) = packets.begin();
                    let is_last = packer.pack(unit.body, (number >> 16) as u16, payload);
                    packets.send(stream.payload_type, timestamp, is_last, control)?;
                    if is_last {
                        break;
                    }
                }
            }
            (None, RtpFormat::Sound { .. }) => {
                let (number, payload) = packets.begin();
                payload.extend(unit.body.chunks_exact(2).flat_map(|sample| [sample[1], sample[0]]));
                // The first packet of a talk has the mark.
                packets.send(stream.payload_type, timestamp, number == packets.first_number, control)?;
            }
            (None, _) => {
                packets.begin().1.extend_from_slice(unit.body);
                packets.send(stream.payload_type, timestamp, false, control)?;
            }
        }
        packets.report_if_due(timestamp, due);
        Ok(())
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::Data(format!("{}: {what}", self.name))
    }
}

impl Output for Sender {
    fn put(&mut self, mut block: &[u8], control: &Control) -> Result<(), Error> {
        loop {
            let taken = match self.units.feed(block)? {
                Found::More => return Ok(()),
                Found::Header(taken) => {
                    self.begin()?;
                    taken
                }
                Found::Unit(taken) => {
                    self.send(control)?;
                    taken
                }
                // What stands behind the samples of a WAV file is not sound.
                Found::Rest(taken) => taken,
            };
            block = &block[taken..];
        }
    }

    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        if self.units.finish()? {
            self.send(control)?;
        }
        if let Some(end) = self.clock.end() {
            control.sleep_until(end)?;
        }
        self.packets.say_goodbye();
        Ok(())
    }

    fn live(&self) -> Option<LiveStream> {
        let mut account = self.meter.account(&self.name, 0);
        account.transmission = Some(self.packets.account.clone());
        Some(account)
    }
}

/// Packets of a stream, numbered from a random number on.
struct Packets {
    name: String,
    socket: UdpSocket,
    /// Socket of RTCP; `None` if the port has none.
    reports: Option<UdpSocket>,
    ssrc: u32,
    first_number: u32,
    /// Sequence number of the next packet, with the upper bits that only video carries.
    number: u32,
    first_timestamp: u32,
    clock_hz: u32,
    /// Canonical name of this end, random as RFC 7022 recommends.
    canonical_name: String,
    /// The packet that is made.
    packet: Vec<u8>,
    /// Time of the next report about the stream.
    next_report: Instant,
    last_report: Option<SenderReport>,
    account: Transmission,
}

impl Packets {
    fn new(socket: UdpSocket, reports: Option<UdpSocket>, name: &str) -> Result<Packets, Error> {
        let mut random = [0; 22];
        // A request of up to 256 bytes is never cut short (getrandom(2)).
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::io("get random bytes from the kernel", error))?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| random[at + byte]));
        let first_number = u32::from(u16::from_be_bytes([random[8], random[9]]));
        Ok(Packets {
            name: name.to_owned(),
            socket,
            reports,
            ssrc: word(0),
            first_number,
            number: first_number,
            first_timestamp: word(4),
            clock_hz: 1,
            canonical_name: random[10..].iter().map(|byte| format!("{byte:02x}")).collect(),
            packet: Vec::with_capacity(PACKET_BYTES_MAX),
            next_report: Instant::now(),
            last_report: None,
            account: Transmission::default(),
        })
    }

    fn addresses(&self) -> Result<(SocketAddr, SocketAddr), Error> {
        let told = self.socket.local_addr().and_then(|from| Ok((from, self.socket.peer_addr()?)));
        told.map_err(|error| Error::io(format!("find the addresses of {}", self.name), error))
    }

    fn wait_until(&self, due: Instant, control: &Control) -> Result<(), Error> {
        match due > Instant::now() + WAIT_MIN {
            true => control.sleep_until(due),
            false => control.check(),
        }
    }

    /// Begins a packet. Returns its number, and where its payload is appended.
    fn begin(&mut self) -> (u32, &mut Vec<u8>) {
        self.packet.clear();
        self.packet.resize(HEADER_BYTES, 0);
        (self.number, &mut self.packet)
    }

    /// Sends the packet that was begun.
    fn send(&mut self, payload_type: u8, timestamp: u64, mark: bool, control: &Control) -> Result<(), Error> {
        let header = RtpPacketBuilder::<&[u8], &[u8]>::new()
            .payload_type(payload_type)
            .sequence_number(self.number as u16)
            .timestamp(self.first_timestamp.wrapping_add(timestamp as u32))
            .ssrc(self.ssrc)
            .marker_bit(mark);
        let written = header.write_into(&mut self.packet[..HEADER_BYTES]);
        debug_assert!(written.is_ok_and(|bytes| bytes == HEADER_BYTES));
        self.number = self.number.wrapping_add(1);
        self.transmit(control)?;
        self.account.packets += 1;
        self.account.payload_bytes += (self.packet.len() - HEADER_BYTES) as u64;
        Ok(())
    }

    fn transmit(&mut self, control: &Control) -> Result<(), Error> {
        loop {
            let error = match self.socket.send(&self.packet) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::WouldBlock => {
                    control.wait(self.socket.as_fd(), PollFlags::OUT, None)?;
                }
                ErrorKind::Interrupted => {}
                // It is the answer to an earlier packet. A receiver may come later, or come back.
                ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable => self.account.refused += 1,
                _ if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                    let what = format!(
                        "send to {}: the packets are too long for the path; give a smaller mtu=",
                        self.name
                    );
                    return Err(Error::io(what, error));
                }
                _ => return Err(Error::io(format!("send to {}", self.name), error)),
            }
        }
    }

    /// Sends a report about the stream, if the time has come: the timestamp is that of the time `due`. A report that is
    /// lost is no loss.
    fn report_if_due(&mut self, timestamp: u64, due: Instant) {
        let now = Instant::now();
        if now < self.next_report {
            return;
        }
        self.next_report = now + REPORT_INTERVAL;
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix = unix.saturating_sub(due.elapsed());
        self.last_report = Some(SenderReport {
            ssrc: self.ssrc,
            unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
            timestamp: self.first_timestamp.wrapping_add(timestamp as u32),
            packets: self.account.packets as u32,
            payload_bytes: self.account.payload_bytes as u32,
        });
        self.send_report(false);
    }

    fn say_goodbye(&self) {
        self.send_report(true);
    }

    fn send_report(&self, is_goodbye: bool) {
        if let (Some(socket), Some(report)) = (&self.reports, &self.last_report) {
            // Nobody may listen there, which is no error.
            let _ = socket.send(&report.encode(&self.canonical_name, is_goodbye));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw_video::tests::{payloads, picture};
    use super::super::rtcp::decode;
    use super::*;
    use crate::video::PixelFormat;
    use rtp_types::RtpPacket;
    use std::thread;

    /// Packets that came, and those of RTCP.
    struct Sent {
        packets: Vec<Vec<u8>>,
        reports: Vec<Vec<u8>>,
        /// Time that each block took, and the end of the stream.
        took: Vec<Duration>,
        /// Times of the day at which they had been sent, since 1970.
        ended: Vec<Duration>,
    }

    /// Sends a stream to a socket of this machine, block by block.
    fn sent(blocks: &[&[u8]], packet_bytes: usize) -> Result<Sent, Error> {
        // Two ports, one behind the other.
        let (receiver, reports) = (0..100)
            .find_map(|_| {
                let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
                let port = receiver.local_addr().unwrap().port().checked_add(1)?;
                Some((receiver, UdpSocket::bind(("127.0.0.1", port)).ok()?))
            })
            .unwrap();
        let options = SenderOptions {
            host: "127.0.0.1".into(),
            port: receiver.local_addr().unwrap().port(),
            packet_bytes,
            payload_type: None,
            sdp: None,
            omitted: Arc::default(),
        };
        let control = Control::new()?;
        let mut sender = open_sender(options, "rtp:x", &control)?;
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let receiving = thread::spawn(move || {
            let (mut packets, mut room) = (Vec::new(), [0; 2000]);
            while let Ok(bytes) = receiver.recv(&mut room) {
                packets.push(room[..bytes].to_vec());
            }
            packets
        });
        let (mut took, mut ended) = (Vec::new(), Vec::new());
        for block in blocks {
            let begin = Instant::now();
            sender.put(block, &control)?;
            took.push(begin.elapsed());
            ended.push(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap());
        }
        let begin = Instant::now();
        sender.finish(&control)?;
        took.push(begin.elapsed());
        assert_eq!(sender.live().unwrap().units_dropped, 0);
        let packets = receiving.join().unwrap();
        reports.set_nonblocking(true).unwrap();
        let mut room = [0; 2000];
        let reports = std::iter::from_fn(|| reports.recv(&mut room).ok().map(|bytes| room[..bytes].to_vec()));
        Ok(Sent { packets, reports: reports.collect(), took, ended })
    }

    fn wav(samples: &[u8]) -> Vec<u8> {
        [crate::media::header_of_stream(2, 8000), samples.to_vec()].concat()
    }

    #[test]
    fn sound_is_sent_in_real_time_with_the_numbers_of_its_samples() {
        // 0.2 s in packets of 20 ms, 160 samples of two channels.
        let samples: Vec<u8> = (0..200 * 8 * 4).map(|number| number as u8).collect();
        let bytes = wav(&samples);
        let Sent { packets, reports, took, .. } =
            sent(&bytes.chunks(1000).collect::<Vec<_>>(), 1400).unwrap();
        assert_eq!(packets.len(), 10);
        let parsed: Vec<_> = packets.iter().map(|packet| RtpPacket::parse(packet).unwrap()).collect();
        let mut joined = Vec::new();
        for (number, packet) in parsed.iter().enumerate() {
            assert_eq!((packet.payload_type(), packet.ssrc()), (96, parsed[0].ssrc()));
            let number = number as u32;
            assert_eq!(packet.sequence_number(), parsed[0].sequence_number().wrapping_add(number as u16));
            assert_eq!(packet.timestamp(), parsed[0].timestamp().wrapping_add(160 * number));
            assert_eq!(packet.marker_bit(), number == 0);
            joined.extend(packet.payload().chunks(2).flat_map(|pair| [pair[1], pair[0]]));
        }
        assert_eq!(joined, samples);
        assert!(took.iter().sum::<Duration>() >= Duration::from_millis(200), "{took:?}");
        let ssrc = parsed[0].ssrc().to_be_bytes();
        assert!(reports.iter().all(|report| report[1] == 200 && report[4..8] == ssrc));
        let last = reports.last().unwrap();
        assert_eq!((last[last.len() - 7], &last[last.len() - 4..]), (203, ssrc.as_slice()));
    }

    #[test]
    fn a_frame_is_spread_over_its_time_and_its_last_packet_has_the_mark() {
        let shape = picture(64, 48, PixelFormat::Yuv420);
        let frames: Vec<Vec<u8>> = (0..3u8).map(|number| vec![number; 64 * 48 * 3 / 2]).collect();
        let blocks: Vec<Vec<u8>> =
            frames.iter().map(|frame| [b"FRAME\n", frame.as_slice()].concat()).collect();
        let mut blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        blocks.insert(0, b"YUV4MPEG2 W64 H48 F10:1 C420jpeg\n");
        let Sent { packets, took, reports, ended } = sent(&blocks, 512).unwrap();
        let in_frame = payloads(shape, &frames[0], 500).len();
        assert_eq!(packets.len(), 3 * in_frame);
        let first = RtpPacket::parse(&packets[0]).unwrap();
        for (number, bytes) in packets.iter().enumerate() {
            let packet = RtpPacket::parse(bytes).unwrap();
            let frame = number / in_frame;
            assert_eq!(packet.timestamp(), first.timestamp().wrapping_add(9000 * frame as u32));
            assert_eq!(packet.marker_bit(), number % in_frame == in_frame - 1);
            assert_eq!(packet.payload()[2..], payloads(shape, &frames[frame], 500)[number % in_frame][2..]);
        }
        // The time of the first report is that of the first frame's begin, and not of its last packet.
        let report = decode(&reports[0], first.ssrc()).report.unwrap();
        assert_eq!(report.timestamp, first.timestamp());
        let told = Duration::from_nanos(report.unix_ns);
        assert!(told + Duration::from_millis(65) <= ended[1], "{told:?} {ended:?}");
        // A frame of 100 ms has its last packet after some 70 ms.
        assert!(took[1] >= Duration::from_millis(65), "{took:?}");
        assert!(took.iter().sum::<Duration>() >= Duration::from_millis(300), "{took:?}");
    }

    /// Returns by how many ticks the timestamps of two packets differ, the second of which is sent after a pause, and after a
    /// stage has left out some time.
    fn skipped(pause: Duration, left_out: Duration) -> u32 {
        let omitted: Arc<Omitted> = Arc::default();
        let control = Control::new().unwrap();
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let options = SenderOptions {
            host: "127.0.0.1".into(),
            port: receiver.local_addr().unwrap().port(),
            packet_bytes: 1400,
            payload_type: Some(101),
            sdp: None,
            omitted: omitted.clone(),
        };
        let mut sender = open_sender(options, "rtp:x", &control).unwrap();
        let bytes = wav(&[1; 2 * 20 * 8 * 4]);
        let half = bytes.len() - 20 * 8 * 4;
        sender.put(&bytes[..half], &control).unwrap();
        thread::sleep(pause);
        omitted.add(left_out.as_nanos() as u64);
        sender.put(&bytes[half..], &control).unwrap();
        let timestamp = || {
            let mut room = [0; 2000];
            let bytes = receiver.recv(&mut room).unwrap();
            let packet = RtpPacket::parse(&room[..bytes]).unwrap();
            assert_eq!(packet.payload_type(), 101);
            packet.timestamp()
        };
        let first = timestamp();
        timestamp().wrapping_sub(first)
    }

    #[test]
    fn what_is_missing_in_the_data_is_skipped_in_the_timestamps() {
        let ms = Duration::from_millis;
        for (pause, left_out) in [(ms(60), ms(60)), (ms(0), ms(40)), (ms(60), ms(0)), (ms(400), ms(200))] {
            let begin = Instant::now();
            let skipped = skipped(pause, left_out);
            // A delay is made up for, unless a busy machine made it a long one.
            let exact = 160 + 8 * left_out.as_millis() as u32;
            assert!(skipped == exact || begin.elapsed() > STALL_MIN, "{skipped}, and not {exact}");
        }
        let begin = Instant::now();
        let skipped = skipped(ms(1100), ms(0));
        let most = begin.elapsed().as_millis() as u32 * 8 + 160;
        assert!((8640..=most).contains(&skipped) && skipped.is_multiple_of(160), "{skipped}");
    }

    #[test]
    fn what_cannot_be_carried_is_refused_with_the_reason() {
        let floats = {
            let mut bytes = wav(&[0; 4000]);
            bytes[20] = 3;
            bytes
        };
        for (bytes, packet_bytes, reason) in [
            (floats.as_slice(), 1400, "no integers of 16 bits"),
            (b"YUV4MPEG2 W4 H4 F1:1 C444\n", 1400, "not as yuv444"),
            (b"YUV4MPEG2 W4 H3 F1:1 C420jpeg\n", 1400, "not 4x3"),
            (b"hello", 1400, "neither y4m, nor WAV"),
            (&[0x47; 188 * 8], 100, "needs mtu=200 or more"),
        ] {
            let refused = sent(&[bytes], packet_bytes).err().unwrap().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
