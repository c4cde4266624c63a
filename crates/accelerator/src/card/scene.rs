//! Steps of image formation on a card, for some rows or a strip of columns at a time.
//!
//! Two threads take turns: one copies its part to or from the card's memory while the card computes the other's. Columns are
//! transformed as they lie in a strip, without being turned. Phases are computed here, with twice the precision: the card
//! gets tables for each row of one Doppler frequency.

use super::fft::{Direction, Order, Scratch, Transform, multiply, pass};
use super::{Access, Binding, Card, GROUP, Pass, Source};
use crate::cpu::scene::session_of;
use crate::device::{Session, SessionOptions};
use crate::error::Error;
use crate::kernel::Sar;
use crate::memory::SAMPLE;
use crate::sar::{Engine, Former, Plan, SarOptions, Step, Work, frequency, phasor};
use rustfft::num_complex::Complex32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that take turns.
const THREADS: usize = 2;
/// Greatest size of a part, in bytes.
const PART_BYTES: usize = 32 << 20;
/// Cells of a row that share a phase.
const RUN: usize = 64;
/// Positions between two cells.
const SHIFTS: f64 = 64.0;
/// Time between two looks at whether the work is to end.
const LOOK: Duration = Duration::from_millis(20);
/// Time that the card may take for a part.
const PART_MAX: Duration = Duration::from_secs(120);

/// Begins the formation of an image.
///
/// # Errors
/// Those of [`engine`]; [`Error::Lost`] if no thread can be started.
pub(crate) fn session<C: Card>(card: &Arc<C>, sar: &Sar, options: &SessionOptions) -> Result<Session, Error> {
    session_of(sar, former(card, sar, &SarOptions::default())?, options)
}

/// Begins an image that a card computes.
///
/// # Errors
/// [`Error::Unsupported`] if a row or column does not fit the buffers of the card, and those of the card.
pub(crate) fn former<C: Card>(card: &Arc<C>, sar: &Sar, options: &SarOptions) -> Result<Former, Error> {
    let engine = CardEngine::new(card, sar, options)?;
    let stop = Arc::clone(&engine.stop);
    Former::with_engine(sar, options, Box::new(engine), stop)
}

/// Card that computes the steps.
struct CardEngine<C: Card> {
    card: Arc<C>,
    plan: Plan,
    rows: Transform<C>,
    columns: Transform<C>,
    multiply: C::Program,
    correct: C::Program,
    filter: C::Buffer,
    kernels: C::Buffer,
    gains: C::Buffer,
    copied: AtomicU64,
    /// Flag that ends the work once it is set.
    stop: Arc<AtomicBool>,
}

impl<C: Card> CardEngine<C> {
    fn new(card: &Arc<C>, sar: &Sar, options: &SarOptions) -> Result<CardEngine<C>, Error> {
        let plan = Plan::new(sar, options.weighting, options.transforms_only)?;
        let written = |bytes: &[u8]| -> Result<C::Buffer, Error> {
            let buffer = card.allocate(bytes.len(), Access::Device)?;
            card.write(&buffer, bytes).map(|()| buffer)
        };
        let bindings = [[Binding::Read; 6].as_slice(), &[Binding::Write]].concat();
        let correct =
            Pass { source: Source::Sar, entry: "correct", bindings: &bindings, parameters: 3, group: GROUP };
        let gains: Vec<f32> = plan.gains.iter().step_by(2).copied().collect();
        Ok(CardEngine {
            rows: Transform::new(&**card, sar.range, "sar")?,
            columns: Transform::new(&**card, sar.azimuth, "sar")?,
            multiply: pass(&**card, "multiply")?,
            correct: card.program(&correct)?,
            filter: written(bytemuck::cast_slice(&plan.range_filter))?,
            kernels: written(bytemuck::cast_slice(plan.kernels.as_flattened()))?,
            gains: written(bytemuck::cast_slice(&gains))?,
            card: Arc::clone(card),
            plan,
            copied: AtomicU64::new(0),
            stop: Arc::default(),
        })
    }

    fn runs(&self) -> usize {
        self.plan.sar.range.div_ceil(RUN)
    }
}

impl<C: Card> Engine for CardEngine<C> {
    fn threads(&self) -> usize {
        THREADS
    }

    fn part_bytes(&self) -> usize {
        // A row of the azimuth filter's tables is no longer than one of the scene, but for short ones.
        let limit = self.card.limits().buffer_bytes;
        let largest = self.plan.sar.range.max(self.plan.sar.azimuth) * SAMPLE;
        PART_BYTES.min(limit).min(limit / (RUN * SAMPLE) * self.plan.sar.range * SAMPLE).max(largest)
    }

