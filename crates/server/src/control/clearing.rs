//! Clearing of blocks that volumes have given up, before other volumes get them. Called by the administrator's thread,
//! and by those that allocate blocks of thin volumes.
//!
//! Invariant: blocks are reported to the store as cleared by the thread that has cleared them, and by no other meanwhile.

use crate::control::refusal::refusal_from;
use crate::control::{DeviceFacts, SharedState};
use crate::core::cores::FIRST;
use crate::core::order::{Chunk, CoreOrder};
use bywash_device::{ReplacedContents, SpareChunk};
use bywash_protocol::layout::Status;
use bywash_protocol::{Refusal, RefusalKind};
use bywash_volume::{Blocks, Bytes, Extent};
use std::sync::PoisonError;

/// Greatest number of extents that one call of [`clear_some`] clears.
const EXTENTS_PER_CLEAR: usize = 64;

/// Clears some of the blocks that belong to no volume and may contain a former owner's data: `most` at most.
pub(super) fn clear_some(
    shared: &SharedState,
    device: &str,
    facts: &DeviceFacts,
    most: Blocks,
) -> Result<(), Refusal> {
    let block = shared.store.device(device).map_err(refusal_from)?.block;
    let mut left = most;
    for _ in 0..EXTENTS_PER_CLEAR {
        // A thread that panicked has reported nothing as cleared.
        let _alone = shared.clearing.lock().unwrap_or_else(PoisonError::into_inner);
        let first = shared.store.to_clear(device, 1).map_err(refusal_from)?.first().copied();
        let Some(extent) = first.filter(|_| left.0 > 0) else { return Ok(()) };
        let extent = Extent { length: extent.length.min(left), ..extent };
        left.0 -= extent.length.0;
        let Some(span) = block.span(extent) else { continue };
        match facts.chunk_bytes {
            Some(chunk_bytes) if block.size() == Bytes(chunk_bytes) => {
                for number in extent.start.0..extent.start.0 + extent.length.0 {
                    let chunk = Chunk { device: facts.number, number: number as usize };
                    replace_chunk(shared, chunk, ReplacedContents::Zeroed)?;
                }
            }
            _ => {
                let cleared = |reply| CoreOrder::Clear { device: facts.number, span, reply };
                match shared.cores.ask(FIRST, cleared)? {
                    Status::Success => {}
                    status => {
                        let message = format!("device '{device}' cannot be cleared: {status:?}");
                        return Err(Refusal::new(RefusalKind::Failed, message));
                    }
                }
            }
        }
        shared.store.cleared(device, extent).map_err(refusal_from)?;
    }
    Ok(())
}

/// Replaces a chunk's memory by memory that no client has mapped. This thread allocates the memory; the core
/// only exchanges it.
pub(super) fn replace_chunk(
    shared: &SharedState,
    chunk: Chunk,
    keep: ReplacedContents,
) -> Result<(), Refusal> {
    let replace = || {
        let shape = shared.cores.ask(FIRST, |reply| CoreOrder::Shape { chunk, reply })?;
        let spare = SpareChunk::new(shape).map_err(|error| Refusal::new(RefusalKind::Failed, error))?;
        let replaced = shared.cores.ask(FIRST, |reply| CoreOrder::Replace { chunk, keep, spare, reply })?;
        replaced.map(drop).map_err(|error| Refusal::new(RefusalKind::Failed, error))
    };
    replace().map_err(|refused: Refusal| {
        // A client that has the chunk mapped still shares it: the chunk must be replaced later.
        shared.registry.lock().note_mapped(chunk.device, chunk.number..chunk.number + 1);
        let message = format!("memory cannot be taken out of a client's reach: {}", refused.message);
        Refusal::new(refused.code, message)
    })
}
