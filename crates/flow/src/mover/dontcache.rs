//! `dontcache`: blocks go through a buffer, and the page cache keeps none that it did not have before
//! (RWF_DONTCACHE).

use super::{Job, Stop, is_refusal, reason};
use crate::block_buffer::BlockBuffer;
use crate::end::{DescriptorSink, DescriptorSource};
use crate::sys::DONTCACHE;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};

pub(super) fn run(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    let mut memory = job.take_buffer()?;
    let outcome = blocks(job, from, to, &mut memory);
    job.buffer = Some(memory);
    outcome
}

fn blocks(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
    memory: &mut BlockBuffer,
) -> Result<(), Stop> {
    // If the source's file system does not accept the flag, the source is read without it.
    let mut how = DONTCACHE;
    while let Some(most) = job.next(from, to)? {
        let position = from.position.unwrap_or(0);
        let read =
            match rustix::io::preadv2(&*from, &mut [IoSliceMut::new(&mut memory[..most])], position, how) {
                Ok(0) => return Ok(job.check_end(from)?),
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) if is_refusal(error) && !how.is_empty() => {
                    how = ReadWriteFlags::empty();
                    continue;
                }
                Err(error) => return Err(from.failed(error).into()),
            };
        job.record_read(from, read);
        write_all(job, to, &memory[..read])?;
    }
    Ok(())
}

fn write_all(job: &mut Job<'_>, to: &mut DescriptorSink, mut block: &[u8]) -> Result<(), Stop> {
    while !block.is_empty() {
        let position = to.position.unwrap_or(0);
        match rustix::io::pwritev2(&*to, &[IoSlice::new(block)], position, DONTCACHE) {
            Ok(0) => return Err(to.failed(Errno::NOSPC).into()),
            Ok(written) => {
                to.advance(written as u64);
                job.record_written(written);
                block = &block[written..];
            }
            Err(Errno::INTR) => {}
            Err(error) if is_refusal(error) => {
                // The block has left the source, so it is written without the flag before the mover gives up.
                to.write_all(block, job.control)?;
                job.record_written(block.len());
                return Err(Stop::Refused(reason(error)));
            }
            Err(error) => return Err(to.failed(error).into()),
        }
    }
    Ok(())
}
