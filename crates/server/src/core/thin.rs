//! Thin volumes in the core: requests that need blocks which are not allocated, or that give blocks back, wait here
//! until the volume's map is changed. So do those that write blocks which other volumes have, too: snapshots and clones.
//!
//! ```text
//!   request ──► checked: touches a hole ──► parked ──► a helper of its user ──► MapKeeper: store, registry
//!                                              ▲          all of the volume's parked requests at a time
//!            its segments found anew, submitted └── Changed ◄── Remap: new maps of all grants of the volume ◄──┘
//! ```
//!
//! A read of a hole does not wait: its part of the buffer is filled with zeros in the client's turn. Requests to
//! allocated blocks do not come here, and neither do reads of shared ones. Whoever has blocks copied is charged for the
//! copy when the request goes on.
//!
//! Invariant: of each volume one change is under way at a time. A parked request has no command in flight, and all
//! its segments of thin volumes are found anew before it is submitted, since the map may have lost blocks meanwhile.
//! Called by the core's rounds and orders.

use crate::core::Core;
use crate::core::client::{Client, WakeMode};
use crate::core::map::{MapChange, MapChanged};
use crate::core::order::{ClientKey, CoreOrder, OnDone};
use crate::core::work::{Origin, RequestPool, RequestState, SegmentKind};
use bywash_protocol::layout::{Opcode, Status};
use bywash_volume::{ByteRange, DeviceNumber, Grant, GrantNumber};
use slab::Slab;
use std::time::Duration;

/// Greatest number of times that one request is parked: once for each volume, and again if another request has
/// released its blocks meanwhile.
const PARKED_MAX: u32 = 64;
/// Time after which a helper that changes a map counts as stuck.
const CHANGE_LIMIT: Duration = Duration::from_secs(120);

/// Requests that wait for a change of one volume's map, as slots of work: as many at most as the channels of the clients
/// that have the volume open are deep.
#[derive(Debug, Default)]
pub(crate) struct ParkedRequests {
    /// Requests whose change is under way.
    running: Vec<usize>,
    /// Requests for the next change.
    waiting: Vec<usize>,
}

/// Requests whose end somebody waits for; the reply is sent when none of them is left.
#[derive(Debug)]
pub(crate) struct Drain {
    of: DrainedRequests,
    reply: OnDone<()>,
}

/// Choice of the requests that are drained.
#[derive(Debug)]
enum DrainedRequests {
    /// Requests to ranges of a device that are given up.
    Spans { device: DeviceNumber, spans: Vec<ByteRange> },
    /// Requests that write a thin volume.
    Writes { volume: u64 },
}

impl Drain {
    pub(crate) fn of_spans(device: DeviceNumber, spans: Vec<ByteRange>, reply: OnDone<()>) -> Drain {
        Drain { of: DrainedRequests::Spans { device, spans }, reply }
    }

    pub(crate) fn of_writes(volume: u64, reply: OnDone<()>) -> Drain {
        Drain { of: DrainedRequests::Writes { volume }, reply }
    }

    fn is_over(&self, works: &RequestPool, clients: &Slab<Client>) -> bool {
        let is_meant = |work: &RequestState| match &self.of {
            DrainedRequests::Spans { device, spans } => work.touches(device.0 as usize, spans),
            DrainedRequests::Writes { volume } => match work.origin {
                Origin::Client { client, .. } => work.writes(|grant| {
                    clients[client].states[grant].thin.as_ref().is_some_and(|thin| thin.id == *volume)
                }),
                Origin::Server(_) => false,
            },
        };
        !works.in_use().any(|place| is_meant(&works.all[place]))
    }
}

impl Core {
    /// Parks a request that needs a change of a thin volume's map. If the change takes longer than a request may, the
    /// client is told so, but the request keeps its slot and its grants until the change has ended.
    #[cold]
    pub(super) fn park(&mut self, place: usize) {
        let work = &mut self.works.all[place];
        let Origin::Client { client, .. } = work.origin else { return };
        let states = &self.clients[client].states;
        let missing = work.segments.iter().find(|segment| segment.kind == SegmentKind::Missing);
        let volume = missing.and_then(|segment| states[segment.grant].thin.as_ref()).map(|thin| thin.id);
        let Some(volume) = volume.filter(|_| work.parked < PARKED_MAX) else {
            work.status = Status::Failed;
            return self.complete(place);
        };
        work.parked += 1;
        work.is_parked = true;
        let parked = self.thin.entry(volume).or_default();
        parked.waiting.push(place);
        if parked.running.is_empty() {
            self.change_map(volume);
        }
    }

