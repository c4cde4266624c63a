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
    fn session(&self, kernel: &Kernel, options: &SessionOptions) -> Result<Box<dyn Session>, Error>;
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

/// Kernel at work on one stream of bytes.
///
/// The caller fills [`Session::input`], tells by [`Session::submit`] how much, and takes [`Session::output`] until it is
/// [`Output::End`]. Output comes in the order of the input.
pub trait Session: Send {
    /// Returns the free part of the buffer that is being filled, in the device's memory; `None` while all buffers are in
    /// flight, and behind the end of the input. The caller then takes output.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Memory`], and the error that ended the session.
    fn input(&mut self) -> Result<Option<&mut [u8]>, Error>;

    /// Tells that the first `bytes` of [`Session::input`] are filled. A buffer that is full is given to the device, which
    /// computes while the caller goes on.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Input`] for more bytes than [`Session::input`] has, and those of the kernel.
    fn submit(&mut self, bytes: usize) -> Result<(), Error>;

    /// Ends the input: what is in the buffer is given to the device.
    ///
    /// # Errors
    /// [`Error::Input`] if the input ends in the middle of a sample; those of [`Session::submit`].
    fn finish(&mut self) -> Result<(), Error>;

    /// Returns the next finished output, which is never empty, waiting for it at most `limit`. Its buffer is the session's
    /// again with the next call.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Input`], and those of the kernel.
    fn output(&mut self, limit: Duration) -> Result<Output<'_>, Error>;

    /// Returns what the session has done so far.
    fn statistics(&self) -> Statistics;
}

/// Next output of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Bytes in the device's memory.
    Block(&'a [u8]),
    /// Nothing is finished yet, or more input is needed first.
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
