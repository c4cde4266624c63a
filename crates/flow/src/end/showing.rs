//! Counts of the frames that a display shows, which the report reads after the display's sink is gone.

use crate::report::Presentation;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts of one display, shared by its sink and the report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Showing(Arc<Mutex<Presentation>>);

impl Showing {
    /// Changes the counts.
    #[cfg_attr(not(feature = "display"), allow(dead_code, reason = "only a display shows frames"))]
    pub(crate) fn update(&self, change: impl FnOnce(&mut Presentation)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the counts so far.
    pub(crate) fn read(&self) -> Presentation {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
