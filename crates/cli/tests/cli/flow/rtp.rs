//! RTP: between flows, to and from ffmpeg, and between two hosts with clocks that differ.
//!
//! Receivers wait long for late packets here, so that a busy machine changes nothing.

use super::hosts::wait_for_socket;
use super::{BackgroundChild, flow, flows, noise, wait_for};
use crate::place::{TestFolder, stderr};
use bywash_support::hosts::{Hosts, MTU};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Width and height of frames.
const WIDTH: usize = 64;
const HEIGHT: usize = 48;

/// A port of UDP whose next one is free, too.
fn free_ports() -> u16 {
    let port = |port: u16| UdpSocket::bind(("127.0.0.1", port));
    (0..1000)
        .find_map(|_| {
            let first = port(0).ok()?.local_addr().unwrap().port();
            first.checked_add(1).filter(|next| port(*next).is_ok()).map(|_| first)
        })
        .unwrap()
}

/// Waits until somebody receives at a port of UDP.
fn wait_for_receiver(port: u16) {
    let wanted = format!(":{port:04X} ");
    wait_for("somebody receives", || {
        ["/proc/net/udp", "/proc/net/udp6"]
            .iter()
            .any(|table| fs::read_to_string(table).unwrap().lines().any(|line| line.contains(&wanted)))
    });
}

fn wav(rate: u32, samples: &[u8]) -> Vec<u8> {
    let mut bytes = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x02\0".to_vec();
    bytes.extend(rate.to_le_bytes());
    bytes.extend((4 * rate).to_le_bytes());
    bytes.extend(b"\x04\0\x10\0data");
    bytes.extend((samples.len() as u32).to_le_bytes());
    bytes.extend(samples);
    bytes
}

fn y4m_header(rate: u32, colours: &str) -> Vec<u8> {
    format!("YUV4MPEG2 W{WIDTH} H{HEIGHT} F{rate}:1 Ip A1:1 C{colours}\n").into_bytes()
}

/// A frame that is none of the others.
fn frame(number: usize, bytes: usize) -> Vec<u8> {
    let mut frame = noise(bytes);
    frame[..8].copy_from_slice(&number.to_be_bytes());
    frame.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= ((number * at) >> 5) as u8);
    frame
}

fn y4m(rate: u32, colours: &str, frames: usize) -> Vec<u8> {
    let bytes = if colours == "422" { 2 * WIDTH * HEIGHT } else { WIDTH * HEIGHT * 3 / 2 };
    let mut video = y4m_header(rate, colours);
    for number in 0..frames {
        video.extend([b"FRAME\n".as_slice(), &frame(number, bytes)].concat());
    }
    video
}

/// The account of the live stream that stands at the end `name` of a report.
fn account(json: &[u8], name: &str) -> Value {
    let report: Value = serde_json::from_slice(json).unwrap();
    let streams = report["live_streams"].as_array().unwrap();
    let account = streams.iter().find(|stream| stream["name"].as_str().unwrap().starts_with(name));
    account.unwrap_or_else(|| panic!("{report}")).clone()
}

#[test]
fn what_is_sent_is_received() {
    let place = TestFolder::new();
    let packets: Vec<u8> =
        (0..700).flat_map(|number| [vec![0x47, 1, 0, 0x10], frame(number, 184)].concat()).collect();
    let header = |file: &[u8], bytes: usize| file[bytes..].to_vec();
    for (name, content, options, header_bytes) in [
        ("song.wav", wav(48_000, &noise(192_000)), "rate=48000", 44),
        ("clip.y4m", y4m(25, "420jpeg", 30), "size=64x48,fps=25", y4m_header(25, "420jpeg").len()),
        ("other.y4m", y4m(30, "422", 30), "sdp=other.y4m.sdp", y4m_header(30, "422").len()),
        ("stream.ts", packets, "type=33", 0),
    ] {
        let port = free_ports();
        place.file(name, &content);
        let to = format!("rtp:127.0.0.1:{port},sdp={name}.sdp");
        if options.starts_with("sdp") {
            // The description is written before the first packet, which nobody hears.
            flows(&place, &["-q", name, &to]);
        }
        let from = format!("rtp:127.0.0.1:{port},{options},buffer=2");
        let receiver = BackgroundChild::flow(&place, &["--json", &from, "got"]);
        wait_for_receiver(port);
        let sent = account(&flows(&place, &["--json", name, "live:,late=never", &to]).stdout, "rtp:");
        let told = account(&receiver.succeeds().stdout, "rtp:");
        let got = fs::read(place.path().join("got")).unwrap();
        assert!(header(&got, header_bytes) == header(&content, header_bytes), "{name}: {told}");
        let reception = &told["reception"];
        assert_eq!(reception["packets"], sent["transmission"]["packets"], "{name}: {told}");
        for count in ["packets_lost", "packets_late", "units_concealed", "packets_foreign", "sender_restarts"]
        {
            assert_eq!(reception[count], 0, "{name}: {told}");
        }
        assert_eq!(reception["is_complete"], true, "{name}: {told}");
        // It is the buffer's time and the path's, whatever the scheduler adds.
        assert!(reception["latency"]["p50"].as_f64().unwrap() > 1.95, "{name}: {told}");
        let said = fs::read_to_string(place.path().join(format!("{name}.sdp"))).unwrap();
        assert!(said.starts_with("v=0\r\n") && said.contains(&format!(" {port} RTP/AVP ")), "{said}");
    }
}

