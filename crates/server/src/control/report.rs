//! Reports on the server's state.

use crate::control::room::is_low;
use crate::control::{SharedState, users};
use crate::core::order::{CoreOrder, CoreReport, CoreStopped, DeviceReport};
use bywash_protocol::report::{Client, Core, Device, Grant, Status, Volume};
use bywash_sync::Ordering::Relaxed;
use bywash_volume::{Bytes, Error, Store};
use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};

/// Returns the protocol's reports of those volumes of a store that `is_seen` returns true for, sorted by name.
///
/// # Errors
/// [`Error::Store`] or [`Error::Damaged`] if the store cannot be read.
pub fn volume_reports(
    store: &Store,
    is_seen: impl Fn(&bywash_volume::Volume) -> bool,
) -> Result<Vec<Volume>, Error> {
    let shared = store.shared_blocks()?;
    let seen = store.list()?.into_iter().filter(is_seen);
    Ok(seen
        .map(|volume| {
            let shared = shared.get(&volume.id).and_then(|blocks| volume.block.bytes(*blocks));
            volume_report(volume, shared)
        })
        .collect())
}

fn volume_report(volume: bywash_volume::Volume, shared: Option<Bytes>) -> Volume {
    Volume {
        bytes: volume.size().0,
        device: volume.device,
        extents: volume.extents,
        owner: volume.ownership.owner,
        group: volume.ownership.group,
        mode: volume.ownership.mode.bits(),
        read_only: volume.ownership.read_only,
        is_gone: volume.is_gone,
        allocated: volume.block.bytes(volume.allocated).map(|bytes| bytes.0),
        cluster: volume.cluster.and_then(|cluster| volume.block.bytes(cluster)).map(|bytes| bytes.0),
        shared: shared.map(|bytes| bytes.0),
        is_snapshot: volume.is_snapshot,
        origin: volume.origin,
        name: volume.name,
    }
}

/// Returns the sizes of all thin volumes of each device together, and of the space that they have, in bytes. Space that
/// several of them have counts once. A store that cannot be read has none.
fn thin_volumes(shared: &SharedState) -> HashMap<String, (u64, u64)> {
    let mut sums: HashMap<String, (u64, u64)> = HashMap::new();
    let mut thick: HashMap<String, u64> = HashMap::new();
    for volume in shared.store.list().unwrap_or_default() {
        let is_thin = volume.cluster.is_some();
        match is_thin {
            true => {
                let (bytes, _) = sums.entry(volume.device.clone()).or_default();
                *bytes = bytes.saturating_add(volume.size().0);
            }
            false => *thick.entry(volume.device.clone()).or_default() += volume.allocated.0,
        }
    }
    for device in shared.store.devices().unwrap_or_default() {
        let Some((_, space)) = sums.get_mut(&device.name) else { continue };
        let others =
            [device.reserved, device.free, device.to_clear].iter().map(|blocks| blocks.0).sum::<u64>();
        let others = others + thick.get(&device.name).copied().unwrap_or_default();
        let blocks = bywash_volume::Blocks(device.blocks.0.saturating_sub(others));
        *space = device.block.bytes(blocks).map_or(0, |bytes| bytes.0);
    }
    sums
}

fn core_report(report: &CoreReport) -> Core {
    Core {
        core: report.core as u32,
        cpu_ns: report.cpu_ns,
        clients: report.clients.len() as u64,
        in_flight: report.clients.iter().map(|client| client.in_flight as u64).sum(),
    }
}

/// Adds up what each core reports of its queue of a device. The description is that of the first core's queue.
fn devices_of_all(reports: impl Iterator<Item = DeviceReport>) -> Vec<DeviceReport> {
    let mut devices: BTreeMap<u32, DeviceReport> = BTreeMap::new();
    for report in reports {
        match devices.entry(report.number.0) {
            Entry::Vacant(place) => drop(place.insert(report)),
            Entry::Occupied(mut sum) => {
                let sum = sum.get_mut();
                sum.in_flight += report.in_flight;
                sum.is_stuck |= report.is_stuck;
                sum.counts.add(&report.counts);
            }
        }
    }
    devices.into_values().collect()
}

