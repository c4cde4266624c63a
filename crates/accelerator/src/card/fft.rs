//! Kernel `fft` on a card, and the transforms of image formation.
//!
//! A power of two is transformed by passes of radix 8, and a first one of radix 2 or 4 (Stockham's algorithm; Govindaraju and
//! others, High Performance Discrete Fourier Transforms on Graphics Processors, 2008). Another size is a convolution with a
//! chirp, by transforms of a power of two (Bluestein's algorithm). Factors are computed here, with twice the precision.

use super::session::{Kernel, Layout};
use super::{Access, Binding, Card, GROUP, Pass, Source};
use crate::error::Error;
use crate::kernel::Fft;
use crate::memory::SAMPLE;
use rustfft::FftPlanner;
use rustfft::num_complex::{Complex32, Complex64};
use std::f64::consts::{PI, TAU};

/// Size of the scratch buffers that transforms of many frames need at most, in bytes: more frames are transformed by parts.
const SCRATCH_BYTES: usize = 64 << 20;

/// Direction of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Inverse,
}

impl Direction {
    /// Returns the sign of the exponent.
    fn sign(self) -> f32 {
        match self {
            Direction::Forward => -1.0,
            Direction::Inverse => 1.0,
        }
    }
}

/// Order of the frames in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// One frame after the other.
    Rows,
    /// First samples of all frames, then the second ones: frames are columns.
    Columns,
}

/// Frames of a power of two, and where they lie.
#[derive(Clone, Copy)]
struct Frames {
    count: usize,
    frame_stride: usize,
    sample_stride: usize,
}

impl Frames {
    fn new(order: Order, count: usize, size: usize) -> Frames {
        match order {
            Order::Rows => Frames { count, frame_stride: size, sample_stride: 1 },
            Order::Columns => Frames { count, frame_stride: 1, sample_stride: count },
        }
    }
}

/// Transform of one size.
pub(crate) struct Transform<C: Card> {
    size: usize,
    power: PowerOfTwo<C>,
    chirp: Option<Chirps<C>>,
}

/// Passes for a power of two.
struct PowerOfTwo<C: Card> {
    size_log: u32,
    factors: C::Buffer,
    /// Programs of radix 2, 4 and 8, of which not all may be needed.
    radix: [Option<C::Program>; 3],
}

/// Passes and tables of Bluestein's algorithm.
struct Chirps<C: Card> {
    spread: C::Program,
    multiply: C::Program,
    gather: C::Program,
    /// Chirp and spectrum of its conjugate, forward and inverse.
    tables: [(C::Buffer, C::Buffer); 2],
}

/// Memory between the passes.
pub(crate) struct Scratch<C: Card> {
    buffers: [C::Buffer; 2],
    /// Frames for which there is memory.
    frames: usize,
}

impl<C: Card> Transform<C> {
    /// Compiles the passes for a size, and writes their tables to the card.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a frame does not fit a buffer of the card, and those of the card.
    pub(crate) fn new(card: &C, size: usize, kernel: &'static str) -> Result<Transform<C>, Error> {
        let inner = if size.is_power_of_two() { size } else { (2 * size - 1).next_power_of_two() };
        let limit = card.limits().buffer_bytes;
        if inner * SAMPLE > limit {
            let reason = format!(
                "transforms of {size} samples need buffers of {} bytes, and it has such of {limit} at most: use device=cpu",
                inner * SAMPLE
            );
            return Err(Error::Unsupported { device: card.name().into(), kernel, reason });
        }
        let chirp = if inner == size { None } else { Some(Chirps::new(card, size, inner)?) };
        Ok(Transform { size, power: PowerOfTwo::new(card, inner.ilog2())?, chirp })
    }

