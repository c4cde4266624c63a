//! Range cell migration correction, and the azimuth matched filter, along the rows of the Doppler domain.
//!
//! At Doppler frequency f a point of slant range R lies at R / D(f), where D is the cosine of the squint at which the echo
//! arrives (Cumming and Wong, chapter 6). A cell of the result is therefore fetched from a position that is an affine function
//! of the cell, by a windowed sinc of [`KERNEL`] samples. As D is close to 1, hundreds of cells share a kernel: the inner loop is
//! a short filter on contiguous samples. The azimuth filter turns the phase by 4 pi R (D - 1) / wavelength, which grows
//! linearly along the row: it is the product of a phasor for each [`RUN`] cells and a table of [`RUN`] phasors.

use super::interpolation::{KERNEL, SHIFTS};
use super::plan::{Plan, frequency, phasor};
use rustfft::num_complex::Complex32;

/// Cells that share a phasor.
const RUN: usize = 64;

impl Plan {
    /// Returns the samples of scratch memory that [`Plan::correct`] needs: a row, and zeros around it.
    pub(crate) fn correct_scratch(&self) -> usize {
        // The Doppler band may end at half the PRF, so the shift there is the greatest.
        let factor = self.sar.migration_factor(self.sar.doppler_hz() / 2.0);
        let far = self.sar.range_m(self.sar.range as f64) / self.sar.cell_m();
        self.sar.range + (far * (1.0 / factor - 1.0)).ceil() as usize + 2 * KERNEL
    }

    /// Corrects the migration in the row of one Doppler bin, and applies the azimuth filter. Frequencies beyond the antenna's
    /// Doppler band become zero.
    pub(crate) fn correct(&self, bin: usize, row: &mut [Complex32], scratch: &mut [Complex32]) {
        let doppler_hz = frequency(bin, self.sar.azimuth) * self.sar.prf_hz;
        let edge = 2.0 * doppler_hz / self.sar.doppler_hz();
        if edge.abs() > 1.0 {
            row.fill(Complex32::default());
            return;
        }
        let factor = self.sar.migration_factor(doppler_hz);
        self.interpolate(1.0 / factor - 1.0, row, scratch);
        self.turn(factor, self.weighting.at(edge) as f32, row);
    }

    /// Fetches each cell from its migrated position, which is further by `growth` times its slant range.
    fn interpolate(&self, growth: f64, row: &mut [Complex32], scratch: &mut [Complex32]) {
        let before = KERNEL / 2 - 1;
        scratch.fill(Complex32::default());
        scratch[before..before + row.len()].copy_from_slice(row);
        let near_cells = self.sar.near_m / self.sar.cell_m();
        let mut cell = 0;
        while cell < row.len() {
            let shift = ((near_cells + cell as f64) * growth * SHIFTS as f64).round();
            // The next cell of a greater shift; at least one further, whatever the rounding.
            let next =
                ((shift + 0.5) / SHIFTS as f64 / growth - near_cells).ceil().min(row.len() as f64) as usize;
            let end = next.clamp(cell + 1, row.len());
            let (whole, part) = (shift as usize / SHIFTS, shift as usize % SHIFTS);
            filter(&scratch[cell + whole..], &self.kernels[part], &mut row[cell..end]);
            cell = end;
        }
    }

    /// Multiplies the row by the azimuth filter, the gain and a weight.
    fn turn(&self, factor: f64, weight: f32, row: &mut [Complex32]) {
        let turns = |cells: f64| 2.0 * cells * (factor - 1.0) / self.sar.wavelength_m();
        let step_m = self.sar.cell_m();
        let table: [Complex32; RUN] =
            std::array::from_fn(|index| phasor(turns(index as f64 * step_m)) * weight);
        for (run, (row, gains)) in row.chunks_mut(RUN).zip(self.gains.chunks(RUN)).enumerate() {
            // An eighth of a turn is the constant phase of the azimuth spectrum (principle of stationary phase).
            let base = phasor(turns(self.sar.range_m((run * RUN) as f64)) + 0.125);
            for ((sample, gain), step) in row.iter_mut().zip(gains).zip(&table) {
                let value = *sample * *gain;
                *sample = value * (base * step);
            }
        }
    }
}

/// Filters contiguous samples with a kernel of real weights.
fn filter(input: &[Complex32], kernel: &[f32; KERNEL], output: &mut [Complex32]) {
    let input = &input[..output.len() + KERNEL - 1];
    for (index, sample) in output.iter_mut().enumerate() {
        let window = &input[index..index + KERNEL];
        let mut sum = Complex32::default();
        for tap in 0..KERNEL {
            sum.re += window[tap].re * kernel[tap];
            sum.im += window[tap].im * kernel[tap];
        }
        *sample = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Sar;
    use crate::sar::Weighting;

    /// Compares the runs of equal kernels with a position that is computed for each cell.
    #[test]
    fn interpolation_follows_the_curve() {
        let sar = Sar::strip_map(1000, 4096);
        let plan = Plan::new(&sar, Weighting::None, false).unwrap();
        let wave = |position: f64| phasor(position * 0.05);
        for growth in [0.0, 1e-5, 1e-4, 1.0 / sar.migration_factor(sar.doppler_hz() / 2.0) - 1.0] {
            let mut row: Vec<Complex32> = (0..1000).map(|cell| wave(cell as f64)).collect();
            plan.interpolate(growth, &mut row, &mut vec![Complex32::default(); plan.correct_scratch()]);
            for (cell, sample) in row.iter().enumerate().take(970).skip(8) {
                let expected = wave(cell as f64 + growth * (sar.near_m / sar.cell_m() + cell as f64));
                assert!(
                    (sample - expected).norm() < 0.02,
                    "cell {cell} at {growth}: {sample} is not {expected}"
                );
            }
        }
    }
}
