//! A disk at work: turns chains into requests of the device, and returns completed ones in the used ring.
//!
//! Invariant: each chain that was taken is returned exactly once, when its request has completed, in any
//! order; the owner of the guest's memory mapping lives as long. The device has at most as many requests in
//! flight as the rings have entries. Called by `frontend` for each turn, and by `messages` when the frontend
//! changes something.

use crate::inflight::Record;
use crate::layout::{self, FAILED, FLUSHES, NAME_BYTES, OK, UNSUPPORTED};
use crate::memory::{self, Map, Memory, WatchedMap};
use crate::request::{Action, ParsedChain, Parts};
use crate::ring::{Broken, ChainHead, EventCounter, Next, Ring};
use crate::stats::Counters;
use bywash_device::{Command, Device, Geometry, Operation};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slab::Slab;
use std::sync::Arc;
use vm_memory::GuestAddress;

/// Greatest number of chains that are taken from a ring before the next ring has its turn.
const TURN_MAX: usize = 256;
/// Greatest time to wait for the device's descriptor before the device is reaped anyway.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Properties of a disk that are the same for every guest.
#[derive(Debug)]
pub(crate) struct DiskProperties {
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) queues: u16,
    pub(crate) memory_bytes_max: u64,
}

/// A disk, and the state of the guest that uses it.
#[derive(Debug)]
pub(crate) struct Disk<D> {
    pub(crate) device: D,
    pub(crate) geometry: Geometry,
    pub(crate) face: DiskProperties,
    /// Feature bits that the guest's driver has accepted.
    pub(crate) agreed: u64,
    pub(crate) memory: Option<Memory>,
    pub(crate) rings: Vec<Ring>,
    /// Index of the ring that has the first turn next time.
    first_ring: usize,
    /// Event counters to ring, by the thread that has released this disk.
    pending_calls: Vec<Arc<EventCounter>>,
    /// Objects of the frontend that were replaced, and that requests in flight may still use.
    replaced: Vec<FrontendObject>,
    /// Requests in flight. A request's token is its index here; there are no more than the rings have
    /// entries.
    requests: Slab<InFlight>,
    counters: Arc<Counters>,
    /// True if the next turn must follow at once.
    more_to_do: bool,
    /// True if a chain waits until a request has completed.
    chain_waits: bool,
    /// True if the guest is to notify of chains that it adds after this turn.
    sleeps_next: bool,
}

/// Result of a turn of the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// True if the next turn must follow at once.
    pub(crate) has_more: bool,
    /// True if requests were taken from the guest or returned to it.
    pub(crate) has_progress: bool,
}

