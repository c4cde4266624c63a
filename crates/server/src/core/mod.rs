//! The core: one thread that takes requests out of rings, checks them, has devices carry them out, and completes them.
//!
//! ```text
//!      clients' rings          each device's schedule        devices
//!     ┌──┐
//!     │  │ polled ──► take ──►  fair turns, slices   ──►  submit, poll ──► complete
//!     ├──┤             │ checked, refused                                     │
//!     │  │ ◄───────────┴──────────────────────────────────────────────────────┘
//!     ├──┤
//!     │  │ woken: rings a bell first
//! ```
//!
//! A round looks at every polled client's ring, gives each device some turns, and asks each device what is done. Who has
//! sent nothing for a while is not looked at any more, but wakes the core (one system call of the client's); with nobody
//! to look at the core sleeps. So what a request costs does not grow with the number of clients that are idle.
//!
//! Nothing is allocated and no lock is taken on the way of a request. Other threads send orders ([`order`]).
//!
//! Invariant: a request is completed exactly once, with its client there or not; what a grant allowed is not done any more
//! once its revocation was answered.

mod client;
mod clock;
mod disk;
pub(crate) mod order;
mod orders;
mod sleep;
mod work;

use crate::bell::Bell;
use crate::core::client::{Attention, Channel, Client};
use crate::core::clock::Clock;
use crate::core::disk::Disk;
use crate::core::order::Order;
use crate::core::sleep::Sleeper;
use crate::core::work::{NO_GRANT, Origin, Refused, Slice, Work};
use crate::schedule;
use bywash_device::{Command, Device, Done, Failure, Operation, Span};
use bywash_protocol::layout::{Opcode, Status};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

pub(crate) use client::Joining;

/// How the core waits, for requests and for devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// So long after its last request a client is looked at without having to wake the core. None: for ever.
    pub poll: Option<Duration>,
    /// A request that has taken so long fails, and so do those to a device that has done nothing for so long.
    pub request: Duration,
}

impl Default for Patience {
    /// 100 us, 30 s.
    fn default() -> Patience {
        Patience { poll: Some(Duration::from_micros(100)), request: Duration::from_secs(30) }
    }
}

/// For what is under way when the server is told to stop.
const GRACE: Duration = Duration::from_secs(5);
/// Turns that a device gives in a round.
const TURNS: usize = 64;
/// Refusals that a client has in the time of so many turns.
const REFUSALS: usize = 8;
/// Stretches that are laid out in the time of a request of one.
const STRETCHES_A_LOOK: usize = 8;
/// What it may be charged with in a round: then somebody looks who else wants something.
const ROUND: u64 = 512 << 10;
/// Looks at rings alone, between two rounds in which nothing was to be done and nothing is under way.
const LOOKS: usize = 32;
/// Between two looks at what has become too late, and at who wakes the core while it does not sleep.
const SURVEY_NS: u64 = 100_000_000;
const GLANCE_NS: u64 = 50_000;

/// The core.
pub(crate) struct Core {
    disks: Slab<Disk>,
    /// Devices of which somebody wants something, or has until lately: all others are not looked at.
    active: Vec<usize>,
    clients: Slab<Client>,
    works: Works,
    /// Clients whose rings are looked at.
    polled: Vec<usize>,
    /// Work that goes on without a turn: a flush behind what was written, and the server's own.
    resumed: VecDeque<usize>,
    finished: Vec<Finished>,
    clock: Clock,
    patience: Patience,
    sleeper: Sleeper,
    orders: Receiver<Order>,
    bell: Arc<Bell>,
    surveyed_ns: u64,
    glanced_ns: u64,
    /// When something was done last.
    busy_ns: u64,
    stopping: bool,
}

/// The device is looked at from now on.
#[inline]
fn note_active(active: &mut Vec<usize>, disk: &mut Disk, number: usize) {
    if !std::mem::replace(&mut disk.is_active, true) {
        active.push(number);
    }
}

/// What a device has done.
struct Finished {
    work: usize,
    result: Result<(), Failure>,
}

