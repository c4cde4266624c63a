//! Accelerators as stages of a flow (`accel:`).

use super::{assert_same, flow, flows, names, noise};
use crate::place::{TestFolder, stderr};
use serde_json::Value;
use std::fs;

/// Runs a flow, and returns the work of its only accelerator as its report states it.
fn work(place: &TestFolder, words: &[&str]) -> Value {
    let told = flows(place, &[&["--json"], words].concat());
    let report: Value = serde_json::from_slice(&told.stdout).unwrap();
    report["accelerations"][0].clone()
}

/// Samples as a file has them.
fn bytes(samples: impl Iterator<Item = [f32; 2]>) -> Vec<u8> {
    samples.flatten().flat_map(f32::to_le_bytes).collect()
}

fn samples(bytes: &[u8]) -> Vec<[f32; 2]> {
    let part = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    bytes.chunks_exact(8).map(|sample| [part(&sample[..4]), part(&sample[4..])]).collect()
}

#[test]
fn a_transform_and_its_inverse_give_the_samples_back() {
    let place = TestFolder::new();
    let wave = |number: usize| [(number as f32 * 0.1).sin(), (number % 17) as f32];
    let from = bytes((0..3 << 18).map(wave));
    place.file("from", &from);
    flows(&place, &["from", "accel:fft,size=4096", "spectrum"]);
    let there = work(&place, &["spectrum", "accel:fft,size=4096,inverse", "to"]);
    let (back, from) = (samples(&fs::read(place.path().join("to")).unwrap()), samples(&from));
    assert_eq!(back.len(), from.len());
    let largest = back.iter().zip(&from).flat_map(|(one, other)| [one[0] - other[0], one[1] - other[1]]);
    assert!(largest.map(f32::abs).fold(0.0, f32::max) < 1e-4);
    assert_eq!((&there["device"], &there["input_bytes"]), (&"cpu".into(), &(6 << 20).into()));
}

/// A constant passes a low-pass whose gain is 1, and one sample of four is kept.
#[test]
fn a_filter_keeps_one_sample_of_some() {
    let place = TestFolder::new();
    place.file("from", bytes((0..1 << 19).map(|_| [1.0, -2.0])));
    flows(&place, &["from", "accel:fir,taps=31,cutoff=0.1,decimate=4", "to"]);
    let to = samples(&fs::read(place.path().join("to")).unwrap());
    assert_eq!(to.len(), 1 << 17);
    assert!(
        to[8..].iter().all(|[real, imaginary]| (real - 1.0).abs() < 1e-5 && (imaginary + 2.0).abs() < 1e-5)
    );
    place.file("delay", "0\n0\n1\n");
    flows(&place, &["from", "accel:fir,coefficients=delay,decimate=1", "to"]);
    let to = samples(&fs::read(place.path().join("to")).unwrap());
    assert_eq!((to[0], to[1], to[2]), ([0.0, 0.0], [0.0, 0.0], [1.0, -2.0]));
}

#[test]
fn files_are_read_into_the_devices_memory_and_written_from_it() {
    let place = TestFolder::new();
    let from = place.file("from", noise((9 << 20) + 5));
    let told = work(&place, &["from", "accel:sha256", "to"]);
    assert_same(&from, &place.path().join("to"));
    assert_eq!((&told["copied_bytes"], &told["blocks"]), (&0.into(), &10.into()), "{told}");
    assert!((2..=4).contains(&told["in_flight_max"].as_u64().unwrap()), "{told}");
    let times =
        ["reading_seconds", "writing_seconds", "computing_seconds"].map(|name| told[name].as_f64().unwrap());
    assert!(times.iter().all(|time| *time > 0.0 && *time < 60.0), "{told}");
    // Behind another stage the bytes lie in that one's memory.
    let told = work(&place, &["from", "compress:zstd", "decompress:", "accel:sha256", "to"]);
    assert_same(&from, &place.path().join("to"));
    assert_eq!(told["copied_bytes"], (9 << 20) + 5, "{told}");
}

/// Each device is a joint between two parts of the flow, which end early or late like those at a program.
#[test]
fn devices_programs_and_limits_follow_each_other() {
    let place = TestFolder::new();
    let from = bytes((0..1 << 18).map(|number| [number as f32, 1.0]));
    place.file("from", &from);
    let stages =
        ["accel:fft,size=64", "hash:sha256", "accel:fft,size=64,inverse", "exec:cat", "accel:sha256"];
    flows(&place, &[&["from"], &stages[..], &["to"]].concat());
    let (back, wanted) = (samples(&fs::read(place.path().join("to")).unwrap()), samples(&from));
    assert_eq!(back.len(), wanted.len());
    assert!(back.iter().zip(&wanted).all(|(one, other)| (one[0] - other[0]).abs() <= 0.1), "differs");
    // A source without an end, of which a limit behind the device needs a part.
    let told = stderr(&flows(&place, &["zero:", "accel:fft", "limit:3M", "to"]));
    assert_eq!(fs::metadata(place.path().join("to")).unwrap().len(), 3 << 20, "{told}");
    // A program that reads only the beginning.
    flows(&place, &["from", "accel:sha256", "exec:head -c 8", "to"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), from[..8]);
}

