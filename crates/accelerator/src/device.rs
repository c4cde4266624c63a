//! Interface of devices: memory, and sessions in which a kernel works on a stream of bytes.

use crate::error::Error;
use crate::kernel::Kernel;
use std::time::Duration;

/// Greatest size of an input buffer that can be asked for, in bytes.
const BLOCK_BYTES_MAX: usize = 1 << 30;
/// Greatest number of blocks in flight in each direction.
const BLOCKS_MAX: usize = 1024;
/// Greatest number of threads of a session.
const THREADS_MAX: usize = 4096;

/// Device that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Name of the device, as in `device=`.
    pub name: String,
    /// Name of the processor and its number of threads, or of the adapter, its driver and interface.
    pub description: String,
    /// True if the device computes on the processor: `cpu`, and graphics drivers in software.
    pub uses_processor: bool,
}

/// Processor or card that runs kernels.
pub trait Device: Send + Sync {
    /// Returns the name of the device, as in `device=cpu`.
    fn name(&self) -> String;

    /// Returns what the device is, for people: the processor's or adapter's name and driver.
    fn description(&self) -> String;

    /// Returns the number of bytes of the device's memory that buffers and scenes can use, as far as it is known.
    fn memory_bytes(&self) -> Option<u64>;

    /// Begins the work of a kernel on a stream of bytes.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a kernel or options that [`Kernel::check`] or [`SessionOptions::check`] refuses,
    /// [`Error::Unsupported`], [`Error::Memory`], [`Error::Lost`], and [`Error::Kernel`] for a kernel from a file.
    fn session(&self, kernel: &Kernel, options: &SessionOptions) -> Result<Session, Error>;
}

/// Sizes of a session.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Size of an input buffer, in bytes; rounded up to whole units of the kernel.
    pub block_bytes: usize,
    /// Number of blocks in flight in each direction, at least 2.
    pub blocks: usize,
    /// Threads of a device that is a processor; 0: as many as there are processors that this process may use.
    pub threads: usize,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions { block_bytes: 1 << 20, blocks: 4, threads: 0 }
    }
}

impl SessionOptions {
    /// Sets the size of an input buffer, in bytes.
    #[must_use]
    pub fn block_bytes(self, block_bytes: usize) -> SessionOptions {
        SessionOptions { block_bytes, ..self }
    }

    /// Sets the number of blocks in flight in each direction.
    #[must_use]
    pub fn blocks(self, blocks: usize) -> SessionOptions {
        SessionOptions { blocks, ..self }
    }

    /// Sets the number of threads of a device that is a processor.
    #[must_use]
    pub fn threads(self, threads: usize) -> SessionOptions {
        SessionOptions { threads, ..self }
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the value and the possible range.
    pub fn check(&self) -> Result<(), Error> {
        let refused = |name, value: usize, least: usize, greatest: usize| {
            Err(Error::Parameter(format!("{name} is {value}, but can be {least} to {greatest}")))
        };
        if !(1..=BLOCK_BYTES_MAX).contains(&self.block_bytes) {
            return refused("the size of a block in bytes", self.block_bytes, 1, BLOCK_BYTES_MAX);
        }
        if !(2..=BLOCKS_MAX).contains(&self.blocks) {
            return refused("the number of blocks in flight", self.blocks, 2, BLOCKS_MAX);
        }
        if self.threads > THREADS_MAX {
            return refused("the number of threads", self.threads, 0, THREADS_MAX);
        }
        Ok(())
    }
}

/// Kernel at work on one stream of bytes: the end where input goes in, and the end where output comes out.
///
/// Two threads may use the two ends at the same time. A single thread gives input until no buffer is free, and then takes
/// output, which frees one. Output comes in the order of the input.
pub struct Session {
    /// End for the input.
    pub input: Box<dyn SessionInput>,
    /// End for the output.
    pub output: Box<dyn SessionOutput>,
}

/// End of a session where input goes in. The caller fills [`SessionInput::buffer`], tells by [`SessionInput::submit`] how much,
/// and ends the input by [`SessionInput::finish`].
pub trait SessionInput: Send {
    /// Returns the free part of the buffer that is being filled, in the device's memory. While all buffers are in flight, waits
    /// for one at most `limit`; `None` if there is none then, and behind the end of the input.
    ///
    /// # Errors
    /// [`Error::Memory`], the error that ended the session, and [`Error::Closed`] if [`Session::output`] was dropped.
    fn buffer(&mut self, limit: Duration) -> Result<Option<&mut [u8]>, Error>;

    /// Tells that the first `bytes` of [`SessionInput::buffer`] are filled. A buffer that is full is given to the device, which
    /// computes while the caller goes on.
    ///
    /// # Errors
    /// [`Error::Input`] for more bytes than [`SessionInput::buffer`] has, and the error that ended the session.
    fn submit(&mut self, bytes: usize) -> Result<(), Error>;

    /// Ends the input: what is in the buffer is given to the device.
    ///
    /// # Errors
    /// [`Error::Input`] if the input ends in the middle of a sample, and the error that ended the session.
    fn finish(&mut self) -> Result<(), Error>;
}

/// End of a session where output comes out.
pub trait SessionOutput: Send {
    /// Goes on to the next finished output, waiting for it at most `limit`. The buffer of the one before is the session's
    /// again.
    ///
    /// # Errors
    /// The error that ended the session: [`Error::Lost`], [`Error::Input`], and those of the kernel; [`Error::Closed`] if
    /// [`Session::input`] was dropped before the input had ended.
    fn next(&mut self, limit: Duration) -> Result<Output, Error>;

    /// Returns the output that [`SessionOutput::next`] has gone on to, in the device's memory: at least one byte; empty if
    /// there is none.
    fn block(&self) -> &[u8];

    /// Returns what the session has done so far.
    fn statistics(&self) -> Statistics;
}

/// State of a session's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// There is an output: [`SessionOutput::block`].
    Block,
    /// Nothing is finished within the limit, or more input is needed first.
    None,
    /// All output was taken, and there will be no more.
    End,
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of input that were submitted.
    pub input_bytes: u64,
    /// Bytes of output that were taken.
    pub output_bytes: u64,
    /// Bytes that the processor copied between a buffer and memory in which the device computes.
    pub copied_bytes: u64,
    /// Blocks that the device has computed.
    pub blocks: u64,
    /// Time during which the device computed at least one block.
    pub busy: Duration,
    /// Greatest number of blocks that were in flight at a time: submitted, and not computed yet.
    pub in_flight_max: u64,
}
