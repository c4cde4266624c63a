//! Maps of thin volumes: what the core's parked requests need is allocated or released in the store, and all grants
//! of the volume get the new map.
//!
//! ```text
//!   allocate   clear blocks if too few are free ──► store ──► maps of all grants
//!   release    withhold from new grants ──► maps of all grants ──► no request to the blocks is left ──► store
//! ```
//!
//! So a client reaches a block only while the store says that it is the volume's, and a block is cleared for another
//! volume only after that has ended. A crash between two steps leaves the volume as before or after: what was being
//! allocated is zeros, and what was being released has its contents.
//!
//! Invariant: a volume's map is changed by one thread at a time, since each core begins one change at a time
//! (`core::thin`), a change waits for that of another core ([`Changes`]), and administrators change a volume's blocks only
//! when none of its requests is left. Called on threads of the users whose requests wait.

use crate::control::SharedState;
use crate::control::clearing::clear_some;
use crate::control::registry::ThinHolder;
use crate::core::map::{MapChange, MapKeeper};
use crate::core::order::{CoreOrder, CoreStopped, OnDone};
use bywash_protocol::Refusal;
use bywash_protocol::layout::Status;
use bywash_volume::{
    BlockSize, Blocks, ByteRange, Bytes, Device, Error, Extent, Grant, GrantExtent, MappedExtent, Volume,
};
use std::collections::HashSet;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Least size of what is cleared at a time when too few blocks are free, in bytes: so that not every cluster waits.
const CLEARED_MIN: u64 = 16 << 20;
/// Greatest time to wait until no request to blocks that are released is left.
const DRAINING_LIMIT: Duration = Duration::from_secs(60);
/// Greatest time that a server which stops waits for changes under way.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Fraction of a device, as its denominator, that is left when the log warns that it gets full.
const LOW_FRACTION: u64 = 8;

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
    /// Volumes whose map is being changed, by their ids.
    volumes: HashSet<u64>,
    /// True if the server stops: no change begins any more.
    is_over: bool,
}

/// A change of a volume's map that is under way until this is dropped.
struct UnderWay<'a> {
    changes: &'a Changes,
    volume: u64,
}

/// Devices whose shortage the log has told, until they have room again.
#[derive(Debug, Default)]
pub(crate) struct Shortages(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    low: HashSet<String>,
    full: HashSet<String>,
}

/// Reason why a map was not changed.
enum Failure {
    Store(Error),
    Refused(Refusal),
    Stopped,
    /// Requests to the blocks that are released are still in flight.
    Busy,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl From<CoreStopped> for Failure {
    fn from(_: CoreStopped) -> Failure {
        Failure::Stopped
    }
}

impl ThinMaps {
    pub(crate) fn new(shared: &Arc<SharedState>) -> ThinMaps {
        ThinMaps { shared: Arc::downgrade(shared), changes: shared.changes.clone() }
    }
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, ChangesState> {
        // A thread that panicked has left no change half done: each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a change of a volume's map, after one that another core has begun; `None` if the server stops.
    fn begin(&self, volume: u64) -> Option<UnderWay<'_>> {
        let is_busy = |state: &mut ChangesState| !state.is_over && state.volumes.contains(&volume);
        // Not for ever: a change waits at most DRAINING_LIMIT for requests, and for the store.
        let state = self.ended.wait_while(self.lock(), is_busy);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return None;
        }
        state.under_way += 1;
        state.volumes.insert(volume);
        Some(UnderWay { changes: self, volume })
    }

    /// Lets no further change begin, and waits for those under way, up to [`STOP_LIMIT`]. The core has stopped, so they
    /// wait for nothing but the store.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        state.is_over = true;
        self.ended.notify_all();
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
        let mut state = self.changes.lock();
        state.under_way -= 1;
        state.volumes.remove(&self.volume);
        drop(state);
        self.changes.ended.notify_all();
    }
}

