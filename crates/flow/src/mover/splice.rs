//! `splice`: pages go through a pipe, from descriptor to descriptor (splice(2)).
//!
//! If one of the two ends is a pipe, the pages go through it directly; else the mover makes a pipe of its
//! own. Pages of a socket are passed on by reference and copied into a file. Pages of a file are sent to a
//! socket by reference, so that such a flow must allow data by reference.

use super::{Job, Stop, is_refusal, reason, stepwise};
use crate::block_buffer::BlockBuffer;
use crate::end::{DescriptorSink, DescriptorSource};
use crate::error::Error;
use crate::facts::Kind;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, splice};
use std::os::fd::OwnedFd;

pub(super) fn run(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    if from.kind == Kind::Pipe || to.kind == Kind::Pipe {
        return stepwise(job, from, to, |from, to, most| {
            let (mut read, mut written) = (from.position, to.position);
            splice(from, read.as_mut(), to, written.as_mut(), most, SpliceFlags::NONBLOCK)
        });
    }
    let mut pipe = match job.pipe.take() {
        Some(pipe) => pipe,
        None => Pipe::new(job.block)?,
    };
    let outcome = through(&mut pipe, job, from, to);
    job.pipe = Some(pipe).filter(|pipe| pipe.holds == 0);
    outcome
}

fn through(
    pipe: &mut Pipe,
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    job.block = job.block.min(pipe.room);
    while let Some(most) = job.next(from, to)? {
        from.wait_if_it_blocks(job.control)?;
        match pipe.fill(from, most) {
            Ok(0) => return Ok(job.check_end(from)?),
            Ok(bytes) => {
                job.record_read(from, bytes);
                pipe.drain(job, to)?;
            }
            Err(Errno::AGAIN) => from.wait(job.control)?,
            Err(Errno::INTR) => {}
            Err(error) if is_refusal(error) => return Err(Stop::Refused(reason(error))),
            Err(error) => return Err(from.failed(error).into()),
        }
    }
    Ok(())
}

/// A pipe of the flow's own between two ends that are not pipes.
pub(crate) struct Pipe {
    pub(crate) reader: OwnedFd,
    pub(crate) writer: OwnedFd,
    /// Capacity in bytes.
    pub(crate) room: usize,
    /// Bytes inside, taken from the source and not yet written.
    pub(crate) holds: usize,
}

impl Pipe {
    /// Creates a pipe with room for a block, or with the default capacity if the user may have no more.
    pub(crate) fn new(block: usize) -> Result<Pipe, Error> {
        let failed = |error: Errno| Error::io("make a pipe", error);
        let (reader, writer) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(failed)?;
        // The resize fails for a user with too many pipe buffers (pipe(7)), and the pipe keeps its size.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, block);
        let room = rustix::pipe::fcntl_getpipe_size(&writer).map_err(failed)?;
        Ok(Pipe { reader, writer, room, holds: 0 })
    }

    fn fill(&mut self, from: &DescriptorSource, most: usize) -> Result<usize, Errno> {
        let mut read = from.position;
        let bytes = splice(from, read.as_mut(), &self.writer, None, most, SpliceFlags::NONBLOCK)?;
        self.holds += bytes;
        Ok(bytes)
    }

    /// Moves everything in the pipe to the sink.
    fn drain(&mut self, job: &mut Job<'_>, to: &mut DescriptorSink) -> Result<(), Stop> {
        while self.holds > 0 {
            job.control.check()?;
            to.wait_if_it_blocks(job.control)?;
            let mut written = to.position;
            match splice(&self.reader, None, &*to, written.as_mut(), self.holds, SpliceFlags::NONBLOCK) {
                Ok(0) => return Err(to.failed(Errno::NOSPC).into()),
                Ok(bytes) => self.has_drained(job, to, bytes),
                Err(Errno::AGAIN) => to.wait(job.control)?,
                Err(Errno::INTR) => {}
                Err(error) if is_refusal(error) => {
                    self.drain_by_hand(job, to)?;
                    return Err(Stop::Refused(reason(error)));
                }
                Err(error) => return Err(to.failed(error).into()),
            }
        }
        Ok(())
    }

    fn has_drained(&mut self, job: &mut Job<'_>, to: &mut DescriptorSink, bytes: usize) {
        self.holds -= bytes;
        to.advance(bytes as u64);
        job.record_written(bytes);
    }

    /// Writes the content of the pipe to the sink by read and write, since these bytes have left the source
    /// and must not be lost when another mover takes over.
    fn drain_by_hand(&mut self, job: &mut Job<'_>, to: &mut DescriptorSink) -> Result<(), Stop> {
        let mut memory = BlockBuffer::new(self.room)?;
        while self.holds > 0 {
            let read = rustix::io::read(&self.reader, &mut memory[..])
                .map_err(|error| Error::io("read a pipe of this flow", error))?;
            to.write_all(&memory[..read], job.control)?;
            self.holds -= read;
            job.record_written(read);
        }
        Ok(())
    }
}
