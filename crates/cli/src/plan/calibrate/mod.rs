//! `bywash plan calibrate`: measures this machine and writes a description for the model and the simulator.
//!
//! - [`processors`], [`memory`], [`messages`], [`files`], [`forwarding`]: the measurements
//! - [`parameters`]: conversion to the numbers of a description
//! - [`preset`]: the description, with a comment on each number
//!
//! Only primitives are measured: calls, copies, messages, single reads. The performance of programs made of
//! these is for [`super::validate`] to predict.

pub mod files;
pub mod forwarding;
pub mod memory;
pub mod messages;
pub mod parameters;
pub mod preset;
pub mod processors;

use super::measure::others::{self, Others};
use super::measure::rounds::{Effort, mapped};
use super::measure::scratch::Scratch;
use super::measure::{failed, failed_in};
use super::words::{json, print};
use crate::cli::plan::CalibrateArgs;
use crate::error::Failure;
use bywash_bench::statistics::Summary;
use bywash_model::Description;
use bywash_model::units::{Rate, Time};
use bywash_quantity::Bytes;
use files::{Cached, Device};
use forwarding::{Forwarding, PIECE};
use indicatif::ProgressBar;
use memory::MemoryRates;
use messages::Messages;
use processors::Processors;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// All measurements.
pub struct Measured {
    /// Name and release of the kernel, and architecture of the machine.
    pub system: String,
    /// Number of rounds of each measurement.
    pub rounds: usize,
    /// Share of the processors that other programs used meanwhile, from 0 to 1; `None` if unknown.
    pub others: Option<f64>,
    pub processors: Processors,
    pub memory: MemoryRates,
    pub messages: Messages,
    pub cached: Cached,
    pub device: Device,
    pub forwarding: Forwarding,
}

/// Measures the machine and writes the description.
///
/// # Errors
/// [`Failure::Write`] or [`Failure::Output`] if a result cannot be written; otherwise same as [`measure`] and
/// [`described`].
pub fn main(arguments: &CalibrateArgs) -> Result<i32, Failure> {
    let mut out = arguments.out.as_deref().map(Printer::open).transpose()?;
    // It is drawn only when this thread updates it, so that nothing runs beside a measurement.
    let shown = ProgressBar::new_spinner();
    let stage = |name| {
        shown.set_message(name);
        Ok(())
    };
    let measured = measure(&Effort::new(arguments.quick), &arguments.dir, &stage)?;
    shown.finish_and_clear();
    let text = preset::text(&measured);
    if let Some(out) = &mut out {
        out.write(&text)?;
    }
    let told = match (arguments.json, &arguments.out) {
        (true, _) => json(&JsonAnswer::new(&measured, &text)?),
        (false, None) => text,
        (false, Some(path)) => {
            let mut told = String::new();
            for MeasuredLine { what, value, .. } in lines(&measured) {
                told += &format!("{what:55} {value}\n");
            }
            told += &others::in_words(measured.others).map_or(String::new(), |words| words + "\n");
            told + &format!("written: {}\n", path.display())
        }
    };
    print(&told)
}

/// Measures this machine, with a file in `folder`. `stage` is told before each stage what will be measured; its error ends
/// the measurement.
///
/// # Errors
/// [`Failure::Scratch`] if the file cannot be made or the device fails, [`Failure::Measure`] if another
/// measurement fails.
pub fn measure(
    effort: &Effort,
    folder: &Path,
    stage: &dyn Fn(&'static str) -> Result<(), Failure>,
) -> Result<Measured, Failure> {
    let others = Others::watch();
    stage("making a file to measure on")?;
    let scratch = Scratch::new(folder, effort.file).map_err(failed_in(folder, effort.file))?;
    stage("measuring the page cache")?;
    let cached = Cached::measure(effort, &scratch).map_err(failed("calls that read and write"))?;
    stage("measuring the device")?;
    let device = Device::measure(effort, &scratch).map_err(failed_in(folder, effort.file))?;
    let forwarding = Forwarding::measure(effort, &scratch).map_err(failed_in(folder, effort.file))?;
    drop(scratch);
    stage("measuring processors")?;
    let processors = Processors::measure(effort).map_err(failed("processors"))?;
    stage("measuring messages")?;
    let messages = Messages::measure(effort).map_err(failed("messages between threads"))?;
    stage("measuring memory")?;
    let memory = MemoryRates::measure(effort).map_err(failed("memory"))?;
    let name = rustix::system::uname();
    let words =
        [name.sysname(), name.release(), name.machine()].map(|word| word.to_string_lossy().into_owned());
    Ok(Measured {
        system: words.join(" "),
        rounds: effort.rounds,
        others: others.share(),
        processors,
        memory,
        messages,
        cached,
        device,
        forwarding,
    })
}

/// File that the description is written to. It is opened before the measurements, so that an error shows at
/// once, and emptied only when there is a description to write.
struct Printer<'a> {
    path: &'a Path,
    file: File,
    /// True if the file did not exist before and is to be removed unless a description is written.
    is_new: bool,
}

