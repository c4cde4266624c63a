//! Kernel `fir` on a card. The last samples of a block are kept in the card's memory, as history of the next one.

use super::session::{Kernel, Layout};
use super::{Access, Binding, Card, GROUP, Pass, Source};
use crate::error::Error;
use crate::kernel::Fir;
use crate::memory::SAMPLE;

/// Filter on a card.
pub(crate) struct FirKernel<C: Card> {
    program: C::Program,
    taps: C::Buffer,
    /// Samples before the block, and memory for those before the next one.
    history: [C::Buffer; 2],
    history_bytes: usize,
    decimation: usize,
    taps_count: usize,
}

/// Returns the sizes of a filter's blocks.
pub(crate) fn layout(fir: &Fir) -> Layout {
    Layout {
        sample_bytes: SAMPLE,
        unit_bytes: fir.decimation * SAMPLE,
        output_bytes: SAMPLE,
        units_max: usize::MAX,
        is_padded: false,
    }
}

impl<C: Card> FirKernel<C> {
    /// Compiles the filter, and writes its coefficients to the card.
    ///
    /// # Errors
    /// Those of the card.
    pub(crate) fn new(card: &C, fir: &Fir) -> Result<FirKernel<C>, Error> {
        let program = card.program(&Pass {
            source: Source::Fir,
            entry: "filter_block",
            bindings: &[Binding::Read, Binding::Read, Binding::Read, Binding::Write],
            parameters: 3,
            group: GROUP,
        })?;
        let taps = card.allocate(size_of_val(&*fir.taps), Access::Device)?;
        card.write(&taps, bytemuck::cast_slice(&fir.taps))?;
        let history_bytes = (fir.taps.len() - 1) * SAMPLE;
        let history = || card.allocate(history_bytes.max(SAMPLE), Access::Device);
        Ok(FirKernel {
            program,
            taps,
            history: [history()?, history()?],
            history_bytes,
            decimation: fir.decimation,
            taps_count: fir.taps.len(),
        })
    }
}

impl<C: Card> Kernel<C> for FirKernel<C> {
    fn compute(
        &mut self,
        card: &C,
        commands: &mut C::Commands,
        input: &C::Buffer,
        bytes: usize,
        output: &C::Buffer,
    ) -> Result<usize, Error> {
        let outputs = (bytes / SAMPLE).div_ceil(self.decimation);
        let [before, next] = &self.history;
        let parameters = [outputs as u32, self.taps_count as u32, self.decimation as u32];
        card.launch(commands, &self.program, &[input, before, &self.taps, output], &parameters, outputs)?;
        // The end of a block that is shorter than the history reaches into what was before it.
        let kept = self.history_bytes.saturating_sub(bytes);
        let new = self.history_bytes - kept;
        if kept > 0 {
            card.copy(commands, (before, self.history_bytes - kept), (next, 0), kept)?;
        }
        if new > 0 {
            card.copy(commands, (input, bytes - new), (next, kept), new)?;
        }
        self.history.swap(0, 1);
        Ok(outputs * SAMPLE)
    }
}