/// Work, in places that are used again with the memory that they have.
#[derive(Default)]
struct Works {
    all: Vec<Work>,
    free: Vec<usize>,
    is_used: Vec<bool>,
}

impl Works {
    /// An empty one.
    #[inline]
    fn take(&mut self) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(Work::empty());
            self.is_used.push(false);
            self.all.len() - 1
        });
        self.is_used[place] = true;
        place
    }

    #[inline]
    fn give(&mut self, place: usize) {
        self.is_used[place] = false;
        self.all[place].forget_many();
        self.free.push(place);
    }

    fn is_none_in_use(&self) -> bool {
        self.free.len() == self.all.len()
    }

    fn in_use(&self) -> impl Iterator<Item = usize> + '_ {
        self.is_used.iter().enumerate().filter_map(|(place, is_used)| is_used.then_some(place))
    }
}

impl Core {
    pub(crate) fn new(
        orders: Receiver<Order>,
        bell: Arc<Bell>,
        patience: Patience,
    ) -> rustix::io::Result<Core> {
        let sleeper = Sleeper::new(&bell)?;
        Ok(Core {
            disks: Slab::new(),
            active: Vec::new(),
            clients: Slab::new(),
            works: Works::default(),
            polled: Vec::new(),
            resumed: VecDeque::new(),
            finished: Vec::new(),
            clock: Clock::new(),
            patience,
            sleeper,
            orders,
            bell,
            surveyed_ns: 0,
            glanced_ns: 0,
            busy_ns: 0,
            stopping: false,
        })
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        // What was found at rest.
        let mut found = false;
        loop {
            if self.bell.was_rung() {
                self.carry_out_orders();
            }
            if self.stopping {
                return self.finish();
            }
            let now = if found { self.clock.now() } else { self.clock.read() };
            let mut busy = self.look() | std::mem::take(&mut found);
            busy |= self.resume();
            busy |= self.give_turns(now);
            busy |= self.collect();
            if now - self.surveyed_ns > SURVEY_NS {
                self.survey(now);
            }
            if now - self.glanced_ns > GLANCE_NS {
                // A bell that was heard is silent: what it rang for is looked at before anybody sleeps.
                self.hear(Some(Duration::ZERO));
                continue;
            }
            match busy {
                true => self.busy_ns = now,
                false => found = self.rest(now),
            }
        }
    }

    /// Looks at the rings of those who are polled; true: somebody had something.
    #[inline]
    fn look(&mut self) -> bool {
        let mut found = false;
        let mut at = 0;
        while at < self.polled.len() {
            let client = self.polled[at];
            if self.clients[client].current.is_none() && self.take(client) {
                found = true;
                self.clients[client].active_ns = self.clock.now();
            }
            // Who was thrown out is in the list no more.
            if self.polled.get(at) == Some(&client) {
                at += 1;
            }
        }
        found
    }

    /// Takes requests out of a client's ring until one has something for a device; true: there was one, or one that
    /// could be answered at once.
    #[inline]
    fn take(&mut self, number: usize) -> bool {
        let mut found = false;
        // Those that are answered at once are not much more than one: nobody else waits for long.
        let mut looked = 0;
        while looked < TURNS {
            let Some(client) = self.clients.get_mut(number) else { return found };
            let Some(channel) = &mut client.channel else { return found };
            let request = match channel.server.try_next() {
                Ok(Some(request)) => request,
                Ok(None) => return found,
                Err(_) => {
                    self.hang_up(number);
                    return true;
                }
            };
            found = true;
            let now = self.clock.fresh();
            let place = self.works.take();
            let work = &mut self.works.all[place];
            let client = &self.clients[number];
            let Some(channel) = &client.channel else { return found };
            let memory = channel.server.memory(&request);
            let outcome = work.take(number, client, &request, &memory, &self.disks, now);
            work.origin = Origin::Client { client: number, request: Some(request) };
            looked += 1 + work.stretches.len() / STRETCHES_A_LOOK;
            let client = &mut self.clients[number];
            client.under_way += 1;
            match outcome {
                Err(refused) => {
                    // Which nobody is charged for.
                    looked += TURNS / REFUSALS;
                    self.refuse(place, refused);
                }
                Ok(()) => {
                    for stretch in &work.stretches {
                        client.states[stretch.grant].under_way += 1;
                    }
                    match work.device() {
                        None => self.complete(place),
                        Some(device) => {
                            client.current = Some(place);
                            self.want(number, device);
                            return true;
                        }
                    }
                }
            }
        }
        found
    }