    fn work(&self, step: Step, samples: usize) -> Result<Box<dyn Work + '_>, Error> {
        let (sar, card) = (&self.plan.sar, &*self.card);
        let bytes = samples * SAMPLE;
        let columns = || self.columns.scratch(card, samples / sar.azimuth);
        let passes = match step {
            Step::Compress => Passes::Compress(self.rows.scratch(card, samples / sar.range)?),
            Step::Transform => Passes::Columns(Direction::Forward, columns()?),
            Step::Invert => Passes::Columns(Direction::Inverse, columns()?),
            Step::Correct => Passes::Correct(Tables::new(card, samples / sar.range, self.runs())?),
        };
        let own = || card.allocate(bytes, Access::Device);
        Ok(Box::new(CardWork {
            engine: self,
            upload: card.allocate(bytes, Access::Upload)?,
            own: [own()?, own()?],
            download: card.allocate(bytes, Access::Download)?,
            passes,
        }))
    }

    fn copied_bytes(&self) -> u64 {
        // Relaxed: a counter that orders nothing.
        self.copied.load(Ordering::Relaxed)
    }
}

/// Step, and the memory that it needs.
enum Passes<C: Card> {
    Compress(Scratch<C>),
    Columns(Direction, Scratch<C>),
    Correct(Tables<C>),
}

/// Step of one thread, and memory for a part.
struct CardWork<'a, C: Card> {
    engine: &'a CardEngine<C>,
    upload: C::Buffer,
    own: [C::Buffer; 2],
    download: C::Buffer,
    passes: Passes<C>,
}

impl<C: Card> Work for CardWork<'_, C> {
    fn run(&mut self, first: usize, rows: &mut [&mut [Complex32]]) -> Result<(), Error> {
        let card = &*self.engine.card;
        let width = rows.first().map_or(0, |row| row.len());
        let bytes = rows.len() * width * SAMPLE;
        let memory = &mut card.bytes_mut(&mut self.upload)[..bytes];
        for (piece, row) in memory.chunks_exact_mut(width * SAMPLE).zip(rows.iter()) {
            piece.copy_from_slice(bytemuck::cast_slice(row));
        }
        if let Passes::Correct(tables) = &self.passes {
            tables.fill(card, &self.engine.plan, first, rows.len())?;
        }
        let mut commands = card.commands()?;
        self.record(&mut commands, rows.len(), width)?;
        let mut fence = card.submit(commands, &mut [&mut self.upload, &mut self.download])?;
        let begin = Instant::now();
        while !card.wait(&mut fence, LOOK)? {
            if self.engine.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if begin.elapsed() >= PART_MAX {
                let message =
                    format!("it has not computed a part of a scene within {} seconds", PART_MAX.as_secs());
                return Err(Error::Lost { device: card.name().into(), message });
            }
        }
        card.take_back(&mut self.upload)?;
        card.take_back(&mut self.download)?;
        let memory = &card.bytes(&self.download)[..bytes];
        for (piece, row) in memory.chunks_exact(width * SAMPLE).zip(rows) {
            row.copy_from_slice(bytemuck::cast_slice(piece));
        }
        self.engine.copied.fetch_add(2 * bytes as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl<C: Card> CardWork<'_, C> {
    /// Adds the commands for a part, from the memory that the host has filled to the memory that it reads.
    fn record(&self, commands: &mut C::Commands, rows: usize, width: usize) -> Result<(), Error> {
        let card = &*self.engine.card;
        let [one, other] = &self.own;
        if card.limits().shares_memory {
            return self.compute(commands, [&self.upload, one, other, &self.download], rows, width);
        }
        let bytes = rows * width * SAMPLE;
        card.copy(commands, (&self.upload, 0), (one, 0), bytes)?;
        self.compute(commands, [one, other, one, other], rows, width)?;
        card.copy(commands, (other, 0), (&self.download, 0), bytes)
    }

    /// Adds the passes: from the first buffer to the last one, by way of the others if it needs them.
    fn compute(
        &self,
        commands: &mut C::Commands,
        [input, second, third, output]: [&C::Buffer; 4],
        rows: usize,
        width: usize,
    ) -> Result<(), Error> {
        let engine = self.engine;
        let card = &*engine.card;
        let (forward, inverse) = ((Direction::Forward, 1.0), (Direction::Inverse, 1.0));
        match &self.passes {
            Passes::Compress(scratch) => {
                let frames = (rows, Order::Rows);
                engine.rows.transform(card, commands, (input, second), scratch, frames, forward)?;
                if engine.plan.is_bare {
                    // The second buffer may be the last one, too.
                    card.copy(commands, (second, 0), (third, 0), rows * width * SAMPLE)?;
                } else {
                    let buffers = [&engine.filter, second, third];
                    multiply(card, commands, &engine.multiply, buffers, (rows, width))?;
                }
                engine.rows.transform(card, commands, (third, output), scratch, frames, inverse)
            }
            Passes::Columns(direction, scratch) => {
                let (frames, how) = ((width, Order::Columns), (*direction, 1.0));
                engine.columns.transform(card, commands, (input, output), scratch, frames, how)
            }
            Passes::Correct(tables) => {
                let buffers = [
                    &engine.kernels,
                    &engine.gains,
                    &tables.growths,
                    &tables.steps,
                    &tables.runs,
                    input,
                    output,
                ];
                let parameters = [rows as u32, width as u32, engine.runs() as u32];
                card.launch(commands, &engine.correct, &buffers, &parameters, rows * width)
            }
        }
    }
}

/// Tables for the migration correction and the azimuth filter of some rows, as `gpu/sar.wgsl` reads them.
struct Tables<C: Card> {
    growths: C::Buffer,
    steps: C::Buffer,
    runs: C::Buffer,
}

/// Beginning of a run of cells.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    phase: [f32; 2],
    shift: u32,
    rest: f32,
}

