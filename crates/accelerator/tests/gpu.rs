//! Kernels and limits of graphics cards that other devices do not have, and radar images on them.
//!
//! Without an adapter the tests say why and pass, unless `BYWASH_NEEDS_GPU` is set.

#![cfg(feature = "gpu")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_accelerator::kernel::{Fft, Fir, Sar};
use bywash_accelerator::sar::focus::{self, SIDE_LOBE_DB};
use bywash_accelerator::sar::{Echoes, SarOptions, Target, Weighting, image, image_by};
use bywash_accelerator::{Device, Error, Gpu, Kernel, Output, Session, SessionOptions, devices};
use num_complex::Complex32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Limit of a wait for one output.
const WAIT: Duration = Duration::from_secs(30);
/// Greatest difference of the images of two devices, relative to the highest peak.
const IMAGE_BOUND: f32 = 1e-5;

/// Opens the first adapter.
fn gpu() -> Option<Gpu> {
    let absent = devices::all().absent;
    if let Some(absent) = absent.iter().find(|absent| absent.name == "gpu") {
        println!("{} is not tested: {}", absent.name, absent.reason);
        assert!(
            std::env::var_os("BYWASH_NEEDS_GPU").is_none(),
            "BYWASH_NEEDS_GPU is set, but {}",
            absent.reason
        );
        return None;
    }
    Some(Gpu::open(0).unwrap())
}

/// Opens the first adapter, with memory that it shares with the processor, if it does, and with memory of its own.
fn gpus() -> impl Iterator<Item = Gpu> {
    gpu().into_iter().chain(gpu().map(Gpu::with_separate_memory))
}