/// Collects the state and counters of the whole server.
pub(crate) fn status(shared: &SharedState) -> Result<Status, CoreStopped> {
    let (mut reports, ended) =
        shared.users.look(|| shared.cores.ask_all(|_, reply| CoreOrder::Report { reply }))?;
    reports.sort_by_key(|report| report.core);
    let cores: Vec<Core> = reports.iter().map(core_report).collect();
    let devices = devices_of_all(reports.iter_mut().flat_map(|report| std::mem::take(&mut report.devices)));
    let clients = reports.into_iter().flat_map(|report| report.clients);
    let mut of_core: HashMap<u64, _> = clients.map(|client| (client.key.number, client)).collect();
    let everybody = shared.registry.lock();
    let clients = everybody.clients.iter().filter_map(|(number, client)| {
        // A client that is only in one of the two lists has just connected or is leaving: it is not reported.
        let core = of_core.remove(number)?;
        let mut counts: HashMap<u64, _> =
            core.grants.into_iter().map(|(grant, counts)| (grant.to_word(), counts)).collect();
        let grants = client.grants.iter().map(|(grant, held)| Grant {
            grant: *grant,
            volume: held.volume.as_ref().map(|(_, name)| name.clone()),
            access: held.access,
            bytes: held.bytes,
            is_mapped: held.is_mapped,
            counts: counts.remove(grant).unwrap_or_default(),
        });
        Some(Client {
            client: *number,
            core: core.key.core as u32,
            name: client.name.clone(),
            pid: client.credentials.pid,
            uid: client.credentials.uid,
            share: client.share,
            depth: core.depth,
            in_flight: core.in_flight as u64,
            is_polled: core.is_polled,
            grants: grants.collect(),
            counts: core.counts,
        })
    });
    let clients: Vec<Client> = clients.collect();
    let numbers: HashMap<String, _> =
        everybody.devices.iter().map(|(name, facts)| (name.clone(), facts.number)).collect();
    drop(everybody);
    let thin_volumes = thin_volumes(shared);
    let devices = devices.into_iter().map(|device| {
        let number = numbers.get(&device.name).filter(|number| **number == device.number);
        let stored = number.and_then(|_| shared.store.device(&device.name).ok());
        let id = stored.as_ref().and_then(|stored| stored.identity.id()).map(|id| id.to_string());
        let free = stored.as_ref().map_or(0, |stored| {
            let blocks = stored.free.0.saturating_add(stored.to_clear.0);
            stored.block.bytes(bywash_volume::Blocks(blocks)).map_or(0, |bytes| bytes.0)
        });
        let stored = stored.as_ref();
        let (thin, thin_allocated) =
            stored.and_then(|stored| thin_volumes.get(&stored.name)).copied().unwrap_or_default();
        let kept = stored.and_then(|stored| stored.block.bytes(stored.kept)).map_or(0, |bytes| bytes.0);
        Device {
            name: device.name,
            id,
            bytes: device.bytes,
            free,
            thin,
            thin_allocated,
            thin_left: free.saturating_sub(kept),
            is_low: thin > 0 && stored.is_some_and(is_low),
            block: device.block,
            how: device.how,
            in_flight: device.in_flight as u64,
            is_stuck: device.is_stuck,
            counts: device.counts,
        }
    });
    Ok(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_s: shared.began.elapsed().as_secs(),
        core_cpu_ns: cores.iter().map(|core| core.cpu_ns).sum(),
        cores,
        asks_refused: shared.asks_refused.load(Relaxed),
        clients_refused: shared.clients_refused.load(Relaxed),
        devices: devices.collect(),
        users: users::all(ended, &clients, &shared.helpers.stuck()),
        exports: shared.exports.report(),
        clients,
    })
}