    /// Allocates memory for the transforms of up to so many frames at a time.
    pub(crate) fn scratch(&self, card: &C, frames: usize) -> Result<Scratch<C>, Error> {
        let frame_bytes = SAMPLE << self.power.size_log;
        // Only frames of a power of two have to be transformed all at once: they lie in the caller's buffers, too.
        let some = SCRATCH_BYTES.min(card.limits().buffer_bytes) / frame_bytes;
        let frames = if self.chirp.is_some() { frames.min(some.max(1)) } else { frames };
        let second = if self.chirp.is_some() { frames * frame_bytes } else { SAMPLE };
        let buffers =
            [card.allocate(frames * frame_bytes, Access::Device)?, card.allocate(second, Access::Device)?];
        Ok(Scratch { buffers, frames })
    }

    /// Adds the transforms of frames, whose samples are multiplied by a scale. The input does not change.
    pub(crate) fn transform(
        &self,
        card: &C,
        commands: &mut C::Commands,
        (input, output): (&C::Buffer, &C::Buffer),
        scratch: &Scratch<C>,
        (count, order): (usize, Order),
        (direction, scale): (Direction, f32),
    ) -> Result<(), Error> {
        let Some(chirp) = &self.chirp else {
            let frames = Frames::new(order, count, self.size);
            return self.power.between(
                card,
                commands,
                (input, output, &scratch.buffers[0]),
                frames,
                direction.sign(),
                scale,
            );
        };
        for first in (0..count).step_by(scratch.frames) {
            let some = scratch.frames.min(count - first);
            let part = Part { first, some, count, order, size: self.size, direction, scale };
            chirp.convolve(card, commands, (input, output), scratch, &self.power, part)?;
        }
        Ok(())
    }
}

impl<C: Card> PowerOfTwo<C> {
    fn new(card: &C, size_log: u32) -> Result<PowerOfTwo<C>, Error> {
        let size = 1usize << size_log;
        let factor = |number: usize| {
            let (sine, cosine) = (TAU * number as f64 / size as f64).sin_cos();
            [cosine as f32, sine as f32]
        };
        let table: Vec<[f32; 2]> = (0..(size / 8).max(1)).map(factor).collect();
        let factors = card.allocate(size_of_val(&*table), Access::Device)?;
        card.write(&factors, bytemuck::cast_slice(&table))?;
        let program = |number: usize, entry| -> Result<Option<C::Program>, Error> {
            match radices(size_log).any(|radix_log| radix_log == number as u32) {
                true => pass(card, entry).map(Some),
                false => Ok(None),
            }
        };
        Ok(PowerOfTwo {
            size_log,
            factors,
            radix: [program(1, "radix2")?, program(2, "radix4")?, program(3, "radix8")?],
        })
    }

    /// Adds the passes from one buffer to another one, and back and forth between this and a third one.
    fn between(
        &self,
        card: &C,
        commands: &mut C::Commands,
        (input, output, other): (&C::Buffer, &C::Buffer, &C::Buffer),
        frames: Frames,
        direction: f32,
        scale: f32,
    ) -> Result<(), Error> {
        let passes = radices(self.size_log).count();
        if passes == 0 {
            // A frame of one sample: its scale is 1.
            return card.copy(commands, (input, 0), (output, 0), frames.count * SAMPLE);
        }
        let mut from = input;
        let mut width_log = 0;
        for (number, radix_log) in radices(self.size_log).enumerate() {
            let is_last = number + 1 == passes;
            let to = if (passes - 1 - number).is_multiple_of(2) { output } else { other };
            let Some(program) = &self.radix[radix_log as usize - 1] else { continue };
            let items = 1usize << (self.size_log - radix_log);
            let parameters = [
                frames.count as u32,
                items as u32,
                frames.frame_stride as u32,
                frames.sample_stride as u32,
                direction.to_bits(),
                (if is_last { scale } else { 1.0 }).to_bits(),
                width_log,
                // The factors' table is for the whole size.
                1 << (self.size_log - width_log - radix_log),
            ];
            launch(card, commands, program, [&self.factors, from, to], &parameters, frames.count * items)?;
            width_log += radix_log;
            from = to;
        }
        Ok(())
    }
}

