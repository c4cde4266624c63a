//! Rows of samples in memory that the kernel backs with huge pages where it can.
//!
//! A pass over columns touches a different page with each row: with small pages it would miss the TLB each time.

#![allow(unsafe_code)] // For one system call, which gives advice on memory.

use crate::error::Error;
use rustfft::num_complex::Complex32;
use rustix::mm::{Advice, madvise};

/// Size of a huge page, in bytes.
const HUGE_PAGE: usize = 2 << 20;
/// Size of a sample, in bytes.
pub const SAMPLE: usize = size_of::<Complex32>();

/// Zeroed samples; large memory begins at a huge page.
#[derive(Debug, Default)]
pub struct Memory {
    samples: Vec<Complex32>,
    start: usize,
}

impl Memory {
    /// Allocates samples.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn new(length: usize) -> Result<Memory, Error> {
        let is_large = length >= HUGE_PAGE / SAMPLE;
        let capacity = if is_large { length + HUGE_PAGE / SAMPLE } else { length };
        let mut samples: Vec<Complex32> = Vec::new();
        samples.try_reserve_exact(capacity).map_err(|_| Error::Memory {
            device: "cpu".into(),
            bytes: (capacity * SAMPLE) as u64,
            remedy: "form a smaller scene, or let more of it lie in a temporary file",
        })?;
        let mut start = 0;
        if is_large {
            // The distance is less than the alignment, because samples lie at multiples of their size.
            start = samples.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE / SAMPLE);
            let whole = (length * SAMPLE).next_multiple_of(HUGE_PAGE) - HUGE_PAGE;
            let address = samples.as_mut_ptr().wrapping_add(start);
            // SAFETY: the range lies in memory that the vector owns, and this advice changes no contents. A kernel without
            // huge pages refuses it, which does no harm.
            let _ = unsafe { madvise(address.cast(), whole, Advice::LinuxHugepage) };
        }
        samples.resize(start + length, Complex32::default());
        Ok(Memory { samples, start })
    }

    /// Drops the samples after the first `length` ones.
    pub fn truncate(&mut self, length: usize) {
        self.samples.truncate(self.start + length);
    }

    /// Returns the samples.
    pub fn samples(&self) -> &[Complex32] {
        &self.samples[self.start..]
    }

    /// Returns the samples, to be changed.
    pub fn samples_mut(&mut self) -> &mut [Complex32] {
        &mut self.samples[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_large_memory_begins_at_a_huge_page() {
        for length in [0, 1, 100, HUGE_PAGE / SAMPLE, HUGE_PAGE / SAMPLE + 3] {
            let mut memory = Memory::new(length).unwrap();
            assert_eq!(memory.samples().len(), length);
            assert!(memory.samples().iter().all(|sample| *sample == Complex32::default()));
            let address = memory.samples_mut().as_ptr() as usize;
            assert!(length < HUGE_PAGE / SAMPLE || address.is_multiple_of(HUGE_PAGE));
        }
    }

    #[test]
    fn impossible_sizes_are_an_error() {
        assert!(matches!(Memory::new(usize::MAX / 32), Err(Error::Memory { device, .. }) if device == "cpu"));
    }
}
