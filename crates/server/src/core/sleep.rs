//! Sleep of the core: decides when the core sleeps, and handles what wakes it: orders, devices, and clients'
//! doorbells.

use crate::bell::Bell;
use crate::core::client::{Channel, WakeMode};
use crate::core::order::{ClientKey, CoreOrder};
use crate::core::{Core, EXCHANGE_INTERVAL_NS, Origin, RING_POLLS, SURVEY_INTERVAL_NS};
use crate::helpers::CLOSING_LIMIT;
use bywash_device::Device;
use bywash_protocol::layout::Status;
use rustix::event::{Timespec, epoll};
use rustix::io::{self, Errno};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Event numbers of the bell and of devices; every other number is a client's slot.
const BELL: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;
/// Number of doorbells that may lie unread in a client's socket before a helper reads them: far fewer than
/// the socket's queue holds.
const DOORBELLS_UNREAD: u32 = 4;
/// Greatest number of readiness events that one call handles; the next call handles the rest.
const EVENTS: usize = 64;

/// Set of the descriptors that the core sleeps on.
pub(crate) struct Sleeper {
    epoll: OwnedFd,
    heard: Vec<epoll::Event>,
    /// True if a caller steps the core: it then looks at the descriptors and never sleeps.
    pub(crate) is_stepped: bool,
}

impl Sleeper {
    pub(crate) fn new(bell: &Bell) -> io::Result<Sleeper> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell.as_fd(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Sleeper { epoll, heard: Vec::with_capacity(EVENTS), is_stepped: false })
    }

    /// Adds a device's descriptor, which becomes readable when a command has completed after the device was
    /// armed.
    pub(crate) fn watch_device(&self, descriptor: BorrowedFd<'_>) {
        // A device that cannot be watched is polled at each survey, since `rest` never sleeps longer while
        // commands are in flight.
        let added =
            epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(DEVICE), epoll::EventFlags::IN);
        if let Err(error) = added {
            tracing::warn!("cannot watch a device, which is asked ten times a second instead: {error}");
        }
    }

    pub(crate) fn unwatch(&self, descriptor: BorrowedFd<'_>) {
        // Ignored, because the descriptor may never have been added.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Adds the socket of a client's channel. Each doorbell is reported once (edge-triggered), so that the
    /// core need not read the socket.
    pub(crate) fn watch_client(&self, channel: &Channel, slot: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(slot as u64);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, channel.server.as_fd(), data, flags)
    }

    pub(crate) fn forget(&self, channel: &Channel) {
        self.unwatch(channel.server.as_fd());
    }

    /// Sleeps until a descriptor is ready, at most `limit`, or without end if it is `None`.
    fn sleep(&mut self, limit: Option<Duration>) -> &[epoll::Event] {
        let limit = if self.is_stepped { Some(Duration::ZERO) } else { limit };
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        self.heard.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.heard), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // A valid epoll descriptor and buffer leave no other error.
            Err(error) => tracing::error!("cannot sleep: {error}"),
        }
        &self.heard
    }
}

impl Core {
    /// Ends a round that found nothing to do: stops polling clients that have been silent for long. Sleeps if
    /// no client is polled and nothing was done for as long. Returns true if it polled the rings alone and
    /// took a request from one of them.
    pub(super) fn idle(&mut self, now: u64) -> bool {
        if let Some(poll) = self.timeouts.poll {
            let poll_ns = poll.as_nanos() as u64;
            let mut at = 0;
            while let Some(&number) = self.polled.get(at) {
                let client = &self.clients[number];
                let is_silent = client.current.is_none() && now.saturating_sub(client.active_ns) >= poll_ns;
                if is_silent && self.arm(number) {
                    self.polled.swap_remove(at);
                } else if self.polled.get(at) == Some(&number) {
                    at += 1;
                }
            }
        }
        // The ring of a client that waits for its rate limit or for a full device is not polled, so it gives
        // no reason to spin.
        let is_watched = self.polled.iter().any(|number| self.clients[*number].current.is_none());
        let is_due = self
            .timeouts
            .poll
            .is_some_and(|poll| Duration::from_nanos(now.saturating_sub(self.busy_ns)) >= poll);
        let waits = !self.polled.is_empty() || !self.resumed.is_empty();
        if is_watched || (waits && !is_due) {
            return self.spin();
        }
        // The bell may have been heard in this round, after the round had looked for orders.
        if self.bell.is_rung() {
            return false;
        }
        self.forget_idle();
        let mut waits_for_device = false;
        for device in &self.active {
            let disk = &mut self.disks[*device];
            if disk.device.in_flight() > 0 {
                if disk.device.arm() {
                    bywash_sync::pause();
                    return false;
                }
                waits_for_device = true;
            }
        }
        let disks = self.active.iter().map(|device| &self.disks[*device]);
        let due = disks.filter(|disk| !disk.is_full).filter_map(|disk| disk.schedule.ready_at()).min();
        let limit = due.map(|due| Duration::from_nanos(due.saturating_sub(now)));
        let survey = Duration::from_nanos(SURVEY_INTERVAL_NS);
        let limit = match limit {
            Some(limit) => Some(limit.min(survey)),
            None => waits_for_device.then_some(survey),
        };
        self.sleep_and_note(limit);
        false
    }

