//! `tee:`: copies the data to another sink too.

use super::{Demand, Emit, Filter};
use crate::control::Control;
use crate::end::Sink;
use crate::error::Error;

/// Stage that writes the data to another sink, which is committed together with the flow's own sink.
pub(crate) struct TeeStage(pub(crate) Sink);

impl Filter for TeeStage {
    fn pass(&mut self, block: &[u8], control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        self.0.output().put(block, control)?;
        next(block)
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.0)
    }
}
