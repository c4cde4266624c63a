//! Transforms of columns: the corner turn, some columns at a time.
//!
//! [`TILE`] columns are gathered into contiguous memory, transformed there, and scattered back. Of each row that takes two cache
//! lines, which are used completely; the columns in between stay in the second-level cache.

use super::memory::Memory;
use crate::error::Error;
use rustfft::Fft;
use rustfft::num_complex::Complex32;

/// Columns of a tile: two cache lines of each row.
pub const TILE: usize = 16;
/// Rows that are turned at a time: one cache line of each column.
const TURN: usize = 8;

/// Memory of one thread for a tile.
pub struct ColumnWork {
    tile: Memory,
    scratch: Memory,
    /// Distance of two columns, in samples: not a power of two, so that columns do not compete for the same cache lines.
    stride: usize,
}

impl ColumnWork {
    /// Allocates memory for the transforms of columns.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn new(fft: &dyn Fft<f32>) -> Result<ColumnWork, Error> {
        let stride = fft.len().next_multiple_of(TURN) + TURN;
        let scratch = Memory::new(fft.get_inplace_scratch_len())?;
        Ok(ColumnWork { tile: Memory::new(stride * TILE)?, scratch, stride })
    }
}

/// Transforms each column of a strip, which is given by its rows.
pub fn transform(rows: &mut [&mut [Complex32]], fft: &dyn Fft<f32>, work: &mut ColumnWork) {
    let columns = rows.first().map_or(0, |row| row.len());
    for first in (0..columns).step_by(TILE) {
        let width = TILE.min(columns - first);
        let tile = work.tile.samples_mut();
        gather(rows, first, width, tile, work.stride);
        for column in tile.chunks_exact_mut(work.stride).take(width) {
            fft.process_with_scratch(&mut column[..rows.len()], work.scratch.samples_mut());
        }
        scatter(tile, work.stride, first, width, rows);
    }
}

/// Copies columns of the rows to the columns of a tile.
fn gather(rows: &[&mut [Complex32]], first: usize, width: usize, tile: &mut [Complex32], stride: usize) {
    for (turn, rows) in rows.chunks(TURN).enumerate() {
        for (column, samples) in tile.chunks_exact_mut(stride).take(width).enumerate() {
            for (sample, row) in samples[turn * TURN..].iter_mut().zip(rows) {
                *sample = row[first + column];
            }
        }
    }
}

/// Copies the columns of a tile back.
fn scatter(tile: &[Complex32], stride: usize, first: usize, width: usize, rows: &mut [&mut [Complex32]]) {
    for (turn, rows) in rows.chunks_mut(TURN).enumerate() {
        for (column, samples) in tile.chunks_exact(stride).take(width).enumerate() {
            for (sample, row) in samples[turn * TURN..].iter().zip(rows.iter_mut()) {
                row[first + column] = *sample;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustfft::FftPlanner;

    #[test]
    fn columns_are_transformed_each_for_itself() {
        let fft = FftPlanner::new().plan_fft_forward(21);
        for columns in [1, 15, 16, 40] {
            let value = |row: usize, column: usize| {
                Complex32::new((row * row % 7) as f32, (row * column % 11) as f32)
            };
            let mut data: Vec<Complex32> =
                (0..21 * columns).map(|index| value(index / columns, index % columns)).collect();
            let mut rows: Vec<&mut [Complex32]> = data.chunks_mut(columns).collect();
            transform(&mut rows, &*fft, &mut ColumnWork::new(&*fft).unwrap());
            for column in 0..columns {
                let mut expected: Vec<Complex32> = (0..21).map(|row| value(row, column)).collect();
                fft.process(&mut expected);
                for row in 0..21 {
                    assert_eq!(
                        data[row * columns + column],
                        expected[row],
                        "row {row} of column {column} of {columns}"
                    );
                }
            }
        }
    }
}
