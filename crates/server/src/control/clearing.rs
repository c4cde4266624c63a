//! Blocks that belong to no volume and may contain a former owner's data: they are cleared before other volumes get them, or
//! get the copy of a shared cluster. Called by the administrator's thread, and by those that change maps of thin volumes.
//!
//! Invariant: such blocks are written by one thread at a time ([`SpareBlocks`]), which alone reports to the store what has
//! become of them. They are written when no request to them is left, and count as being written until their commands have
//! ended, even if a stuck device completes them after the thread has given up. So what was cleared or copied late lands in
//! no volume that has got the blocks meanwhile.

use crate::control::refusal::refusal_from;
use crate::control::{DeviceFacts, SharedState};
use crate::core::cores::FIRST;
use crate::core::order::{Chunk, CoreOrder, CoreStopped, OnDone};
use bywash_device::{ReplacedContents, SpareChunk};
use bywash_protocol::layout::Status;
use bywash_protocol::{Refusal, RefusalKind};
use bywash_volume::{Blocks, ByteRange, Bytes, DeviceNumber, Error, Extent};
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Greatest number of extents that one call of [`clear_some`] clears.
const EXTENTS_PER_CLEAR: usize = 64;
/// Greatest time to wait until no request to blocks is left that are released or written.
pub(super) const DRAINING_LIMIT: Duration = Duration::from_secs(60);
/// Greatest time to wait for blocks that other threads are writing.
const WRITTEN_LIMIT: Duration = Duration::from_secs(60);

/// Blocks to be cleared that threads of the server are writing.
#[derive(Debug, Default)]
pub(crate) struct SpareBlocks {
    /// Held while a thread chooses blocks to write, and from the commit by which a volume gives blocks up that its grants
    /// still reach, until the core has been sent their new maps: whoever drains chosen blocks drains them by those maps.
    choice: Mutex<()>,
    written: Mutex<WrittenBlocks>,
    /// Signalled when a thread has ended writing.
    released: Condvar,
}

#[derive(Debug, Default)]
struct WrittenBlocks {
    /// Device and extents of each [`WrittenExtents`], by its number.
    all: BTreeMap<u64, (String, Vec<Extent>)>,
    /// Number of the last one.
    last: u64,
}

/// Extents of a device that nobody else writes until this is dropped.
#[derive(Debug)]
pub(super) struct WrittenExtents {
    spare: Arc<SpareBlocks>,
    number: u64,
}

impl SpareBlocks {
    /// Lets no other thread choose blocks until the guard is dropped.
    pub(super) fn choose(&self) -> MutexGuard<'_, ()> {
        // The lock protects no data.
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, WrittenBlocks> {
        // A thread that panicked has left no change half done: each change is one step.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the extents of a device that are being written. What the store tells afterwards, while nobody else chooses,
    /// to be cleared, and is in none of them, is nobody's.
    pub(super) fn written(&self, device: &str) -> Vec<Extent> {
        let written = self.lock();
        let of_device = written.all.values().filter(|(name, _)| name == device);
        of_device.flat_map(|(_, extents)| extents.iter().copied()).collect()
    }

    /// Notes that extents are being written from now on.
    pub(super) fn write(self: &Arc<Self>, device: &str, extents: Vec<Extent>) -> WrittenExtents {
        let mut written = self.lock();
        written.last += 1;
        let number = written.last;
        written.all.insert(number, (device.to_owned(), extents));
        WrittenExtents { spare: self.clone(), number }
    }

    /// Waits until blocks of a device are not written any more, or until a time. Returns false if none were.
    fn wait(&self, device: &str, until: Instant) -> bool {
        let written = self.lock();
        if !written.all.values().any(|(name, _)| name == device) {
            return false;
        }
        let (last, count) = (written.last, written.all.len());
        let left = until.saturating_duration_since(Instant::now());
        let is_same = |now: &mut WrittenBlocks| (now.last, now.all.len()) == (last, count);
        drop(self.released.wait_timeout_while(written, left, is_same));
        true
    }
}

impl WrittenExtents {
    /// Ends the writing when no request to these ranges of a device is left, whenever that is: a stuck device may still
    /// write them.
    pub(super) fn end_when_drained(self, shared: &SharedState, device: DeviceNumber, spans: Vec<ByteRange>) {
        let all = OnDone::new(move |_: Vec<()>| drop(self));
        let drain = |_, reply| CoreOrder::Drain { device, spans: spans.clone(), reply };
        // The send fails only if a core has stopped. The store is closed then, too.
        let _ = shared.cores.send_all(drain, all);
    }
}

impl Drop for WrittenExtents {
    fn drop(&mut self) {
        self.spare.lock().all.remove(&self.number);
        self.spare.released.notify_all();
    }
}

/// Reason why some requests are not known to have ended.
#[derive(Debug)]
pub(super) enum DrainError {
    /// Some of them are still in flight.
    Busy,
    Stopped,
}

impl From<CoreStopped> for DrainError {
    fn from(_: CoreStopped) -> DrainError {
        DrainError::Stopped
    }
}

/// Has all cores wait until some requests have ended, up to `limit`.
pub(super) fn drain(
    shared: &SharedState,
    limit: Duration,
    order: impl Fn(OnDone<()>) -> CoreOrder,
) -> Result<(), DrainError> {
    let (sender, drained) = channel();
    let all = OnDone::new(move |_: Vec<()>| {
        // The send fails only if the receiver has timed out and no longer waits.
        let _ = sender.send(());
    });
    shared.cores.send_all(|_, reply| order(reply), all)?;
    match shared.cores.wait(&drained, Some(Instant::now() + limit)) {
        Ok(()) => Ok(()),
        Err(RecvTimeoutError::Timeout) => Err(DrainError::Busy),
        Err(RecvTimeoutError::Disconnected) => Err(DrainError::Stopped),
    }
}

/// Clears some of the blocks that belong to no volume and may contain a former owner's data: `most` at most. If others are
/// writing all of them, waits until these have ended.
pub(super) fn clear_some(
    shared: &SharedState,
    device: &str,
    facts: &DeviceFacts,
    most: Blocks,
) -> Result<(), Refusal> {
    let block = shared.store.device(device).map_err(refusal_from)?.block;
    let stuck = || {
        let message = format!("blocks of device '{device}' cannot be cleared: requests to them do not end");
        Refusal::new(RefusalKind::Failed, message)
    };
    let mut left = most;
    for number in 0..EXTENTS_PER_CLEAR {
        if left.0 == 0 {
            return Ok(());
        }
        let Some((extent, written)) = choose(shared, device, left).map_err(refusal_from)? else {
            let until = Instant::now() + WRITTEN_LIMIT;
            let is_waited = number == 0 && shared.spare.wait(device, until);
            return if is_waited && Instant::now() >= until { Err(stuck()) } else { Ok(()) };
        };
        left.0 -= extent.length.0;
        let Some(span) = block.span(extent) else { continue };
        let device_number = facts.number;
        drain(shared, DRAINING_LIMIT, |reply| CoreOrder::Drain {
            device: device_number,
            spans: vec![span],
            reply,
        })
        .map_err(|error| match error {
            DrainError::Busy => stuck(),
            DrainError::Stopped => CoreStopped.into(),
        })?;
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
                        written.end_when_drained(shared, facts.number, vec![span]);
                        let message = format!("device '{device}' cannot be cleared: {status:?}");
                        return Err(Refusal::new(RefusalKind::Failed, message));
                    }
                }
            }
        }
        shared.store.cleared(device, extent).map_err(refusal_from)?;
        drop(written);
    }
    Ok(())
}