impl Printer<'_> {
    fn open(path: &Path) -> Result<Printer<'_>, Failure> {
        let is_new = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|source| Failure::Write { path: path.into(), source })?;
        Ok(Printer { path, file, is_new })
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let is_file = self.file.metadata().is_ok_and(|data| data.is_file());
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|source| Failure::Write { path: self.path.into(), source })?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for Printer<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // The file did not exist before and holds no complete description.
            let _ = fs::remove_file(self.path);
        }
    }
}

/// One measurement, for people and as JSON.
#[derive(Serialize)]
struct MeasuredLine {
    what: String,
    #[serde(skip)]
    value: String,
    unit: &'static str,
    median: f64,
    low: f64,
    high: f64,
}

fn lines(measured: &Measured) -> Vec<MeasuredLine> {
    let Measured { processors, memory, messages, cached, device, forwarding, .. } = measured;
    let line = |what: String, summary: Summary, unit: &'static str| MeasuredLine {
        what,
        value: figure(summary, unit),
        unit,
        median: summary.median,
        low: summary.low,
        high: summary.high,
    };
    let cycles = mapped(processors.call, |seconds| seconds * processors.speed);
    let mut lines = vec![
        line("system call".into(), processors.call, "s"),
        line("system call".into(), cycles, "cycles"),
        line("line of memory, in no order".into(), memory.latency, "s"),
    ];
    lines.extend(processors.word.map(|word| line("word to another processor and back".into(), word, "s")));
    for (size, rate) in &memory.copies {
        lines.push(line(format!("copy of {}", Bytes(*size as u64)), *rate, "B/s"));
    }
    lines.extend([
        line("copy out of memory into a cache".into(), memory.inward, "B/s"),
        line("copy by all processors".into(), memory.together, "B/s"),
    ]);
    for (what, calls) in [("read of", &cached.read), ("write of", &cached.write)] {
        for (bytes, call) in [files::SMALL, files::LARGE].into_iter().zip(calls) {
            lines.push(line(format!("{what} {}, page cache", Bytes(bytes as u64)), *call, "s"));
        }
    }
    lines.extend([
        line("message by pipe, one thread".into(), messages.alone, "s"),
        line("message by pipe, same processor".into(), messages.pipe, "s"),
        line("message by TCP, same processor".into(), messages.tcp, "s"),
        line("64 KiB by TCP and a byte back, halved".into(), messages.large, "s"),
        line("message by TCP, any processor".into(), messages.tcp_apart, "s"),
        line("one connection over loopback".into(), messages.rate, "B/s"),
        line("processors for a byte of it, both ends".into(), messages.byte, "s/B"),
        line("processor for 16 KiB not in the page cache".into(), device.cold, "s"),
        line("processor for 4 KiB past the page cache".into(), device.processor, "s"),
        line(format!("processor for {} past the page cache", Bytes(PIECE as u64)), forwarding.read, "s"),
        line("processor for a byte of it sent over loopback".into(), forwarding.sent, "s/B"),
    ]);
    for (threads, rate) in &device.rates {
        lines.push(line(format!("reads of 4 KiB past the page cache, {threads} at a time"), *rate, "/s"));
    }
    lines.push(line("reading in order past the page cache".into(), device.in_order, "B/s"));
    lines
}