    /// The client stands in line for a device.
    #[inline]
    fn want(&mut self, number: usize, device: usize) {
        let (client, disk) = (&mut self.clients[number], &mut self.disks[device]);
        if client.members.len() <= device {
            client.members.resize(device + 1, None);
        }
        let member = match client.members[device] {
            Some(member) => member,
            None => match disk.take_in(client, number) {
                Ok(member) => *client.members[device].insert(member),
                // No more clients fit, or its limits cannot be; both were found out when it came.
                Err(_) => return self.fail_current(number, Status::Failed),
            },
        };
        disk.schedule.wants(member.turn);
        note_active(&mut self.active, disk, device);
    }

    /// Gives each device's turns to those who stand in line; true: somebody had one.
    #[inline]
    fn give_turns(&mut self, now: u64) -> bool {
        let mut busy = false;
        let mut at = 0;
        while let Some(&device) = self.active.get(at) {
            at += 1;
            let mut charged = 0;
            for _ in 0..TURNS {
                let disk = &mut self.disks[device];
                if disk.is_full || charged >= ROUND {
                    break;
                }
                let Some(member) = disk.schedule.next(now) else { break };
                let Some(number) = self.holder(device, member) else {
                    self.disks[device].schedule.leave(member);
                    continue;
                };
                let Some(bytes) = self.turn(number, device, member, now) else { break };
                charged += bytes + schedule::REQUEST as u64;
                busy = true;
            }
        }
        busy
    }

    /// A client's turn at a device; answers what bytes were submitted, or none if the device takes nothing more now.
    #[inline]
    fn turn(&mut self, number: usize, device: usize, member: schedule::Client, now: u64) -> Option<u64> {
        let Some(place) = self.clients[number].current else {
            self.disks[device].schedule.wants_nothing(member);
            return Some(0);
        };
        let mut bytes = 0;
        match self.works.all[place].next_slice(&self.disks) {
            Some(slice) if slice.device != device => {
                self.disks[device].schedule.wants_nothing(member);
                self.want(number, slice.device);
                return Some(0);
            }
            Some(slice) => {
                if !self.submit(place, slice) {
                    self.disks[device].is_full = true;
                    return None;
                }
                bytes = slice.length;
                self.disks[device].schedule.served(member, slice.length, now);
            }
            None => {}
        }
        if let Some(next) = self.works.all[place].next_device() {
            if next != device {
                self.disks[device].schedule.wants_nothing(member);
                self.want(number, next);
            }
            return Some(bytes);
        }
        // All of it is on its way.
        self.clients[number].current = None;
        if self.works.all[place].commands == 0 {
            self.complete(place);
        }
        if self.clients[number].attention == Attention::Polled && self.take(number) {
            self.clients[number].active_ns = now;
        }
        let goes_on =
            self.clients[number].current.is_some_and(|place| self.works.all[place].device() == Some(device));
        if !goes_on {
            self.disks[device].schedule.wants_nothing(member);
        }
        Some(bytes)
    }

    /// Who a schedule means.
    #[inline]
    fn holder(&self, device: usize, member: schedule::Client) -> Option<usize> {
        let number = *self.disks[device].holders.get(member.index())?;
        let client = self.clients.get(number)?;
        let is_it = client.members.get(device)?.is_some_and(|known| known.turn == member);
        is_it.then_some(number)
    }

