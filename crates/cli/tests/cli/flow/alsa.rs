//! Sound devices (`alsa:`): ALSA's own plugins without a card, and a library that stands in for ALSA's where a test needs a
//! clock or a fault (alsa.c).

use super::{BackgroundChild, LIMIT, noise};
use crate::place::{TestFolder, stderr};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Devices of ALSA's plugins: `default` writes what it plays into a file and reads what it records from one, neither with
/// a clock; `mono` has one channel.
const CONFIGURATION: &str = r#"
pcm.!default { type file slave.pcm quiet file "played" infile "recorded" format raw }
pcm.quiet { type null }
pcm.mono { type multi slaves.a { pcm quiet channels 1 } bindings.0 { slave a channel 0 } }
"#;

/// A folder with devices of ALSA's plugins.
fn with_plugins() -> TestFolder {
    let place = TestFolder::new();
    place.file("asound.conf", CONFIGURATION);
    place.file("recorded", "");
    place
}

/// A folder with the library that stands in for ALSA's.
fn with_stand_in() -> TestFolder {
    let place = TestFolder::new();
    place.file("alsa.c", include_str!("alsa.c"));
    let flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"];
    let built = place.command("cc").args(flags).args(["-o", "libasound.so.2", "alsa.c"]).output().unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    place
}

fn command(place: &TestFolder, words: &[&str]) -> Command {
    let mut command = place.bywash(&["flow"]);
    command.args(words).env("ALSA_CONFIG_PATH", place.path().join("asound.conf"));
    command.env("LD_LIBRARY_PATH", place.path());
    command
}

fn flow(place: &TestFolder, words: &[&str]) -> Output {
    BackgroundChild::start(&mut command(place, words)).finish()
}

/// The account of the sound in the report of a flow that has not failed.
fn sound(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["live_streams"][0]["sound"].clone()
}

fn refused(place: &TestFolder, words: &[&str], reason: &str) {
    let begin = Instant::now();
    let output = flow(place, words);
    assert!(!output.status.success() && stderr(&output).contains(reason), "{words:?}: {}", stderr(&output));
    assert!(begin.elapsed() < LIMIT / 4, "{words:?}: {:?}", begin.elapsed());
}

fn played(place: &TestFolder) -> Vec<u8> {
    fs::read(place.path().join("played")).unwrap()
}

