//! When the core sleeps, and what wakes it: orders, devices, clients that ring.

use crate::bell::Bell;
use crate::core::client::{Attention, Channel};
use crate::core::order::{ClientKey, Order};
use crate::core::{Core, LOOKS, Origin, SURVEY_NS};
use crate::helpers::CLOSING_LIMIT;
use bywash_device::Device;
use bywash_protocol::layout::Status;
use rustix::event::{Timespec, epoll};
use rustix::io::{self, Errno};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Not of a client.
const BELL: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;
/// Doorbells that a client's socket may have unread before a helper reads them: far fewer than there is room for.
const DOORBELLS_UNREAD: u32 = 4;
/// Heard at a time; those that are left are heard next.
const EVENTS: usize = 64;

/// What the core sleeps on.
pub(crate) struct Sleeper {
    epoll: OwnedFd,
    heard: Vec<epoll::Event>,
    /// Whoever calls has other things to do, and the core only looks.
    pub(crate) is_stepped: bool,
}

impl Sleeper {
    pub(crate) fn new(bell: &Bell) -> io::Result<Sleeper> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell.as_fd(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Sleeper { epoll, heard: Vec::with_capacity(EVENTS), is_stepped: false })
    }

    /// A device's descriptor says when something is done, after it was armed.
    pub(crate) fn watch_device(&self, descriptor: BorrowedFd<'_>) {
        // One that cannot be watched is looked at when the survey is due: see `rest`.
        let added =
            epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(DEVICE), epoll::EventFlags::IN);
        if let Err(error) = added {
            tracing::warn!("cannot watch a device, which is asked ten times a second instead: {error}");
        }
    }

    pub(crate) fn unwatch(&self, descriptor: BorrowedFd<'_>) {
        // It may not have been watched.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// A client's channel, of which each doorbell is an edge, so that the socket need not be read.
    pub(crate) fn watch_client(&self, channel: &Channel, slot: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(slot as u64);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, channel.server.as_fd(), data, flags)
    }

    pub(crate) fn forget(&self, channel: &Channel) {
        self.unwatch(channel.server.as_fd());
    }

    /// Sleeps until something happens, `limit` at most; none: for ever.
    fn sleep(&mut self, limit: Option<Duration>) -> &[epoll::Event] {
        let limit = if self.is_stepped { Some(Duration::ZERO) } else { limit };
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        self.heard.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.heard), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Of an epoll of one's own nothing else is ever said.
            Err(error) => tracing::error!("cannot sleep: {error}"),
        }
        &self.heard
    }
}

