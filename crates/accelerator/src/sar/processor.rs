//! Steps of image formation on the threads of the processor.

use super::columns::{self, ColumnWork};
use super::engine::{Engine, Step, Work};
use super::memory::Memory;
use super::plan::Plan;
use super::window::Weighting;
use crate::error::Error;
use crate::kernel::Sar;
use rustfft::Fft;
use rustfft::num_complex::Complex32;

/// Processor that computes the steps.
pub(super) struct Processor {
    plan: Plan,
    threads: usize,
}

impl Processor {
    /// Makes the tables of a geometry.
    ///
    /// # Errors
    /// Those of [`Sar::check`].
    pub(super) fn new(
        sar: &Sar,
        weighting: Weighting,
        is_bare: bool,
        threads: usize,
    ) -> Result<Processor, Error> {
        Ok(Processor { plan: Plan::new(sar, weighting, is_bare)?, threads })
    }
}

impl Engine for Processor {
    fn threads(&self) -> usize {
        self.threads
    }

    fn part_bytes(&self) -> usize {
        usize::MAX
    }

    fn work(&self, step: Step, _: usize) -> Result<Box<dyn Work + '_>, Error> {
        let plan = &self.plan;
        let columns = |fft: &'_ dyn Fft<f32>| ColumnWork::new(fft);
        Ok(match step {
            Step::Compress => Box::new(Compress { plan, scratch: Memory::new(plan.compress_scratch())? }),
            Step::Correct => Box::new(Correct { plan, scratch: Memory::new(plan.correct_scratch())? }),
            Step::Transform => {
                Box::new(Columns { fft: &*plan.azimuth_forward, work: columns(&*plan.azimuth_forward)? })
            }
            Step::Invert => {
                Box::new(Columns { fft: &*plan.azimuth_inverse, work: columns(&*plan.azimuth_inverse)? })
            }
        })
    }

    fn copied_bytes(&self) -> u64 {
        0
    }
}

struct Compress<'a> {
    plan: &'a Plan,
    scratch: Memory,
}

impl Work for Compress<'_> {
    fn run(&mut self, _: usize, rows: &mut [&mut [Complex32]]) -> Result<(), Error> {
        rows.iter_mut().for_each(|row| self.plan.compress(row, self.scratch.samples_mut()));
        Ok(())
    }
}

struct Columns<'a> {
    fft: &'a dyn Fft<f32>,
    work: ColumnWork,
}

impl Work for Columns<'_> {
    fn run(&mut self, _: usize, rows: &mut [&mut [Complex32]]) -> Result<(), Error> {
        columns::transform(rows, self.fft, &mut self.work);
        Ok(())
    }
}

struct Correct<'a> {
    plan: &'a Plan,
    scratch: Memory,
}

impl Work for Correct<'_> {
    fn run(&mut self, first: usize, rows: &mut [&mut [Complex32]]) -> Result<(), Error> {
        for (index, row) in rows.iter_mut().enumerate() {
            self.plan.correct(first + index, row, self.scratch.samples_mut());
        }
        Ok(())
    }
}
