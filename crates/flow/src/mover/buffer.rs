//! `buffer`: blocks are read into a buffer and written from it. Also moves data through stages, and between
//! ends that are not descriptors.

use super::{Job, Stop};
use crate::block_buffer::BlockBuffer;
use crate::block_io::Input;
use crate::end::{DescriptorSink, DescriptorSource, Sink, Source};
use crate::error::Error;
use crate::stage::{Chain, Demand};

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
    while let Some(most) = job.next(from, to)? {
        let block = Input::next(from, &mut memory[..most], job.control)?;
        let read = block.len();
        if read == 0 {
            return Ok(());
        }
        job.record_taken(read);
        to.write_all(block, job.control)?;
        job.record_written(read);
    }
    Ok(())
}

/// Limits and stages of a flow that moves block by block through its stages.
pub(crate) struct Blocks<'a, 'b> {
    pub(crate) job: &'a mut Job<'b>,
    pub(crate) chain: &'a mut Chain,
}

/// Moves all data from `from` through the stages to `to`.
///
/// # Errors
/// Those of the source, the stages and the sink.
pub(crate) fn through(blocks: &mut Blocks<'_, '_>, from: &mut Source, to: &mut Sink) -> Result<(), Error> {
    let Blocks { job, chain } = blocks;
    let mut memory = BlockBuffer::new(job.block)?;
    let control = job.control;
    while job.left > 0 {
        control.check()?;
        let mut most = job.left.min(job.block as u64);
        if let Some(limiter) = &mut job.rate_limiter {
            most = limiter.take(most, control)?;
        }
        let (read, passed) = match to.output().filled() {
            Some(filled) if chain.is_empty() && !from.input().has_memory() => {
                let memory = filled.memory(control)?;
                let most = (most as usize).min(memory.len());
                let read = from.input().next(&mut memory[..most], control)?.len();
                filled.put_filled(read)?;
                (read, Demand::More)
            }
            _ => {
                let block = from.input().next(&mut memory[..most as usize], control)?;
                let passed = match block {
                    [] => Demand::Enough,
                    block => chain.pass(block, control, to.output())?,
                };
                (block.len(), passed)
            }
        };
        job.left -= read as u64;
        job.record_written(read);
        if read == 0 || passed == Demand::Enough {
            break;
        }
    }
    chain.finish(control, to.output())
}
