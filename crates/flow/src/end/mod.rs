//! The ends of a flow while it runs: where bytes come from, and where they go.
//!
//! Invariant: an end that waits does so in [`Control::wait`]; an end that fails names itself in its error. Called by
//! the movers.

use crate::control::Control;
use crate::error::Error;

/// Where bytes come from, block by block.
pub(crate) trait Input: Send {
    /// The next block, at most as long as `room`; empty at the end. It may be in `room` or anywhere else.
    ///
    /// # Errors
    /// What failed, by the name of this end.
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error>;
}

/// Where bytes go, block by block.
pub(crate) trait Output: Send {
    /// Takes the whole block.
    ///
    /// # Errors
    /// What failed, by the name of this end.
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error>;

    /// No more comes: what is on its way is seen off.
    ///
    /// # Errors
    /// What failed, by the name of this end.
    fn finish(&mut self, control: &Control) -> Result<(), Error>;
}