impl MapKeeper for ThinMaps {
    fn change(&self, volume: u64, requests: &[Vec<MapChange>]) -> Vec<Status> {
        let all = |outcome: Result<(), Failure>| vec![status_of(outcome, volume); requests.len()];
        // Dropped after `shared`, so that a server that stops waits until the store can be closed.
        let Some(_under_way) = self.changes.begin(volume) else { return all(Err(Failure::Stopped)) };
        let Some(shared) = self.shared.upgrade() else { return all(Err(Failure::Stopped)) };
        let together: Vec<MapChange> = requests.iter().flatten().copied().collect();
        match change(&shared, volume, &together) {
            // Alone, some of the requests may find enough room.
            Err(Failure::Store(Error::PoolLow { .. } | Error::Full { .. } | Error::Fragmented { .. }))
                if requests.len() > 1 =>
            {
                let alone = requests.iter().map(|changes| change(&shared, volume, changes));
                alone.map(|outcome| status_of(outcome, volume)).collect()
            }
            outcome => all(outcome),
        }
    }
}

fn status_of(outcome: Result<(), Failure>, volume: u64) -> Status {
    let failed = |why: &dyn std::fmt::Display| {
        tracing::error!("the map of the thin volume with the number {volume} cannot be changed: {why}");
        Status::Failed
    };
    match outcome {
        Ok(()) => Status::Success,
        Err(Failure::Store(Error::PoolLow { .. } | Error::Full { .. } | Error::Fragmented { .. })) => {
            Status::NoSpace
        }
        // The volume was removed or became smaller; its grants were revoked then.
        Err(Failure::Store(Error::NotThin(_) | Error::Size { .. })) => Status::Revoked,
        Err(Failure::Store(error)) => failed(&error),
        Err(Failure::Refused(refusal)) => failed(&refusal),
        Err(Failure::Busy) => Status::TimedOut,
        Err(Failure::Stopped) => Status::Failed,
    }
}

/// Releases, and then allocates, what these changes say.
fn change(shared: &SharedState, volume: u64, changes: &[MapChange]) -> Result<(), Failure> {
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
    if !allocations.is_empty() {
        allocate(shared, &found, &allocations)?;
    }
    Ok(())
}

fn allocate(shared: &SharedState, found: &Volume, ranges: &[Extent]) -> Result<(), Failure> {
    let device = loop {
        match shared.store.allocate(found.id, ranges) {
            Ok(device) => break device,
            Err(Error::Full { asked, free, to_clear, .. })
                if to_clear.0 > 0 && asked.0 <= free.0.saturating_add(to_clear.0) =>
            {
                let facts = shared.registry.lock().device(&found.device).cloned();
                let least = Blocks((asked.0 - free.0).max(found.block.blocks_ceil(Bytes(CLEARED_MIN)).0));
                facts
                    .and_then(|facts| clear_some(shared, &found.device, &facts, least))
                    .map_err(Failure::Refused)?;
            }
            Err(error) => {
                shared.shortages.tell_refused(&error);
                return Err(error.into());
            }
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
        let (sender, drained) = channel();
        let all = OnDone::new(move |_: Vec<()>| {
            // The send fails only if the receiver has timed out and no longer waits.
            let _ = sender.send(());
        });
        let drain = |_, reply| CoreOrder::Drain { device: number, spans: spans.clone(), reply };
        shared.cores.send_all(drain, all)?;
        match shared.cores.wait(&drained, Some(Instant::now() + DRAINING_LIMIT)) {
            Ok(()) => Ok(shared.store.release(volume, ranges).map(drop)?),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Busy),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::Stopped),
        }
    });
    shared.registry.lock().give_back(volume);
    match outcome {
        Ok(()) => Ok(()),
        // The blocks are still the volume's.
        Err(failure) => give_map(shared, volume).and(Err(failure)),
    }
}

/// Sends the cores the map of a volume for all its grants.
fn give_map(shared: &SharedState, volume: u64) -> Result<(), Failure> {
    // The lock is held until the order is sent, so that a grant that is opened meanwhile has the new map or gets it.
    let everybody = shared.registry.lock();
    let (found, mapped) = shared.store.thin_mapping(volume)?;
    let (mapped, _) = without(&mapped, everybody.withheld(volume));
    let mut grants: Vec<_> = (0..shared.cores.count()).map(|_| Vec::new()).collect();
    for ThinHolder { client, grant, device, access, bytes } in everybody.holders_of(volume) {
        // A grant keeps its size when the volume becomes larger.
        let extents = grant_extents(&mapped, found.block).take_while(|extent| extent.offset.0 < bytes);
        let ranges = extents.map(|extent| {
            let length = Bytes(extent.range.length.0.min(bytes - extent.offset.0));
            GrantExtent { range: ByteRange { length, ..extent.range }, ..extent }
        });
        grants[client.core].push((client, grant, Grant::with_holes(device, access, Bytes(bytes), ranges)?));
    }
    for (core, grants) in grants.into_iter().enumerate().filter(|(_, grants)| !grants.is_empty()) {
        shared.cores.send(core, CoreOrder::Remap { grants })?;
    }
    Ok(())
}