/// Chooses the first blocks of a device that are to be cleared and that nobody is writing.
fn choose(
    shared: &SharedState,
    device: &str,
    most: Blocks,
) -> Result<Option<(Extent, WrittenExtents)>, Error> {
    let _choosing = shared.spare.choose();
    let written = shared.spare.written(device);
    // Of so many, one at least is not wholly being written.
    let pieces = shared.store.to_clear(device, written.len() + 1)?;
    let first = pieces.into_iter().find_map(|piece| first_outside(piece, &written));
    Ok(first.map(|piece| {
        let extent = Extent { length: piece.length.min(most), ..piece };
        (extent, shared.spare.write(device, vec![extent]))
    }))
}

/// Returns the first part of a piece that is in none of the extents; `None` if all of it is.
fn first_outside(piece: Extent, extents: &[Extent]) -> Option<Extent> {
    let (mut at, end) = (piece.start.0, piece.start.0 + piece.length.0);
    let end_of = |extent: &Extent| extent.start.0 + extent.length.0;
    while let Some(inside) = extents.iter().find(|extent| extent.start.0 <= at && at < end_of(extent)) {
        at = end_of(inside);
    }
    let next = extents.iter().map(|extent| extent.start.0).filter(|start| *start > at).min();
    let end = end.min(next.unwrap_or(end));
    (at < end).then(|| Extent::new(at, end - at))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_not_chosen() {
        let written = [(10, 5), (15, 5), (30, 1), (0, 3)].map(|(start, length)| Extent::new(start, length));
        for (piece, first) in [
            ((0, 100), Some((3, 7))),
            ((10, 10), None),
            ((12, 100), Some((20, 10))),
            ((30, 1), None),
            ((30, 5), Some((31, 4))),
            ((40, 5), Some((40, 5))),
        ] {
            let found = first_outside(Extent::new(piece.0, piece.1), &written);
            assert_eq!(found, first.map(|(start, length)| Extent::new(start, length)), "{piece:?}");
        }
    }

    #[test]
    fn blocks_are_written_until_the_last_command_has_ended() {
        let spare = Arc::new(SpareBlocks::default());
        let soon = || Instant::now() + Duration::from_millis(1);
        assert!(!spare.wait("disk", soon()));
        let one = spare.write("disk", vec![Extent::new(0, 5)]);
        let other = spare.write("other", vec![Extent::new(0, 9)]);
        assert_eq!(spare.written("disk"), [Extent::new(0, 5)]);
        assert!(spare.wait("disk", soon()));
        let waiting = spare.clone();
        let waiter = std::thread::spawn(move || waiting.wait("disk", Instant::now() + WRITTEN_LIMIT));
        drop(one);
        waiter.join().unwrap();
        assert_eq!((spare.written("disk"), spare.written("other")), (vec![], vec![Extent::new(0, 9)]));
        drop(other);
    }
}
