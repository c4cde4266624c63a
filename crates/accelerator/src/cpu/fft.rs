//! Kernel `fft`, by the crate rustfft, which chooses the algorithm by the size and the vector units.
//!
//! The threads of a session share one plan; each transforms whole frames from an input to an output buffer.

use super::worker::{Layout, PIECE, Plan, Stop, Worker};
use crate::error::Error;
use crate::kernel::Fft;
use crate::memory::{Memory, SAMPLE, samples, samples_mut};
use rustfft::{FftDirection, FftPlanner};
use std::sync::Arc;

/// Transforms on one thread.
struct FftWorker {
    transform: Arc<dyn rustfft::Fft<f32>>,
    scratch: Memory,
    /// Factor of the output.
    scale: f32,
}

/// Plans a kernel for some threads.
///
/// # Errors
/// [`Error::Memory`].
pub(super) fn plan(fft: Fft, threads: usize) -> Result<Plan, Error> {
    let direction = if fft.is_inverse { FftDirection::Inverse } else { FftDirection::Forward };
    let transform = FftPlanner::new().plan_fft(fft.size, direction);
    let frame_bytes = fft.size * SAMPLE;
    let worker = || -> Result<Box<dyn Worker>, Error> {
        Ok(Box::new(FftWorker {
            scratch: Memory::new(transform.get_immutable_scratch_len() * SAMPLE)?,
            transform: Arc::clone(&transform),
            scale: if fft.is_inverse { 1.0 / fft.size as f32 } else { 1.0 },
        }))
    };
    let workers = (0..threads).map(|_| worker()).collect::<Result<_, _>>()?;
    let layout = Layout {
        sample_bytes: SAMPLE,
        unit_bytes: frame_bytes,
        output_bytes: frame_bytes,
        history_bytes: 0,
        is_padded: true,
        passes_on: false,
        tail_bytes: 0,
    };
    Ok(Plan { layout, workers })
}

impl Worker for FftWorker {
    fn run(&mut self, input: &[u8], output: &mut [u8], stop: &Stop) -> Result<usize, Error> {
        let input = samples(input);
        let output = &mut samples_mut(output)[..input.len()];
        let scratch = samples_mut(self.scratch.bytes_mut());
        let frames = (PIECE / SAMPLE / self.transform.len()).max(1);
        let piece = frames * self.transform.len();
        for (input, output) in input.chunks(piece).zip(output.chunks_mut(piece)) {
            if stop.is_set() {
                break;
            }
            self.transform.process_immutable_with_scratch(input, output, scratch);
            if self.scale != 1.0 {
                output.iter_mut().for_each(|sample| *sample *= self.scale);
            }
        }
        Ok(input.len() * SAMPLE)
    }
}
