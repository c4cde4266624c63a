//! `dontcache`: blocks go through a buffer, and the page cache keeps none that it did not have before
//! (RWF_DONTCACHE).

use super::{Job, Stop, does_not_go_along, reason};
use crate::end::{Reading, Writing};
use crate::look::DONTCACHE;
use crate::memory::Memory;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};

pub(super) fn run(job: &mut Job<'_>, from: &mut Reading, to: &mut Writing) -> Result<(), Stop> {
    let mut memory = job.take_memory()?;
    let outcome = blocks(job, from, to, &mut memory);
    job.memory = Some(memory);
    outcome
}

fn blocks(job: &mut Job<'_>, from: &mut Reading, to: &mut Writing, memory: &mut Memory) -> Result<(), Stop> {
    // If the source's file system does not accept the flag, the source is read without it.
    let mut how = DONTCACHE;
    while let Some(most) = job.next(from, to)? {
        let position = from.position.unwrap_or(0);
        let read =
            match rustix::io::preadv2(&*from, &mut [IoSliceMut::new(&mut memory[..most])], position, how) {
                Ok(0) => return Ok(job.nothing_came(from)?),
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) if does_not_go_along(error) && !how.is_empty() => {
                    how = ReadWriteFlags::empty();
                    continue;
                }
                Err(error) => return Err(from.failed(error).into()),
            };
        job.has_read(from, read);
        write_all(job, to, &memory[..read])?;
    }
    Ok(())
}

fn write_all(job: &mut Job<'_>, to: &mut Writing, mut block: &[u8]) -> Result<(), Stop> {
    while !block.is_empty() {
        let position = to.position.unwrap_or(0);
        match rustix::io::pwritev2(&*to, &[IoSlice::new(block)], position, DONTCACHE) {
            Ok(0) => return Err(to.failed(Errno::NOSPC).into()),
            Ok(written) => {
                to.advance(written as u64);
                job.has_written(written);
                block = &block[written..];
            }
            Err(Errno::INTR) => {}
            Err(error) if does_not_go_along(error) => {
                // The block has left the source, so it is written without the flag before the mover gives up.
                to.write_all(block, job.control)?;
                job.has_written(block.len());
                return Err(Stop::Unfit(reason(error)));
            }
            Err(error) => return Err(to.failed(error).into()),
        }
    }
    Ok(())
}
