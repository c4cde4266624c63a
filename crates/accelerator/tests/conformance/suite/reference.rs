//! Definitions of the kernels, computed in `f64`, and bounds of errors.
//!
//! Complex numbers are pairs of a real and an imaginary part.

use bywash_accelerator::kernel::{Fft, Fir};
use std::f64::consts::TAU;

/// Relative error of a rounding to `f32`.
const ROUNDING: f64 = f32::EPSILON as f64 / 2.0;

type Complex = [f64; 2];

fn sample(numbers: &[f32], index: usize) -> Complex {
    [numbers[2 * index].into(), numbers[2 * index + 1].into()]
}

/// Asserts that `output` is what the filter's sums are, but for roundings: a sum of `n` products has a relative error of at
/// most `n` roundings, plus one for the sums' own, in whatever order it is computed.
pub fn assert_filtered(fir: &Fir, input: &[f32], output: &[f32], context: &str) {
    let samples = input.len() / 2;
    assert_eq!(output.len(), 2 * samples.div_ceil(fir.decimation), "length of the output: {context}");
    for index in 0..output.len() / 2 {
        let newest = index * fir.decimation;
        let (mut sum, mut magnitude) = ([0.0; 2], [0.0; 2]);
        for (number, tap) in fir.taps.iter().enumerate().take(newest + 1) {
            let value = sample(input, newest - number);
            for part in 0..2 {
                sum[part] += f64::from(*tap) * value[part];
                magnitude[part] += (f64::from(*tap) * value[part]).abs();
            }
        }
        for part in 0..2 {
            let error = (sample(output, index)[part] - sum[part]).abs();
            let bound = magnitude[part] * ROUNDING * (fir.taps.len() + 1) as f64;
            assert!(error <= bound, "sample {index} is wrong by {error}, possible is {bound}: {context}");
        }
    }
}

/// Asserts that `output` is the transform of each frame of `input`, with zeros behind its end. Errors may be
/// `8 * (1 + log2(size))` roundings of the frame's norm; of transforms of more than [`ALL`] samples, some are checked.
pub fn assert_transformed(fft: Fft, input: &[f32], output: &[f32], context: &str) {
    let frame = 2 * fft.size;
    assert_eq!(output.len(), input.len().next_multiple_of(frame), "length of the output: {context}");
    let sign = if fft.is_inverse { 1.0 } else { -1.0 };
    let scale = if fft.is_inverse { 1.0 / fft.size as f64 } else { 1.0 };
    let turns: Vec<Complex> = (0..fft.size)
        .map(|index| {
            let (sin, cos) = (sign * TAU * index as f64 / fft.size as f64).sin_cos();
            [scale * cos, scale * sin]
        })
        .collect();
    let step = fft.size.div_ceil(ALL).max(1);
    for (number, (frame_in, frame_out)) in input.chunks(frame).zip(output.chunks(frame)).enumerate() {
        let norm = frame_in.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt() * scale;
        let bound = norm * ROUNDING * 8.0 * (1.0 + (fft.size as f64).log2());
        for bin in (0..fft.size).step_by(step) {
            let [re, im] = bin_of(frame_in, bin, &turns);
            let [re_out, im_out] = sample(frame_out, bin);
            let error = (re_out - re).hypot(im_out - im);
            assert!(
                error <= bound,
                "bin {bin} of frame {number} is wrong by {error}, possible is {bound}: {context}"
            );
        }
    }
}

/// Size up to which all samples of a transform are checked.
const ALL: usize = 300;

fn bin_of(frame: &[f32], bin: usize, turns: &[Complex]) -> Complex {
    let (mut re, mut im) = (0.0, 0.0);
    for index in 0..frame.len() / 2 {
        let [a, b] = sample(frame, index);
        let [cos, sin] = turns[index * bin % turns.len()];
        re += a * cos - b * sin;
        im += a * sin + b * cos;
    }
    [re, im]
}
