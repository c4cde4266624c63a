//! Range cell migration correction, and the azimuth matched filter, along the rows of the Doppler domain.
//!
//! At Doppler frequency f a point of slant range R lies at R / D(f), where D is the cosine of the squint at which the echo
//! arrives (Cumming and Wong, chapter 6). A cell of the result is therefore fetched from a position that is an affine function
//! of the cell, by a windowed sinc of [`KERNEL`] samples. As D is close to 1, hundreds of cells share a kernel: the inner loop is
//! a short filter on contiguous samples. The azimuth filter turns the phase by 4 pi R (D - 1) / wavelength, which grows
//! linearly along the row: it is the product of a phasor for each [`RUN`] cells and a table of [`RUN`] phasors, both of which
//! are powers.

use super::interpolation::{KERNEL, SHIFTS};
use super::plan::{Plan, frequency, phasor};
use crate::vector::{Computation, Vector, convolve};
use rustfft::num_complex::{Complex32, Complex64};

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
        let (row, scratch) = (bytemuck::cast_slice_mut(row), bytemuck::cast_slice_mut(scratch));
        self.unit.run(Interpolation { plan: self, growth: 1.0 / factor - 1.0, row, scratch });
        self.unit.run(Turn { plan: self, factor, weight: self.weighting.at(edge), row });
    }
}

/// Fetches each cell of a row from its migrated position, which is further by `growth` times its slant range.
struct Interpolation<'a> {
    plan: &'a Plan,
    growth: f64,
    row: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Computation for Interpolation<'_> {
    #[inline(always)]
    fn compute<const N: usize, V: Vector<N>>(self) {
        let Interpolation { plan, growth, row, scratch } = self;
        let (before, rest) = scratch.split_at_mut(KERNEL - 2);
        let (middle, behind) = rest.split_at_mut(row.len());
        before.fill(0.0);
        middle.copy_from_slice(row);
        behind.fill(0.0);
        let cells = row.len() / 2;
        let near_cells = plan.sar.near_m / plan.sar.cell_m();
        let mut cell = 0;
        while cell < cells {
            let shift = ((near_cells + cell as f64) * growth * SHIFTS as f64).round();
            // The next cell of a greater shift; at least one further, whatever the rounding.
            let next =
                ((shift + 0.5) / SHIFTS as f64 / growth - near_cells).ceil().min(cells as f64) as usize;
            let end = next.clamp(cell + 1, cells);
            let (whole, part) = (shift as usize / SHIFTS, shift as usize % SHIFTS);
            let fetched = &scratch[2 * (cell + whole)..];
            convolve::<N, V>(&plan.kernels[part], fetched, &mut row[2 * cell..2 * end]);
            cell = end;
        }
    }
}

/// Multiplies a row by the azimuth filter, the gains and a weight.
struct Turn<'a> {
    plan: &'a Plan,
    factor: f64,
    weight: f64,
    row: &'a mut [f32],
}

impl Computation for Turn<'_> {
    #[inline(always)]
    fn compute<const N: usize, V: Vector<N>>(self) {
        let Turn { plan, factor, weight, row } = self;
        let phasor_at = |cells: f64| phasor(2.0 * cells * (factor - 1.0) / plan.sar.wavelength_m());
        let cell_m = plan.sar.cell_m();
        let (mut table, mut power, step) = ([[0.0; 2]; RUN], Complex64::new(weight, 0.0), phasor_at(cell_m));
        for entry in &mut table {
            *entry = [power.re as f32, power.im as f32];
            power *= step;
        }
        let table = table.as_flattened();
        // An eighth of a turn is the constant phase of the azimuth spectrum (principle of stationary phase).
        let (mut base, step) = (phasor_at(plan.sar.near_m) * phasor(0.125), phasor_at(RUN as f64 * cell_m));
        for (row, gains) in row.chunks_mut(2 * RUN).zip(plan.gains.chunks(2 * RUN)) {
            let factor = V::splat_complex([base.re as f32, base.im as f32]);
            let (vectors, part) = row.as_chunks_mut::<N>();
            let ((gains, gains_part), (table, _)) = (gains.as_chunks::<N>(), table.as_chunks::<N>());
            let count = vectors.len();
            for ((numbers, gains), phasors) in vectors.iter_mut().zip(gains).zip(table) {
                let value = V::load(numbers).times(V::load(gains));
                value.times_complex(factor.times_complex(V::load(phasors))).store(numbers);
            }
            if !part.is_empty() {
                let value = V::load_part(part).times(V::load_part(gains_part));
                value.times_complex(factor.times_complex(V::load(&table[count]))).store_part(part);
            }
            base *= step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Sar;
    use crate::sar::Weighting;
    use crate::vector::Unit;

    /// Phasor as a sample.
    fn sample(turns: f64) -> Complex32 {
        let phasor = phasor(turns);
        Complex32::new(phasor.re as f32, phasor.im as f32)
    }

    /// Compares the runs of equal kernels with a position that is computed for each cell.
    #[test]
    fn interpolation_follows_the_curve() {
        let sar = Sar::strip_map(1000, 4096);
        let plan = &Plan::new(&sar, Weighting::None, false).unwrap();
        let wave = |position: f64| sample(position * 0.05);
        let growths = [0.0, 1e-5, 1e-4, 1.0 / sar.migration_factor(sar.doppler_hz() / 2.0) - 1.0];
        for (growth, unit) in
            growths.into_iter().flat_map(|growth| Unit::all().map(move |unit| (growth, unit)))
        {
            let mut row: Vec<Complex32> = (0..1000).map(|cell| wave(cell as f64)).collect();
            let mut scratch = vec![f32::NAN; 2 * plan.correct_scratch()];
            let numbers = bytemuck::cast_slice_mut(&mut row);
            unit.run(Interpolation { plan, growth, row: numbers, scratch: &mut scratch });
            for (cell, sample) in row.iter().enumerate().take(970).skip(8) {
                let expected = wave(cell as f64 + growth * (sar.near_m / sar.cell_m() + cell as f64));
                assert!(
                    (sample - expected).norm() < 0.02,
                    "{unit:?}, cell {cell} at {growth}: {sample} is not {expected}"
                );
            }
        }
    }

    /// Compares the powers of phasors with a phasor that is computed for each cell.
    #[test]
    fn the_azimuth_filter_is_that_of_each_cell() {
        let sar = Sar::strip_map(1003, 4096);
        let plan = &Plan::new(&sar, Weighting::None, false).unwrap();
        let factor = sar.migration_factor(sar.doppler_hz() / 3.0);
        for unit in Unit::all() {
            let mut row = vec![Complex32::new(0.5, -2.0); 1003];
            unit.run(Turn { plan, factor, weight: 0.7, row: bytemuck::cast_slice_mut(&mut row) });
            for (cell, value) in row.iter().enumerate() {
                let turns = 2.0 * sar.range_m(cell as f64) * (factor - 1.0) / sar.wavelength_m() + 0.125;
                let gain = plan.gains[2 * cell];
                let expected = Complex32::new(0.5, -2.0) * sample(turns) * gain * 0.7;
                assert!(
                    (value - expected).norm() < 1e-5 * gain,
                    "{unit:?}, cell {cell}: {value} is not {expected}"
                );
            }
        }
    }
}