#[test]
fn what_cannot_be_sent_or_received_is_refused() {
    let place = TestFolder::new();
    place.file("text", "hello");
    let floats = [&wav(8000, &noise(4000))[..20], b"\x03\0", &wav(8000, &noise(4000))[22..]].concat();
    place.file("floats.wav", floats);
    place.file("clip.y4m", &y4m(25, "444", 1)[..100]);
    place.file("bad.sdp", "m=audio 1 RTP/AVP 97\na=rtpmap:97 opus/48000/2\n");
    for (words, reason) in [
        (["text", "rtp:127.0.0.1:9"], "neither y4m, nor WAV"),
        (["floats.wav", "rtp:127.0.0.1:9"], "L16 carries integers of 16 bits"),
        (["clip.y4m", "rtp:127.0.0.1:9"], "not as yuv444"),
        (["text", "rtp:9"], "to whom?"),
        (["rtp:9", "null:"], "what comes there?"),
        (["rtp:9,sdp=bad.sdp", "null:"], "'opus/48000/2'"),
        (["rtp:9,size=64x48,fps=5", "null:"], "more than 0.200 seconds"),
    ] {
        let refused = flow(&place, &words);
        assert!(
            !refused.status.success() && stderr(&refused).contains(reason),
            "{words:?}: {}",
            stderr(&refused)
        );
    }
}

#[test]
fn a_port_of_rtcp_that_is_taken_is_told_and_no_obstacle() {
    let (place, port) = (TestFolder::new(), free_ports());
    let _taken = UdpSocket::bind(("127.0.0.1", port + 1)).unwrap();
    place.file("song.wav", wav(8000, &noise(8000)));
    let from = format!("rtp:127.0.0.1:{port},rate=8000,timeout=1");
    let receiver = BackgroundChild::flow(&place, &[&from, "got"]);
    wait_for_receiver(port);
    flows(&place, &["-q", "song.wav", &format!("rtp:127.0.0.1:{port}")]);
    let said = stderr(&receiver.succeeds());
    assert!(said.contains("neither the latency nor a goodbye will be known"), "{said}");
    assert!(said.contains("the sender fell silent without a goodbye"), "{said}");
    assert!(fs::metadata(place.path().join("got")).unwrap().len() > 8000);
}

fn ffmpeg(place: &TestFolder, words: &[&str]) -> BackgroundChild {
    let mut command = place.command("ffmpeg");
    BackgroundChild::start(command.args(["-v", "error", "-nostdin", "-y"]).args(words).stdin(Stdio::null()))
}

/// The frames of a y4m file.
fn frames_in(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    let mut rest = &file[file.iter().position(|byte| *byte == b'\n').unwrap() + 1..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let begin = rest.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        frames.push(rest[begin..begin + 2 * WIDTH * HEIGHT].to_vec());
        rest = &rest[begin + 2 * WIDTH * HEIGHT..];
    }
    frames
}

/// Checks that frames are those of a clip: in order, and at least so many of them.
fn assert_frames(got: &[Vec<u8>], clip: &[Vec<u8>], at_least: usize) {
    let mut known = clip.iter();
    let in_order =
        got.iter().filter(|frame| known.clone().any(|one| one == *frame) && known.any(|one| one == *frame));
    let in_order = in_order.count();
    assert!(in_order >= at_least, "{in_order} of {} frames are those of the clip", got.len());
}

