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
//! A round looks at every polled client's ring, gives each device some turns, and asks each device what is done; memory has
//! done it when it was submitted ([`bywash_device::Device::carry_out`]). Who has
//! sent nothing for a while is not looked at any more, but wakes the core (one system call of the client's); with nobody
//! to look at the core sleeps. So what a request costs does not grow with the number of clients that are idle.
//!
//! Nothing is allocated and no lock is taken on the way of a request. Other threads send orders ([`order`]).
//!
//! What may block or take long is done by the user's [`Helpers`]: reading a client's socket, dropping what it had. The
//! core itself makes system calls only to hand commands to devices and ask for what is done, to ring and hear bells
//! (eventfd, futex, a message without descriptors), to sleep (epoll_wait), and to add and remove what it sleeps on.
//!
//! Invariant: a request is completed exactly once, with its client there or not; what a grant allowed is not done any more
//! once its revocation was answered.

mod arenas;
mod client;
mod clock;
mod disk;
pub(crate) mod order;
mod orders;
mod sleep;
mod work;

use crate::bell::Bell;
use crate::core::client::{Attention, Client, Taken};
use crate::core::clock::Clock;
use crate::core::disk::{Disk, Submitter};
use crate::core::order::{ClientKey, Order, Orders};
use crate::core::sleep::Sleeper;
use crate::core::work::{Origin, Works};
use crate::helpers::Helpers;
use crate::schedule;
use bywash_device::Failure;
use bywash_protocol::layout::Status;
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
    /// Where helpers send orders.
    own_orders: Orders,
    orders: Receiver<Order>,
    bell: Arc<Bell>,
    helpers: Helpers,
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
pub(crate) struct Finished {
    pub(crate) work: usize,
    pub(crate) result: Result<(), Failure>,
}

/// What was in a client's ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// Nothing but what could be answered at once.
    Answered,
    /// What is carried out now, by this device first.
    Work {
        device: usize,
    },
}