#[test]
fn blocks_of_the_flow_are_those_of_the_device() {
    let place = TestFolder::new();
    place.file("from", noise(1 << 20));
    let told = work(&place, &["--block", "64K", "from", "accel:sha256", "to"]);
    assert_eq!(told["blocks"], 16, "{told}");
}

#[test]
fn a_digest_is_that_of_hash() {
    let place = TestFolder::new();
    place.file("from", noise((3 << 20) + 1));
    let told = stderr(&flows(&place, &["from", "hash:sha256", "accel:sha256", "to"]));
    let digests: Vec<&str> = told.lines().filter(|line| line.trim_start().starts_with("sha256 ")).collect();
    assert!(digests.len() == 2 && digests[0] == digests[1], "{told}");
    assert!(told.contains("accel:sha256 on cpu: 3.0 MiB in"), "{told}");
    place.file("empty", "");
    let told = stderr(&flows(&place, &["empty", "accel:sha256", "to"]));
    assert!(told.contains("sha256 e3b0c44298fc1c149afbf4c8996fb924"), "{told}");
}

#[test]
fn a_sample_that_is_cut_off_fails_the_flow_and_what_there_is_is_partial() {
    let place = TestFolder::new();
    place.file("from", noise((4 << 20) + 3));
    let failed = flow(&place, &["from", "accel:fft", "to"]);
    assert!(stderr(&failed).contains("3 bytes") && failed.status.code() == Some(1), "{}", stderr(&failed));
    assert_eq!(names(place.path()), ["from", "to.partial"]);
}

/// The point of a scene is where it was put, and has its amplitude.
#[test]
fn echoes_become_an_image() {
    let place = TestFolder::new();
    place.file("points", "# cell, pulse, amplitude\n100 150 2\n");
    flows(&place, &["radar:256x300,targets=points", "raw"]);
    let told = work(&place, &["raw", "accel:sar,range=256,azimuth=300", "image"]);
    assert_eq!((&told["copied_bytes"], &told["input_bytes"]), (&0.into(), &(256 * 300 * 8).into()), "{told}");
    let image = samples(&fs::read(place.path().join("image")).unwrap());
    let amplitude = |sample: &[f32; 2]| sample[0].hypot(sample[1]);
    let peak = image.iter().enumerate().max_by(|one, other| amplitude(one.1).total_cmp(&amplitude(other.1)));
    let (at, peak) = peak.unwrap();
    assert_eq!((image.len(), at % 256, at / 256), (256 * 300, 100, 150));
    assert!((amplitude(peak) - 2.0).abs() < 0.1, "{peak:?}");
    // In one flow, with noise, which a seed makes the same.
    for to in ["one", "other"] {
        flows(
            &place,
            &["radar:256x300,targets=points,noise=0.1,seed=7", "accel:sar,range=256,azimuth=300", to],
        );
    }
    assert_same(&place.path().join("one"), &place.path().join("other"));
    let failed = flow(&place, &["raw", "accel:sar,range=256,azimuth=301", "not"]);
    assert!(stderr(&failed).contains("of 301 rows"), "{}", stderr(&failed));
    let failed = flow(&place, &["raw", "accel:sar,range=256,azimuth=299", "not"]);
    assert!(stderr(&failed).contains("goes on after 299 rows"), "{}", stderr(&failed));
}

#[test]
fn wrong_radars_are_refused_with_what_is_possible() {
    let place = TestFolder::new();
    place.file("points", "1 2\n3\n");
    for (source, part) in [
        ("radar:", "SAMPLESxPULSES"),
        ("radar:512", "SAMPLESxPULSES"),
        ("radar:0x512", "0"),
        ("radar:512x512,prf=1", "PRF"),
        ("radar:512x512,noise=-1", "at least 0"),
        ("radar:512x512,targets=points", "line 2"),
        ("radar:512x512,targets=nothing", "nothing"),
        ("radar:512x512,wavelength=1", "wavelength"),
    ] {
        let refused = flow(&place, &[source, "to"]);
        assert!(stderr(&refused).contains(part), "{source}: {}", stderr(&refused));
        assert!(!refused.status.success() && !place.path().join("to").exists(), "{source}");
    }
    assert!(stderr(&flow(&place, &["zero:", "limit:1", "radar:512x512"])).contains("takes nothing"));
}

