//! Snapshots, as administrators take them, and whether a volume may be rolled back to one. Called by the administrator's
//! thread.
//!
//! A snapshot is taken of a volume in use:
//!
//! ```text
//!   no other change of the map ──► maps that allow no write ──► no write is left ──► flush ──► store
//!                                  └── requests that write wait from here on, and are resumed behind the store ──┘
//! ```
//!
//! So it has the contents of one instant, at which the core got those maps: every write that was taken from a ring before is
//! in it, and none that was taken later. Several cores get them at slightly different times; but a write that waits completes
//! only behind the snapshot, so that no write is in it which was sent because of one that is not. All of its contents are durable before the store knows of it, so a crash does not
//! change a snapshot. Reads, and writes to other volumes, do not wait.

use crate::control::SharedState;
use crate::control::clearing::{DrainError, drain};
use crate::control::devices::named;
use crate::control::maps::{Failure, give_map};
use crate::control::refusal::refusal_from;
use crate::core::cores::FIRST;
use crate::core::order::{CoreOrder, CoreStopped};
use bywash_protocol::layout::Status;
use bywash_protocol::{Refusal, RefusalKind};
use bywash_volume::{DeviceNumber, Error, Volume};
use std::time::Duration;

/// Greatest time to wait for a change of the volume's map that is under way.
const CHANGE_LIMIT: Duration = Duration::from_secs(60);

/// Greatest time to wait for writes in flight, while others wait.
const WRITES_LIMIT: Duration = Duration::from_secs(10);

/// Takes a snapshot of a volume, which clients may be using.
pub(super) fn snapshot(shared: &SharedState, volume: &str, name: &str) -> Result<(), Refusal> {
    let (found, _) = shared.store.mapping(volume).map_err(refusal_from)?;
    if found.cluster.is_none() {
        return Err(refusal_from(Error::NotThinVolume(volume.to_owned())));
    }
    let facts = shared.registry.lock().device(&found.device).cloned()?;
    let Some(_alone) = shared.changes.lock(found.id, CHANGE_LIMIT) else {
        let message = format!("blocks of volume '{volume}' are being allocated or released; try again");
        return Err(Refusal::new(RefusalKind::Limit, message));
    };
    shared.registry.lock().freeze(found.id);
    let taken = stop_writes(shared, &found)
        .and_then(|()| match facts.read_only {
            true => Ok(()),
            false => flush(shared, &found, facts.number),
        })
        .and_then(|()| shared.store.snapshot(volume, name).map_err(refusal_from));
    shared.registry.lock().thaw(found.id);
    match taken {
        // All that was allocated is shared now, as the maps have it already.
        Ok(_) => Ok(()),
        Err(refusal) => match give_map(shared, found.id) {
            // Without the map writes would be parked once and find it.
            Ok(()) | Err(_) => Err(refusal),
        },
    }
}

/// Has the requests that write a volume wait, and those that were taken before end.
fn stop_writes(shared: &SharedState, found: &Volume) -> Result<(), Refusal> {
    give_map(shared, found.id).map_err(|failure| match failure {
        Failure::Store(error) => refusal_from(error),
        Failure::Refused(refusal) => refusal,
        _ => CoreStopped.into(),
    })?;
    let volume = found.id;
    drain(shared, WRITES_LIMIT, |reply| CoreOrder::DrainWrites { volume, reply }).map_err(|error| match error
    {
        DrainError::Stopped => CoreStopped.into(),
        DrainError::Busy => {
            let message = format!(
                "writes to volume '{}' that began before are still in flight; try again when they have ended",
                found.name
            );
            Refusal::new(RefusalKind::Failed, message)
        }
    })
}

fn flush(shared: &SharedState, found: &Volume, device: DeviceNumber) -> Result<(), Refusal> {
    match shared.cores.ask(FIRST, |reply| CoreOrder::Flush { device, reply })? {
        Status::Success => Ok(()),
        status => {
            let message = format!(
                "device '{}' cannot make the contents of '{}' durable: {status:?}; no snapshot was taken",
                found.device, found.name
            );
            Err(Refusal::new(RefusalKind::Failed, message))
        }
    }
}

/// Refuses to roll a volume back while a client may write it, who would go on as if its writes were there.
pub(super) fn check_unwritten(found: &Volume, writers: Vec<String>) -> Result<(), Refusal> {
    if writers.is_empty() {
        return Ok(());
    }
    let message = format!(
        "volume '{}' is open for writing {}; end these clients or exports, or take their grants back by `bywash volume revoke`",
        found.name,
        named(&writers)
    );
    Err(Refusal::new(RefusalKind::Limit, message))
}