impl<C: Card> Tables<C> {
    fn new(card: &C, rows: usize, runs: usize) -> Result<Tables<C>, Error> {
        Ok(Tables {
            growths: card.allocate(rows * size_of::<f32>(), Access::Device)?,
            steps: card.allocate(rows * RUN * SAMPLE, Access::Device)?,
            runs: card.allocate(rows * runs * size_of::<Run>(), Access::Device)?,
        })
    }

    /// Writes the tables of the rows of some Doppler frequencies.
    fn fill(&self, card: &C, plan: &Plan, first: usize, rows: usize) -> Result<(), Error> {
        let (mut growths, mut steps, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for bin in first..first + rows {
            row_tables(plan, bin, &mut growths, &mut steps, &mut runs);
        }
        card.write(&self.growths, bytemuck::cast_slice(&growths))?;
        card.write(&self.steps, bytemuck::cast_slice(&steps))?;
        let words: Vec<[u32; 4]> = runs
            .iter()
            .map(|run| [run.phase[0].to_bits(), run.phase[1].to_bits(), run.shift, run.rest.to_bits()])
            .collect();
        card.write(&self.runs, bytemuck::cast_slice(&words))
    }
}

/// Adds the tables of the row of one Doppler frequency. One beyond the antenna's Doppler band has a growth of -1.
fn row_tables(
    plan: &Plan,
    bin: usize,
    growths: &mut Vec<f32>,
    steps: &mut Vec<[f32; 2]>,
    runs: &mut Vec<Run>,
) {
    let sar = &plan.sar;
    let (run_count, doppler_hz) = (sar.range.div_ceil(RUN), frequency(bin, sar.azimuth) * sar.prf_hz);
    let edge = 2.0 * doppler_hz / sar.doppler_hz();
    if edge.abs() > 1.0 {
        growths.push(-1.0);
        steps.extend([[0.0; 2]; RUN]);
        runs.extend(std::iter::repeat_n(Run::default(), run_count));
        return;
    }
    let factor = sar.migration_factor(doppler_hz);
    let growth = (1.0 / factor - 1.0) * SHIFTS;
    let turns = |metres: f64| 2.0 * metres * (factor - 1.0) / sar.wavelength_m();
    let weight = plan.weighting.at(edge);
    growths.push(growth as f32);
    steps.extend((0..RUN).map(|cell| {
        let value = phasor(turns(cell as f64 * sar.cell_m())) * weight;
        [value.re as f32, value.im as f32]
    }));
    runs.extend((0..run_count).map(|run| {
        let cell = (run * RUN) as f64;
        let shift = (sar.near_m / sar.cell_m() + cell) * growth;
        // An eighth of a turn is the constant phase of the azimuth spectrum (principle of stationary phase).
        let phase = phasor(turns(sar.range_m(cell)) + 0.125);
        Run {
            phase: [phase.re as f32, phase.im as f32],
            shift: shift.floor() as u32,
            rest: shift.fract() as f32,
        }
    }));
}