/// Sends bytes through a session.
fn through(Session { mut input, mut output }: Session, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let (mut rest, mut collected, end) = (bytes, Vec::new(), Instant::now() + 4 * WAIT);
    while !rest.is_empty() {
        assert!(Instant::now() < end, "a session makes no progress");
        if let Some(buffer) = input.buffer(Duration::ZERO)? {
            let count = buffer.len().min(rest.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            input.submit(count)?;
            rest = &rest[count..];
        } else if output.next(WAIT)? == Output::Block {
            collected.extend_from_slice(output.block());
        }
    }
    input.finish()?;
    loop {
        assert!(Instant::now() < end, "a session has no end");
        match output.next(WAIT)? {
            Output::Block => collected.extend_from_slice(output.block()),
            Output::None => {}
            Output::End => return Ok(collected),
        }
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scale.wgsl")
}

/// Writes a shader to a file of its own.
fn shader(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".wgsl").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn small() -> SessionOptions {
    SessionOptions::default().block_bytes(4096).blocks(3)
}

fn bytes(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    numbers.flat_map(f32::to_le_bytes).collect()
}

#[test]
fn a_shader_computes_each_unit() {
    let input: Vec<f32> = (0..100_003).map(|number| number as f32 - 50_000.0).collect();
    let expected = bytes(input.iter().map(|number| 2.5 * number));
    for gpu in gpus() {
        for options in [small(), small().block_bytes(1), SessionOptions::default()] {
            // One unit a block is slow.
            let count = if options.block_bytes == 1 { 100 } else { input.len() };
            let session = gpu.session(&Kernel::Shader(example()), &options).unwrap();
            let output = through(session, &bytes(input[..count].iter().copied())).unwrap();
            assert!(output == expected[..4 * count], "{options:?}");
        }
    }
}

/// Tests that the position of a unit in the whole input is known, with units of different sizes.
#[test]
fn a_shader_knows_the_units_before_its_block() {
    let text = "const INPUT_BYTES: u32 = 8;\nconst OUTPUT_BYTES: u32 = 4;
        struct Block { units: u32, before: vec2<u32> }
        @group(0) @binding(0) var<storage, read> input: array<vec2<u32>>;
        @group(0) @binding(1) var<storage, read_write> output: array<u32>;
        @group(0) @binding(2) var<uniform> block: Block;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3u) {
            if id.x < block.units { output[id.x] = input[id.x].y + block.before.x + id.x; }
        }";
    let file = shader(text);
    for gpu in gpus() {
        // So many units of single invocations need several blocks, whatever the options say.
        for block_bytes in [64, 8 << 20] {
            let options = SessionOptions::default().block_bytes(block_bytes);
            let count = if block_bytes == 64 { 1000 } else { 70_000u32 };
            let session = gpu.session(&Kernel::Shader(file.path().into()), &options).unwrap();
            let input: Vec<u8> =
                (0..count).flat_map(|_| [0u32.to_le_bytes(), 7u32.to_le_bytes()]).flatten().collect();
            let output = through(session, &input).unwrap();
            let expected: Vec<u8> = (0..count).flat_map(|number| (number + 7).to_le_bytes()).collect();
            assert!(output == expected, "blocks of {block_bytes} bytes");
        }
    }
}

#[test]
fn wrong_shaders_are_refused_with_file_and_line() {
    let Some(gpu) = gpu() else { return };
    let good = std::fs::read_to_string(example()).unwrap();
    let refused = |kernel: &Kernel| gpu.session(kernel, &small()).map(drop).unwrap_err();
    for (text, part) in [
        (good.replace("output[id.x] =", "outptu[id.x] ="), ":20:9"),
        (good.replace("const OUTPUT_BYTES: u32 = 4;", ""), "const OUTPUT_BYTES: u32"),
        // Too many invocations for any device.
        (good.replace("size(64)", "size(1000000)"), "Workgroup size"),
    ] {
        let file = shader(&text);
        let error = refused(&Kernel::Shader(file.path().into()));
        let message = error.to_string();
        assert!(matches!(error, Error::Kernel { .. }) && message.contains(part), "{message}");
        assert!(message.contains(file.path().to_str().unwrap()), "{message}");
    }
    let missing = refused(&Kernel::Shader("/nonexistent".into()));
    assert!(matches!(missing, Error::Kernel { .. }), "{missing}");
    let library = refused(&Kernel::Library("/nonexistent".into())).to_string();
    assert!(library.contains("device=cpu"), "{library}");
    let other = bywash_accelerator::Cpu.session(&Kernel::Shader(example()), &small()).map(drop).unwrap_err();
    assert!(other.to_string().contains("device=gpu"), "{other}");
}

#[test]
fn a_unit_that_is_cut_off_is_an_error() {
    let Some(gpu) = gpu() else { return };
    let session = gpu.session(&Kernel::Shader(example()), &small()).unwrap();
    let error = through(session, &[0; 4098]).unwrap_err();
    assert!(matches!(&error, Error::Input(message) if message.contains("2 bytes are left over")), "{error}");
}

#[test]
fn what_does_not_fit_the_device_is_refused_with_its_limit() {
    let Some(gpu) = gpu() else { return };
    let gpu = gpu.with_buffers_of(1 << 16);
    let fft = |size| Kernel::Fft(Fft { size, is_inverse: false });
    let fir = Fir { taps: vec![1.0], decimation: 1 << 14 };
    // Another size than a power of two needs twice the next one.
    for kernel in [fft(1 << 14), fft(4097), Kernel::Fir(fir)] {
        match gpu.session(&kernel, &small()).map(drop) {
            Err(Error::Unsupported { reason, .. }) => {
                assert!(reason.contains("65536") && reason.contains("device=cpu"), "{reason}");
            }
            result => panic!("{kernel:?}: {result:?}"),
        }
    }
    gpu.session(&fft(1 << 13), &small()).map(drop).unwrap();
    gpu.session(&fft(4095), &small()).map(drop).unwrap();
    let result = gpu.session(&Kernel::Sar(Sar::strip_map(1 << 14, 16)), &small()).map(drop);
    assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
}

#[test]
fn absurd_blocks_are_refused() {
    let kernel = Kernel::Fft(Fft { size: 8, is_inverse: false });
    for gpu in gpus() {
        // Large cards have memory for the smaller ones.
        let is_absurd = |bytes: &usize| gpu.memory_bytes().is_none_or(|has| has < 1024 * *bytes as u64);
        for bytes in [1 << 30, 64 << 20].into_iter().filter(is_absurd) {
            let options = small().block_bytes(bytes).blocks(1024);
            match gpu.session(&kernel, &options).map(drop) {
                Err(Error::Memory { device, bytes, .. }) => assert!(device == "gpu:0" && bytes >= 1 << 30),
                result => panic!("{result:?}"),
            }
        }
    }
}

/// Tests large frames of both algorithms, of which some need parts: the scratch memory holds one.
#[test]
fn large_transforms_give_their_input_back() {
    let Some(gpu) = gpu() else { return };
    for size in [1 << 21, 1_000_003] {
        let input: Vec<f32> =
            (0..2 * size).map(|number| ((number * 7919) % 1009) as f32 / 504.5 - 1.0).collect();
        let transform = |input: &[u8], is_inverse| {
            let kernel = Kernel::Fft(Fft { size, is_inverse });
            through(gpu.session(&kernel, &small().blocks(2)).unwrap(), input).unwrap()
        };
        let output = transform(&transform(&bytes(input.iter().copied()), false), true);
        let numbers = output.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        let largest = numbers.zip(&input).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest < 1e-5, "{size} samples differ by {largest}");
    }
}

fn raw(sar: &Sar, targets: &[Target]) -> Vec<Complex32> {
    Echoes::new(sar, targets.to_vec()).noise(0.1, 3).scene()
}

