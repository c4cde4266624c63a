//! Maps of thin volumes: what the core's parked requests need is allocated, copied or released in the store, and all grants
//! of the volume get the new map.
//!
//! ```text
//!   allocate   copy what is shared ([`super::copying`]) ──► clear blocks if too few are free ──► store ──► maps of all grants
//!   release    withhold from new grants ──► maps of all grants ──► no request to the blocks is left ──► store
//! ```
//!
//! So a client reaches a block only while the store says that it is the volume's, and a block is cleared for another
//! volume only after that has ended. A crash between two steps leaves the volume as before or after: what was being
//! allocated is zeros, and what was being released has its contents.
//!
//! Invariant: a volume's map is changed by one thread at a time ([`Changes::lock`]), or by an administrator when none of its
//! requests is left. A map that allows a write never reaches the core behind one that does not and is newer. Called on
//! threads of the users whose requests wait.

use crate::control::SharedState;
use crate::control::clearing::{DRAINING_LIMIT, drain};
use crate::control::copying::copy_shared;
use crate::control::maps::{Failure, give_map, without};
use crate::control::room::make_room;
use crate::core::map::{MapChange, MapChanged, MapKeeper};
use crate::core::order::CoreOrder;
use bywash_protocol::layout::Status;
use bywash_volume::{BlockSize, ByteRange, Bytes, Error, Extent, Volume};
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Greatest time to wait for another change of the same volume's map.
const OTHER_CHANGE_LIMIT: Duration = Duration::from_secs(60);
/// Greatest time that a server which stops waits for changes under way.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Keeper of the maps of a server's thin volumes.
#[derive(Debug)]
pub(crate) struct ThinMaps {
    shared: Weak<SharedState>,
    changes: Arc<Changes>,
}

/// Changes of maps that are under way, for a server that stops: its store is closed when the last one has ended.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    state: Mutex<ChangesState>,
    /// Signalled when a change has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct ChangesState {
    under_way: usize,
    /// Volumes whose maps are being changed, by their ids.
    volumes: HashSet<u64>,
    /// True if the server stops: no change begins any more.
    is_over: bool,
}

/// A change that is under way until this is dropped.
struct UnderWay<'a>(&'a Changes);

/// Right to change the map of a volume, until this is dropped.
pub(super) struct VolumeLock<'a> {
    changes: &'a Changes,
    volume: u64,
}

impl ThinMaps {
    pub(crate) fn new(shared: &Arc<SharedState>) -> ThinMaps {
        ThinMaps { shared: Arc::downgrade(shared), changes: shared.changes.clone() }
    }
}

impl Changes {
    fn state(&self) -> MutexGuard<'_, ChangesState> {
        // A thread that panicked has left no change half done: each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a change; `None` if the server stops.
    fn begin(&self) -> Option<UnderWay<'_>> {
        let mut state = self.state();
        if state.is_over {
            return None;
        }
        state.under_way += 1;
        Some(UnderWay(self))
    }

    /// Lets no other thread change the map of a volume until the lock is dropped. `None` if another one does for longer than
    /// `limit`.
    pub(super) fn lock(&self, volume: u64, limit: Duration) -> Option<VolumeLock<'_>> {
        let waited =
            self.ended.wait_timeout_while(self.state(), limit, |state| state.volumes.contains(&volume));
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_alone = state.volumes.insert(volume);
        is_alone.then_some(VolumeLock { changes: self, volume })
    }

    /// Lets no further change begin, and waits for those under way, up to [`STOP_LIMIT`]. The core has stopped, so they
    /// wait for nothing but the store.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        state.is_over = true;
        let waited = self.ended.wait_timeout_while(state, STOP_LIMIT, |state| state.under_way > 0);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            tracing::warn!(
                "the map of a thin volume is still being changed; the store stays open until that ends"
            );
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
        self.0.ended.notify_all();
    }
}

impl Drop for VolumeLock<'_> {
    fn drop(&mut self) {
        self.changes.state().volumes.remove(&self.volume);
        self.changes.ended.notify_all();
    }
}

impl MapKeeper for ThinMaps {
    fn change(&self, volume: u64, requests: &[Vec<MapChange>]) -> MapChanged {
        let all = |outcome: Result<u64, Failure>| {
            let copied_bytes = *outcome.as_ref().unwrap_or(&0);
            MapChanged { statuses: vec![status_of(outcome, volume); requests.len()], copied_bytes }
        };
        // Dropped after `shared`, so that a server that stops waits until the store can be closed.
        let Some(_under_way) = self.changes.begin() else { return all(Err(Failure::Stopped)) };
        let Some(shared) = self.shared.upgrade() else { return all(Err(Failure::Stopped)) };
        let Some(_alone) = shared.changes.lock(volume, OTHER_CHANGE_LIMIT) else {
            return all(Err(Failure::Busy));
        };
        let together: Vec<MapChange> = requests.iter().flatten().copied().collect();
        match change(&shared, volume, &together) {
            // Alone, some of the requests may find enough room.
            Err(Failure::Store(Error::PoolLow { .. } | Error::Full { .. } | Error::Fragmented { .. }))
                if requests.len() > 1 =>
            {
                let mut copied_bytes = 0;
                let alone = requests.iter().map(|changes| {
                    let outcome = change(&shared, volume, changes);
                    copied_bytes += *outcome.as_ref().unwrap_or(&0);
                    status_of(outcome, volume)
                });
                MapChanged { statuses: alone.collect(), copied_bytes }
            }
            outcome => all(outcome),
        }
    }
}