impl Core {
    /// Nothing was to be done in this round: who has been silent for long is not looked at any more, and with nobody to
    /// look at, and nothing done for as long, the core sleeps. True: somebody had something, and was looked at already.
    pub(super) fn rest(&mut self, now: u64) -> bool {
        if let Some(poll) = self.patience.poll {
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
        // Who waits for its limit, or for a device that is full, has nothing that could be looked at.
        let is_watched = self.polled.iter().any(|number| self.clients[*number].current.is_none());
        let is_due = self
            .patience
            .poll
            .is_some_and(|poll| Duration::from_nanos(now.saturating_sub(self.busy_ns)) >= poll);
        let waits = !self.polled.is_empty() || !self.resumed.is_empty();
        if is_watched || (waits && !is_due) {
            return self.watch();
        }
        // This round may have heard the bell already, after it had looked for orders.
        if self.bell.is_rung() {
            return false;
        }
        self.forget_idle();
        let mut waits_for_device = false;
        for device in &self.active {
            let disk = &mut self.disks[*device];
            if disk.device.under_way() > 0 {
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
        let survey = Duration::from_nanos(SURVEY_NS);
        let limit = match limit {
            Some(limit) => Some(limit.min(survey)),
            None => waits_for_device.then_some(survey),
        };
        self.hear(limit);
        false
    }

    /// Waits for those who are looked at. While nothing is under way their rings are all that there is to look at, and a
    /// round would take three times as long.
    fn watch(&mut self) -> bool {
        bywash_sync::pause();
        if !self.works.is_none_in_use() {
            return false;
        }
        self.clock.let_age();
        for _ in 0..LOOKS {
            if self.look() {
                return true;
            }
            if self.bell.is_rung() {
                break;
            }
            bywash_sync::pause();
        }
        false
    }

    /// Asks a silent client to wake the core; true: it will, and is not polled any more.
    fn arm(&mut self, number: usize) -> bool {
        let Some(client) = self.clients.get_mut(number) else { return true };
        let Some(channel) = &mut client.channel else { return true };
        let armed = channel.server.arm_unread();
        let is_over = client.is_over;
        // Whatever is in the ring by now: the client may have been asked, and ring.
        self.have_doorbells_read(number);
        match armed {
            Ok(true) => false,
            Ok(false) if !is_over => {
                self.clients[number].attention = Attention::Woken;
                true
            }
            Ok(false) | Err(_) => {
                self.hang_up(number);
                false
            }
        }
    }

    /// Has a helper read the doorbells that a client has left in its socket, where there may be so many that soon there is
    /// no room for one more.
    fn have_doorbells_read(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let (Some(channel), Some(armed)) = (&client.channel, client.armed) else { return };
        client.armed = Some(armed + 1);
        if armed + 1 < DOORBELLS_UNREAD {
            return;
        }
        client.armed = None;
        let key = ClientKey { slot: number, number: client.number };
        let (memories, orders) = (channel.memories.clone(), self.own_orders.clone());
        self.helpers.give(client.uid, CLOSING_LIMIT, move || {
            let is_over = !memories.hear().unwrap_or(false);
            // In front of the order: when that is carried out the core has the last one.
            drop(memories);
            // A core that has stopped looks at nobody.
            let _ = orders.send(Order::Heard { client: key, is_over });
        });
    }

    /// A helper has read a client's doorbells: one that came meanwhile may not have been seen.
    #[cold]
    pub(super) fn heard(&mut self, key: ClientKey, is_over: bool) {
        let now = self.clock.read();
        let Some(client) = self.clients.get_mut(key.slot).filter(|client| client.number == key.number) else {
            return;
        };
        client.armed = Some(0);
        client.is_over |= is_over;
        if client.attention == Attention::Woken {
            (client.attention, client.active_ns) = (Attention::Polled, now);
            self.polled.push(key.slot);
        }
    }

    /// Sleeps, and takes notice of what woke the core.
    pub(super) fn hear(&mut self, limit: Option<Duration>) {
        self.sleeper.sleep(limit);
        let now = self.clock.read();
        self.glanced_ns = now;
        let heard = std::mem::take(&mut self.sleeper.heard);
        for event in &heard {
            match event.data.u64() {
                BELL => self.bell.quiet(),
                DEVICE => {}
                slot => {
                    let slot = slot as usize;
                    let Some(client) = self.clients.get_mut(slot) else { continue };
                    let flags = event.flags;
                    client.is_over |= flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                    if client.attention == Attention::Woken {
                        (client.attention, client.active_ns) = (Attention::Polled, now);
                        self.polled.push(slot);
                    }
                }
            }
        }
        self.sleeper.heard = heard;
    }

    /// Looks no more at devices of which nobody wants anything.
    fn forget_idle(&mut self) {
        self.active.retain(|device| {
            let disk = &mut self.disks[*device];
            disk.is_active = disk.device.under_way() > 0 || disk.schedule.ready_at().is_some();
            disk.is_active
        });
    }

    /// Looks for what takes too long.
    #[cold]
    pub(super) fn survey(&mut self, now: u64) {
        self.surveyed_ns = now;
        self.forget_idle();
        let patience_ns = self.patience.request.as_nanos() as u64;
        for (_, disk) in &mut self.disks {
            if disk.device.under_way() == 0 {
                disk.note_progress(now);
            } else if now.saturating_sub(disk.progress_ns) > patience_ns && !disk.is_stuck {
                disk.is_stuck = true;
                tracing::error!(
                    "device '{}' has done nothing for {:?} of {} commands; requests to it fail until it does",
                    disk.name,
                    self.patience.request,
                    disk.device.under_way()
                );
            }
        }
        let late: Vec<usize> = self
            .works
            .in_use()
            .filter(|place| now.saturating_sub(self.works.all[*place].moved_ns) > patience_ns)
            .collect();
        for place in late {
            self.give_up(place);
        }
        let leaving = self.disks.iter().filter(|(_, disk)| disk.leaving.is_some());
        for number in leaving.map(|(number, _)| number).collect::<Vec<_>>() {
            self.give_back(number);
        }
    }

    /// A request has taken too long: whoever wanted it is told so. What the device has of it stays there, with the memory,
    /// until the device has done it.
    #[cold]
    fn give_up(&mut self, place: usize) {
        let work = &mut self.works.all[place];
        let late = if work.status == Status::Done { Status::TimedOut } else { work.status };
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
                    self.hang_up(number);
                }
            }
        }
        if self.works.all[place].commands == 0 && !self.resumed.contains(&place) {
            self.complete(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Patience;
    use crate::core::order::Orders;
    use crate::helpers::Helpers;
    use std::sync::mpsc::channel;

    /// An order comes when a round has looked for orders already, and the round hears its bell before it sleeps.
    #[test]
    fn no_order_is_slept_over() {
        let (orders, waiting, bell) = Orders::new().unwrap();
        let (awake, is_awake) = channel();
        std::thread::spawn(move || {
            let helpers = Helpers::start().unwrap();
            let mut core = Core::new(orders.clone(), waiting, bell, Patience::default(), helpers).unwrap();
            assert!(!core.bell.was_rung());
            orders.send(Order::Stop).unwrap();
            core.hear(Some(Duration::ZERO));
            let now = core.clock.now();
            core.rest(now);
            assert!(core.bell.was_rung());
            core.carry_out_orders();
            awake.send(core.stopping).unwrap();
        });
        assert_eq!(is_awake.recv_timeout(Duration::from_secs(10)), Ok(true));
    }
}