    /// Has a helper change a volume's map for all requests that wait.
    fn change_map(&mut self, volume: u64) {
        let Some(parked) = self.thin.get_mut(&volume) else { return };
        parked.running = std::mem::take(&mut parked.waiting);
        let (mut requests, mut by) = (Vec::new(), None);
        for place in &parked.running {
            let work = &self.works.all[*place];
            let Origin::Client { client, .. } = work.origin else { continue };
            let client = &self.clients[client];
            let mut changes = Vec::new();
            for segment in work.segments.iter().filter(|segment| segment.kind == SegmentKind::Missing) {
                let thin = client.states[segment.grant].thin.as_ref().filter(|thin| thin.id == volume);
                let Some(thin) = thin else { continue };
                let range = ByteRange::new(segment.grant_offset, segment.length);
                changes.push(match work.opcode {
                    Opcode::Discard => MapChange::Release(range),
                    _ => MapChange::Allocate(range),
                });
                by.get_or_insert_with(|| (client.uid, thin.keeper.clone()));
            }
            requests.push(changes);
        }
        // Each parked request has a segment of this volume.
        let Some((uid, keeper)) = by else { return };
        let orders = self.own_orders.clone();
        self.helpers.spawn(uid, CHANGE_LIMIT, move || {
            let change = keeper.change(volume, &requests);
            drop(keeper);
            // The send fails only if the core has stopped.
            let _ = orders.send(CoreOrder::Changed { volume, change });
        });
    }

    /// Continues the requests that waited for a change, and begins the next one.
    #[cold]
    pub(super) fn changed(&mut self, volume: u64, change: MapChanged) {
        let Some(parked) = self.thin.get_mut(&volume) else { return };
        let running = std::mem::take(&mut parked.running);
        // All that waited have the copies, so each pays its part.
        let copied = change.copied_bytes / running.len().max(1) as u64;
        let mut statuses = change.statuses.into_iter();
        for place in running {
            self.resume(place, statuses.next().unwrap_or(Status::Failed), copied);
        }
        match self.thin.get(&volume) {
            Some(parked) if !parked.running.is_empty() => {}
            Some(parked) if parked.waiting.is_empty() => drop(self.thin.remove(&volume)),
            _ => self.change_map(volume),
        }
    }

    /// Continues a parked request: submits it, parks it again, or fails it.
    fn resume(&mut self, place: usize, changed: Status, copied: u64) {
        let work = &mut self.works.all[place];
        work.is_parked = false;
        let Origin::Client { client: number, .. } = work.origin else { return };
        let client = &mut self.clients[number];
        if work.status == Status::Success {
            let is_gone = client.leaving.is_some() || client.attention == WakeMode::None;
            let resolved = match changed {
                Status::Success if is_gone => Err(Status::Failed),
                Status::Success => work.resolve(client).map_err(|refused| refused.status),
                status => Err(status),
            };
            if let Err(status) = resolved {
                (work.status, work.value) = (status, 0);
            }
        }
        if work.status != Status::Success || work.segments.is_empty() {
            return self.complete(place);
        }
        if work.missing > 0 {
            return self.park(place);
        }
        self.charge(place, number, copied);
        self.resumed.push_back(place);
    }

    /// Charges a client for a request that is submitted without its turn, and for `copied` bytes that were copied for it.
    fn charge(&mut self, place: usize, number: usize, copied: u64) {
        let now = self.clock.now();
        for (at, segment) in self.works.all[place].segments.iter().enumerate() {
            let (client, disk) = (&mut self.clients[number], &mut self.disks[segment.device]);
            let member = match client.members.get(segment.device) {
                Some(Some(member)) => Ok(*member),
                _ => disk.add_member(client, number, segment.device),
            };
            // Too many clients, or invalid limits; both were ruled out when the client joined.
            if let Ok(member) = member {
                // A copy reads and writes.
                let more = if at == 0 { copied.saturating_mul(2) } else { 0 };
                disk.schedule.served(member.turn, segment.length.saturating_add(more), now);
            }
        }
    }

    /// Replaces the maps of grants of a thin volume. Grants that were revoked meanwhile stay so.
    #[cold]
    pub(super) fn remap(&mut self, grants: Vec<(ClientKey, GrantNumber, Grant)>) {
        for (key, number, grant) in grants {
            let client = self.clients.get_mut(key.slot).filter(|client| client.number == key.number);
            let Some(client) = client else { continue };
            if let Ok(former) = client.table.replace(number, grant) {
                // Its memory may be large enough to be unmapped when it is freed.
                self.helpers.drop_later(client.uid, former);
            }
        }
    }

    /// Replies to those who wait until some requests have ended.
    #[cold]
    pub(super) fn check_drains(&mut self) {
        let (works, clients) = (&self.works, &self.clients);
        let over: Vec<Drain> = self.drains.extract_if(.., |drain| drain.is_over(works, clients)).collect();
        over.into_iter().for_each(|drain| drain.reply.send(()));
    }
}
