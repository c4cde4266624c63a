//! Kernel `fir`: filter with real coefficients on complex samples, which keeps one output of `decimation`.
//!
//! Real and imaginary parts lie next to each other. Each coefficient is doubled, so that a vector of coefficients times a
//! vector of samples is right without any shuffling:
//!
//! ```text
//!   input        re0 im0 re1 im1 re2 im2 re3 im3 ...
//!   coefficients  h3  h3  h2  h2  h1  h1  h0  h0 ...   (newest sample last, so reversed)
//!   sums         re  im  re  im  re  im  re  im        -> added up, real and imaginary
//! ```
//!
//! Several outputs are computed at a time: so a vector of coefficients is loaded once for all of them, and their sums do not
//! wait for each other. Only outputs that are kept are computed.
//!
//! Unsafe code: the call of functions that are compiled for vector units, behind the check that the processor has these.

#![allow(unsafe_code)]

use super::worker::{Layout, PIECE, Plan, Stop, Worker};
use crate::error::Error;
use crate::kernel::Fir;
use crate::memory::{SAMPLE, numbers, numbers_mut};
use std::sync::Arc;

/// Numbers of a vector.
const LANES: usize = 8;
/// Outputs that are computed at a time.
const OUTPUTS: usize = 8;

/// Filter on one thread.
struct FirWorker {
    filter: Filter,
}

/// Filter and the function that computes it on this processor.
#[derive(Clone)]
struct Filter {
    /// Coefficients, reversed and doubled.
    coefficients: Arc<[f32]>,
    decimation: usize,
    compute: Compute,
}

/// Function that computes outputs: coefficients, first input of the first output, numbers between the first inputs of two
/// outputs, outputs.
type Compute = fn(&[f32], &[f32], usize, &mut [f32]);

/// Plans a kernel for some threads.
pub(super) fn plan(fir: &Fir, threads: usize) -> Plan {
    let filter = Filter::new(fir);
    let worker = || -> Box<dyn Worker> { Box::new(FirWorker { filter: filter.clone() }) };
    let layout = Layout {
        sample_bytes: SAMPLE,
        unit_bytes: fir.decimation * SAMPLE,
        output_bytes: SAMPLE,
        history_bytes: (fir.taps.len() - 1) * SAMPLE,
        is_padded: false,
        passes_on: false,
        tail_bytes: 0,
    };
    Plan { layout, workers: (0..threads).map(|_| worker()).collect() }
}

impl Worker for FirWorker {
    fn run(&mut self, input: &[u8], output: &mut [u8], stop: &Stop) -> Result<usize, Error> {
        let input = numbers(input);
        let new = input.len() + 2 - self.filter.coefficients.len();
        let outputs = (new / 2).div_ceil(self.filter.decimation);
        let output = &mut numbers_mut(output)[..2 * outputs];
        let stride = 2 * self.filter.decimation;
        // About as much work as other kernels have for a piece of input.
        let piece = (PIECE / self.filter.coefficients.len()).max(1);
        for (index, output) in output.chunks_mut(2 * piece).enumerate() {
            if stop.is_set() {
                break;
            }
            let first = &input[index * piece * stride..];
            (self.filter.compute)(&self.filter.coefficients, first, stride, output);
        }
        Ok(outputs * SAMPLE)
    }
}

impl Filter {
    fn new(fir: &Fir) -> Filter {
        Filter {
            coefficients: fir.taps.iter().rev().flat_map(|tap| [*tap, *tap]).collect(),
            decimation: fir.decimation,
            compute: best(),
        }
    }
}

/// Returns the fastest function that this processor can run.
fn best() -> Compute {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return |coefficients, input, stride, output| {
            // SAFETY: the processor has these vector units: this function is only returned where the check found them.
            unsafe { compute_avx2(coefficients, input, stride, output) }
        };
    }
    compute_plain
}

/// Computes outputs with the vector units that all processors of the architecture have.
fn compute_plain(coefficients: &[f32], input: &[f32], stride: usize, output: &mut [f32]) {
    compute(coefficients, input, stride, output, |a, b, sum| a * b + sum);
}

/// Computes outputs with vectors of 256 bits that multiply and add in one instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn compute_avx2(coefficients: &[f32], input: &[f32], stride: usize, output: &mut [f32]) {
    compute(coefficients, input, stride, output, f32::mul_add);
}

#[inline(always)]
fn compute(
    coefficients: &[f32],
    input: &[f32],
    stride: usize,
    output: &mut [f32],
    mul_add: impl Fn(f32, f32, f32) -> f32 + Copy,
) {
    let mut done = if stride == 2 { compute_all(coefficients, input, output, mul_add) } else { 0 };
    let mut groups = output[2 * done..].chunks_exact_mut(2 * OUTPUTS);
    for group in groups.by_ref() {
        let sums = sums::<OUTPUTS>(coefficients, &input[done * stride..], stride, mul_add);
        group.copy_from_slice(sums.as_flattened());
        done += OUTPUTS;
    }
    for one in groups.into_remainder().chunks_exact_mut(2) {
        let sums = sums::<1>(coefficients, &input[done * stride..], stride, mul_add);
        one.copy_from_slice(sums.as_flattened());
        done += 1;
    }
}