/// A WAV of 2 channels, 48,000 samples a second, with a chunk behind the samples.
fn wav(bits: u16, data: &[u8]) -> Vec<u8> {
    let frame = bits / 4;
    let rates = [48_000, 48_000 * u32::from(frame)].map(u32::to_le_bytes).concat();
    let sizes = [frame, bits].map(u16::to_le_bytes).concat();
    let head = [b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x02\0".as_slice(), &rates, &sizes].concat();
    [&head, b"data".as_slice(), &(data.len() as u32).to_le_bytes(), data, b"LIST\x04\0\0\0abcd"].concat()
}

#[test]
fn the_samples_of_a_wav_are_played_as_they_are() {
    let place = with_plugins();
    for bits in [16, 24, 32] {
        // Whole frames of each format, and blocks that end within one.
        let data = noise(240_000);
        place.file("song.wav", wav(bits, &data));
        for block in ["1M", "4097"] {
            let told = sound(&flow(&place, &["--json", "--block", block, "song.wav", "alsa:"]));
            assert!(played(&place) == data, "{bits} bits, blocks of {block}");
            assert_eq!(
                (&told["format"], &told["rate"]),
                (&format!("s{bits}").into(), &48_000.into()),
                "{told}"
            );
            assert_eq!(told["samples"], 240_000 / (u64::from(bits) / 4), "{told}");
            assert_eq!((&told["underruns"], &told["overruns"]), (&0.into(), &0.into()), "{told}");
        }
    }
    let long = [
        b"RF64\xff\xff\xff\xffWAVEds64\x10\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0".as_slice(),
        &wav(16, &[])[12..36],
    ];
    place.file("long.wav", [&long.concat(), b"data\xff\xff\xff\xff".as_slice(), &noise(300)].concat());
    let said = flow(&place, &["long.wav", "alsa:default"]);
    assert!(said.status.success() && played(&place) == noise(300)[..256], "{}", stderr(&said));
    assert!(
        stderr(&said).contains("alsa:default 0.00 s of sound, s16, 2 channels, 48000 samples/s; 0 underruns")
    );
}

#[test]
fn raw_samples_and_those_of_containers_are_played() {
    let place = with_plugins();
    let data = noise(600_000);
    place.file("song.raw", &data);
    let told = sound(&flow(&place, &["--json", "song.raw", "alsa:,format=s24,rate=96000,channels=1"]));
    assert_eq!((&told["samples"], &told["format"]), (&200_000.into(), &"s24".into()), "{told}");
    assert!(played(&place) == data);

    place.file("song.wav", wav(16, &data));
    let player = BackgroundChild::start(&mut command(&place, &["mem-listen:path", "alsa:"]));
    let end = Instant::now() + LIMIT;
    while !place.path().join("path").exists() && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(flow(&place, &["song.wav", "mem:path"]).status.success());
    player.succeeds();
    assert!(played(&place) == data);
}

#[test]
fn a_recording_is_a_wav_of_what_the_device_gave() {
    let place = with_plugins();
    let data = noise(48_000 * 4);
    place.file("recorded", &data);
    let told = sound(&flow(&place, &["--json", "alsa:,length=0.5", "to.wav"]));
    assert_eq!(told["samples"], 24_000, "{told}");
    let recorded = fs::read(place.path().join("to.wav")).unwrap();
    assert_eq!(recorded[4..8], (96_000u32 + 36).to_le_bytes());
    assert_eq!((&recorded[36..40], &recorded[40..44]), (&b"data"[..], &96_000u32.to_le_bytes()[..]));
    assert!(recorded[44..] == data[..96_000]);
    // What is recorded can be played, and a limit within a sample gives part of it.
    assert!(flow(&place, &["to.wav", "alsa:"]).status.success());
    assert!(played(&place) == data[..96_000]);
    let words = ["--block", "4097", "--limit", "40007", "alsa:,format=s24,channels=1,rate=8000", "part"];
    assert!(flow(&place, &words).status.success());
    let part = fs::read(place.path().join("part")).unwrap();
    assert_eq!(part.len(), 40_007);
    assert_eq!((part[22], &part[24..26], part[34]), (1, &8000u16.to_le_bytes()[..], 24));
    assert!(part[44..] == data[..40_007 - 44]);
}

#[test]
fn what_cannot_be_played_is_refused_with_the_reason() {
    let place = with_plugins();
    place.file("song.wav", wav(16, &noise(400)));
    place.file("old.wav", wav(8, &noise(400)));
    place.file("cut.wav", &wav(16, &noise(400))[..101]);
    place.file("cut.raw", noise(5));
    place.file("noise", noise(50));
    refused(
        &place,
        &["song.wav", "alsa:nosuch"],
        "cannot open the sound device 'nosuch': No such file or directory",
    );
    refused(&place, &["song.wav", "alsa:pipewire"], "pipewire-alsa has it");
    refused(&place, &["song.wav", "alsa:mono"], "has no 2 channels (it has 1 to 1)");
    refused(
        &place,
        &["old.wav", "alsa:"],
        "integers of 8 bits, and integers of 16, 24 or 32 bits are played",
    );
    refused(&place, &["noise", "alsa:"], "no WAV");
    refused(&place, &["song.wav", "alsa:,rate=48000"], "the data is a WAV");
    refused(&place, &["/dev/null", "alsa:"], "the data ended before the first sample");
    for (file, to) in [("cut.wav", "alsa:"), ("cut.raw", "alsa:,rate=8000")] {
        refused(&place, &[file, to], "ended within a sample, 1 bytes behind its beginning");
    }
    assert!(played(&place) == noise(4));
    place.file("libasound.so.2", "no library");
    refused(&place, &["song.wav", "alsa:"], "cannot load libasound.so.2, ALSA's library");
}

#[test]
fn a_device_paces_the_flow_and_the_report_has_its_latency() {
    let place = with_stand_in();
    let data = noise(8000 * 2);
    place.file("second.raw", &data);
    let begin = Instant::now();
    let told = sound(&flow(&place, &["--json", "second.raw", "alsa:clock,rate=8000,channels=1,latency=0.5"]));
    let took = begin.elapsed().as_secs_f64();
    assert!((1.0..10.0).contains(&took), "{took} s for one second of sound");
    // It was drained, and closed.
    assert!(played(&place) == [&data, b"end".as_slice()].concat());
    assert_eq!((&told["samples"], &told["underruns"]), (&8000.into(), &0.into()), "{told}");
    let latency = |name: &str| told["latency"][name].as_f64().unwrap();
    assert!(latency("max") <= 0.51 && latency("max") > 0.25 && latency("p50") > 0.01, "{told}");

    let begin = Instant::now();
    let recorded =
        flow(&place, &["--json", "alsa:clock,rate=8000,channels=1,length=0.5,latency=2", "to.wav"]);
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
    let told = sound(&recorded);
    assert_eq!((&told["samples"], &told["overruns"]), (&4000.into(), &0.into()), "{told}");
    let numbers: Vec<u8> = (0..4000u16).flat_map(u16::to_le_bytes).collect();
    assert!(fs::read(place.path().join("to.wav")).unwrap()[44..] == numbers);
}

#[test]
fn a_stage_before_a_slow_device_drops_what_it_has_no_time_for() {
    let place = with_stand_in();
    place.file("second.wav", wav(16, &noise(48_000 * 4)));
    let output = flow(&place, &["--json", "second.wav", "live:,late=0.1", "alsa:lazy,latency=0.05"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [stage, device] = [0, 1].map(|number| &report["live_streams"][number]);
    let dropped = stage["units_dropped"].as_u64().unwrap();
    // Units of 20 ms, of which the device takes one in 40 ms.
    assert!((1..50).contains(&dropped), "{stage}");
    assert_eq!(device["sound"]["samples"], (50 - dropped) * 960, "{device}");
}

#[test]
fn underruns_and_overruns_are_recovered_and_counted() {
    let place = with_stand_in();
    let data = noise(8000);
    let words = ["--json", "-", "alsa:clock,rate=8000,channels=1,latency=0.05"];
    let mut running = BackgroundChild::start(command(&place, &words).stdin(Stdio::piped()));
    let mut input = running.0.stdin.take().unwrap();
    for part in data.chunks(4000) {
        input.write_all(part).unwrap();
        thread::sleep(Duration::from_millis(700));
    }
    drop(input);
    let told = sound(&running.succeeds());
    assert!(told["underruns"].as_u64().unwrap() >= 1, "{told}");
    assert!(played(&place) == [&data, b"end".as_slice()].concat());

    // A machine that has slept is no underrun.
    place.file("second.raw", noise(16_000));
    let told =
        sound(&flow(&place, &["--json", "second.raw", "alsa:sleepy,rate=8000,channels=1,latency=0.5"]));
    assert_eq!((&told["samples"], &told["underruns"]), (&8000.into(), &0.into()), "{told}");

    // The pipe has room for 64 KiB, a third of a second.
    let mut running =
        BackgroundChild::start(&mut command(&place, &["--json", "alsa:clock,length=2,latency=0.05", "-"]));
    thread::sleep(Duration::from_secs(1));
    let mut recorded = Vec::new();
    std::io::Read::read_to_end(running.0.stdout.as_mut().unwrap(), &mut recorded).unwrap();
    let said = running.succeeds();
    let told: Value = serde_json::from_slice(&said.stderr).unwrap();
    let told = &told["live_streams"][0]["sound"];
    assert!(told["overruns"].as_u64().unwrap() >= 1, "{told}");
    assert_eq!((recorded.len(), &told["samples"]), (44 + 96_000 * 4, &96_000.into()), "{told}");
}

#[test]
fn a_device_with_a_fault_ends_the_flow_within_a_limit() {
    let place = with_stand_in();
    let limits = "latency=0.1,timeout=0.5";
    let raw = |device: &str| format!("alsa:{device},rate=48000,{limits}");
    for (device, reason) in [
        (
            "busy",
            "cannot open the sound device 'busy': Device or resource busy (os error 16); another program has it",
        ),
        ("slow", "the device has not opened within 0.5 s"),
        ("stuck", "the device has not taken a sample within 0.5 s"),
        ("unplugged", "the sound device 'unplugged' is gone: No such device"),
        ("narrow", "has no 48000 samples a second (it has 8000 to 44100)"),
        ("narrow", "convert the samples, or name a device that does, such as plug:'narrow'"),
    ] {
        refused(&place, &["zero:", &raw(device)], reason);
    }
    refused(&place, &["zero:", "alsa:narrow,channels=3"], "has no 3 channels (it has 1 to 2)");
    // It could have these samples, and fails for a reason that it does not tell.
    refused(
        &place,
        &["zero:", "alsa:narrow,rate=8000"],
        "cannot set the samples of the sound device 'narrow': Invalid",
    );
    refused(&place, &["zero:", "alsa:coarse,format=s24"], "has no samples of the format s24");
    refused(
        &place,
        &["--limit", "40000", "zero:", &raw("deaf")],
        "the device has not played to the end within 0.6 s",
    );
    refused(&place, &[&raw("stuck"), "to.wav"], "the device has not given a sample within 0.5 s");
}

#[test]
fn a_signal_ends_a_flow_and_what_the_device_has_is_played() {
    let place = with_stand_in();
    for (device, limit) in [("clock", Duration::from_secs(20)), ("stuck", Duration::from_secs(20))] {
        let running = BackgroundChild::start(&mut command(
            &place,
            &["zero:", &format!("alsa:{device},channels=1,timeout=60")],
        ));
        let end = Instant::now() + LIMIT;
        while fs::metadata(place.path().join("played")).map_or(0, |file| file.len()) == 0
            && Instant::now() < end
        {
            thread::sleep(Duration::from_millis(5));
        }
        let begin = Instant::now();
        running.signal("INT");
        let ended = running.finish();
        assert!(begin.elapsed() < limit, "{device}: {:?}", begin.elapsed());
        assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
        // Only a device that was drained is closed at once.
        assert_eq!(played(&place).ends_with(b"end"), device == "clock", "{device}");
        fs::remove_file(place.path().join("played")).unwrap();
    }
}