impl Core {
    pub(crate) fn new(
        own_orders: Orders,
        orders: Receiver<Order>,
        bell: Arc<Bell>,
        patience: Patience,
        helpers: Helpers,
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
            own_orders,
            orders,
            bell,
            helpers,
            surveyed_ns: 0,
            glanced_ns: 0,
            busy_ns: 0,
            stopping: false,
        })
    }

    /// The same core, for whoever does its rounds and sleeps himself.
    #[cfg(feature = "testing")]
    pub(crate) fn stepped(mut self) -> Core {
        self.sleeper.is_stepped = true;
        self
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut found = false;
        while !self.stopping {
            found = self.round(found);
        }
        self.finish();
    }

    /// Does one round. `found`, and what is returned: somebody had something at rest, and was looked at already.
    #[inline]
    pub(crate) fn round(&mut self, found: bool) -> bool {
        if self.bell.was_rung() {
            self.carry_out_orders();
            if self.stopping {
                return false;
            }
        }
        let now = if found { self.clock.now() } else { self.clock.read() };
        let mut busy = self.look() | found;
        busy |= self.resume();
        busy |= self.give_turns(now);
        busy |= self.collect();
        if now - self.surveyed_ns > SURVEY_NS {
            self.survey(now);
        }
        if now - self.glanced_ns > GLANCE_NS {
            // A bell that was heard is silent: what it rang for is looked at before anybody sleeps.
            self.hear(Some(Duration::ZERO));
            return false;
        }
        if busy {
            self.busy_ns = now;
            return false;
        }
        self.rest(now)
    }

    /// Looks at the rings of those who are polled; true: somebody had something.
    #[inline]
    fn look(&mut self) -> bool {
        let mut found = false;
        let mut at = 0;
        while at < self.polled.len() {
            let number = self.polled[at];
            found |= self.clients[number].current.is_none() && self.look_at(number);
            // Who was thrown out is in the list no more.
            if self.polled.get(at) == Some(&number) {
                at += 1;
            }
        }
        found
    }

    /// Looks at the ring of a client of whom nothing is carried out; true: there was something.
    #[inline]
    fn look_at(&mut self, number: usize) -> bool {
        let found = self.take(number);
        if let Found::Work { device } = found {
            self.want(number, device);
        }
        found != Found::Nothing
    }

    /// Takes requests out of a client's ring until one has something for a device.
    #[inline]
    fn take(&mut self, number: usize) -> Found {
        match self.take_one(number) {
            Taken::Nothing => Found::Nothing,
            Taken::Work { device } => Found::Work { device },
            taken => self.answer_at_once(number, taken),
        }
    }

    #[inline]
    fn take_one(&mut self, number: usize) -> Taken {
        let Core { clients, works, disks, clock, .. } = self;
        clients.get_mut(number).map_or(Taken::Nothing, |client| client.take(number, works, disks, clock))
    }

    /// Answers requests that have nothing for a device, until there is one that has.
    #[cold]
    fn answer_at_once(&mut self, number: usize, mut taken: Taken) -> Found {
        // They are not much more than one: nobody else waits for long.
        let mut looked = 0;
        loop {
            match taken {
                Taken::Nothing => return Found::Answered,
                Taken::Work { device } => return Found::Work { device },
                Taken::Empty { place } => {
                    looked += 1;
                    self.complete(place);
                }
                Taken::Refused { place } => looked += self.refuse(place),
                Taken::Broken => {
                    self.hang_up(number);
                    return Found::Answered;
                }
            }
            if looked >= TURNS {
                return Found::Answered;
            }
            taken = self.take_one(number);
        }
    }

    /// The client stands in line for a device.
    #[inline]
    fn want(&mut self, number: usize, device: usize) {
        let (client, disk) = (&mut self.clients[number], &mut self.disks[device]);
        let member = match client.members.get(device) {
            Some(Some(member)) => *member,
            _ => match disk.take_in(client, number, device) {
                Ok(member) => member,
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
                let Some(bytes) = self.turn(device, now) else { break };
                busy = true;
                charged += bytes + schedule::REQUEST as u64;
                if charged >= ROUND {
                    break;
                }
            }
        }
        busy
    }

    /// A turn at a device; answers what bytes were submitted, or none if nobody wants anything, or the device takes
    /// nothing more now.
    #[inline]
    fn turn(&mut self, device: usize, now: u64) -> Option<u64> {
        let Core { clients, works, disks, finished, helpers, own_orders, .. } = self;
        let disk = &mut disks[device];
        if disk.is_full {
            return None;
        }
        let member = disk.schedule.next(now)?;
        let number = disk.holders.get(member.index()).copied().unwrap_or(usize::MAX);
        let Some(client) = clients.get_mut(number).filter(|client| client.is_member(device, member)) else {
            disk.schedule.leave(member);
            return Some(0);
        };
        let Some(place) = client.current else {
            disk.schedule.wants_nothing(member);
            return Some(0);
        };
        let work = &mut works.all[place];
        let mut bytes = 0;
        if work.next_device() == Some(device) {
            let slice = work.next_slice(disk);
            let region = client.region(device, disk);
            let by = Submitter { client: Some(client), turn: Some(member), region };
            if !disk.submit(by, work, place, &slice, now, finished) {
                disk.is_full = true;
                return None;
            }
            bytes = slice.length;
            disk.schedule.served(member, bytes, now);
            if disk.registers
                && let Some(arena) = client.note_moved(bytes)
            {
                let key = ClientKey { slot: number, number: client.number };
                arenas::have_pinned(client.uid, key, arena, helpers, own_orders);
            }
        }
        let next = match work.next_device() {
            Some(next) => Found::Work { device: next },
            // All of it is on its way.
            None => {
                client.current = None;
                if work.commands == 0 {
                    // It has failed. What the client wants next is found when its ring is looked at.
                    self.complete(place);
                    Found::Nothing
                } else if client.attention == Attention::Polled {
                    self.take(number)
                } else {
                    Found::Nothing
                }
            }
        };
        if next != (Found::Work { device }) {
            self.go(number, device, member, next);
        }
        Some(bytes)
    }

    /// A client does not stand in line for a device any more, but perhaps for the next.
    #[inline(never)]
    fn go(&mut self, number: usize, device: usize, member: schedule::Member, next: Found) {
        self.disks[device].schedule.wants_nothing(member);
        if let Found::Work { device } = next {
            self.want(number, device);
        }
    }

    /// Submits what needs no turn; true: there was something.
    fn resume(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..self.resumed.len().min(TURNS) {
            let Some(place) = self.resumed.pop_front() else { break };
            let Some(device) = self.works.all[place].next_device() else {
                // It has failed. What of it is still under way completes it.
                if self.works.all[place].commands == 0 {
                    self.complete(place);
                }
                continue;
            };
            busy |= self.submit_aside(place, device);
            // Behind the others: its device may be full, and theirs not.
            if self.works.all[place].next_device().is_some() {
                self.resumed.push_back(place);
            }
        }
        busy
    }

    /// Submits the next slice of some work without a turn; false: the device is full.
    fn submit_aside(&mut self, place: usize, device: usize) -> bool {
        let Core { clients, works, disks, finished, .. } = self;
        let (work, disk) = (&mut works.all[place], &mut disks[device]);
        let client = match work.origin {
            Origin::Client { client, .. } => Some(&clients[client]),
            Origin::Server(_) => None,
        };
        let slice = work.next_slice(disk);
        let is_taken = disk.submit(
            Submitter { client, turn: None, region: None },
            work,
            place,
            &slice,
            self.clock.now(),
            finished,
        );
        if is_taken {
            note_active(&mut self.active, disk, device);
        }
        is_taken
    }

    /// Asks the devices what is done, and completes that; true: something was.
    #[inline]
    fn collect(&mut self) -> bool {
        let mut finished = std::mem::take(&mut self.finished);
        for device in &self.active {
            self.disks[*device].poll(self.clock.now(), &mut finished);
        }
        let busy = !finished.is_empty();
        if busy {
            self.clock.read();
        }
        for Finished { work: place, result } in finished.drain(..) {
            let work = &mut self.works.all[place];
            work.note_done(result, self.clock.now());
            // What failed before all of it was submitted is completed where it would have gone on.
            if work.commands == 0 && (work.is_submitted() || self.is_given_up(place)) {
                self.complete(place);
            }
        }
        self.finished = finished;
        busy
    }

    /// Some work has failed, and nobody would submit the rest of it.
    #[cold]
    fn is_given_up(&self, place: usize) -> bool {
        let work = &self.works.all[place];
        let goes_on = match work.origin {
            Origin::Client { client, .. } => self.clients[client].current == Some(place),
            Origin::Server(_) => self.resumed.contains(&place),
        };
        work.next_device().is_none() && !goes_on
    }

    /// All commands of some work are done.
    #[inline]
    fn complete(&mut self, place: usize) {
        let Core { clients, works, disks, resumed, clock, .. } = self;
        let work = &mut works.all[place];
        if work.turn_to_flush() {
            return resumed.push_back(place);
        }
        let Origin::Client { client: number, request } = &mut work.origin else { return self.reply(place) };
        let (number, request) = (*number, request.take());
        let client = &mut clients[number];
        if request.is_some() {
            work.count(client, disks, clock.now());
        }
        for stretch in &work.stretches {
            client.note_drained(stretch.grant);
        }
        let is_broken = client.answer(request, work.status, work.value);
        works.give(place);
        if is_broken || client.leaving.is_some() {
            self.part(number, is_broken);
        }
    }

    /// Work of the server's own is done.
    #[cold]
    fn reply(&mut self, place: usize) {
        let work = &mut self.works.all[place];
        if let Origin::Server(reply) = &mut work.origin
            && let Some(reply) = reply.take()
        {
            reply.send(work.status);
        }
        self.works.give(place);
    }

    /// A client breaks the protocol, or is about to leave and this may have been its last request.
    #[cold]
    fn part(&mut self, number: usize, is_broken: bool) {
        let is_leaving = self.clients[number].leaving.is_some();
        if is_broken {
            self.hang_up(number);
        }
        if is_leaving {
            self.let_go(number);
        }
    }

    /// A request that must not be carried out is answered so; answers for how many requests that counts, since nobody is
    /// charged for it.
    #[cold]
    fn refuse(&mut self, place: usize) -> usize {
        let work = &mut self.works.all[place];
        let looked = 1 + work.stretches.len() / STRETCHES_A_LOOK + TURNS / REFUSALS;
        if let Origin::Client { client: number, request } = &mut work.origin {
            let (number, request) = (*number, request.take());
            let client = &mut self.clients[number];
            client.counts.refusals += 1;
            let is_broken = client.answer(request, work.status, work.value);
            self.works.give(place);
            if is_broken || client.leaving.is_some() {
                self.part(number, is_broken);
            }
        }
        looked
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
