//! Live streams: frames and sound that are passed on in real time, and what the report says of them.

use super::{BackgroundChild, flow, flows, noise};
use crate::place::{TestFolder, stderr};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Frames of 16x8 pixels, each of a colour of its own.
fn y4m(frames: usize, rate: u32) -> Vec<u8> {
    let mut bytes = format!("YUV4MPEG2 W16 H8 F{rate}:1 C420jpeg\n").into_bytes();
    for number in 0..frames {
        bytes.extend_from_slice(b"FRAME\n");
        bytes.extend([number as u8; 16 * 8 * 3 / 2]);
    }
    bytes
}

/// The account of the first live stream of a report.
fn live(json: &[u8]) -> Value {
    let report: Value = serde_json::from_slice(json).unwrap();
    report["live_streams"][0].clone()
}

#[test]
fn a_stream_takes_the_time_that_it_has_and_nothing_is_lost_without_leave() {
    let place = TestFolder::new();
    let bytes = y4m(31, 50);
    place.file("clip.y4m", &bytes);
    let begin = Instant::now();
    let told = live(&flows(&place, &["--json", "clip.y4m", "live:,late=never", "to"]).stdout);
    // The last frame is due 600 ms after the first one.
    assert!(begin.elapsed() >= Duration::from_millis(600), "{:?}", begin.elapsed());
    assert_eq!(fs::read(place.path().join("to")).unwrap(), bytes);
    assert_eq!((&told["name"], &told["units"]), (&"live:,late=never".into(), &31.into()), "{told}");
    assert_eq!((&told["units_dropped"], &told["restarts"]), (&0.into(), &0.into()), "{told}");
    let late = |name: &str| told["lateness"][name].as_f64().unwrap();
    let ordered = ["p50", "p90", "p99", "p99_9", "max"].map(late);
    assert!(ordered.is_sorted() && ordered[0] > 0.0, "{told}");

    let said = flows(&place, &["clip.y4m", "live", "null:"]);
    assert!(stderr(&said).contains("  live: ") && stderr(&said).contains("; jitter "), "{}", stderr(&said));
}

#[test]
fn sound_and_raw_data_have_a_clock_too() {
    let place = TestFolder::new();
    // 100 ms of 8000 samples a second of 16 bits, and a chunk behind them.
    let samples = noise(1600);
    let mut wav = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x40\x06\0\0".to_vec();
    wav.extend_from_slice(&samples);
    wav.extend_from_slice(b"LIST\x02\0\0\0ab");
    place.file("song.wav", &wav);
    let told = live(&flows(&place, &["--json", "song.wav", "live:wav,block=0.01,late=never", "to"]).stdout);
    assert_eq!(told["units"], 10, "{told}");
    assert_eq!(fs::read(place.path().join("to")).unwrap(), wav);
    let begin = Instant::now();
    let raw = ["--json", "song.wav", "live:raw,rate=16000,unit=160,late=never", "raw"];
    let told = live(&flows(&place, &raw).stdout);
    assert!(begin.elapsed() >= Duration::from_millis(100), "{:?}", begin.elapsed());
    assert_eq!(told["units"], wav.len().div_ceil(160), "{told}");
    assert_eq!(fs::read(place.path().join("raw")).unwrap(), wav);
}

#[test]
fn frames_that_come_too_late_are_dropped_whole_and_counted() {
    let place = TestFolder::new();
    let bytes = y4m(200, 50);
    let frame = (bytes.len() - bytes.iter().position(|byte| *byte == b'\n').unwrap() - 1) / 200;
    let header = bytes.len() - 200 * frame;
    let mut flow = place.bywash(&["flow", "--json", "-", "live", "to"]);
    let mut running = BackgroundChild::start(flow.stdin(Stdio::piped()));
    let mut input = running.0.stdin.take().unwrap();
    // The first half of a frame comes at once, and the rest after half a second: 25 frames are late then, and the clock
    // is not started anew.
    let (first, rest) = bytes.split_at(header + 3 * frame + frame / 2);
    input.write_all(first).unwrap();
    thread::sleep(Duration::from_millis(500));
    input.write_all(rest).unwrap();
    drop(input);
    let told = live(&running.succeeds().stdout);
    let count = |name: &str| told[name].as_u64().unwrap() as usize;
    assert_eq!(count("units") + count("units_dropped"), 200, "{told}");
    assert!(count("units_dropped") >= 15, "{told}");
    let left = fs::read(place.path().join("to")).unwrap();
    assert_eq!(left.len(), header + frame * count("units"));
    let frames = left[header..].chunks(frame);
    let numbers: Vec<u8> = frames.map(|frame| *frame.last().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    for (number, frame) in numbers.iter().zip(left[header..].chunks(frame)) {
        assert!(frame.starts_with(b"FRAME\n") && frame[6..].iter().all(|byte| byte == number));
    }
}

#[test]
fn what_has_no_time_is_refused_with_the_reason() {
    let place = TestFolder::new();
    place.file("text", "hello");
    place.file("cut.y4m", &y4m(3, 1000)[..500]);
    for (words, reason) in [
        (["text", "live", "null:"], "rate=, unit="),
        (["cut.y4m", "live", "null:"], "within frame 3"),
        (["text", "live:raw", "null:"], "raw data needs both"),
    ] {
        let refused = flow(&place, &words);
        assert!(!refused.status.success() && stderr(&refused).contains(reason), "{}", stderr(&refused));
    }
}
