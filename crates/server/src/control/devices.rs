//! Devices that administrators add to a running server, and take away from it. Called by the administrator's thread.
//!
//! Invariant: a device is in the registry only while all cores serve it. A device is taken away in these steps, the first
//! of which holds the registry's lock, so that nobody opens a volume meanwhile: no client has a grant on the device, and
//! its name goes; each core releases its queue; it is flushed and closed.

use super::hardware::Hardware;
use super::refusal::refusal_from;
use super::registry::Registry;
use super::{DeviceFacts, SharedState};
use crate::core::cores::FIRST;
use crate::core::order::{BoxedDevice, CoreOrder, CoreStopped, OnDone};
use crate::error::Error;
use crate::identity::Identities;
use crate::open_device::{OpenDevice, ServableDevice, open_device};
use crate::schedule::Exchange;
use bywash_device::{Access, Device, Spec, flush_exclusive};
use bywash_link::Credentials;
use bywash_protocol::{Refusal, RefusalKind};
use bywash_volume::{DeviceId, DeviceNumber, Store};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SendError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest number of devices of a server to which another one can be added; each takes descriptors of the server's own.
const DEVICES_MAX: usize = 32;
/// Greatest time to wait until all cores have released a device.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
/// Greatest time to wait until clients that use a device have left: those that have just disconnected are known a moment
/// longer.
const GRACE: Duration = Duration::from_millis(500);
/// Greatest number of users of a device that a refusal names.
const NAMED_MAX: usize = 8;

/// Opens a device as the server's command line does, and serves it from now on.
pub(super) fn add(shared: &SharedState, text: &str) -> Result<(), Refusal> {
    let spec =
        Spec::parse(text, &shared.device_kinds).map_err(|error| Refusal::new(RefusalKind::Unfit, error))?;
    let served: Vec<String> = shared.registry.lock().devices.keys().cloned().collect();
    if served.contains(&spec.name) {
        let message =
            format!("there is a device '{}' already; give another name, or drop it first", spec.name);
        return Err(Refusal::new(RefusalKind::Exists, message));
    }
    if served.len() >= DEVICES_MAX {
        let message = format!("the server has {DEVICES_MAX} devices, the greatest number; drop one first");
        return Err(Refusal::new(RefusalKind::Limit, message));
    }
    let seen = identities(&shared.store, served).map_err(refusal_from)?;
    let mut identities = Identities::new(&shared.store, shared.is_temporary, seen);
    let devices = open_device(&shared.store, &mut identities, &spec).map_err(refused)?;
    for ServableDevice { device, .. } in &devices {
        if shared.registry.lock().devices.contains_key(&device.name) {
            let message = format!("there is a device '{}' already; drop it first", device.name);
            return Err(Refusal::new(RefusalKind::Exists, message));
        }
    }
    for device in devices {
        serve(shared, device).map_err(refused)?;
    }
    Ok(())
}

/// Returns the identities of the devices of these names, with the names.
fn identities(store: &Store, names: Vec<String>) -> Result<Vec<(DeviceId, String)>, bywash_volume::Error> {
    let mut found = Vec::new();
    for name in names {
        found.extend(store.device(&name)?.identity.id().map(|id| (id, name)));
    }
    Ok(found)
}

/// Hands an open device to the cores, and registers it.
///
/// # Errors
/// [`Error::Device`] if queues cannot be made, [`Error::Io`] if a core has stopped.
pub(crate) fn serve(shared: &SharedState, device: ServableDevice) -> Result<(), Error> {
    let ServableDevice { device: OpenDevice { name, device, is_volatile, .. }, grantable } = device;
    let geometry = device.geometry();
    let (number, chunk_bytes) = hand_to_cores(shared, &name, device)?;
    let (block, read_only) = (geometry.block, geometry.access == Access::Read);
    let hardware = grantable.map(Hardware::of_device);
    let facts = DeviceFacts { number, block, read_only, chunk_bytes, is_volatile, hardware };
    shared.registry.lock().devices.insert(name, facts);
    Ok(())
}

/// Hands an open device to the cores, a queue to each. Returns its number, and the size of its chunks of memory in bytes.
///
/// # Errors
/// Same as [`serve`].
pub(super) fn hand_to_cores(
    shared: &SharedState,
    name: &str,
    device: Box<dyn Device>,
) -> Result<(DeviceNumber, Option<u64>), Error> {
    let count = shared.cores.count();
    let queues = bywash_device::queues(device, count)?;
    let chunk_bytes = queues[FIRST].chunks().map(bywash_device::Chunks::chunk_bytes);
    let exchange = (count > 1).then(|| Arc::new(Exchange::new(count)));
    let number = shared.device_numbers.take();
    for (core, queue) in queues.into_iter().enumerate() {
        let (name, device, exchange) = (name.to_owned(), BoxedDevice(queue), exchange.clone());
        let add = |reply| CoreOrder::AddDevice { number, name, device, owner: None, exchange, reply };
        shared.cores.ask(core, add).map_err(|stopped: CoreStopped| Error::Io {
            what: "hand a device to the core",
            source: std::io::Error::other(stopped),
        })?;
    }
    Ok((number, chunk_bytes))
}