#[test]
fn ffmpeg_understands_what_is_sent() {
    let place = TestFolder::new();
    let (sound, video) = (free_ports(), free_ports());
    let samples = noise(4 * 8000 * 4);
    place.file("song.wav", wav(8000, &samples));
    place.file("clip.y4m", y4m(25, "422", 100));
    let clip = frames_in(&place.path().join("clip.y4m"));
    for (port, file) in [(sound, "song.wav"), (video, "clip.y4m")] {
        let to = format!("rtp:127.0.0.1:{port},sdp=s.sdp");
        // Only for the description, which is there before the first packet.
        let sending = BackgroundChild::flow(&place, &["-q", file, &to]);
        wait_for("the description is written", || {
            fs::read_to_string(place.path().join("s.sdp"))
                .is_ok_and(|text| text.contains(&format!(" {port} ")))
        });
        drop(sending);
        let kept: &[&str] = match file {
            "song.wav" => &["-t", "2", "got.wav"],
            _ => &["-frames:v", "40", "-pix_fmt", "yuv422p", "got.y4m"],
        };
        let input = ["-protocol_whitelist", "file,udp,rtp", "-i", "s.sdp"];
        let receiver = ffmpeg(&place, &[&input, kept].concat());
        wait_for_receiver(port);
        flows(&place, &["-q", file, &to]);
        receiver.succeeds();
    }
    let got = fs::read(place.path().join("got.wav")).unwrap();
    let data = got.windows(4).position(|name| name == b"data").unwrap() + 8;
    // A second of it is there without a gap.
    let part = &got[data + 4 * 2000..data + 4 * 10_000];
    assert!(samples.windows(part.len()).step_by(4).any(|window| window == part), "the sound is another one");
    assert_frames(&frames_in(&place.path().join("got.y4m")), &clip, 30);
}

#[test]
fn what_ffmpeg_sends_is_understood() {
    let place = TestFolder::new();
    let samples = noise(2 * 8000 * 4);
    place.file("song.wav", wav(8000, &samples));
    place.file("clip.y4m", y4m(25, "422", 50));
    let clip = frames_in(&place.path().join("clip.y4m"));
    let sent = |file: &str, coding: &[&str], options: &str, got: &str| {
        let port = free_ports();
        let from = format!("rtp:127.0.0.1:{port},{options},buffer=1,timeout=2");
        let receiver = BackgroundChild::flow(&place, &["--json", &from, got]);
        wait_for_receiver(port);
        let to = format!("rtp://127.0.0.1:{port}");
        ffmpeg(&place, &[&["-re", "-i", file], coding, &[&to]].concat()).succeeds();
        account(&receiver.succeeds().stdout, "rtp:")
    };
    let pcm = ["-c:a", "pcm_s16be", "-payload_type", "97", "-f", "rtp"];
    let told = sent("song.wav", &pcm, "rate=8000,channels=2,type=97", "got.wav");
    let got = fs::read(place.path().join("got.wav")).unwrap();
    assert!(got[44..].starts_with(&samples), "{told}");
    assert_eq!(
        (&told["reception"]["packets_lost"], &told["reception"]["packets_foreign"]),
        (&0.into(), &0.into())
    );

    let raw = ["-c:v", "rawvideo", "-pix_fmt", "uyvy422", "-f", "rtp"];
    let told = sent("clip.y4m", &raw, "size=64x48,format=yuv422,fps=25", "got.y4m");
    assert_frames(&frames_in(&place.path().join("got.y4m")), &clip, 45);
    assert_eq!(
        (&told["reception"]["packets_lost"], &told["reception"]["packets_foreign"]),
        (&0.into(), &0.into())
    );

    let ts = ["-c:v", "mpeg2video", "-f", "rtp_mpegts"];
    let told = sent("clip.y4m", &ts, "type=33", "got.ts");
    let got = fs::read(place.path().join("got.ts")).unwrap();
    assert!(
        !got.is_empty() && got.chunks(188).all(|packet| packet[0] == 0x47 && packet.len() == 188),
        "{told}"
    );
    assert_eq!(
        (&told["reception"]["packets_lost"], &told["reception"]["packets_foreign"]),
        (&0.into(), &0.into())
    );
}

/// Sends sound of 8000 samples a second for so long, by a clock that is faster by so many millionths.
fn send_skewed(address: &str, time: Duration, ppm: f64) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let begin = Instant::now();
    for number in 0..(time.as_millis() / 20) as u32 {
        let due = begin + Duration::from_secs_f64(f64::from(number) * 0.02 / (1.0 + ppm * 1e-6));
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut packet = vec![0x80, 96];
        packet.extend((number as u16).to_be_bytes());
        packet.extend((160 * number).to_be_bytes());
        packet.extend(*b"ssrc");
        packet.extend([number as u8; 2 * 160]);
        socket.send_to(&packet, address).unwrap();
    }
}

