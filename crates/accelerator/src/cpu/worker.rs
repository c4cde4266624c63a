//! Interface between a session and its kernel: sizes, and the work of a thread on one block.

use crate::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sizes of what a kernel reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Size of a sample, in the middle of which the input must not end, in bytes.
    pub(super) sample_bytes: usize,
    /// Size of a unit, of which blocks are whole multiples except for the last one, in bytes.
    pub(super) unit_bytes: usize,
    /// Greatest size of the output for a unit, in bytes.
    pub(super) output_bytes: usize,
    /// Bytes of the input before a block that the kernel sees in front of it.
    pub(super) history_bytes: usize,
    /// True if zeros fill up the last block to whole units.
    pub(super) is_padded: bool,
    /// True if input buffers are passed on as output.
    pub(super) passes_on: bool,
    /// Greatest size of the output behind the last block, in bytes.
    pub(super) tail_bytes: usize,
}

/// Kernel and its threads.
pub(super) struct Plan {
    pub(super) layout: Layout,
    /// One worker a thread. A kernel whose blocks depend on each other has one, which gets them in order.
    pub(super) workers: Vec<Box<dyn Worker>>,
}

/// Kernel on one thread.
pub(super) trait Worker: Send {
    /// Computes a block, and returns the number of bytes of output. `input` is the history and the block. A kernel that
    /// passes its input on gets no output, and returns 0.
    ///
    /// # Errors
    /// Those of the kernel.
    fn run(&mut self, input: &[u8], output: &mut [u8], stop: &Stop) -> Result<usize, Error>;

    /// Returns the number of bytes of output behind the last block, of which this worker computed all.
    ///
    /// # Errors
    /// Those of the kernel.
    fn end(&mut self, _output: &mut [u8]) -> Result<usize, Error> {
        Ok(0)
    }
}

/// Request to end, which kernels look at every [`PIECE`] bytes or so: a session that is dropped waits no longer.
#[derive(Debug, Default)]
pub(super) struct Stop(AtomicBool);

/// Amount of input that a kernel computes between two looks at [`Stop`], in bytes.
pub(super) const PIECE: usize = 256 << 10;

impl Stop {
    pub(super) fn set(&self) {
        // Relaxed: nothing else is read because of it. Results of blocks that end early are not taken.
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
