//! Carries out the orders that other threads send.

use crate::core::client::{Channel, Client, WakeMode};
use crate::core::copy::CopyMemory;
use crate::core::disk::ServedDevice;
use crate::core::order::{BoxedDevice, Chunk, ClientKey, ClientReport, CoreOrder, CoreReport, OnDone};
use crate::core::thin::Drain;
use crate::core::{Core, STOP_TIMEOUT};
use crate::helpers::DropByHelper;
use crate::schedule::Exchange;
use bywash_channel as channel;
use bywash_device::{Command, Device, Error};
use bywash_protocol::layout::Status;
use bywash_volume::{ByteRange, Bytes, DeviceNumber};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Token of the flush that the core submits to each device before it ends.
const LAST_FLUSH: u64 = u64::MAX;

impl Core {
    #[cold]
    pub(super) fn carry_out_orders(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            self.carry_out(order);
        }
    }

    fn carry_out(&mut self, order: CoreOrder) {
        match order {
            CoreOrder::AddDevice { number, name, device, owner, exchange, reply } => {
                self.add_device(number, name, device, owner, exchange);
                reply.send(());
            }
            CoreOrder::RemoveDevice { device, reply } => match self.disks.get_mut(device.0 as usize) {
                Some(disk) => {
                    disk.leaving = Some(reply);
                    self.remove_device(device.0 as usize);
                }
                None => reply.send(None),
            },
            CoreOrder::Join { client, reply } => {
                let number = client.number;
                // Invalid limits are found here, not at the client's first request.
                let tried = crate::schedule::Schedule::new().join(client.limits);
                let key =
                    tried.map(|_| self.own_orders.key(self.clients.insert(Client::new(client)), number));
                // Counted as active at once, so that clients that join together are spread over the cores.
                let (active, _) = self.own_orders.load();
                self.own_orders.note_load(active as usize + 1, self.clients.len());
                reply.send(key);
            }
            CoreOrder::Serve { client, channel, depth } => self.serve(client, channel, depth),
            CoreOrder::Grant { client, grant, thin, reply } => match self.client(client) {
                Some(client) => {
                    let outcome = client.table.add(grant);
                    if let Ok(number) = outcome {
                        client.note_granted(number, thin);
                    }
                    reply.send(outcome);
                }
                // The reply is dropped, so that the caller gets [`CoreStopped`](crate::core::order::Stopped).
                None => drop(reply),
            },
            CoreOrder::Remap { grants } => self.remap(grants),
            CoreOrder::Changed { volume, change } => self.changed(volume, change),
            CoreOrder::Drain { device, spans, reply } => {
                self.drains.push(Drain::of_spans(device, spans, reply));
            }
            CoreOrder::DrainWrites { volume, reply } => self.drains.push(Drain::of_writes(volume, reply)),
            CoreOrder::Revoke { client, grant, reply } => match self.client(client) {
                Some(client) => client.revoke(grant, reply),
                // The client has left and was drained, and its grants with it.
                None => reply.send(Ok(())),
            },
            CoreOrder::Pinned { client, pinner, memory } => self.pinned(client, &pinner, memory),
            CoreOrder::Heard { client, is_over } => self.heard(client, is_over),
            CoreOrder::Leave { client, reply } => match self.client(client) {
                Some(_) => {
                    self.abandon_channel(client.slot);
                    self.clients[client.slot].leaving = Some(reply);
                    self.remove_client(client.slot);
                }
                None => reply.send(None),
            },
            CoreOrder::Clear { device, span, reply } => self.clear(device, span, reply),
            CoreOrder::Copy { device, from, to, memory, reply } => {
                self.copy(device, (from, to), memory, reply);
            }
            CoreOrder::Flush { device, reply } => self.flush(device, reply),
            CoreOrder::Chunks { first, count, writable, reply } => {
                reply.send(self.chunks(first, count, writable));
            }
            // Only memory devices have chunks. For others the reply is dropped, so that the caller gets
            // `CoreStopped`.
            CoreOrder::Shape { chunk: Chunk { device, number }, reply } => {
                if let Some(chunks) = self.disks.get(device.0 as usize).and_then(|disk| disk.device.chunks())
                {
                    reply.send(chunks.shape(number));
                }
            }
            CoreOrder::Replace { chunk: Chunk { device, number }, keep, spare, reply } => {
                let disk = self.disks.get_mut(device.0 as usize);
                if let Some(chunks) = disk.and_then(|disk| disk.device.chunks_mut()) {
                    reply.send(chunks.replace(number, keep, spare));
                }
            }
            CoreOrder::Report { reply } => reply.send(self.report()),
            CoreOrder::Stop => self.stopping = true,
        }
    }

    fn client(&mut self, key: ClientKey) -> Option<&mut Client> {
        self.clients.get_mut(key.slot).filter(|client| client.number == key.number)
    }

    fn add_device(
        &mut self,
        number: DeviceNumber,
        name: String,
        BoxedDevice(device): BoxedDevice,
        owner: Option<u32>,
        exchange: Option<Arc<Exchange>>,
    ) {
        let mut disk = ServedDevice::new(name, device, owner, self.clock.read());
        if let Some(exchange) = exchange {
            disk.schedule.share(exchange);
        }
        if let Some(descriptor) = disk.device.descriptor() {
            self.sleeper.watch_device(descriptor);
        }
        // All cores know a device by the same number, so it is not the table that chooses.
        let others = std::mem::take(&mut self.disks);
        self.disks = others.into_iter().chain([(number.0 as usize, disk)]).collect();
    }

    /// Removes a device that is to be removed, if no command is in flight on it, and sends it with the reply.
    pub(super) fn remove_device(&mut self, number: usize) {
        if self.disks[number].device.in_flight() > 0 || self.disks[number].leaving.is_none() {
            return;
        }
        let mut disk = self.disks.remove(number);
        self.active.retain(|active| *active != number);
        for (_, client) in &mut self.clients {
            client.leave_device(number, &mut disk);
        }
        if let Some(descriptor) = disk.device.descriptor() {
            self.sleeper.unwatch(descriptor);
        }
        if let Some(pinner) = &disk.pinner {
            self.forget_pinner(pinner);
        }
        if let Some(reply) = disk.leaving {
            reply.send(Some(BoxedDevice(disk.device)));
        }
    }

    fn serve(&mut self, key: ClientKey, mut server: DropByHelper<Box<channel::Server>>, depth: u32) {
        let now = self.clock.read();
        let client = self.clients.get_mut(key.slot).filter(|client| client.number == key.number);
        // If the client has left meanwhile, dropping `server` has a helper drop the channel.
        let Some(client) = client else { return };
        let Some(server) = server.take().map(|server| *server) else { return };
        let memories = Arc::new(server.buffer_access());
        let owner = memories.clone();
        let channel = client.channel.insert(Channel { server, memories, owner, pins: Vec::new(), depth });
        (client.attention, client.active_ns) = (WakeMode::Polled, now);
        match self.sleeper.watch_client(channel, key.slot) {
            Ok(()) => self.polled.push(key.slot),
            // Without its socket watched, nobody could wake the core for this client.
            Err(_) => self.abandon_channel(key.slot),
        }
    }

    /// Removes a client that has left, if it has no requests in flight, and sends its remains with the reply.
    pub(super) fn remove_client(&mut self, number: usize) {
        if self.clients[number].in_flight > 0 {
            return;
        }
        let mut client = self.clients.remove(number);
        client.forget_arena(&mut self.disks);
        for (device, member) in client.members.iter().enumerate() {
            if let (Some(member), Some(disk)) = (member, self.disks.get_mut(device)) {
                disk.remove_member(*member);
            }
        }
        if let Some(reply) = client.leaving.take() {
            reply.send(Some(client.into_gone()));
        }
    }

    /// Returns true if a device has this range, and the range is not empty.
    fn has(&self, device: DeviceNumber, span: ByteRange) -> bool {
        self.disks.get(device.0 as usize).is_some_and(|disk| {
            let (start, length) = (span.start.0, span.length.0);
            start.checked_add(length).is_some_and(|end| length > 0 && end <= disk.geometry.bytes)
        })
    }

    fn clear(&mut self, device: DeviceNumber, span: ByteRange, reply: OnDone<Status>) {
        if !self.has(device, span) {
            return reply.send(Status::OutOfBounds);
        }
        let now = self.clock.read();
        let place = self.works.take();
        let work = &mut self.works.all[place];
        work.clear(device.0 as usize, span.start.0, span.length.0, reply, now);
        self.resumed.push_back(place);
    }

    fn copy(
        &mut self,
        device: DeviceNumber,
        (from, to): (ByteRange, Bytes),
        memory: Arc<CopyMemory>,
        reply: OnDone<Status>,
    ) {
        let target = ByteRange { start: to, length: from.length };
        let fits =
            memory.bytes() as u64 >= from.length.0 && self.has(device, from) && self.has(device, target);
        if !fits {
            return reply.send(Status::OutOfBounds);
        }
        let now = self.clock.read();
        let place = self.works.take();
        let work = &mut self.works.all[place];
        work.copy(device.0 as usize, (from, to), memory, reply, now);
        self.resumed.push_back(place);
    }

    fn flush(&mut self, device: DeviceNumber, reply: OnDone<Status>) {
        if !self.disks.contains(device.0 as usize) {
            return reply.send(Status::Failed);
        }
        let now = self.clock.read();
        let place = self.works.take();
        let work = &mut self.works.all[place];
        work.flush(device.0 as usize, reply, now);
        self.resumed.push_back(place);
    }

    fn chunks(&mut self, first: Chunk, count: usize, writable: bool) -> Result<Vec<OwnedFd>, Error> {
        let memory = self.disks.get(first.device.0 as usize).and_then(|disk| disk.device.chunks());
        let Some(memory) = memory else { return Ok(Vec::new()) };
        (first.number..first.number.saturating_add(count).min(memory.count()))
            .map(
                |number| {
                    if writable { memory.open_read_write(number) } else { memory.open_read_only(number) }
                },
            )
            .collect()
    }

    fn report(&self) -> CoreReport {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        CoreReport {
            devices: self.disks.iter().map(|(number, disk)| disk.report(number)).collect(),
            core: self.own_orders.number(),
            clients: self
                .clients
                .iter()
                .map(|(slot, client)| report(self.own_orders.key(slot, client.number), client))
                .collect(),
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
        }
    }

    /// Waits for commands in flight, flushes the devices, and releases everything.
    pub(super) fn finish(mut self) {
        let end = self.clock.read() + STOP_TIMEOUT.as_nanos() as u64;
        self.polled.clear();
        self.settle(end);
        for (_, disk) in &mut self.disks {
            // A full device takes no flush: it has had its time to complete commands.
            let _ = disk.device.submit(Command::flush(LAST_FLUSH));
        }
        while self.disks.iter().any(|(_, disk)| disk.device.in_flight() > 0) && self.clock.read() < end {
            for (_, disk) in &mut self.disks {
                disk.device.reap(&mut |_| {});
            }
            std::thread::yield_now();
        }
        self.leave_to_helpers();
    }

    /// Has helpers drop the remains of clients and the files that they have passed, because closing them may
    /// block.
    fn leave_to_helpers(&mut self) {
        for client in std::mem::take(&mut self.clients) {
            let (_, mut client) = client;
            client.forget_arena(&mut self.disks);
            self.helpers.drop_later(client.uid, client.into_gone());
        }
        let foreign = |(number, disk): (usize, &ServedDevice)| disk.owner.map(|owner| (number, owner));
        for (number, owner) in self.disks.iter().filter_map(foreign).collect::<Vec<_>>() {
            let disk = self.disks.remove(number);
            self.helpers.drop_later(owner, BoxedDevice(disk.device));
        }
    }

    /// Waits until no command is in flight, at most until `end`.
    fn settle(&mut self, end: u64) {
        while self.disks.iter().any(|(_, disk)| disk.device.in_flight() > 0) && self.clock.read() < end {
            if !self.reap(true) {
                std::thread::yield_now();
            }
            self.ring_clients();
        }
    }
}

fn report(key: ClientKey, client: &Client) -> ClientReport {
    ClientReport {
        key,
        depth: client.channel.as_ref().map_or(0, |channel| channel.depth),
        in_flight: client.in_flight,
        is_polled: client.attention == WakeMode::Polled,
        counts: client.counts.clone(),
        grants: client
            .table
            .grants()
            .map(|(number, _)| (number, &client.states[client.state_of(number)].counts))
            // Unused grants are left out: their counters are 0, and there may be many.
            .filter(|(_, counts)| counts.requests() + counts.refusals + counts.failures > 0)
            .map(|(number, counts)| (number, counts.clone()))
            .collect(),
    }
}