    /// Spins on the rings of the polled clients. While nothing is in flight the rings are all there is to
    /// look at, and a full round would take three times as long.
    fn spin(&mut self) -> bool {
        bywash_sync::pause();
        if !self.works.is_none_in_use() {
            return false;
        }
        self.clock.mark_stale();
        for _ in 0..RING_POLLS {
            if self.poll_rings() {
                return true;
            }
            if self.bell.is_rung() {
                break;
            }
            bywash_sync::pause();
        }
        false
    }

    /// Asks a silent client for a doorbell before its next request. Returns true if the client will ring and
    /// is to be polled no longer.
    fn arm(&mut self, number: usize) -> bool {
        let Some(client) = self.clients.get_mut(number) else { return true };
        let Some(channel) = &mut client.channel else { return true };
        let armed = channel.server.arm_unread();
        let is_over = client.is_disconnected;
        // Even if there is a request now: the client was asked for a doorbell, and may have rung.
        self.have_doorbells_read(number);
        match armed {
            Ok(true) => false,
            Ok(false) if !is_over => {
                self.clients[number].attention = WakeMode::Woken;
                true
            }
            Ok(false) | Err(_) => {
                self.abandon_channel(number);
                false
            }
        }
    }

    /// Counts a doorbell that a client may have left in its socket. When there may be [`DOORBELLS_UNREAD`],
    /// has a helper read them, before the socket is too full for another.
    fn have_doorbells_read(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let (Some(channel), Some(armed)) = (&client.channel, client.unread_doorbells) else { return };
        client.unread_doorbells = Some(armed + 1);
        if armed + 1 < DOORBELLS_UNREAD {
            return;
        }
        client.unread_doorbells = None;
        let key = self.own_orders.key(number, client.number);
        let (memories, orders) = (channel.memories.clone(), self.own_orders.clone());
        self.helpers.spawn(client.uid, CLOSING_LIMIT, move || {
            let is_over = !memories.drain_socket().unwrap_or(false);
            // The clone is dropped before the order is sent, so that the core has the last one when it
            // carries the order out.
            drop(memories);
            // The send fails only if the core has stopped.
            let _ = orders.send(CoreOrder::Heard { client: key, is_over });
        });
    }

    /// Carries out [`CoreOrder::Heard`]: polls the client again, since the helper may have read a doorbell
    /// that the core has not seen.
    #[cold]
    pub(super) fn heard(&mut self, key: ClientKey, is_over: bool) {
        let now = self.clock.read();
        let Some(client) = self.clients.get_mut(key.slot).filter(|client| client.number == key.number) else {
            return;
        };
        client.unread_doorbells = Some(0);
        client.is_disconnected |= is_over;
        if client.attention == WakeMode::Woken {
            (client.attention, client.active_ns) = (WakeMode::Polled, now);
            self.polled.push(key.slot);
        }
    }

    /// Sleeps, and notes which clients have rung.
    pub(super) fn sleep_and_note(&mut self, limit: Option<Duration>) {
        if limit != Some(Duration::ZERO) {
            self.note_load(0);
        }
        self.ring_clients();
        self.sleeper.sleep(limit);
        let now = self.clock.read();
        self.glanced_ns = now;
        if now.saturating_sub(self.exchanged_ns) > EXCHANGE_INTERVAL_NS {
            self.exchange_schedules(now);
        }
        let heard = std::mem::take(&mut self.sleeper.heard);
        for event in &heard {
            match event.data.u64() {
                BELL => self.bell.drain(),
                DEVICE => {}
                slot => {
                    let slot = slot as usize;
                    let Some(client) = self.clients.get_mut(slot) else { continue };
                    let flags = event.flags;
                    client.is_disconnected |=
                        flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                    if client.attention == WakeMode::Woken {
                        (client.attention, client.active_ns) = (WakeMode::Polled, now);
                        self.polled.push(slot);
                    }
                }
            }
        }
        self.sleeper.heard = heard;
    }