fn status_of(outcome: Result<u64, Failure>, volume: u64) -> Status {
    let failed = |why: &dyn std::fmt::Display| {
        tracing::error!("the map of the thin volume with the number {volume} cannot be changed: {why}");
        Status::Failed
    };
    match outcome {
        Ok(_) => Status::Success,
        Err(Failure::Store(Error::PoolLow { .. } | Error::Full { .. } | Error::Fragmented { .. })) => {
            Status::NoSpace
        }
        // The volume was removed or became smaller; its grants were revoked then.
        Err(Failure::Store(Error::NotThin(_) | Error::Size { .. })) => Status::Revoked,
        Err(Failure::Store(error)) => failed(&error),
        Err(Failure::Refused(refusal)) => failed(&refusal),
        Err(Failure::Busy | Failure::Device(Status::TimedOut)) => Status::TimedOut,
        Err(Failure::Device(status)) => failed(&format!("its device does not copy blocks: {status:?}")),
        Err(Failure::Stopped) => Status::Failed,
    }
}

/// Releases, and then copies and allocates, what these changes say. Returns the number of bytes that were copied.
fn change(shared: &SharedState, volume: u64, changes: &[MapChange]) -> Result<u64, Failure> {
    let (found, _) = shared.store.thin_mapping(volume)?;
    let (mut releases, mut allocations) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            MapChange::Release(range) => releases.push(blocks_inside(*range, found.block)),
            MapChange::Allocate(range) => allocations.push(blocks_around(*range, found.block)),
        }
    }
    if !releases.is_empty() {
        release(shared, volume, &releases)?;
    }
    if allocations.is_empty() {
        return Ok(0);
    }
    let copied = copy_shared(shared, &found, &allocations)?;
    allocate(shared, &found, &allocations)?;
    Ok(copied)
}

fn allocate(shared: &SharedState, found: &Volume, ranges: &[Extent]) -> Result<(), Failure> {
    let device = loop {
        match shared.store.allocate_ahead(found.id, ranges) {
            Ok(device) => break device,
            Err(error) => make_room(shared, found, error)?,
        }
    };
    shared.shortages.tell_allocated(&device);
    give_map(shared, found.id)
}

fn release(shared: &SharedState, volume: u64, ranges: &[Extent]) -> Result<(), Failure> {
    let (found, mapped) = shared.store.thin_mapping(volume)?;
    let (_, released) = without(&mapped, ranges);
    if released.is_empty() {
        return Ok(());
    }
    let number = shared.registry.lock().withhold(volume, &found.device, ranges).ok_or(Failure::Stopped)?;
    let spans: Vec<ByteRange> = released.iter().filter_map(|extent| found.block.span(*extent)).collect();
    let outcome = give_map(shared, volume).and_then(|()| {
        drain(shared, DRAINING_LIMIT, |reply| CoreOrder::Drain {
            device: number,
            spans: spans.clone(),
            reply,
        })?;
        Ok(shared.store.release(volume, ranges).map(drop)?)
    });
    shared.registry.lock().give_back(volume);
    match outcome {
        Ok(()) => Ok(()),
        // The blocks are still the volume's.
        Err(failure) => give_map(shared, volume).and(Err(failure)),
    }
}

/// Returns the blocks that lie wholly within a range of bytes.
fn blocks_inside(range: ByteRange, block: BlockSize) -> Extent {
    let start = block.blocks_ceil(range.start);
    let end = block.blocks_floor(Bytes(range.start.0 + range.length.0));
    Extent::new(start.0, end.0.saturating_sub(start.0))
}

/// Returns the blocks that a range of bytes touches.
fn blocks_around(range: ByteRange, block: BlockSize) -> Extent {
    let start = block.blocks_floor(range.start);
    let end = block.blocks_ceil(Bytes(range.start.0 + range.length.0));
    Extent::new(start.0, end.0 - start.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_volume::Blocks;

    #[test]
    fn ranges_of_bytes_are_whole_blocks() {
        let block = BlockSize::new(Bytes(4096)).unwrap();
        assert_eq!(blocks_around(ByteRange::new(4095, 2), block), Extent::new(0, 2));
        assert_eq!(blocks_inside(ByteRange::new(4095, 4098), block), Extent::new(1, 1));
        assert_eq!(blocks_inside(ByteRange::new(4097, 10), block).length, Blocks(0));
    }
}
