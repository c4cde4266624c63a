//! `tee:`: what passes goes to another sink too.

use super::{Filter, Next, Passed};
use crate::control::Control;
use crate::end::Sink;
use crate::error::Error;

/// Feeds another sink, which hears of the end with the others of the flow.
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
