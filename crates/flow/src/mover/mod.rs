//! The ways to move bytes between two descriptors, and what they have in common.
//!
//! A mover asks the [`Job`] how much to move next, moves it, and says how much it was. Limits, pacing, holes, progress
//! and cancelling are the job's. Invariant: at every moment the positions of both ends say what has been moved, so that
//! another mover can go on where one finds that the kernel does not go along. Called by [`crate::segment`].

mod buffer;
mod copy_range;
mod direct;
mod dontcache;
mod race;
mod reflink;
mod sendfile;
mod splice;
mod turns;
mod uring;
mod zerocopy;

use crate::control::{Control, TURN};
use crate::end::{Reading, Writing};
use crate::error::Error;
use crate::facts::Kind;
use crate::memory::Memory;
use crate::pace::Pace;
use crate::plan::Mover;
use crate::report::Counts;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::time::Instant;

pub(crate) use buffer::{Blocks, through};
pub(crate) use splice::Pipe;
pub(crate) use turns::{Raced, run as take_turns};

/// Why a mover stopped.
pub(crate) enum Stop {
    /// The kernel does not go along: another one may go on.
    Unfit(String),
    /// The flow has failed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// What is to be moved, and how far that is.
pub(crate) struct Job<'a> {
    pub(crate) control: &'a Control,
    pub(crate) counts: &'a mut Counts,
    /// Bytes of a block.
    pub(crate) block: usize,
    /// Bytes that may still pass.
    pub(crate) left: u64,
    /// Bytes of those that this mover may move before it is another's turn.
    pub(crate) turn: u64,
    pub(crate) pace: Option<Pace>,
    /// Whether holes of the source are left out.
    pub(crate) keeps_holes: bool,
    /// Whether what is moved here is the flow's progress.
    pub(crate) is_progress: bool,
    /// Whether this mover was asked for, and no other one takes over.
    pub(crate) is_forced: bool,
    /// Where the data ends that the source's position is in.
    pub(crate) data_until: u64,
    /// A buffer of a mover that has had its turn, warm for the next one.
    pub(crate) memory: Option<Memory>,
    /// A pipe of a mover that has had its turn, with nothing in it.
    pub(crate) pipe: Option<Pipe>,
}

impl Job<'_> {
    /// How much to move next, at the positions of the two; none at the end.
    pub(crate) fn next(&mut self, from: &mut Reading, to: &mut Writing) -> Result<Option<usize>, Error> {
        self.next_at_most(from, to, self.block)
    }

    /// As [`Job::next`], but a block may be that large.
    pub(crate) fn next_at_most(
        &mut self,
        from: &mut Reading,
        to: &mut Writing,
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
        if let Some(pace) = &mut self.pace {
            most = pace.take(most, self.control)?;
        }
        Ok(Some(most as usize))
    }

    /// So many bytes have been moved.
    pub(crate) fn moved(&mut self, from: &mut Reading, to: &mut Writing, bytes: usize) {
        self.has_read(from, bytes);
        to.advance(bytes as u64);
        self.has_written(bytes);
    }

    /// So many bytes have been taken from the source, and are on their way.
    pub(crate) fn has_read(&mut self, from: &mut Reading, bytes: usize) {
        from.advance(bytes as u64);
        self.has_taken(bytes);
    }

    /// As [`Job::has_read`], of a source that has noted it itself.
    fn has_taken(&mut self, bytes: usize) {
        self.left -= (bytes as u64).min(self.left);
        self.turn -= (bytes as u64).min(self.turn);
    }

    /// A buffer of a block, which is to be given back into [`Job::memory`].
    fn take_memory(&mut self) -> Result<Memory, Error> {
        match self.memory.take().filter(|memory| memory.len() >= self.block) {
            Some(memory) => Ok(memory),
            None => Memory::new(self.block),
        }
    }

    /// So many of those have arrived.
    pub(crate) fn has_written(&mut self, bytes: usize) {
        self.counts.bytes += bytes as u64;
        if self.is_progress {
            self.control.note(bytes as u64);
        }
    }

    /// Passes over the hole that the source's position is in.
    fn skip_hole(&mut self, from: &mut Reading, to: &mut Writing) -> Result<(), Error> {
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
                // Its zeros are written.
                self.data_until = position + hole;
                return Ok(());
            }
            from.advance(hole);
            self.left -= hole;
            self.counts.holes += hole;
            if self.is_progress {
                self.control.note(hole);
            }
        }
        self.data_until = match data < end {
            true => rustix::fs::seek(&from.descriptor, SeekFrom::Hole(data))
                .map_err(|error| from.failed(error))?,
            false => end,
        };
        Ok(())
    }

    /// Decides what an empty read means, as [`Reading::has_ended`].
    fn nothing_came(&self, from: &Reading) -> Result<(), Error> {
        from.has_ended()
    }
}

