//! `radar:`: raw echoes of points, as a radar on a moving platform records them.

use super::zero::source_only;
use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::block_io::Input;
use crate::control::Control;
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use crate::scene::{self, NUMBER, OPTIONS};
use bywash_accelerator::kernel::Sar;
use bywash_accelerator::sar::{Echoes, Target};
use bywash_options::{OptionRow, Row, Value, Words, number};
use std::fmt;
use std::path::Path;

/// The source of echoes.
#[derive(Clone, Debug)]
struct Radar {
    sar: Sar,
    targets: Vec<Target>,
    /// Standard deviation of the noise, and its seed.
    noise: Option<(f64, u64)>,
    /// Text behind the colon, as it was given.
    text: String,
}

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row {
        name: "radar",
        address: "SAMPLESxPULSES",
        sentence: "raw echoes of points, as a radar on a moving platform records them; accel:sar makes an image of them",
        options: &{
            let [carrier, sampling, bandwidth, pulse, prf, speed, near, antenna] = OPTIONS;
            [
                OptionRow::new(
                    "targets",
                    Value::Text("FILE"),
                    "points, one a line: cell, pulse, and amplitude if not 1 (default: one in the middle)",
                ),
                OptionRow::new("noise", NUMBER, "standard deviation of the noise").or("0"),
                OptionRow::new("seed", Value::Number, "seed of the noise").or("1"),
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
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Endpoint, Error> {
    let text = words.rest().to_string_lossy().into_owned();
    let (range, azimuth) = scene::size(words, words.address()?)?;
    let sar = scene::geometry(words, range, azimuth)?;
    let targets = match words.path_value("targets")? {
        Some(file) => targets(words, &file)?,
        None => vec![Target {
            range_cell: middle(sar.focused_range()),
            azimuth_row: (azimuth / 2) as f64,
            amplitude: 1.0,
        }],
    };
    let (noise, seed) =
        (words.value("noise", number::<f64>)?.unwrap_or(0.0), words.value("seed", number)?.unwrap_or(1));
    if !(noise.is_finite() && noise >= 0.0) {
        return Err(words
            .error(format!("the noise is a finite number of at least 0, and not {noise}"))
            .into());
    }
    words.check_all_taken()?;
    Ok(Endpoint::new(Radar { sar, targets, noise: (noise > 0.0).then_some((noise, seed)), text }))
}

/// Returns the middle of the cells that can be focused.
fn middle(cells: std::ops::Range<usize>) -> f64 {
    (cells.start + cells.end) as f64 / 2.0
}

/// Reads a file of points.
fn targets(words: &Words<'_>, file: &Path) -> Result<Vec<Target>, Error> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::io(format!("read {}", file.display()), error))?;
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let parsed = lines.map(|(at, line)| {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        match numbers.as_deref() {
            Some([range_cell, azimuth_row]) => Ok((*range_cell, *azimuth_row, 1.0)),
            Some([range_cell, azimuth_row, amplitude]) => Ok((*range_cell, *azimuth_row, *amplitude)),
            _ => Err(words.error(format!(
                "line {} of {} is no point: '{}'",
                at + 1,
                file.display(),
                line.trim()
            ))),
        }
    });
    let target = |(range_cell, azimuth_row, amplitude)| Target { range_cell, azimuth_row, amplitude };
    Ok(parsed.map(|point| point.map(target)).collect::<Result<Vec<Target>, _>>()?)
}

impl EndpointType for Radar {
    fn inspect_source(&self) -> Result<End, Error> {
        let size = Some((self.sar.range * self.sar.azimuth * SAMPLE) as u64);
        Ok(End { size, ..End::new(self.to_string(), Kind::Generated) })
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        self.inspect_source()
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, _: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        let mut echoes = Echoes::new(&self.sar, self.targets.clone());
        if let Some((deviation, seed)) = self.noise {
            echoes = echoes.noise(deviation, seed);
        }
        let row = vec![Default::default(); self.sar.range];
        let generator =
            Generator { echoes, pulses: self.sar.azimuth, next: 0, row, bytes: Vec::new(), taken: 0 };
        Ok(OpenedStream::OneWay(Source::Other(Box::new(generator))))
    }

    fn open_sink(&self, _: &OpenContext<'_>, _: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        Err(source_only(self))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(source_only(self))
    }
}

impl fmt::Display for Radar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "radar:{}", self.text)
    }
}

/// Size of a sample, in bytes.
const SAMPLE: usize = 8;

/// Source of echoes, pulse by pulse.
struct Generator {
    echoes: Echoes,
    pulses: usize,
    /// Number of the next pulse.
    next: usize,
    row: Vec<bywash_accelerator::sar::Sample>,
    /// Bytes of the last pulse, and how many of them were taken.
    bytes: Vec<u8>,
    taken: usize,
}

impl Generator {
    fn make(&mut self) {
        self.echoes.row(self.next, &mut self.row);
        self.next += 1;
        self.bytes.clear();
        self.taken = 0;
        for sample in &self.row {
            self.bytes.extend(sample.re.to_le_bytes());
            self.bytes.extend(sample.im.to_le_bytes());
        }
    }
}

impl Input for Generator {
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        let mut filled = 0;
        while filled < room.len() {
            control.check()?;
            if self.taken == self.bytes.len() {
                if self.next == self.pulses {
                    break;
                }
                self.make();
            }
            let some = (room.len() - filled).min(self.bytes.len() - self.taken);
            room[filled..filled + some].copy_from_slice(&self.bytes[self.taken..self.taken + some]);
            (filled, self.taken) = (filled + some, self.taken + some);
        }
        Ok(&room[..filled])
    }
}
