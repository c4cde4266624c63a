//! The movers: mechanisms that move bytes between two descriptors, and their common loop.
//!
//! A mover gets the number of bytes to move next from the [`Job`], moves them, and reports how many it moved.
//! The job keeps limits, rates, holes, progress and cancellation. Invariant: whenever a mover stops, the
//! positions of both ends tell what has been moved, so that another mover can continue if the kernel refuses
//! this one. Called by [`crate::transfer`].

mod buffer;
mod copy_range;
mod direct;
mod dontcache;
mod reflink;
mod sendfile;
mod splice;
mod trial;
mod turns;
mod uring;
mod zerocopy;

use crate::block_buffer::BlockBuffer;
use crate::control::{Control, UNCANCELLABLE_WAIT_MAX};
use crate::end::{DescriptorSink, DescriptorSource};
use crate::error::Error;
use crate::facts::Kind;
use crate::movers::Mover;
use crate::rate_limiter::RateLimiter;
use crate::report::Counts;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::time::Instant;

pub(crate) use buffer::{Blocks, through};
pub(crate) use splice::Pipe;
pub(crate) use turns::{RaceResult, run as take_turns};

/// Reason why a mover stopped before the end of the data.
pub(crate) enum Stop {
    /// The kernel refuses this mover for these ends; another mover may continue.
    Refused(String),
    /// The flow has failed with this error.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// Data that a mover has to move: limits, options and progress.
pub(crate) struct Job<'a> {
    pub(crate) control: &'a Control,
    pub(crate) counts: &'a mut Counts,
    /// Block size in bytes.
    pub(crate) block: usize,
    /// Bytes that may still be taken from the source.
    pub(crate) left: u64,
    /// Bytes that this mover may still take in its current turn; `u64::MAX` without turns.
    pub(crate) turn: u64,
    pub(crate) rate_limiter: Option<RateLimiter>,
    /// True if holes of the source are skipped in the sink.
    pub(crate) keeps_holes: bool,
    /// True if the bytes moved here count as the flow's progress.
    pub(crate) is_progress: bool,
    /// True if the user forced this mover, so that no other one takes over.
    pub(crate) is_forced: bool,
    /// Offset of the end of the data extent that contains the source's position; valid only with
    /// `keeps_holes`.
    pub(crate) data_until: u64,
    /// Populated buffer of a mover whose turn has ended, for the next mover.
    pub(crate) buffer: Option<BlockBuffer>,
    /// Empty pipe of a mover whose turn has ended, for the next mover.
    pub(crate) pipe: Option<Pipe>,
}