/// Converts extents of a volume to those of its grants.
pub(super) fn grant_extents(
    mapped: &[MappedExtent],
    block: BlockSize,
) -> impl Iterator<Item = GrantExtent> + '_ {
    mapped.iter().filter_map(move |one| {
        let (offset, range) = (block.bytes(one.logical)?, block.span(one.extent)?);
        Some(GrantExtent { offset, range, is_shared: one.is_shared })
    })
}

/// Returns the extents of a volume outside of these ranges of its blocks, and the blocks of the device inside.
pub(super) fn without(mapped: &[MappedExtent], ranges: &[Extent]) -> (Vec<MappedExtent>, Vec<Extent>) {
    let (mut left, mut removed) = (mapped.to_vec(), Vec::new());
    for range in ranges {
        let (from, to) = (range.start.0, range.start.0.saturating_add(range.length.0));
        let mut outside = Vec::with_capacity(left.len() + 1);
        for one in left {
            outside.extend(one.within(0, from));
            removed.extend(one.within(from, to).map(|inside| inside.extent));
            outside.extend(one.within(to, u64::MAX));
        }
        left = outside;
    }
    (left, removed)
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

/// Returns true if a device has little room left for thin volumes.
pub(super) fn is_low(device: &Device) -> bool {
    let left = device.free.0.saturating_add(device.to_clear.0).saturating_sub(device.kept.0);
    left < device.blocks.0 / LOW_FRACTION
}

impl Shortages {
    /// Tells in the log, once, that a device has little room left, and forgets an earlier shortage.
    fn tell_allocated(&self, device: &Device) {
        // A thread that panicked has left no change half done: each change is one step.
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.full.remove(&device.name);
        if !is_low(device) {
            told.low.remove(&device.name);
        } else if told.low.insert(device.name.clone()) {
            let left = device.free.0.saturating_add(device.to_clear.0).saturating_sub(device.kept.0);
            let left = device.block.bytes(Blocks(left)).unwrap_or(Bytes(u64::MAX));
            tracing::warn!(
                "device '{}' has {left} left for its thin volumes; remove volumes, discard what is not needed in thin \
                 ones, or make the device larger",
                device.name
            );
        }
    }

    /// Tells in the log, once until there is room again, that a thin volume was refused blocks.
    fn tell_refused(&self, error: &Error) {
        let (Error::PoolLow { device, .. } | Error::Full { device, .. } | Error::Fragmented { device, .. }) =
            error
        else {
            return;
        };
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.full.insert(device.clone()) {
            tracing::error!("writes fail with ENOSPC: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(rows: &[(u64, u64, u64)]) -> Vec<MappedExtent> {
        let one = |&(logical, start, length): &(u64, u64, u64)| MappedExtent {
            logical: Blocks(logical),
            extent: Extent::new(start, length),
            is_shared: false,
        };
        rows.iter().map(one).collect()
    }

    #[test]
    fn what_is_withheld_is_in_no_map() {
        let all = mapped(&[(0, 100, 10), (10, 50, 10), (40, 0, 20)]);
        let (left, removed) = without(&all, &[Extent::new(5, 10), Extent::new(45, 5)]);
        assert_eq!(left, mapped(&[(0, 100, 5), (15, 55, 5), (40, 0, 5), (50, 10, 10)]));
        assert_eq!(removed, [Extent::new(105, 5), Extent::new(50, 5), Extent::new(5, 5)]);
        assert_eq!(without(&all, &[]), (all.clone(), Vec::new()));
        assert_eq!(without(&all, &[Extent::new(0, u64::MAX)]).0, []);
    }

    #[test]
    fn ranges_of_bytes_are_whole_blocks() {
        let block = BlockSize::new(Bytes(4096)).unwrap();
        assert_eq!(blocks_around(ByteRange::new(4095, 2), block), Extent::new(0, 2));
        assert_eq!(blocks_inside(ByteRange::new(4095, 4098), block), Extent::new(1, 1));
        assert_eq!(blocks_inside(ByteRange::new(4097, 10), block).length, Blocks(0));
    }
}