    /// Submits a slice of some work; false: the device is full.
    #[expect(unsafe_code, reason = "a device is told where a request's memory is")]
    #[inline]
    fn submit(&mut self, place: usize, slice: Slice) -> bool {
        let work = &mut self.works.all[place];
        let disk = &mut self.disks[slice.device];
        let channel = match &work.origin {
            Origin::Client { client, .. } => self.clients[*client].channel.as_ref(),
            Origin::Server(_) => None,
        };
        let memory = match (&work.origin, channel) {
            (Origin::Client { request: Some(request), .. }, Some(channel)) => {
                channel.server.memory(request).as_ptr().wrapping_add(slice.memory)
            }
            _ => std::ptr::dangling_mut(),
        };
        let bytes = match slice.operation {
            Operation::CompareAndWrite => 2 * slice.length as usize,
            _ => slice.length as usize,
        };
        // SAFETY: where data goes, a client's request was taken whose buffer is within the client's arena (`channel`), and
        // the stretches were laid out within that buffer (`Work::take`). The arena is mapped as long as the owner lives
        // that goes along, and no reference ever leads there.
        let span = [unsafe { Span::new(memory, bytes) }];
        let token = place as u64;
        let (at, length) = (slice.place, slice.length);
        let command = match slice.operation {
            Operation::Read => Command::read(token, at, &span),
            Operation::Write => Command::write(token, at, &span),
            Operation::WriteDurable => Command::write_durable(token, at, &span),
            Operation::CompareAndWrite => Command::compare_and_write(token, at, &span),
            Operation::Flush => Command::flush(token),
            Operation::Discard => Command::discard(token, at, length),
            Operation::WriteZeroes => Command::write_zeroes(token, at, length),
        };
        let command = match (&work.origin, channel) {
            (Origin::Client { client, .. }, Some(channel)) => {
                let member = self.clients[*client].members.get(slice.device).copied().flatten();
                command.owner(channel.owner.clone()).region(member.and_then(|member| member.region))
            }
            _ => command,
        };
        if disk.device.under_way() == 0 {
            disk.progress_ns = self.clock.now();
        }
        if disk.device.submit(command).is_err() {
            return false;
        }
        work.note_submitted(&slice, self.clock.now());
        note_active(&mut self.active, disk, slice.device);
        true
    }

    /// Submits what needs no turn; true: there was something.
    fn resume(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..self.resumed.len().min(TURNS) {
            let Some(place) = self.resumed.pop_front() else { break };
            match self.works.all[place].next_slice(&self.disks) {
                Some(slice) => busy |= self.submit(place, slice),
                None => {
                    // It has failed. What of it is still under way completes it.
                    if self.works.all[place].commands == 0 {
                        self.complete(place);
                    }
                    continue;
                }
            }
            // Behind the others: its device may be full, and theirs not.
            if self.works.all[place].next_device().is_some() {
                self.resumed.push_back(place);
            }
        }
        busy
    }

    /// Asks the devices what is done; true: something was.
    #[inline]
    fn collect(&mut self) -> bool {
        let mut busy = false;
        let mut finished = std::mem::take(&mut self.finished);
        for device in &self.active {
            let disk = &mut self.disks[*device];
            if disk.device.under_way() == 0 {
                continue;
            }
            let count = disk.device.poll(&mut |Done { token, result, .. }| {
                finished.push(Finished { work: token as usize, result });
            });
            if count > 0 {
                disk.note_progress(self.clock.now());
                busy = true;
            }
        }
        if busy {
            self.clock.read();
        }
        for Finished { work: place, result } in finished.drain(..) {
            let work = &mut self.works.all[place];
            work.note_done(result, self.clock.now());
            if work.commands == 0 && work.next_device().is_none() {
                let goes_on = match work.origin {
                    Origin::Client { client, .. } => self.clients[client].current == Some(place),
                    Origin::Server(_) => self.resumed.contains(&place),
                };
                // What failed before all of it was submitted is completed where it would have gone on.
                if !goes_on {
                    self.complete(place);
                }
            }
        }
        self.finished = finished;
        busy
    }

    /// All commands of some work are done.
    #[inline]
    fn complete(&mut self, place: usize) {
        let work = &mut self.works.all[place];
        if work.turn_to_flush() {
            self.resumed.push_back(place);
            return;
        }
        let now = self.clock.now();
        match &mut work.origin {
            Origin::Server(reply) => {
                if let Some(reply) = reply.take() {
                    reply.send(work.status);
                }
                self.works.give(place);
            }
            Origin::Client { client: number, request } => {
                let (number, request) = (*number, request.take());
                if request.is_some() {
                    self.count(place, number, now);
                }
                let work = &self.works.all[place];
                let (status, value) = (work.status, work.value);
                let client = &mut self.clients[number];
                for stretch in &work.stretches {
                    client.note_drained(stretch.grant);
                }
                self.works.give(place);
                self.answer(number, request, status, value);
            }
        }
    }

