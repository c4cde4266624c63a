//! Words of `accel:`: the kernel and its options, and the device.

use super::Accel;
use crate::error::Error;
use crate::scene::{self, NUMBER, OPTIONS};
use bywash_accelerator::kernel::{Fft, Fir, Kernel, Sar};
use bywash_accelerator::{SessionOptions, devices};
use bywash_options::{OptionRow, Row, Value, Words, among, number};
use std::path::PathBuf;

pub(super) const ROW: Row = Row {
    name: "accel",
    address: "fir|fft|sha256|sar|so=FILE|wgsl=FILE",
    sentence: "computes on the data by an accelerator: filters, Fourier transforms, a digest, a radar image, your own kernel",
    options: &{
        let [carrier, sampling, bandwidth, pulse, prf, speed, near, antenna] = OPTIONS;
        [
            OptionRow::new(
                "device",
                Value::Text("cpu|gpu[:N]|cuda[:N]"),
                "the accelerator; without a number, the first of its kind",
            )
            .or("cpu"),
            OptionRow::new("threads", Value::Number, "threads of the cpu (default: one for each processor)"),
            OptionRow::new("blocks", Value::Number, "blocks in flight in each direction").or("4"),
            OptionRow::new("taps", Value::Number, "fir: length of a low-pass filter").or("63"),
            OptionRow::new("cutoff", NUMBER, "fir: its cut-off, as a part of the sampling rate").or("0.1"),
            OptionRow::new("coefficients", Value::Text("FILE"), "fir: numbers in a file instead, one a line"),
            OptionRow::new("decimate", Value::Number, "fir: samples of which one is kept").or("4"),
            OptionRow::new("size", Value::Number, "fft: samples of a frame").or("1024"),
            OptionRow::flag("inverse", "fft: the inverse transform"),
            OptionRow::new("range", Value::Number, "sar: samples of a pulse"),
            OptionRow::new("azimuth", Value::Number, "sar: pulses of the scene"),
            carrier,
            sampling,
            bandwidth,
            pulse,
            prf,
            speed,
            near,
            antenna,
        ]
    },
};

/// Parses the words of a stage.
pub(super) fn parse(words: &mut Words<'_>) -> Result<Accel, Error> {
    let text = words.rest().to_string_lossy().into_owned();
    let device = words.value("device", |name| match devices::check_name(name) {
        Ok(()) => Ok(name.to_owned()),
        Err(error) => Err(error.to_string()),
    })?;
    let mut session = SessionOptions::default();
    if let Some(threads) = words.value("threads", number)? {
        session = session.threads(threads);
    }
    if let Some(blocks) = words.value("blocks", number)? {
        if !(2..=64).contains(&blocks) {
            return Err(words.error("blocks are 2 to 64: one is filled while another is computed").into());
        }
        session = session.blocks(blocks);
    }
    let kernel = kernel(words)?;
    words.check_all_taken()?;
    kernel.check().map_err(|error| words.error(error))?;
    Ok(Accel { kernel, device: device.unwrap_or_else(|| "cpu".into()), session, text })
}

fn kernel(words: &mut Words<'_>) -> Result<Kernel, Error> {
    const KERNELS: [&str; 6] = ["fir", "fft", "sha256", "sar", "so", "wgsl"];
    let missing = || words.error(format!("a kernel is missing behind the colon: {}", KERNELS.join(", ")));
    let path = words.path().map_err(|_| missing())?;
    let address = path.to_string_lossy().into_owned();
    let (name, file) = match address.split_once('=') {
        Some((name @ ("so" | "wgsl"), file)) => (name, Some(PathBuf::from(file))),
        _ => (address.as_str(), None),
    };
    match (name, file) {
        ("fir", None) => fir(words),
        ("fft", None) => {
            let size = words.value("size", number)?.unwrap_or(1024);
            Ok(Kernel::Fft(Fft { size, is_inverse: words.flag("inverse")? }))
        }
        ("sha256", None) => Ok(Kernel::Sha256),
        ("sar", None) => sar(words).map(Kernel::Sar),
        ("so", Some(file)) => Ok(Kernel::Library(file)),
        ("wgsl", Some(file)) => Ok(Kernel::Shader(file)),
        ("so" | "wgsl", None) => Err(words.error(format!("a file is missing: {name}=FILE")).into()),
        _ => Err(words.error(format!("there is no kernel '{name}'{}", among(name, &KERNELS))).into()),
    }
}

fn fir(words: &mut Words<'_>) -> Result<Kernel, Error> {
    let decimation = words.value("decimate", number)?.unwrap_or(4);
    let (taps, cutoff) = (words.value("taps", number::<usize>)?, words.value("cutoff", number::<f64>)?);
    if let Some(file) = words.path_value("coefficients")? {
        if taps.is_some() || cutoff.is_some() {
            return Err(words
                .error("taps and cutoff design a filter, and coefficients names one: give either")
                .into());
        }
        return Ok(Kernel::Fir(Fir { taps: coefficients(words, &file)?, decimation }));
    }
    let designed = Fir::low_pass(taps.unwrap_or(63), cutoff.unwrap_or(0.1), decimation);
    Ok(Kernel::Fir(designed.map_err(|error| words.error(error))?))
}

/// Reads a file of numbers, one a line.
fn coefficients(words: &Words<'_>, file: &std::path::Path) -> Result<Vec<f32>, Error> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::io(format!("read {}", file.display()), error))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let numbers = lines.map(|(at, line)| {
        line.trim().parse().map_err(|_| {
            let reason = format!("line {} of {} is no number: '{}'", at + 1, file.display(), line.trim());
            Error::from(words.error(reason))
        })
    });
    numbers.collect()
}

/// Takes the size of a scene, and the geometry where it is not the usual one.
fn sar(words: &mut Words<'_>) -> Result<Sar, Error> {
    let (range, azimuth) = (words.value("range", number)?, words.value("azimuth", number)?);
    let (Some(range), Some(azimuth)) = (range, azimuth) else {
        return Err(words.error("the size of the scene is missing: range=SAMPLES,azimuth=PULSES").into());
    };
    scene::geometry(words, range, azimuth)
}
