//! Tables for a geometry, which all threads share, and range compression.

use super::interpolation::{self, KERNEL};
use super::window::Weighting;
use crate::error::Error;
use crate::kernel::Sar;
use crate::vector::{Product, Unit};
use rustfft::num_complex::{Complex32, Complex64};
use rustfft::{Fft, FftPlanner};
use std::f64::consts::{PI, TAU};
use std::sync::Arc;

/// Tables and transforms for one geometry.
pub struct Plan {
    pub(crate) sar: Sar,
    pub(crate) weighting: Weighting,
    /// Tells that filters and migration correction are left out, so that the transforms can be timed alone.
    pub(crate) is_bare: bool,
    pub(crate) azimuth_forward: Arc<dyn Fft<f32>>,
    pub(crate) azimuth_inverse: Arc<dyn Fft<f32>>,
    /// Interpolation kernels by sub-sample shift.
    pub(crate) kernels: Vec<[f32; KERNEL]>,
    /// Factors by range cell that make the peak of a point of amplitude 1 an amplitude of 1; each twice, for the real and
    /// the imaginary part.
    pub(crate) gains: Vec<f32>,
    /// Vector unit that computes filters and migration correction.
    pub(crate) unit: Unit,
    range_forward: Arc<dyn Fft<f32>>,
    range_inverse: Arc<dyn Fft<f32>>,
    /// Matched filter of the chirp in the frequency domain, with the inverse transform's division by its size.
    pub(crate) range_filter: Vec<Complex32>,
}

impl Plan {
    /// Makes the tables.
    ///
    /// # Errors
    /// Those of [`Sar::check`].
    pub(crate) fn new(sar: &Sar, weighting: Weighting, is_bare: bool) -> Result<Plan, Error> {
        sar.check()?;
        let mut planner = FftPlanner::new();
        Ok(Plan {
            sar: *sar,
            weighting,
            is_bare,
            azimuth_forward: planner.plan_fft_forward(sar.azimuth),
            azimuth_inverse: planner.plan_fft_inverse(sar.azimuth),
            kernels: interpolation::kernels(),
            gains: gains(sar),
            unit: Unit::fastest(),
            range_forward: planner.plan_fft_forward(sar.range),
            range_inverse: planner.plan_fft_inverse(sar.range),
            range_filter: range_filter(sar, weighting),
        })
    }

    /// Returns the samples of scratch memory that [`Plan::compress`] needs.
    pub(crate) fn compress_scratch(&self) -> usize {
        self.range_forward.get_inplace_scratch_len().max(self.range_inverse.get_inplace_scratch_len())
    }

    /// Filters a row of raw echoes with the conjugate of the chirp.
    pub(crate) fn compress(&self, row: &mut [Complex32], scratch: &mut [Complex32]) {
        self.range_forward.process_with_scratch(row, scratch);
        if !self.is_bare {
            let factors = bytemuck::cast_slice(&self.range_filter);
            self.unit.run(Product { numbers: bytemuck::cast_slice_mut(row), factors });
        }
        self.range_inverse.process_with_scratch(row, scratch);
    }
}

/// Computes the matched filter of the chirp in the frequency domain; the inverse transform's division by its size is in it.
fn range_filter(sar: &Sar, weighting: Weighting) -> Vec<Complex32> {
    let (pulse, rate) = (sar.pulse_s * sar.sampling_hz, sar.chirp_rate_hz_s() / sar.sampling_hz.powi(2));
    let samples = sar.pulse_samples().min(sar.range);
    let mut chirp = vec![Complex64::default(); sar.range];
    for (index, sample) in chirp.iter_mut().enumerate().take(samples) {
        let time = index as f64 - pulse / 2.0;
        *sample = Complex64::cis(PI * rate * time * time);
    }
    FftPlanner::new().plan_fft_forward(sar.range).process(&mut chirp);
    let scale = 1.0 / (samples * sar.range) as f64;
    let filter = chirp.iter().enumerate().map(|(index, sample)| {
        let frequency = frequency(index, sar.range) * 2.0 * sar.sampling_hz / sar.bandwidth_hz;
        let value = sample.conj() * scale * weighting.at(frequency);
        Complex32::new(value.re as f32, value.im as f32)
    });
    filter.collect()
}

/// Returns the frequency of a transform's bin, in sampling rates: from -0.5 to below 0.5.
pub(crate) fn frequency(bin: usize, size: usize) -> f64 {
    let signed = if 2 * bin < size { bin as f64 } else { bin as f64 - size as f64 };
    signed / size as f64
}

/// Computes the factors that undo the gain of azimuth compression, which is the root of the aperture's time-bandwidth product,
/// and the inverse transform's size.
fn gains(sar: &Sar) -> Vec<f32> {
    let gain = |cell: usize| {
        let aperture_s = sar.aperture_pulses(sar.range_m(cell as f64)) / sar.prf_hz;
        (1.0 / (aperture_s * sar.doppler_hz()).sqrt() / sar.azimuth as f64) as f32
    };
    (0..sar.range).flat_map(|cell| [gain(cell); 2]).collect()
}

/// Returns a phasor of a number of turns.
pub(crate) fn phasor(turns: f64) -> Complex64 {
    Complex64::cis(TAU * turns.fract())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sar::{Echoes, Target};

    #[test]
    fn a_chirp_becomes_a_peak_of_its_amplitude() {
        let sar = Sar::strip_map(300, 4);
        let plan = Plan::new(&sar, Weighting::None, false).unwrap();
        let target = Target { range_cell: 120.0, azimuth_row: 2.0, amplitude: 3.0 };
        let mut row = vec![Complex32::default(); 300];
        Echoes::new(&sar, vec![target]).row(2, &mut row);
        plan.compress(&mut row, &mut vec![Complex32::default(); plan.compress_scratch()]);
        let peak = (0..300).max_by(|a, b| row[*a].norm().total_cmp(&row[*b].norm())).unwrap();
        assert_eq!(peak, 120);
        assert!((row[peak].norm() - 3.0).abs() < 1e-3, "{}", row[peak]);
    }

    #[test]
    fn frequencies_are_signed() {
        assert_eq!([0, 1, 2, 3].map(|bin| frequency(bin, 4)), [0.0, 0.25, -0.5, -0.25]);
        assert_eq!([0, 1, 2].map(|bin| frequency(bin, 3)), [0.0, 1.0 / 3.0, -1.0 / 3.0]);
    }
}