impl Job<'_> {
    /// Returns how many bytes to move next at the two positions, at most one block; `None` at the end of the
    /// data, the limit or the turn. Skips a hole first, and waits as the rate demands.
    ///
    /// # Errors
    /// [`Error::Io`] with ENOSPC if the sink is full, or if a seek or the punching of a hole fails;
    /// [`Error::Cancelled`] if the flow is cancelled.
    pub(crate) fn next(
        &mut self,
        from: &mut DescriptorSource,
        to: &mut DescriptorSink,
    ) -> Result<Option<usize>, Error> {
        self.next_at_most(from, to, self.block)
    }

    /// Like [`Job::next`], but returns at most `most` bytes instead of one block.
    pub(crate) fn next_at_most(
        &mut self,
        from: &mut DescriptorSource,
        to: &mut DescriptorSink,
        most: usize,
    ) -> Result<Option<usize>, Error> {
        self.control.check()?;
        if self.keeps_holes {
            self.skip_hole(from, to)?;
        }
        let mut most = self.left.min(self.turn).min(most as u64).min(from.left().unwrap_or(u64::MAX));
        if self.keeps_holes
            && let Some(position) = from.position
        {
            most = most.min(self.data_until.saturating_sub(position));
        }
        if most == 0 {
            return Ok(None);
        }
        if let (Some(end), Some(position)) = (to.end, to.position) {
            match end.saturating_sub(position) {
                0 => return Err(to.failed(Errno::NOSPC)),
                room => most = most.min(room),
            }
        }
        if let Some(limiter) = &mut self.rate_limiter {
            most = limiter.take(most, self.control)?;
        }
        Ok(Some(most as usize))
    }

    /// Records that `bytes` bytes have been moved from the source to the sink.
    pub(crate) fn record_moved(
        &mut self,
        from: &mut DescriptorSource,
        to: &mut DescriptorSink,
        bytes: usize,
    ) {
        self.record_read(from, bytes);
        to.advance(bytes as u64);
        self.record_written(bytes);
    }

    /// Records that `bytes` bytes have been taken from the source and are on their way.
    pub(crate) fn record_read(&mut self, from: &mut DescriptorSource, bytes: usize) {
        from.advance(bytes as u64);
        self.record_taken(bytes);
    }

    /// Like [`Job::record_read`], but for a source that has advanced its own position.
    fn record_taken(&mut self, bytes: usize) {
        self.left -= (bytes as u64).min(self.left);
        self.turn -= (bytes as u64).min(self.turn);
    }

    /// Returns a buffer of at least one block. The mover stores it in [`Job::buffer`] when it stops.
    fn take_buffer(&mut self) -> Result<BlockBuffer, Error> {
        match self.buffer.take().filter(|memory| memory.len() >= self.block) {
            Some(memory) => Ok(memory),
            None => BlockBuffer::new(self.block),
        }
    }

    /// Records that `bytes` bytes have been written to the sink.
    pub(crate) fn record_written(&mut self, bytes: usize) {
        self.counts.bytes += bytes as u64;
        if self.is_progress {
            self.control.add_moved(bytes as u64);
        }
    }

    /// Skips the hole at the source's position, if there is one, and finds the end of the data behind it.
    fn skip_hole(&mut self, from: &mut DescriptorSource, to: &mut DescriptorSink) -> Result<(), Error> {
        let (Some(position), Some(end)) = (from.position, from.end) else { return Ok(()) };
        if position < self.data_until || position >= end {
            return Ok(());
        }
        let data = match rustix::fs::seek(&from.descriptor, SeekFrom::Data(position)) {
            Ok(data) => data.min(end),
            Err(Errno::NXIO) => end,
            Err(error) => return Err(from.failed(error)),
        };
        let hole = (data - position).min(self.left);
        if hole > 0 {
            if !to.make_hole(hole)? {
                // The sink cannot make a hole here, so the hole's zeros are copied as data.
                self.data_until = position + hole;
                return Ok(());
            }
            from.advance(hole);
            self.left -= hole;
            self.counts.holes += hole;
            if self.is_progress {
                self.control.add_moved(hole);
            }
        }
        self.data_until = match data < end {
            true => rustix::fs::seek(&from.descriptor, SeekFrom::Hole(data))
                .map_err(|error| from.failed(error))?,
            false => end,
        };
        Ok(())
    }

    /// Decides what an empty read means. Errors are those of [`DescriptorSource::has_ended`].
    fn check_end(&self, from: &DescriptorSource) -> Result<(), Error> {
        from.has_ended()
    }
}

/// Moves all data by calls of `step`, which moves at most the given number of bytes between the two
/// positions.
fn stepwise(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
    mut step: impl FnMut(&DescriptorSource, &DescriptorSink, usize) -> Result<usize, Errno>,
) -> Result<(), Stop> {
    while let Some(most) = job.next(from, to)? {
        match step(from, to, most) {
            Ok(0) => return Ok(job.check_end(from)?),
            Ok(bytes) => job.record_moved(from, to, bytes),
            Err(Errno::AGAIN) => wait_for_both(job, from, to)?,
            Err(Errno::INTR) => {}
            Err(error) if is_refusal(error) => return Err(Stop::Refused(reason(error))),
            Err(error) => return Err(failed(from, to, error).into()),
        }
    }
    Ok(())
}

