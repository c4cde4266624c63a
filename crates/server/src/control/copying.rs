//! Copies of clusters that a thin volume has together with snapshots and clones, before a request writes them.
//!
//! ```text
//!   choose blocks to be cleared ──► no request to them is left ──► core: read, write, flush ──► store ──► maps of all grants
//!                                                                                              └── one step for all who ──┘
//!                                                                                                  choose blocks
//! ```
//!
//! Reads go on meanwhile, from the blocks that are copied. A crash at any moment leaves the volume with the old blocks or
//! with the copy, which have the same contents: the copy is durable before the store knows of it. Blocks that are copied do
//! not change: nobody may write them.
//!
//! Called by the change of a volume's map ([`super::thin`]), on threads of the users whose requests wait.

use crate::control::clearing::{DRAINING_LIMIT, DrainError, WrittenExtents, drain};
use crate::control::maps::{Failure, give_map};
use crate::control::room::make_room;
use crate::control::{DeviceFacts, SharedState};
use crate::core::copy::CopyMemory;
use crate::core::cores::FIRST;
use crate::core::order::CoreOrder;
use bywash_protocol::layout::Status;
use bywash_protocol::{Refusal, RefusalKind};
use bywash_volume::{BlockCopy, ByteRange, Bytes, CopyRoom, Extent, Volume};
use std::sync::Arc;

/// Greatest size of what is copied before the store is changed, in bytes; one cluster at least is copied.
const COPIED_MAX: u64 = 16 << 20;
/// Greatest size of what is copied at a time, in bytes: the memory that a change of a map takes.
const PIECE_MAX: u64 = 1 << 20;

/// Copies all clusters that `ranges` of a volume's blocks touch and that other volumes have, too. Returns the number of
/// bytes that were copied.
pub(super) fn copy_shared(shared: &SharedState, found: &Volume, ranges: &[Extent]) -> Result<u64, Failure> {
    let facts = shared.registry.lock().device(&found.device).cloned().map_err(Failure::Refused)?;
    let (mut memory, mut copied) = (None, 0);
    loop {
        let (copies, written) = match choose(shared, found, &facts, ranges) {
            Err(Failure::Store(error)) => {
                make_room(shared, found, error)?;
                continue;
            }
            chosen => chosen?,
        };
        if copies.is_empty() {
            return Ok(copied);
        }
        let spans: Vec<(ByteRange, ByteRange)> = copies
            .iter()
            .filter_map(|copy| found.block.span(copy.from).zip(found.block.span(copy.to)))
            .collect();
        let bytes = spans.iter().map(|(from, _)| from.length.0).sum::<u64>();
        let memory = match &memory {
            Some(memory) => memory,
            None => memory.insert(Arc::new(new_memory(bytes.min(PIECE_MAX))?)),
        };
        if let Err(failure) = copy_all(shared, &facts, &spans, memory) {
            let to = spans.iter().map(|(_, to)| *to).collect();
            written.end_when_drained(shared, facts.number, to);
            return Err(failure);
        }
        let choosing = shared.spare.choose();
        let device = shared.store.copied(found.id, &copies)?;
        give_map(shared, found.id)?;
        drop((choosing, written));
        shared.shortages.tell_allocated(&device);
        copied += bytes;
    }
}

/// Chooses blocks for the next copies.
fn choose(
    shared: &SharedState,
    found: &Volume,
    facts: &DeviceFacts,
    ranges: &[Extent],
) -> Result<(Vec<BlockCopy>, WrittenExtents), Failure> {
    let _choosing = shared.spare.choose();
    let taken = shared.spare.written(&found.device);
    let room = CopyRoom {
        most: found.block.blocks_floor(Bytes(COPIED_MAX)),
        taken: &taken,
        // Memory that is to be cleared may still be mapped by a client.
        only_free: facts.chunk_bytes.is_some(),
    };
    let copies = shared.store.plan_copies(found.id, ranges, room)?;
    let to = copies.iter().map(|copy| copy.to).collect();
    Ok((copies, shared.spare.write(&found.device, to)))
}

fn new_memory(bytes: u64) -> Result<CopyMemory, Failure> {
    let failed = |error| {
        let message = format!("there is no memory for copying blocks: {error}");
        Failure::Refused(Refusal::new(RefusalKind::Failed, message))
    };
    CopyMemory::new(bytes as usize).map_err(failed)
}

/// Copies ranges of a device, durably.
fn copy_all(
    shared: &SharedState,
    facts: &DeviceFacts,
    spans: &[(ByteRange, ByteRange)],
    memory: &Arc<CopyMemory>,
) -> Result<(), Failure> {
    let device = facts.number;
    let to: Vec<ByteRange> = spans.iter().map(|(_, to)| *to).collect();
    drain(shared, DRAINING_LIMIT, |reply| CoreOrder::Drain { device, spans: to.clone(), reply }).map_err(
        |error| match error {
            DrainError::Busy => Failure::Busy,
            DrainError::Stopped => Failure::Stopped,
        },
    )?;
    let done = |status| match status {
        Status::Success => Ok(()),
        status => Err(Failure::Device(status)),
    };
    for (from, to) in spans {
        for at in (0..from.length.0).step_by(memory.bytes()) {
            let length = (from.length.0 - at).min(memory.bytes() as u64);
            let (from, to) = (ByteRange::new(from.start.0 + at, length), Bytes(to.start.0 + at));
            let memory = memory.clone();
            done(shared.cores.ask(FIRST, |reply| CoreOrder::Copy { device, from, to, memory, reply })?)?;
        }
    }
    done(shared.cores.ask(FIRST, |reply| CoreOrder::Flush { device, reply })?)
}