#[test]
fn the_clock_of_another_host_is_followed() {
    const PPM: f64 = 500.0;
    let (hosts, place) = (Hosts::two(MTU), TestFolder::new());
    let address = format!("{}:7400", hosts.last().address());
    let from = format!("rtp:{address},rate=8000,channels=1,buffer=0.5,timeout=1");
    let receiver = hosts.last().run(|| BackgroundChild::flow(&place, &["--json", &from, "got"]));
    wait_for_socket(hosts.last(), "udp", 7400);
    let time = Duration::from_secs(12);
    hosts.first().run(|| send_skewed(&address, time, PPM));
    let told = account(&receiver.succeeds().stdout, "rtp:");
    let reception = &told["reception"];
    let drift = reception["drift_ppm"].as_f64().unwrap();
    assert!((drift - PPM).abs() < 250.0, "{told}");
    assert_eq!((&reception["packets"], &reception["packets_lost"]), (&600.into(), &0.into()), "{told}");
    let got = fs::read(place.path().join("got")).unwrap();
    let blocks: Vec<&[u8]> = got[44..].chunks(320).take(600).collect();
    assert!(
        blocks.iter().enumerate().all(|(number, block)| block.iter().all(|byte| *byte == number as u8)),
        "{told}"
    );
}

/// Memory of a process that is in use, in bytes.
fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Sends video through two flows for so long, and returns the accounts of sender and receiver and the growth of their memory.
fn stream(time: Duration) -> (Value, Value, u64) {
    const RATE: u32 = 50;
    let (place, port) = (TestFolder::new(), free_ports());
    let from = format!("rtp:127.0.0.1:{port},size=64x48,fps={RATE},buffer=0.2");
    let receiver = BackgroundChild::flow(&place, &["--json", &from, "null:"]);
    wait_for_receiver(port);
    let to = format!("rtp:127.0.0.1:{port}");
    let mut sending = place.bywash(&["flow", "--json", "-", "live", &to]);
    let mut sender = BackgroundChild::start(sending.stdin(Stdio::piped()));
    let mut input = sender.0.stdin.take().unwrap();
    let frames = time.as_secs() * u64::from(RATE);
    input.write_all(&y4m_header(RATE, "420jpeg")).unwrap();
    let whole = [b"FRAME\n".as_slice(), &frame(1, WIDTH * HEIGHT * 3 / 2)].concat();
    let memory = || resident_bytes(sender.0.id()) + resident_bytes(receiver.0.id());
    let mut before = 0;
    for number in 0..frames {
        input.write_all(&whole).unwrap();
        if number == frames / 4 {
            before = memory();
        }
    }
    let growth = memory().saturating_sub(before);
    drop(input);
    let sent: Value = serde_json::from_slice(&sender.succeeds().stdout).unwrap();
    let received = account(&receiver.succeeds().stdout, "rtp:");
    assert_eq!(sent["live_streams"][0]["units"].as_u64().map(|units| units + dropped(&sent)), Some(frames));
    (sent, received, growth)
}

fn dropped(sent: &Value) -> u64 {
    sent["live_streams"][0]["units_dropped"].as_u64().unwrap()
}

#[test]
fn a_stream_goes_on_without_growth_of_memory() {
    let (sent, received, growth) = stream(Duration::from_secs(6));
    assert!(growth < 4 << 20, "{growth} bytes more");
    assert!(received["units"].as_u64().unwrap() > 0, "{sent} {received}");
    assert_eq!(received["reception"]["sender_restarts"], 0, "{sent} {received}");
}

/// On a machine that keeps up: an hour, or as long as BYWASH_STREAM_SECONDS says, without a late frame, drift or growth of
/// memory.
#[test]
#[ignore = "takes an hour"]
fn a_stream_of_an_hour() {
    let seconds = std::env::var("BYWASH_STREAM_SECONDS").map_or(3600, |seconds| seconds.parse().unwrap());
    let (sent, received, growth) = stream(Duration::from_secs(seconds));
    println!("{}\n{received}\n{growth} bytes more", sent["live_streams"]);
    assert_eq!((dropped(&sent), &received["units_dropped"]), (0, &0.into()), "{sent} {received}");
    let reception = &received["reception"];
    for count in ["packets_lost", "packets_late", "units_concealed", "sender_restarts"] {
        assert_eq!(reception[count], 0, "{received}");
    }
    // The clocks of both are the same one.
    assert!(reception["drift_ppm"].as_f64().unwrap().abs() < 20.0, "{received}");
    assert!(growth < 2 << 20, "{growth} bytes more");
}