/// Moves by `step`, which moves at most so many bytes from the one's position to the other's, in one call.
fn stepwise(
    job: &mut Job<'_>,
    from: &mut Reading,
    to: &mut Writing,
    mut step: impl FnMut(&Reading, &Writing, usize) -> Result<usize, Errno>,
) -> Result<(), Stop> {
    while let Some(most) = job.next(from, to)? {
        match step(from, to, most) {
            Ok(0) => return Ok(job.nothing_came(from)?),
            Ok(bytes) => job.moved(from, to, bytes),
            Err(Errno::AGAIN) => wait_for_both(job, from, to)?,
            Err(Errno::INTR) => {}
            Err(error) if does_not_go_along(error) => return Err(Stop::Unfit(reason(error))),
            Err(error) => return Err(failed(from, to, error).into()),
        }
    }
    Ok(())
}

/// Waits until the one has something and the other takes something.
fn wait_for_both(job: &Job<'_>, from: &Reading, to: &Writing) -> Result<(), Error> {
    if from.kind.is_stream() {
        from.wait(job.control)?;
    }
    if to.kind.is_stream() {
        to.wait(job.control)?;
    }
    Ok(())
}

/// What the kernel says when a call is not for these two, as against one that has failed.
fn does_not_go_along(error: Errno) -> bool {
    matches!(
        error,
        Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF | Errno::TXTBSY
    )
}

fn reason(error: Errno) -> String {
    format!("the kernel said: {}", std::io::Error::from(error))
}

/// One call had both ends in it, and failed.
fn failed(from: &Reading, to: &Writing, error: Errno) -> Error {
    match error {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::PIPE | Errno::ROFS => to.failed(error),
        _ => Error::io(format!("move data from {} to {}", from.name, to.name), error),
    }
}

/// Moves everything by `mover`.
pub(crate) fn run(mover: Mover, job: &mut Job<'_>, from: &mut Reading, to: &mut Writing) -> Result<(), Stop> {
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
            Err(Stop::Unfit("it moves datagrams".into()))
        }
    }
}

/// How often the processor copies each byte on the way: what the movers are about.
pub(crate) fn copies(mover: Mover, from: Kind, to: Kind) -> u32 {
    let (from_storage, to_storage) = (from.is_storage(), to.is_storage());
    match mover {
        Mover::Reflink | Mover::XdpRedirect => 0,
        // Into our memory, there, and out of it, unless the driver uses it itself.
        Mover::Xdp => 3,
        // Pages are handed on; only into a page cache they are copied.
        Mover::Splice | Mover::Sendfile => u32::from(to_storage),
        Mover::CopyRange => 1,
        Mover::Zerocopy => u32::from(from_storage),
        _ => 2,
    }
}

/// A flow's buffers have at most so many bytes in all.
const BUFFERS_BYTES_MAX: usize = 16 << 20;

/// How many buffers of a block a mover gets that would like to have `wanted`; two at least, so that it is no mere copy.
fn buffers(wanted: usize, block: usize) -> usize {
    (BUFFERS_BYTES_MAX / block.max(1)).clamp(2, wanted)
}

/// The time until which a wait that cannot be cancelled may last.
fn soon() -> Instant {
    Instant::now() + TURN
}