/// Computes outputs of a filter that keeps all of them: the vectors are consecutive outputs, so that no sums are to be
/// added up. Returns the number of outputs, which is a multiple of a group's.
#[inline(always)]
fn compute_all(
    coefficients: &[f32],
    input: &[f32],
    output: &mut [f32],
    mul_add: impl Fn(f32, f32, f32) -> f32 + Copy,
) -> usize {
    const GROUP: usize = LANES * OUTPUTS;
    let mut done = 0;
    for group in output.as_chunks_mut::<GROUP>().0 {
        let window = &input[done..done + coefficients.len() - 2 + GROUP];
        let mut sums = [0.0; GROUP];
        for (coefficient, numbers) in coefficients.iter().step_by(2).zip(window.windows(GROUP).step_by(2)) {
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum = mul_add(*coefficient, *number, *sum);
            }
        }
        *group = sums;
        done += GROUP;
    }
    done / 2
}

/// Returns the real and imaginary part of `N` outputs.
#[inline(always)]
fn sums<const N: usize>(
    coefficients: &[f32],
    input: &[f32],
    stride: usize,
    mul_add: impl Fn(f32, f32, f32) -> f32 + Copy,
) -> [[f32; 2]; N] {
    let (vectors, rest) = coefficients.as_chunks::<LANES>();
    // Slices of equal lengths, so that the bounds are checked here and not in the loop.
    let windows: [&[f32]; N] =
        std::array::from_fn(|output| &input[output * stride..output * stride + coefficients.len()]);
    let heads: [&[[f32; LANES]]; N] = windows.map(|window| &window.as_chunks::<LANES>().0[..vectors.len()]);
    let mut lanes = [[0.0; LANES]; N];
    for (index, vector) in vectors.iter().enumerate() {
        for (lanes, head) in lanes.iter_mut().zip(&heads) {
            for (lane, (a, b)) in lanes.iter_mut().zip(vector.iter().zip(&head[index])) {
                *lane = mul_add(*a, *b, *lane);
            }
        }
    }
    let mut sums = lanes.map(|lanes| {
        let halves: [f32; LANES / 2] = std::array::from_fn(|lane| lanes[lane] + lanes[lane + LANES / 2]);
        [halves[0] + halves[2], halves[1] + halves[3]]
    });
    for (pair, coefficients) in rest.as_chunks::<2>().0.iter().enumerate() {
        for (sum, window) in sums.iter_mut().zip(&windows) {
            let first = vectors.len() * LANES + 2 * pair;
            sum[0] = mul_add(coefficients[0], window[first], sum[0]);
            sum[1] = mul_add(coefficients[1], window[first + 1], sum[1]);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs by their definition, in `f64`; `input` begins with the history.
    fn reference(fir: &Fir, input: &[f32]) -> Vec<f64> {
        let taps = fir.taps.len();
        let samples = input.len() / 2 - (taps - 1);
        let part = |output: usize, part: usize| {
            let newest = output * fir.decimation + taps - 1;
            let products = fir
                .taps
                .iter()
                .enumerate()
                .map(|(number, tap)| f64::from(*tap) * f64::from(input[2 * (newest - number) + part]));
            products.sum::<f64>()
        };
        (0..2 * samples.div_ceil(fir.decimation)).map(|index| part(index / 2, index % 2)).collect()
    }

    #[test]
    fn all_variants_compute_the_sums() {
        for taps in [1, 2, 3, 4, 5, 8, 15, 64, 101] {
            for (decimation, samples) in [(1, 1), (1, 7), (1, 40), (1, 107), (2, 39), (3, 100), (17, 160)] {
                let noise = |number: usize| ((number * 7919 + taps) % 1009) as f32 / 504.5 - 1.0;
                let fir = Fir { taps: (0..taps).map(noise).collect(), decimation };
                let input: Vec<f32> = (0..2 * (taps - 1 + samples)).map(|number| noise(number + 5)).collect();
                let expected = reference(&fir, &input);
                let filter = Filter::new(&fir);
                for compute in [filter.compute, compute_plain] {
                    let mut output = vec![0.0; expected.len()];
                    compute(&filter.coefficients, &input, 2 * decimation, &mut output);
                    let bound = 1e-6 * taps as f64;
                    let is_near =
                        output.iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() <= bound);
                    assert!(is_near, "{taps} taps, decimation {decimation}: {output:?} {expected:?}");
                }
            }
        }
    }
}
