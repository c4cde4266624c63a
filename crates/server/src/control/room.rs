//! Room on devices for thin volumes: blocks that are cleared when too few are free, and what the log tells of shortages.
//! Called by those who allocate and copy blocks, and by reports.

use crate::control::SharedState;
use crate::control::clearing::clear_some;
use crate::control::maps::Failure;
use bywash_volume::{Blocks, Bytes, Device, Error, Volume};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Least size of what is cleared at a time when too few blocks are free, in bytes: so that not every cluster waits.
const CLEARED_MIN: u64 = 16 << 20;
/// Fraction of a device, as its denominator, that is left when the log warns that it gets full.
const LOW_FRACTION: u64 = 8;

/// Devices whose shortage the log has told, until they have room again.
#[derive(Debug, Default)]
pub(crate) struct Shortages(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    low: HashSet<String>,
    full: HashSet<String>,
}

/// Clears blocks if that is what an error of the store needs; else tells the shortage in the log, and returns the error.
pub(super) fn make_room(shared: &SharedState, found: &Volume, error: Error) -> Result<(), Failure> {
    match error {
        Error::Full { asked, free, to_clear, .. }
            if to_clear.0 > 0 && asked.0 <= free.0.saturating_add(to_clear.0) =>
        {
            let facts = shared.registry.lock().device(&found.device).cloned();
            let lacking = asked.0.saturating_sub(free.0);
            let least = Blocks(lacking.max(found.block.blocks_ceil(Bytes(CLEARED_MIN)).0));
            facts.and_then(|facts| clear_some(shared, &found.device, &facts, least)).map_err(Failure::Refused)
        }
        error => {
            shared.shortages.tell_refused(&error);
            Err(error.into())
        }
    }
}

/// Returns true if a device has little room left for thin volumes.
pub(super) fn is_low(device: &Device) -> bool {
    let left = device.free.0.saturating_add(device.to_clear.0).saturating_sub(device.kept.0);
    left < device.blocks.0 / LOW_FRACTION
}

impl Shortages {
    /// Tells in the log, once, that a device has little room left, and forgets an earlier shortage.
    pub(super) fn tell_allocated(&self, device: &Device) {
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
