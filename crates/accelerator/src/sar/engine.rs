//! Interface between the former of an image, which stores the scene and cuts it into parts, and what computes the parts.

use crate::error::Error;
use rustfft::num_complex::Complex32;

/// Step on some rows or columns of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Range compression of rows.
    Compress,
    /// Azimuth transform of a strip of columns.
    Transform,
    /// Migration correction and azimuth filter of rows, each of one Doppler frequency.
    Correct,
    /// Inverse azimuth transform of a strip of columns.
    Invert,
}

/// Processor or card that computes the steps.
pub(crate) trait Engine: Send + Sync {
    /// Returns the number of threads that compute parts at the same time.
    fn threads(&self) -> usize;

    /// Returns the greatest size of a part, in bytes: at least a row and a column.
    fn part_bytes(&self) -> usize;

    /// Allocates what one thread needs for a step on parts of so many samples at most.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Lost`].
    fn work(&self, step: Step, samples: usize) -> Result<Box<dyn Work + '_>, Error>;

    /// Returns the number of bytes that the processor has copied to compute elsewhere.
    fn copied_bytes(&self) -> u64;
}

/// One thread's work on a step.
pub(crate) trait Work {
    /// Does the step on rows from row number `first` on; each of them is a whole one, or the part of it in a strip.
    ///
    /// # Errors
    /// [`Error::Lost`].
    fn run(&mut self, first: usize, rows: &mut [&mut [Complex32]]) -> Result<(), Error>;
}