/// Waits until the source has data and the sink has room, for those of the two that are streams.
fn wait_for_both(job: &Job<'_>, from: &DescriptorSource, to: &DescriptorSink) -> Result<(), Error> {
    if from.kind.is_stream() {
        from.wait(job.control)?;
    }
    if to.kind.is_stream() {
        to.wait(job.control)?;
    }
    Ok(())
}

/// Returns true for errors by which the kernel refuses a call for these two descriptors, as opposed to a
/// failure.
fn is_refusal(error: Errno) -> bool {
    matches!(
        error,
        Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF | Errno::TXTBSY
    )
}

fn reason(error: Errno) -> String {
    format!("the kernel said: {}", std::io::Error::from(error))
}

/// Creates the error of a call that involved both ends, and names the sink if the error concerns the sink.
fn failed(from: &DescriptorSource, to: &DescriptorSink, error: Errno) -> Error {
    match error {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::PIPE | Errno::ROFS => to.failed(error),
        _ => Error::io(format!("move data from {} to {}", from.name, to.name), error),
    }
}

/// Moves all data of the job by `mover`.
///
/// # Errors
/// [`Stop::Refused`] if the kernel refuses the mover, [`Stop::Failed`] if the flow fails.
pub(crate) fn run(
    mover: Mover,
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    match mover {
        Mover::Reflink => reflink::run(job, from, to),
        Mover::CopyRange => copy_range::run(job, from, to),
        Mover::Sendfile => sendfile::run(job, from, to),
        Mover::Splice => splice::run(job, from, to),
        Mover::Buffer => buffer::run(job, from, to),
        Mover::Dontcache => dontcache::run(job, from, to),
        Mover::Direct => direct::run(job, from, to),
        Mover::Uring => uring::run(job, from, to),
        Mover::Zerocopy => zerocopy::run(job, from, to),
        Mover::Single | Mover::Batch | Mover::Offload | Mover::Ring | Mover::Xdp | Mover::XdpRedirect => {
            Err(Stop::Refused("it moves datagrams".into()))
        }
    }
}

/// Returns the number of times that the processor copies each byte on its way.
pub(crate) fn copies(mover: Mover, from: Kind, to: Kind) -> u32 {
    let (from_storage, to_storage) = (from.is_storage(), to.is_storage());
    match mover {
        Mover::Reflink | Mover::XdpRedirect => 0,
        // In copy mode: into the shared memory, through this process, and out of the shared memory. A driver
        // in zero-copy mode makes fewer copies.
        Mover::Xdp => 3,
        // Pages are passed by reference, except into a page cache, where they are copied.
        Mover::Splice | Mover::Sendfile => u32::from(to_storage),
        Mover::CopyRange => 1,
        Mover::Zerocopy => u32::from(from_storage),
        // Into the memory of the accelerator, or out of it.
        _ if from == Kind::Accelerator || to == Kind::Accelerator => 1,
        _ => 2,
    }
}

/// Greatest size of all buffers of a mover together, in bytes.
const BUFFERS_BYTES_MAX: usize = 16 << 20;

/// Returns how many block buffers a mover gets that would like `wanted`: at least two, so that a read and a
/// write overlap.
fn buffers(wanted: usize, block: usize) -> usize {
    (BUFFERS_BYTES_MAX / block.max(1)).clamp(2, wanted)
}

/// Returns the deadline of a wait that cannot be cancelled, [`UNCANCELLABLE_WAIT_MAX`] from now.
fn soon() -> Instant {
    Instant::now() + UNCANCELLABLE_WAIT_MAX
}

/// Treats an interrupted or refused submission as success: its entries stay queued and are submitted next
/// time.
fn submitted_later(error: std::io::Error) -> std::io::Result<usize> {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(0),
        _ => Err(error),
    }
}