/// An object that a frontend has passed and that is no longer needed. Unmapping it can take seconds.
#[derive(Debug)]
pub(crate) enum FrontendObject {
    Map(Arc<WatchedMap>),
    Record(#[expect(dead_code, reason = "kept until it is dropped")] Record),
    Ring(#[expect(dead_code, reason = "kept until it is dropped")] Ring),
}

impl FrontendObject {
    fn is_in_use(&self) -> bool {
        matches!(self, FrontendObject::Map(map) if Arc::strong_count(map) > 1)
    }
}

/// A chain whose request is in flight.
#[derive(Debug)]
struct InFlight {
    ring: usize,
    head: ChainHead,
    operation: Operation,
    length: u64,
    status: GuestAddress,
    /// The memory that the chain lies in; the guest may have other memory by the time the request completes.
    map: Arc<WatchedMap>,
}

impl<D: Device> Disk<D> {
    pub(crate) fn new(device: D, face: DiskProperties, counters: Arc<Counters>) -> Disk<D> {
        let geometry = device.geometry();
        let rings = (0..face.queues).map(|_| Ring::new()).collect();
        Disk {
            device,
            geometry,
            face,
            agreed: 0,
            memory: None,
            rings,
            first_ring: 0,
            pending_calls: Vec::new(),
            replaced: Vec::new(),
            requests: Slab::new(),
            counters,
            more_to_do: false,
            chain_waits: false,
            sleeps_next: true,
        }
    }

    /// Reaps the device, takes chains from the rings up to a limit, and notifies the guest. `parts` is scratch space for the
    /// chains. With `sleeps_next`, the guest will notify of the next chain.
    pub(crate) fn turn(&mut self, parts: &mut Parts, sleeps_next: bool) -> Turn {
        (self.more_to_do, self.chain_waits, self.sleeps_next) = (false, false, sleeps_next);
        let mut reaped = self.reap();
        let has_taken = self.process_rings(parts);
        // The device may have completed fast requests by now.
        let fast = self.reap();
        if fast > 0 && self.chain_waits {
            self.more_to_do = true;
        }
        reaped += fast;
        self.notify();
        Turn { has_more: self.more_to_do, has_progress: has_taken || reaped > 0 }
    }

    /// Looks up to `looks` times whether a request has completed, which is then returned to the guest by the next turn, or
    /// whether the guest has added one. Returns true as soon as that is so.
    pub(crate) fn has_work_within(&mut self, looks: u32) -> bool {
        for _ in 0..looks {
            if self.reap() > 0 || (!self.chain_waits && self.has_chain()) {
                return true;
            }
            bywash_sync::pause();
        }
        false
    }

    fn has_chain(&self) -> bool {
        let Some(memory) = &self.memory else { return false };
        self.rings.iter().any(|ring| ring.has_chain(memory.map()))
    }

    /// Returns true if the frontend has taken pages of the guest's memory away.
    pub(crate) fn has_lost_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.map().is_broken())
    }

    /// Looks at the device's size, and returns true if it has changed. A size of no block, or of none at all, is not taken
    /// over: no disk has it.
    pub(crate) fn refresh(&mut self) -> bool {
        let now = self.device.refresh();
        let has_changed = now.bytes != self.geometry.bytes && layout::check(&now).is_ok();
        if has_changed {
            self.geometry = now;
        }
        has_changed
    }

    /// Waits until all chains have been returned that were taken from `ring`, or from any ring if `None`.
    pub(crate) fn drain(&mut self, ring: Option<usize>) {
        loop {
            self.reap();
            let left = match ring {
                Some(ring) => self.rings[ring].in_flight.into(),
                None => self.device.in_flight(),
            };
            if left == 0 {
                self.notify();
                return;
            }
            self.wait_for_device();
        }
    }

    /// Completes all requests and resets the disk to its state before the first guest. Returns every object
    /// that the guest's frontend has passed.
    pub(crate) fn forget_guest(&mut self) -> Vec<FrontendObject> {
        self.drain(None);
        self.pending_calls.clear();
        self.agreed = 0;
        let mut all = std::mem::take(&mut self.replaced);
        all.extend(self.memory.take().map(|memory| FrontendObject::Map(memory.map().clone())));
        all.extend(
            self.rings.iter_mut().map(|ring| FrontendObject::Ring(std::mem::replace(ring, Ring::new()))),
        );
        all
    }

    /// Replaces the guest's memory, in which all rings lie.
    pub(crate) fn set_memory(&mut self, memory: Memory) {
        if let Some(before) = self.memory.replace(memory) {
            self.replaced.push(FrontendObject::Map(before.map().clone()));
        }
    }

    /// Keeps a replaced record until it can be dropped by a thread that does not have the disk.
    pub(crate) fn keep(&mut self, record: Record) {
        self.replaced.push(FrontendObject::Record(record));
    }

    /// Hands over the event counters to ring, and the replaced objects that are no longer in use. The caller
    /// rings and drops them after it has released this disk, since either can block.
    pub(crate) fn take_released(&mut self, bells: &mut Vec<Arc<EventCounter>>) -> Vec<FrontendObject> {
        bells.append(&mut self.pending_calls);
        match self.replaced.is_empty() {
            true => Vec::new(),
            false => self.replaced.extract_if(.., |passed| !passed.is_in_use()).collect(),
        }
    }

