//! Reading and writing block by block: the two traits that sources and sinks of every kind implement.
//!
//! Called by the mover `buffer` and by stages; the movers of descriptors need neither.

use crate::control::Control;
use crate::error::Error;
use crate::timing::LiveStream;

/// An end that bytes are read from, block by block.
pub(crate) trait Input: Send {
    /// Returns the next block, of at most `room.len()` bytes; empty at the end. The block is in `room` or in
    /// memory of this end.
    ///
    /// # Errors
    /// The first error of the end, with its name; [`Error::Cancelled`] if the flow is cancelled.
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error>;

    /// Returns true if blocks lie in memory of this end, and not in the caller's.
    fn has_memory(&self) -> bool {
        false
    }

    /// Returns the account of a live stream, if this end receives one.
    fn live(&self) -> Option<LiveStream> {
        None
    }
}

/// An end that bytes are written to, block by block.
pub(crate) trait Output: Send {
    /// Writes the whole block.
    ///
    /// # Errors
    /// The first error of the end, with its name; [`Error::Cancelled`] if the flow is cancelled.
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error>;

    /// Ends the data and waits until everything in flight has arrived.
    ///
    /// # Errors
    /// The first error of the end, with its name; [`Error::Cancelled`] if the flow is cancelled.
    fn finish(&mut self, control: &Control) -> Result<(), Error>;

    /// Returns the account of a live stream, if this end sends one.
    fn live(&self) -> Option<LiveStream> {
        None
    }

    /// Returns the end as one with memory of its own, if it has some: blocks are then read into that.
    fn filled(&mut self) -> Option<&mut dyn Filled> {
        None
    }
}

/// End whose blocks can be read into memory of its own.
pub(crate) trait Filled {
    /// Waits until memory for a block is free, and returns it; never empty.
    ///
    /// # Errors
    /// Those of [`Output::put`].
    fn memory(&mut self, control: &Control) -> Result<&mut [u8], Error>;

    /// Writes the block in the first `bytes` of [`Filled::memory`].
    ///
    /// # Errors
    /// Those of [`Output::put`].
    fn put_filled(&mut self, bytes: usize) -> Result<(), Error>;
}