fn middle(sar: &Sar) -> Target {
    let (cells, rows) = (sar.focused_range(), sar.focused_azimuth(sar.range_m(sar.range as f64)));
    let (cell, row) = (cells.start + cells.end, rows.start + rows.end);
    Target { range_cell: cell as f64 / 2.0 + 0.25, azimuth_row: row as f64 / 2.0 - 0.3, amplitude: 1.0 }
}

/// Asserts that two images differ by less than the bound, relative to the highest peak.
fn assert_same_image(image: &[Complex32], expected: &[Complex32], context: &str) {
    assert_eq!(image.len(), expected.len());
    let peak = expected.iter().map(|sample| sample.norm()).fold(0.0, f32::max);
    let largest = image.iter().zip(expected).map(|(a, b)| (a - b).norm()).fold(0.0, f32::max);
    println!("{context}: {} of the peak", largest / peak);
    assert!(largest < IMAGE_BOUND * peak, "{context}: {} of the peak", largest / peak);
}

#[test]
fn images_are_those_of_the_processor() {
    for (range, azimuth) in [(512, 512), (300, 500), (37, 1000), (256, 4096), (1, 1), (65, 3)] {
        let sar = Sar::strip_map(range, azimuth);
        let raw = raw(&sar, &[middle(&sar)]);
        let kaiser = SarOptions::default().weighting(Weighting::Kaiser(2.5));
        for options in [SarOptions::default(), kaiser, SarOptions::default().transforms_only()] {
            let expected = image(&sar, &options, &raw).unwrap();
            for gpu in gpus() {
                let image = image_by(gpu.former(&sar, &options).unwrap(), &raw).unwrap();
                assert_same_image(&image, &expected, &format!("{range} x {azimuth} with {options:?}"));
            }
        }
    }
}

/// Tests scenes that are larger than the device's buffers, and than the memory for the scene.
#[test]
fn scenes_may_be_larger_than_the_device() {
    let Some(gpu) = gpu() else { return };
    let sar = Sar::strip_map(600, 1500);
    let raw = raw(&sar, &[middle(&sar)]);
    let expected = image(&sar, &SarOptions::default(), &raw).unwrap();
    let gpu = gpu.with_buffers_of(1 << 16);
    for memory_bytes in [0, raw.len() as u64 * 4] {
        let options = SarOptions::default().memory_bytes(memory_bytes);
        let former = gpu.former(&sar, &options).unwrap();
        assert_eq!(former.uses_file(), memory_bytes > 0);
        let image = image_by(former, &raw).unwrap();
        assert_same_image(&image, &expected, &format!("{memory_bytes} bytes of memory"));
    }
}

/// Width is compared as a length, the side lobe in decibels, as for the processor's images.
#[test]
fn points_are_focused_as_in_theory() {
    let Some(gpu) = gpu() else { return };
    for (range, azimuth) in [(512, 512), (300, 500)] {
        let sar = Sar::strip_map(range, azimuth);
        let target = middle(&sar);
        let raw = Echoes::new(&sar, vec![target]).scene();
        let image = image_by(gpu.former(&sar, &SarOptions::default()).unwrap(), &raw).unwrap();
        let around = (target.range_cell.round() as usize, target.azimuth_row.round() as usize);
        let focus = focus::measure(&image, sar.range, around);
        println!("{range} x {azimuth}: {focus:?}");
        let (across, along) = (focus.range, focus.azimuth);
        assert!((across.position - target.range_cell).abs() < 0.01);
        assert!((along.position - target.azimuth_row).abs() < 0.01);
        assert!((across.width / sar.range_width_cells() - 1.0).abs() < 0.05);
        assert!((along.width / sar.azimuth_width_rows() - 1.0).abs() < 0.05);
        assert!((across.side_lobe_db / SIDE_LOBE_DB - 1.0).abs() < 0.05);
        assert!((along.side_lobe_db / SIDE_LOBE_DB - 1.0).abs() < 0.05);
        assert!((focus.amplitude - 1.0).abs() < 0.05);
    }
}

#[test]
fn a_session_forms_an_image() {
    let Some(gpu) = gpu() else { return };
    let sar = Sar::strip_map(200, 333);
    let raw = raw(&sar, &[middle(&sar)]);
    let expected = image(&sar, &SarOptions::default(), &raw).unwrap();
    let session = gpu.session(&Kernel::Sar(sar), &small()).unwrap();
    let output = through(session, bytemuck::cast_slice(&raw)).unwrap();
    let (output, _) = output.as_chunks::<8>();
    let part = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let image: Vec<Complex32> =
        output.iter().map(|sample| Complex32::new(part(&sample[..4]), part(&sample[4..]))).collect();
    assert_same_image(&image, &expected, "a session");
}