    /// Tells the other cores' schedules what the clients of this core use of each device, and takes over what theirs use.
    #[cold]
    fn exchange_schedules(&mut self, now: u64) {
        self.exchanged_ns = now;
        let core = self.own_orders.number();
        for device in &self.active {
            self.disks[*device].schedule.exchange(core, now);
        }
    }

    /// Tells how many clients are active on this core: those that have sent a request since `since_ns`, or all that are
    /// polled if the core is about to sleep.
    fn note_load(&self, since_ns: u64) {
        let is_active = |number: &&usize| self.clients[**number].active_ns >= since_ns;
        self.own_orders.note_load(self.polled.iter().filter(is_active).count(), self.clients.len());
    }

    /// Stops polling devices that have no commands in flight and no clients in line.
    fn forget_idle(&mut self) {
        self.active.retain(|device| {
            let disk = &mut self.disks[*device];
            disk.is_active = disk.device.in_flight() > 0 || disk.schedule.ready_at().is_some();
            disk.is_active
        });
    }

    /// Looks for stuck devices and late requests.
    #[cold]
    pub(super) fn check_timeouts(&mut self, now: u64) {
        self.note_load(self.surveyed_ns);
        self.surveyed_ns = now;
        self.forget_idle();
        let timeout_ns = self.timeouts.request.as_nanos() as u64;
        for (_, disk) in &mut self.disks {
            if disk.device.in_flight() == 0 {
                disk.note_progress(now);
            } else if now.saturating_sub(disk.progress_ns) > timeout_ns && !disk.is_stuck {
                disk.is_stuck = true;
                tracing::error!(
                    "device '{}' has done nothing for {:?} of {} commands; requests to it fail until it does",
                    disk.name,
                    self.timeouts.request,
                    disk.device.in_flight()
                );
            }
        }
        let late: Vec<usize> = self
            .works
            .in_use()
            .filter(|place| now.saturating_sub(self.works.all[*place].moved_ns) > timeout_ns)
            .collect();
        for place in late {
            self.time_out(place);
        }
        let leaving = self.disks.iter().filter(|(_, disk)| disk.leaving.is_some());
        for number in leaving.map(|(number, _)| number).collect::<Vec<_>>() {
            self.remove_device(number);
        }
    }

    /// Fails a request that has exceeded the timeout, and tells its client. Commands in flight stay with the
    /// device, and the memory stays mapped, until the device has completed them.
    #[cold]
    fn time_out(&mut self, place: usize) {
        let work = &mut self.works.all[place];
        let late = if work.status == Status::Success { Status::TimedOut } else { work.status };
        match &mut work.origin {
            Origin::Server(reply) => {
                let Some(reply) = reply.take() else { return };
                work.status = late;
                reply.send(late);
            }
            Origin::Client { client: number, request } => {
                let number = *number;
                let Some(request) = request.take() else { return };
                work.status = late;
                let client = &mut self.clients[number];
                client.counts.failures += 1;
                if client.current == Some(place) {
                    client.current = None;
                }
                if let Some(channel) = &mut client.channel
                    && channel.server.complete(request, late as u16, 0).is_err()
                {
                    self.abandon_channel(number);
                }
            }
        }
        let work = &self.works.all[place];
        // A parked request keeps its slot, and its volume, until the change that it waits for has ended.
        if work.commands == 0 && !work.is_parked && !self.resumed.contains(&place) {
            self.complete(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Timeouts;
    use crate::core::clock::ClockStart;
    use crate::core::order::CoreHandle;
    use crate::helpers::Helpers;
    use std::sync::mpsc::channel;

    /// An order arrives when a round has looked for orders already, and the round hears the bell before it
    /// sleeps.
    #[test]
    fn no_order_is_slept_over() {
        let (orders, waiting, bell) = CoreHandle::new(0).unwrap();
        let (awake, is_awake) = channel();
        std::thread::spawn(move || {
            let helpers = Helpers::start().unwrap();
            let mut core =
                Core::new(orders.clone(), waiting, bell, Timeouts::default(), helpers, ClockStart::now())
                    .unwrap();
            assert!(!core.bell.take_rung());
            orders.send(CoreOrder::Stop).unwrap();
            core.sleep_and_note(Some(Duration::ZERO));
            let now = core.clock.now();
            core.idle(now);
            assert!(core.bell.take_rung());
            core.carry_out_orders();
            awake.send(core.stopping).unwrap();
        });
        assert_eq!(is_awake.recv_timeout(Duration::from_secs(10)), Ok(true));
    }
}