/// Takes a device away that no client uses, flushes and closes it.
pub(super) fn drop_device(shared: &SharedState, name: &str) -> Result<(), Refusal> {
    let facts = unregister_within_grace(shared, name)?;
    let mut queues = release(shared, name, &facts)?;
    let flushed = flush_exclusive(&mut *queues[FIRST]);
    drop(queues);
    if facts.is_volatile {
        shared.store.forget_device(name).map_err(refusal_from)?;
    }
    flushed.map_err(|error| {
        let message = format!("device '{name}' is closed, and what was not flushed may be lost: {error}");
        Refusal::new(RefusalKind::Failed, message)
    })
}

/// Has the cores release a device that nobody uses, and returns their queues, the first core's first, once no command is in
/// flight.
pub(super) fn release(
    shared: &SharedState,
    name: &str,
    facts: &DeviceFacts,
) -> Result<Vec<Box<dyn Device>>, Refusal> {
    let (sender, released) = channel();
    let (helpers, numbers, number) = (shared.helpers.clone(), shared.device_numbers.clone(), facts.number);
    let all = OnDone::new(move |queues: Vec<(usize, Option<BoxedDevice>)>| {
        numbers.give(number);
        // The send fails only if the receiver has timed out. Closing the device could block a core.
        if let Err(SendError(queues)) = sender.send(queues) {
            helpers.drop_later(Credentials::own().uid, queues);
        }
    });
    let remove = |core, reply: OnDone<(usize, Option<BoxedDevice>)>| {
        let reply = OnDone::new(move |queue| reply.send((core, queue)));
        CoreOrder::RemoveDevice { device: number, reply }
    };
    shared.cores.send_all(remove, all)?;
    let mut queues = match shared.cores.wait(&released, Some(Instant::now() + RELEASE_LIMIT)) {
        Ok(queues) => queues,
        Err(RecvTimeoutError::Disconnected) => return Err(CoreStopped.into()),
        Err(RecvTimeoutError::Timeout) => {
            let message = format!(
                "device '{name}' is not served any more, but commands are still in flight on it; it is closed without a \
                 flush when they complete"
            );
            return Err(Refusal::new(RefusalKind::Failed, message));
        }
    };
    queues.sort_by_key(|(core, _)| *core);
    let queues: Option<Vec<_>> =
        queues.into_iter().map(|(_, queue)| queue.map(|BoxedDevice(device)| device)).collect();
    queues.ok_or_else(|| CoreStopped.into())
}

/// Like [`unregister`], but first waits up to [`GRACE`] for clients that are just leaving.
fn unregister_within_grace(shared: &SharedState, name: &str) -> Result<DeviceFacts, Refusal> {
    let end = Instant::now() + GRACE;
    loop {
        match unregister(&shared.registry, &shared.store, name) {
            Err(refusal) if refusal.code == RefusalKind::Limit && Instant::now() < end => {
                thread::sleep(GRACE / 100)
            }
            outcome => return outcome,
        }
    }
}

/// Removes a device from the registry if no client uses it, and nothing would be lost.
fn unregister(registry: &Registry, store: &Store, name: &str) -> Result<DeviceFacts, Refusal> {
    let mut everybody = registry.lock();
    let facts = everybody.device(name)?.clone();
    let users = everybody.users_of(facts.number);
    if !users.is_empty() {
        let message = format!(
            "device '{name}' is in use: {}; end these clients or exports, or take their grants back by `bywash volume \
             revoke`",
            named(&users)
        );
        return Err(Refusal::new(RefusalKind::Limit, message));
    }
    if let Some(obstacle) = facts.hardware.as_ref().and_then(|hardware| hardware.obstacle(name)) {
        return Err(Refusal::new(RefusalKind::Limit, obstacle));
    }
    if facts.is_volatile {
        let volumes = store.list().map_err(refusal_from)?.into_iter();
        let lost: Vec<String> = volumes
            .filter(|volume| volume.device == name && !volume.is_gone)
            .map(|volume| format!("'{}'", volume.name))
            .collect();
        if !lost.is_empty() {
            let message = format!(
                "device '{name}' is memory, and would be lost with volumes {}; remove them first",
                named(&lost)
            );
            return Err(Refusal::new(RefusalKind::Unfit, message));
        }
    }
    everybody.remove_device(name);
    Ok(facts)
}

/// Lists the first [`NAMED_MAX`] of these, and the number of the others.
pub(super) fn named(all: &[String]) -> String {
    let first = all[..all.len().min(NAMED_MAX)].join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => first,
        more => format!("{first}, and {more} more"),
    }
}

/// Converts an error of opening a device to a refusal.
fn refused(error: Error) -> Refusal {
    match error {
        Error::Store(error) => refusal_from(error),
        error @ Error::Io { .. } => Refusal::new(RefusalKind::Failed, error),
        error => Refusal::new(RefusalKind::Unfit, error),
    }
}
