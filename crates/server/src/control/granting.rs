//! Opening grants, by a volume's name or by a descriptor, and giving out chunks of memory devices for
//! mapping.

use crate::control::connection::{Connection, Established};
use crate::control::direct;
use crate::control::maps::grant_extents;
use crate::control::refusal::refusal_from;
use crate::control::registry::HeldGrant;
use crate::control::thin::ThinMaps;
use crate::control::{DeviceFacts, SharedState};
use crate::core::cores::FIRST;
use crate::core::map::ThinVolume;
use crate::core::order::{BoxedDevice, Chunk, CoreOrder, OnDone};
use crate::helpers::DropByHelper;
use bywash_device::Device;
use bywash_link::DESCRIPTORS_MAX;
use bywash_protocol::{Access, ControlReply, GrantInfo, Refusal, RefusalKind};
use bywash_volume::{self as volume, ByteRange, Bytes, DeviceNumber, Extent, Grant, GrantNumber};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Opens a grant of a volume, if the volume's owner, group and mode allow it.
pub(crate) fn open(
    shared: &Arc<SharedState>,
    connection: &mut Connection,
    name: &str,
    access: Access,
) -> Result<ControlReply, Refusal> {
    // The lock is held until the grant is registered, so that an administrator who changes the volume either
    // finds the grant or prevents it.
    let mut everybody = shared.registry.lock();
    let (found, mapped) = shared.store.mapping(name).map_err(refusal_from)?;
    if !everybody.is_open(found.id) {
        let message = format!("volume '{name}' is just being changed; try again");
        return Err(Refusal::new(RefusalKind::Limit, message));
    }
    let right = found
        .ownership
        .decide(&connection.user(), access)
        .map_err(|denied| Refusal::new(RefusalKind::Denied, format!("volume '{name}': {denied}")))?;
    let facts = everybody.devices.get(&found.device).cloned().ok_or_else(|| {
        let device = &found.device;
        let message = format!("volume '{name}' is on device '{device}', which this server does not have");
        Refusal::new(RefusalKind::Missing, message)
    })?;
    if let Some(obstacle) = facts.hardware.as_ref().and_then(|hardware| hardware.obstacle(&found.device)) {
        return Err(Refusal::new(
            RefusalKind::Limit,
            format!("volume '{name}' cannot be opened now: {obstacle}"),
        ));
    }
    if facts.read_only && access.allows_write() {
        let message = format!("volume '{name}' is on device '{}', which may only be read", found.device);
        return Err(Refusal::new(RefusalKind::Denied, message));
    }
    let bytes = found.size().0;
    let extents: Vec<Extent> = mapped.iter().map(|mapped| mapped.extent).collect();
    let (grant, thin) = match found.cluster {
        None => (Grant::new(facts.number, right, found.spans(&extents)), None),
        Some(cluster) => {
            let ranges = grant_extents(&everybody, &found, &mapped);
            let cluster_bytes = found.block.bytes(cluster).map_or(u64::MAX, |bytes| bytes.0);
            let keeper = Arc::new(ThinMaps::new(shared));
            let thin = ThinVolume { id: found.id, cluster_bytes, keeper };
            (Grant::with_holes(facts.number, right, found.size(), ranges), Some(thin))
        }
    };
    let not_direct = direct::check(shared, connection, &found, &extents, &facts).err();
    let known = known(connection)?;
    let number = add(shared, known, grant.map_err(refusal_from)?, thin)?;
    let (chunks, not_mapped) = match found.cluster {
        None => chunks_of(&facts, found.block, &extents, access),
        Some(_) => (Vec::new(), Some("the volume is thin: its blocks are allocated by the server".into())),
    };
    // Where there is hardware to be granted, the reason why it is not tells more than that it is no memory.
    let can_be_direct = not_direct.is_none();
    let not_mapped = not_direct.filter(|_| facts.hardware.is_some()).or(not_mapped);
    let (device, block) = (found.device.clone(), facts.block);
    let volume = Some((found.id, found.name));
    let held = HeldGrant { volume, device: facts.number, access, bytes, chunks, is_mapped: false };
    if let Some(client) = everybody.clients.get_mut(&known.key.number) {
        client.grants.insert(number.to_word(), held);
    }
    Ok(ControlReply::Granted(GrantInfo {
        grant: number.to_word(),
        bytes,
        block,
        access,
        device,
        unmappable_reason: not_mapped,
        is_volatile: facts.is_volatile,
        can_be_direct,
    }))
}

fn known(connection: &mut Connection) -> Result<&mut Established, Refusal> {
    connection.known().ok_or_else(|| Refusal::new(RefusalKind::Malformed, "say hello first"))
}

fn add(
    shared: &SharedState,
    known: &Established,
    grant: Grant,
    thin: Option<ThinVolume>,
) -> Result<GrantNumber, Refusal> {
    let client = known.key;
    let order = |reply| CoreOrder::Grant { client, grant, thin, reply };
    shared.cores.ask(client.core, order)?.map_err(refusal_from)
}

/// Returns the chunks that a volume consists of, or the reason why a client cannot map them.
fn chunks_of(
    facts: &DeviceFacts,
    block: volume::BlockSize,
    extents: &[Extent],
    access: Access,
) -> (Vec<Range<usize>>, Option<String>) {
    let Some(chunk_bytes) = facts.chunk_bytes else {
        return (Vec::new(), Some("the medium is not memory that can be mapped".into()));
    };
    if access == Access::Write {
        return (Vec::new(), Some("what is mapped for writing can be read as well".into()));
    }
    if block.size() != Bytes(chunk_bytes) {
        let was =
            format!("volumes of this device are made of {}, and its chunks have {chunk_bytes}", block.size());
        return (Vec::new(), Some(was));
    }
    let range = |extent: &Extent| extent.start.0 as usize..(extent.start.0 + extent.length.0) as usize;
    (extents.iter().map(range).collect(), None)
}