/// True if there is a graphics card, or a driver that computes as one; without, the test says why.
fn has_gpu() -> bool {
    let absent = bywash_accelerator::devices::all().absent.into_iter().find(|absent| absent.name == "gpu");
    if let Some(absent) = &absent {
        println!("gpu is not tested: {}", absent.reason);
        assert!(
            std::env::var_os("BYWASH_NEEDS_GPU").is_none(),
            "BYWASH_NEEDS_GPU is set, but {}",
            absent.reason
        );
    }
    absent.is_none()
}

/// Each kernel gives the results of the processor, but for roundings: 1e-5 of the largest value.
#[test]
fn a_graphics_card_computes_what_the_processor_does() {
    if !has_gpu() {
        return;
    }
    let place = TestFolder::new();
    place.file("wave", bytes((0..300_000).map(|number| [(number as f32 * 0.1).sin(), (number % 17) as f32])));
    flows(&place, &["radar:256x300,noise=0.1,seed=7", "raw"]);
    let on = |device: &str, from: &str, kernel: &str| {
        let told = work(&place, &[from, &format!("accel:{kernel},device={device}"), "to"]);
        (told, samples(&fs::read(place.path().join("to")).unwrap()))
    };
    for (from, kernel) in [
        ("wave", "fir,taps=31,decimate=3"),
        ("wave", "fft,size=4096"),
        ("wave", "fft,size=1000,inverse"),
        ("raw", "sar,range=256,azimuth=300"),
    ] {
        let ((told, card), (_, processor)) = (on("gpu", from, kernel), on("cpu", from, kernel));
        assert_eq!((&told["device"], card.len()), (&"gpu:0".into(), processor.len()), "{told}");
        let largest = processor.iter().flatten().fold(0.0, |largest: f32, part| largest.max(part.abs()));
        let parts = card.iter().flatten().zip(processor.iter().flatten());
        let difference = parts.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-5 * largest, "{kernel}: {difference} of {largest}");
        if from == "wave" {
            assert_eq!(told["copied_bytes"], 0, "{told}");
        }
    }
}

#[test]
fn a_shader_is_a_kernel_of_a_graphics_card() {
    let place = TestFolder::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../accelerator/examples/scale.wgsl");
    let text = fs::read_to_string(example).unwrap();
    place.file("scale.wgsl", &text);
    place.file("wrong.wgsl", text.replace("2.5 *", "2.5 +* "));
    place.file("from", bytes((0..1 << 18).map(|number| [number as f32, -1.0])));
    let refused = stderr(&flow(&place, &["from", "accel:wgsl=scale.wgsl", "to"]));
    assert!(refused.contains("device=gpu"), "{refused}");
    if has_gpu() {
        flows(&place, &["from", "accel:wgsl=scale.wgsl,device=gpu:0", "to"]);
        let to = fs::read(place.path().join("to")).unwrap();
        assert!(to == bytes((0..1 << 18).map(|number| [2.5 * number as f32, -2.5])));
        let refused = stderr(&flow(&place, &["from", "accel:wgsl=wrong.wgsl,device=gpu", "not"]));
        assert!(refused.contains("wrong.wgsl:20:"), "{refused}");
        let refused = stderr(&flow(&place, &["from", "accel:sha256,device=gpu", "not"]));
        assert!(refused.contains("device=cpu"), "{refused}");
        let refused = stderr(&flow(&place, &["from", "accel:fft,device=gpu:99", "not"]));
        assert!(refused.contains("'gpu:99': there is cpu, gpu:0"), "{refused}");
    }
}

#[test]
fn wrong_words_are_refused_with_what_is_possible() {
    let place = TestFolder::new();
    place.file("from", noise(64));
    place.file("words", "1\nx\n");
    for (stage, part) in [
        ("accel:", "a kernel is missing"),
        ("accel:ffft", "fft"),
        ("accel:so", "so=FILE"),
        ("accel:wgsl", "wgsl=FILE"),
        ("accel:fft,device=gpu:x", "cpu"),
        ("accel:fft,size=0", "size"),
        ("accel:fft,device=tpu", "cpu"),
        ("accel:fft,blocks=1", "2 to 64"),
        ("accel:fft,taps=7", "taps"),
        ("accel:fir,cutoff=0.7", "0.5"),
        ("accel:fir,decimate=0", "decimation"),
        ("accel:fir,taps=3,coefficients=words", "give either"),
        ("accel:fir,coefficients=words", "line 2"),
        ("accel:fir,coefficients=nothing", "nothing"),
        ("accel:sar", "range=SAMPLES"),
        ("accel:so=from", "from"),
    ] {
        let refused = flow(&place, &["from", stage, "to"]);
        assert!(stderr(&refused).contains(part), "{stage}: {}", stderr(&refused));
        assert!(!refused.status.success() && !place.path().join("to").exists(), "{stage}");
    }
}
