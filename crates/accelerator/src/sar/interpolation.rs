//! Interpolation kernels: windowed sincs for fetching a sample between others.

use super::window::bessel;
use std::f64::consts::PI;

/// Samples of the interpolation kernel.
pub const KERNEL: usize = 8;
/// Sub-sample shifts for which there are kernels: the greatest error of a position is 1/128 cell.
pub const SHIFTS: usize = 64;
/// Parameter of the Kaiser window on the kernel.
const KAISER_BETA: f64 = 2.5;

/// Computes the kernels: sinc, windowed, with a sum of 1.
pub fn kernels() -> Vec<[f32; KERNEL]> {
    let kernel = |shift: usize| {
        let weight = |tap: usize| {
            let distance = tap as f64 - (KERNEL / 2 - 1) as f64 - shift as f64 / SHIFTS as f64;
            let edge = (distance / (KERNEL / 2) as f64).powi(2);
            sinc(distance) * bessel(KAISER_BETA * (1.0 - edge).max(0.0).sqrt())
        };
        let weights: [f64; KERNEL] = std::array::from_fn(weight);
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| (weight / sum) as f32)
    };
    (0..SHIFTS).map(kernel).collect()
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_pass_constants_and_samples() {
        let kernels = kernels();
        assert_eq!(kernels[0].map(|weight| (weight * 1e6).round() as i32), [0, 0, 0, 1_000_000, 0, 0, 0, 0]);
        for kernel in &kernels {
            assert!((kernel.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        }
    }
}