/// Opens a grant of a passed file, which becomes a device of this client only.
pub(crate) fn open_passed(
    shared: &Arc<SharedState>,
    connection: &mut Connection,
    device: Result<DropByHelper<Box<bywash_device::File>>, bywash_device::Error>,
) -> Result<ControlReply, Refusal> {
    let uid = connection.credentials.uid;
    let known = known(connection)?;
    let mut device = device.map_err(|error| {
        Refusal::new(RefusalKind::Unfit, format!("the descriptor cannot be used: {error}"))
    })?;
    let geometry = device.geometry();
    let access = geometry.access;
    if geometry.bytes == 0 {
        return Err(Refusal::new(RefusalKind::Unfit, "the file has no whole block; make it larger first"));
    }
    let name = format!("of client {}", known.key.number);
    let device = device.take().map(|device| BoxedDevice(device as Box<dyn Device>));
    let device = device.ok_or_else(|| Refusal::new(RefusalKind::Failed, "the file is gone"))?;
    let owner = Some(uid);
    let (core, number) = (known.key.core, shared.device_numbers.take());
    let add_device = |reply| {
        let (name, exchange) = (name.clone(), None);
        CoreOrder::AddDevice { number, name, device, owner, exchange, reply }
    };
    shared.cores.ask(core, add_device).inspect_err(|_| shared.device_numbers.give(number))?;
    let grant = Grant::new(number, access, [ByteRange::new(0, geometry.bytes)]).map_err(refusal_from);
    let grant = match grant.and_then(|grant| add(shared, known, grant, None)) {
        Ok(grant) => grant,
        Err(refused) => {
            drop_device(shared, uid, core, number);
            return Err(refused);
        }
    };
    known.devices.insert(grant.to_word(), number);
    let held = HeldGrant {
        volume: None,
        device: number,
        access,
        bytes: geometry.bytes,
        chunks: Vec::new(),
        is_mapped: false,
    };
    if let Some(client) = shared.registry.lock().clients.get_mut(&known.key.number) {
        client.grants.insert(grant.to_word(), held);
    }
    Ok(ControlReply::Granted(GrantInfo {
        grant: grant.to_word(),
        bytes: geometry.bytes,
        block: geometry.block,
        access,
        device: name,
        unmappable_reason: Some(
            "the server reads and writes the file; it can be mapped by its descriptor".into(),
        ),
        is_volatile: false,
        can_be_direct: false,
    }))
}

/// Removes a client's own device from the client's core once no command is in flight on it; a helper of the client's
/// user then closes the file.
pub(crate) fn drop_device(shared: &Arc<SharedState>, uid: u32, core: usize, device: DeviceNumber) {
    let (by, numbers) = (shared.helpers.clone(), shared.clone());
    let reply = OnDone::new(move |removed: Option<BoxedDevice>| {
        numbers.device_numbers.give(device);
        by.drop_later(uid, removed);
    });
    // The send fails only if the core has stopped, which then has dropped the device.
    let _ = shared.cores.send(core, CoreOrder::RemoveDevice { device, reply });
}

/// Returns descriptors of consecutive chunks of a grant, beginning with chunk `from`, for the client to map.
pub(crate) fn map(
    shared: &SharedState,
    connection: &mut Connection,
    grant: u64,
    from: u32,
) -> Result<(ControlReply, Vec<OwnedFd>), Refusal> {
    let number = known(connection)?.key.number;
    let mut everybody = shared.registry.lock();
    let missing = || Refusal::new(RefusalKind::Missing, "there is no such grant, or it was taken back");
    let held = everybody.clients.get_mut(&number).and_then(|client| client.grants.get_mut(&grant));
    let held = held.ok_or_else(missing)?;
    if held.volume.is_none() || held.chunks.is_empty() {
        return Err(Refusal::new(RefusalKind::Unfit, "the grant cannot be mapped; use the channel"));
    }
    let (volume, device, access) = (held.volume.as_ref().map(|(id, _)| *id), held.device, held.access);
    let count = held.chunks.iter().map(ExactSizeIterator::len).sum::<usize>();
    let chunks = held.chunks.clone();
    if volume.is_some_and(|volume| !everybody.is_open(volume)) {
        return Err(missing());
    }
    if let Some(held) = everybody.clients.get_mut(&number).and_then(|client| client.grants.get_mut(&grant)) {
        held.is_mapped = true;
    }
    let wanted = chunks.into_iter().flatten().skip(from as usize).take(DESCRIPTORS_MAX);
    let mut descriptors = Vec::new();
    for first in wanted {
        everybody.note_mapped(device, first..first + 1);
        let chunk = Chunk { device, number: first };
        let asked =
            |reply| CoreOrder::Chunks { first: chunk, count: 1, writable: access.allows_write(), reply };
        let given = shared.cores.ask(FIRST, asked)?;
        descriptors.extend(given.map_err(|error| Refusal::new(RefusalKind::Failed, error))?);
    }
    let chunk_bytes = everybody.devices.values().find(|facts| facts.number == device);
    let chunk_bytes = chunk_bytes.and_then(|facts| facts.chunk_bytes).ok_or_else(missing)?;
    // The number of chunks is far below 2^32.
    Ok((ControlReply::Chunks { chunk_bytes, count: count as u32 }, descriptors))
}