    /// Stops an invalid ring for good, and has its frontend notified.
    fn give_up(&mut self, index: usize) {
        self.pending_calls.extend(self.rings[index].give_up());
    }

    fn wait_for_device(&mut self) {
        if self.device.arm() {
            return;
        }
        if let Some(descriptor) = self.device.descriptor() {
            // The result of poll(2) does not matter: the caller reaps the device next in any case.
            let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&LOOK));
        }
    }

    /// Takes chains from all rings, and returns true if there were any. The ring behind the first one from which any was taken has the first turn next time,
    /// so that no ring waits for others when the device has room for few commands.
    fn process_rings(&mut self, parts: &mut Parts) -> bool {
        let (first, count) = (self.first_ring, self.rings.len());
        let mut has_taken = false;
        for index in (first..count).chain(0..first) {
            let before = self.rings[index].taken;
            self.process_ring(index, parts);
            if !has_taken && self.rings[index].taken != before {
                has_taken = true;
                self.first_ring = (index + 1) % count;
            }
        }
        has_taken
    }

    fn process_ring(&mut self, index: usize, parts: &mut Parts) {
        if !self.rings[index].is_live() {
            return;
        }
        let Some(map) = self.memory.as_ref().map(|memory| memory.map().clone()) else { return };
        if let Err(Broken) = self.take_chains(index, parts, &map) {
            self.give_up(index);
        }
    }

    fn take_chains(&mut self, index: usize, parts: &mut Parts, map: &Arc<WatchedMap>) -> Result<(), Broken> {
        if self.rings[index].is_waiting(map) {
            return Ok(());
        }
        self.rings[index].keep_looking(map)?;
        for _ in 0..TURN_MAX {
            match self.rings[index].next(map, self.sleeps_next)? {
                Next::Empty => return Ok(()),
                Next::Full => {
                    self.chain_waits = true;
                    return Ok(());
                }
                Next::StillPolling => break,
                Next::Chain(head) => {
                    let asked = parts.read(self.rings[index].chain(head, map), map, &self.geometry);
                    if !self.carry_out(index, head, asked, parts, map)? {
                        self.chain_waits = true;
                        return Ok(());
                    }
                }
            }
        }
        self.more_to_do = true;
        Ok(())
    }

    /// Submits a chain's request, or completes it at once. Returns false if the chain was put back into the
    /// ring for later.
    fn carry_out(
        &mut self,
        index: usize,
        head: ChainHead,
        asked: ParsedChain,
        parts: &Parts,
        map: &Arc<WatchedMap>,
    ) -> Result<bool, Broken> {
        let ParsedChain { status: Some(status), what: Ok(what) } = asked else {
            let state = asked.what.err().unwrap_or(FAILED);
            return self.refuse(index, head, asked.status, state, map);
        };
        let (operation, offset, length) = match what {
            Action::Do { operation: Operation::Write, offset, length } if self.agreed & FLUSHES == 0 => {
                // A guest that has not negotiated flushes expects every completed write to be durable
                // (5.2.6.2).
                (Operation::WriteDurable, offset, length)
            }
            // The device cannot write zeros durably. Such a guest can write them as data instead.
            Action::Do { operation: Operation::WriteZeroes, .. } if self.agreed & FLUSHES == 0 => {
                return self.refuse(index, head, Some(status), UNSUPPORTED, map);
            }
            Action::Do { operation, offset, length } => (operation, offset, length),
            Action::Identify => return self.identify(index, head, status, parts, map),
        };
        let Some(memory) = &self.memory else { return Err(Broken) };
        let in_flight = InFlight { ring: index, head, operation, length, status, map: map.clone() };
        let place = self.requests.insert(in_flight);
        let token = place as u64;
        let command = Command::new(token, operation, offset, length, &parts.segments).owner(memory.owner());
        if self.device.submit(command).is_ok() {
            self.counters.requests.add(1);
            self.counters.resumed.add(head.inherited.into());
            self.counters.under_way_max.raise(self.requests.len() as u64);
            return Ok(true);
        }
        self.requests.remove(place);
        if self.device.in_flight() == 0 {
            // The device has nothing in flight and still does not take this request, so waiting would not
            // help.
            return self.refuse(index, head, Some(status), FAILED, map);
        }
        self.rings[index].put_back(head);
        Ok(false)
    }

    fn refuse(
        &mut self,
        index: usize,
        head: ChainHead,
        status: Option<GuestAddress>,
        state: u8,
        map: &Map,
    ) -> Result<bool, Broken> {
        self.counters.requests.add(1);
        self.counters.refused.add(1);
        let written = status.map_or(0, |at| write_status(at, state, map));
        self.rings[index].give_back(head, written, map).map(|()| true)
    }

    fn identify(
        &mut self,
        index: usize,
        head: ChainHead,
        status: GuestAddress,
        parts: &Parts,
        map: &Map,
    ) -> Result<bool, Broken> {
        let Some(bytes) = parts.write(&self.face.name, map) else {
            return self.refuse(index, head, Some(status), FAILED, map);
        };
        self.counters.requests.add(1);
        let written = bytes as u32 + write_status(status, OK, map);
        self.rings[index].give_back(head, written, map).map(|()| true)
    }

    /// Reaps the device and returns the chains of the completed requests. Returns their number.
    fn reap(&mut self) -> usize {
        let Disk { device, requests, rings, memory, counters, pending_calls: bells, .. } = self;
        let mut count = 0;
        device.reap(&mut |done| {
            // A device that reports an unknown token is faulty, and the report is ignored.
            let Some(in_flight) = requests.try_remove(done.token as usize) else { return };
            let InFlight { ring, head, operation, length, status, map } = in_flight;
            count += 1;
            let (state, bytes) = match (done.result, operation) {
                (Err(_), _) => (FAILED, 0),
                (Ok(()), Operation::Read) => (OK, length),
                (Ok(()), _) => (OK, 0),
            };
            let counter = match (done.result, operation) {
                (Err(_), _) => Some((&counters.failed, 1)),
                (Ok(()), Operation::Read) => Some((&counters.bytes_read, length)),
                (Ok(()), Operation::Write | Operation::WriteDurable) => {
                    Some((&counters.bytes_written, length))
                }
                _ => None,
            };
            if let Some((counter, more)) = counter {
                counter.add(more);
            }
            let written = (bytes as u32).saturating_add(write_status(status, state, &map));
            let now = memory.as_ref().map_or(&map, Memory::map);
            if let Err(Broken) = rings[ring].give_back(head, written, now) {
                bells.extend(rings[ring].give_up());
            }
        });
        count
    }

    fn notify(&mut self) {
        let Some(memory) = &self.memory else { return };
        for ring in self.rings.iter_mut().filter(|ring| ring.has_unsent_returns) {
            match ring.notification(memory.map()) {
                Ok(Some(call)) => {
                    self.counters.notifications.add(1);
                    self.pending_calls.push(call);
                }
                Ok(None) => {}
                Err(Broken) => self.pending_calls.extend(ring.give_up()),
            }
        }
    }

    /// Reads a part of the configuration space; `None` if it extends beyond the readable part.
    pub(crate) fn configuration(&self, offset: u32, bytes: u32) -> Option<Vec<u8>> {
        layout::part(&layout::configuration(&self.geometry, self.face.queues), offset, bytes)
    }
}

/// Writes a request's status, and returns the number of bytes written: 0 if the guest's memory does not
/// contain the byte.
fn write_status(at: GuestAddress, state: u8, map: &Map) -> u32 {
    memory::write_byte(map, at, state).into()
}
