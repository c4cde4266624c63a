//! `tee:`: copies the data to another sink too.

use super::{Filter, Next, Passed};
use crate::control::Control;
use crate::end::Sink;
use crate::error::Error;

/// Stage that writes the data to another sink, which is committed together with the flow's own sink.
pub(crate) struct Teeing(pub(crate) Sink);

impl Filter for Teeing {
    fn pass(&mut self, block: &[u8], control: &Control, next: &mut Next<'_>) -> Result<Passed, Error> {
        self.0.output().put(block, control)?;
        next(block)
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.0)
    }
}