/// Formats a median with its quartiles.
pub fn figure(summary: Summary, unit: &str) -> String {
    let shown = |value: f64| quantity(value, unit);
    format!("{} ({} to {})", shown(summary.median), shown(summary.low), shown(summary.high))
}

/// Formats a value with its unit.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "B/s" => preset::rounded(&Rate(value).to_string()),
        "s" => preset::rounded(&Time(value).to_string()),
        "s/B" => format!("{} ns/B", preset::rounded(&(value * 1e9).to_string())),
        "/s" => format!("{value:.0}/s"),
        _ => format!("{} {unit}", preset::rounded(&value.to_string())),
    }
}

/// Output of `--json`.
#[derive(Serialize)]
struct JsonAnswer {
    system: String,
    rounds: usize,
    /// Share of the processors that other programs used, from 0 to 1; null if unknown.
    others: Option<f64>,
    /// True if the device was read past the page cache.
    direct: bool,
    measurements: Vec<MeasuredLine>,
    description: Description,
}

impl JsonAnswer {
    fn new(measured: &Measured, text: &str) -> Result<JsonAnswer, Failure> {
        Ok(JsonAnswer {
            system: measured.system.clone(),
            rounds: measured.rounds,
            others: measured.others,
            direct: measured.device.is_direct,
            measurements: lines(measured),
            description: described(text)?,
        })
    }
}

/// Parses the description in `text`.
///
/// # Errors
/// [`Failure::Measure`] if a measurement gave a number that no machine can have.
pub fn described(text: &str) -> Result<Description, Failure> {
    Description::from_toml(text)
        .map_err(|why| Failure::Measure { what: "this machine", source: io::Error::other(why.to_string()) })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn exactly(value: f64) -> Summary {
        Summary { median: value, low: value, high: value }
    }

    /// Returns measurements of an invented machine, with numbers that are easy to add.
    pub fn measured() -> Measured {
        Measured {
            system: "Linux 6.0 x86_64".into(),
            rounds: 7,
            others: Some(0.0),
            processors: Processors {
                count: 2,
                speed: 2.5e9,
                known_by: "as it was made up",
                call: exactly(0.1e-6),
                word: Some(exactly(0.12e-6)),
                caches: [48 << 10, 1 << 20],
            },
            memory: MemoryRates {
                copies: vec![(8192, exactly(80e9)), (64 << 20, exactly(8e9))],
                inward: exactly(9e9),
                together: exactly(10e9),
                latency: exactly(100e-9),
            },
            messages: Messages {
                alone: exactly(0.6e-6),
                pipe: exactly(1.6e-6),
                tcp: exactly(5e-6),
                large: exactly(5e-6 + 65536.0 * 0.2e-9),
                tcp_apart: exactly(20e-6),
                rate: exactly(4e9),
                byte: exactly(0.5e-9),
            },
            cached: Cached { read: [exactly(0.6e-6), exactly(8e-6)], write: [exactly(1e-6), exactly(13e-6)] },
            device: Device {
                is_direct: true,
                latencies: (0..1000).map(|number| 70e-6 + 30e-9 * f64::from(number)).collect(),
                processor: exactly(25e-6),
                rates: vec![(1, exactly(12e3)), (32, exactly(90e3))],
                in_order: exactly(2e9),
                cold: exactly(26e-6),
            },
            forwarding: Forwarding { read: exactly(75e-6), sent: exactly(0.3e-9) },
        }
    }

    #[test]
    fn a_file_that_nothing_was_written_to_goes_again() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        fs::write(&old, "what was there before, and is longer").unwrap();
        drop((Printer::open(&new).unwrap(), Printer::open(&old).unwrap()));
        assert!(!new.exists() && fs::read_to_string(&old).unwrap().starts_with("what was"));
        for path in [&new, &old] {
            Printer::open(path).unwrap().write("whole").unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "whole");
        }
    }
}