    /// Completes a request over its channel, and lets a client go whose last it was.
    #[inline]
    fn answer(
        &mut self,
        number: usize,
        request: Option<bywash_channel::Request>,
        status: Status,
        value: u64,
    ) {
        let client = &mut self.clients[number];
        client.under_way -= 1;
        if let Some(request) = request
            && let Some(Channel { server, .. }) = &mut client.channel
            && server.complete(request, status as u16, value).is_err()
        {
            self.hang_up(number);
        }
        if self.clients[number].leaving.is_some() {
            self.let_go(number);
        }
    }

    /// A request that must not be carried out is answered so.
    #[cold]
    fn refuse(&mut self, place: usize, refused: Refused) {
        let work = &mut self.works.all[place];
        let Origin::Client { client: number, request } = &mut work.origin else { return };
        let (number, request) = (*number, request.take());
        self.works.give(place);
        let counts = &mut self.clients[number].counts;
        counts.refusals += 1;
        self.answer(number, request, refused.status, refused.value);
    }

    /// Counts a request for its client, its grants and its devices.
    #[inline]
    fn count(&mut self, place: usize, number: usize, now: u64) {
        let work = &self.works.all[place];
        let (opcode, status) = (work.opcode, work.status);
        let latency = now.saturating_sub(work.began_ns);
        let is_read = work.is_read();
        let note = |counts: &mut bywash_protocol::report::Counts, bytes: u64| {
            match opcode {
                Opcode::Read | Opcode::ReadMany => counts.reads += 1,
                Opcode::Flush => counts.flushes += 1,
                _ => counts.writes += 1,
            }
            match status {
                Status::Done if is_read => counts.bytes_read += bytes,
                Status::Done => counts.bytes_written += bytes,
                // The device did what it was asked.
                Status::Differs => {}
                _ => counts.failures += 1,
            }
            counts.note_latency(latency);
        };
        let client = &mut self.clients[number];
        note(&mut client.counts, work.value);
        let (mut of_grant, mut of_device) = (NO_GRANT, usize::MAX);
        let (mut grant_bytes, mut device_bytes) = (0, 0);
        // Stretches of one grant, and of one device, follow one another.
        for stretch in &work.stretches {
            if stretch.grant != of_grant {
                if of_grant != NO_GRANT {
                    note(&mut client.states[of_grant].counts, grant_bytes);
                }
                (of_grant, grant_bytes) = (stretch.grant, 0);
            }
            if stretch.device != of_device {
                if of_device != usize::MAX {
                    note(&mut self.disks[of_device].counts, device_bytes);
                }
                (of_device, device_bytes) = (stretch.device, 0);
            }
            grant_bytes += stretch.length;
            device_bytes += stretch.length;
        }
        if of_grant != NO_GRANT {
            note(&mut client.states[of_grant].counts, grant_bytes);
        }
        if of_device != usize::MAX {
            note(&mut self.disks[of_device].counts, device_bytes);
        }
    }

    /// What was taken from a client and not all submitted is not carried out any further.
    #[cold]
    fn fail_current(&mut self, number: usize, status: Status) {
        let Some(place) = self.clients[number].current.take() else { return };
        let work = &mut self.works.all[place];
        work.status = status;
        if work.commands == 0 {
            self.complete(place);
        }
    }

    /// A channel is of no use any more: the client has closed it, is gone, or broke the protocol. What is under way goes on;
    /// nobody is told.
    #[cold]
    fn hang_up(&mut self, number: usize) {
        self.polled.retain(|polled| *polled != number);
        let client = &mut self.clients[number];
        client.attention = Attention::None;
        if let Some(channel) = &client.channel {
            self.sleeper.forget(channel);
        }
        self.fail_current(number, Status::Failed);
    }
}