/// Returns the logarithms of the radices of the passes for a size.
fn radices(size_log: u32) -> impl Iterator<Item = u32> {
    let first = Some(size_log % 3).filter(|rest| *rest > 0);
    first.into_iter().chain(std::iter::repeat_n(3, (size_log / 3) as usize))
}

/// Frames that are transformed together, of all those in the caller's buffer.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    some: usize,
    count: usize,
    order: Order,
    size: usize,
    direction: Direction,
    scale: f32,
}

impl<C: Card> Chirps<C> {
    fn new(card: &C, size: usize, inner: usize) -> Result<Chirps<C>, Error> {
        let table = |direction: Direction| -> Result<_, Error> {
            let (chirp, spectrum) = tables(size, inner, direction);
            let written = |table: &[Complex32]| -> Result<C::Buffer, Error> {
                let buffer = card.allocate(size_of_val(table), Access::Device)?;
                card.write(&buffer, bytemuck::cast_slice(table)).map(|()| buffer)
            };
            Ok((written(&chirp)?, written(&spectrum)?))
        };
        Ok(Chirps {
            spread: pass(card, "spread")?,
            multiply: pass(card, "multiply")?,
            gather: pass(card, "gather")?,
            tables: [table(Direction::Forward)?, table(Direction::Inverse)?],
        })
    }

    /// Adds the transforms of a part of the frames.
    fn convolve(
        &self,
        card: &C,
        commands: &mut C::Commands,
        (input, output): (&C::Buffer, &C::Buffer),
        scratch: &Scratch<C>,
        power: &PowerOfTwo<C>,
        part: Part,
    ) -> Result<(), Error> {
        let (chirp, spectrum) = &self.tables[part.direction as usize];
        let [one, other] = &scratch.buffers;
        let frames = Frames::new(part.order, part.some, 1 << power.size_log);
        let outer = Frames::new(part.order, part.count, part.size);
        let passes = radices(power.size_log).count();
        let parameters = |items: usize, scale: f32| {
            [
                frames.count as u32,
                items as u32,
                frames.frame_stride as u32,
                frames.sample_stride as u32,
                1f32.to_bits(),
                scale.to_bits(),
                0,
                0,
                (part.first * outer.frame_stride) as u32,
                outer.frame_stride as u32,
                outer.sample_stride as u32,
                part.size as u32,
            ]
        };
        let (inner, size) = (1usize << power.size_log, part.size);
        launch(
            card,
            commands,
            &self.spread,
            [chirp, input, one],
            &parameters(inner, 1.0),
            frames.count * inner,
        )?;
        // Passes go back and forth between both buffers.
        let (from, to) = if passes.is_multiple_of(2) { (one, other) } else { (other, one) };
        power.in_place(card, commands, (one, other), frames, Direction::Forward)?;
        launch(
            card,
            commands,
            &self.multiply,
            [spectrum, from, to],
            &parameters(inner, 1.0),
            frames.count * inner,
        )?;
        power.in_place(card, commands, (to, from), frames, Direction::Inverse)?;
        let result = if passes.is_multiple_of(2) { to } else { from };
        launch(
            card,
            commands,
            &self.gather,
            [chirp, result, output],
            &parameters(size, part.scale),
            frames.count * size,
        )
    }
}

impl<C: Card> PowerOfTwo<C> {
    /// Adds the passes from a buffer to another one and back: an even number of them ends in the first one.
    fn in_place(
        &self,
        card: &C,
        commands: &mut C::Commands,
        (one, other): (&C::Buffer, &C::Buffer),
        frames: Frames,
        direction: Direction,
    ) -> Result<(), Error> {
        let is_even = radices(self.size_log).count().is_multiple_of(2);
        let (output, third) = if is_even { (one, other) } else { (other, one) };
        self.between(card, commands, (one, output, third), frames, direction.sign(), 1.0)
    }
}

/// Computes the chirp of a size and direction, and the spectrum with which a convolution by transforms of `inner` samples
/// multiplies, in which their division by the size is.
fn tables(size: usize, inner: usize, direction: Direction) -> (Vec<Complex32>, Vec<Complex32>) {
    let turn = |number: usize| {
        // Half turns of the square, of which whole turns are left out before it becomes inexact.
        let square = (number as u64 * number as u64 % (2 * size as u64)) as f64;
        Complex64::cis(f64::from(direction.sign()) * PI * square / size as f64)
    };
    let mut spectrum = vec![Complex64::default(); inner];
    for number in 0..size {
        let value = turn(number).conj() / inner as f64;
        spectrum[number] = value;
        spectrum[(inner - number) % inner] = value;
    }
    FftPlanner::new().plan_fft_forward(inner).process(&mut spectrum);
    let rounded = |value: Complex64| Complex32::new(value.re as f32, value.im as f32);
    ((0..size).map(|number| rounded(turn(number))).collect(), spectrum.into_iter().map(rounded).collect())
}

/// Compiles a pass over a table, an input and an output.
pub(crate) fn pass<C: Card>(card: &C, entry: &str) -> Result<C::Program, Error> {
    let bindings = &[Binding::Read, Binding::Read, Binding::Write];
    card.program(&Pass { source: Source::Fft, entry, bindings, parameters: PARAMETERS, group: GROUP })
}

/// Parameters of all passes; those at the end that a pass does not use are 0.
const PARAMETERS: usize = 12;

fn launch<C: Card>(
    card: &C,
    commands: &mut C::Commands,
    program: &C::Program,
    buffers: [&C::Buffer; 3],
    parameters: &[u32],
    invocations: usize,
) -> Result<(), Error> {
    let mut all = [0; PARAMETERS];
    all[..parameters.len()].copy_from_slice(parameters);
    card.launch(commands, program, &buffers, &all, invocations)
}

/// Adds the multiplication of rows by a table of their size.
pub(crate) fn multiply<C: Card>(
    card: &C,
    commands: &mut C::Commands,
    program: &C::Program,
    [table, input, output]: [&C::Buffer; 3],
    (count, size): (usize, usize),
) -> Result<(), Error> {
    let parameters = [count as u32, size as u32, size as u32, 1];
    launch(card, commands, program, [table, input, output], &parameters, count * size)
}

/// Transforms of a session's frames.
pub(crate) struct FftKernel<C: Card> {
    transform: Transform<C>,
    scratch: Scratch<C>,
    direction: Direction,
    scale: f32,
}

/// Returns the sizes of a transform's blocks.
pub(crate) fn layout(fft: &Fft) -> Layout {
    let unit_bytes = fft.size * SAMPLE;
    Layout {
        sample_bytes: SAMPLE,
        unit_bytes,
        output_bytes: unit_bytes,
        units_max: usize::MAX,
        is_padded: true,
    }
}

impl<C: Card> FftKernel<C> {
    /// Compiles the transform, with memory for blocks of some bytes.
    ///
    /// # Errors
    /// Those of [`Transform::new`].
    pub(crate) fn new(card: &C, fft: &Fft, block_bytes: usize) -> Result<FftKernel<C>, Error> {
        let transform = Transform::new(card, fft.size, "fft")?;
        let scratch = transform.scratch(card, block_bytes / (fft.size * SAMPLE))?;
        let direction = if fft.is_inverse { Direction::Inverse } else { Direction::Forward };
        let scale = if fft.is_inverse { 1.0 / fft.size as f32 } else { 1.0 };
        Ok(FftKernel { transform, scratch, direction, scale })
    }
}

impl<C: Card> Kernel<C> for FftKernel<C> {
    fn compute(
        &mut self,
        card: &C,
        commands: &mut C::Commands,
        input: &C::Buffer,
        bytes: usize,
        output: &C::Buffer,
    ) -> Result<usize, Error> {
        let frames = (bytes / SAMPLE / self.transform.size, Order::Rows);
        let how = (self.direction, self.scale);
        self.transform.transform(card, commands, (input, output), &self.scratch, frames, how)?;
        Ok(bytes)
    }
}
