//! A core: a thread that takes requests from its clients' rings, checks them, submits their commands
//! to devices, and completes them. A server has one or several, which share nothing on the path of a request: each client
//! belongs to one core, and each core has a queue of its own of each device ([`cores`]).
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
//! A round looks at the ring of every polled client, gives each device some turns, and polls each device for
//! completed commands. A request that is found while nobody is in line at its device has its turn at once. Turns of one client
//! that follow one another are charged together. A memory device completes a command when it is submitted
//! ([`bywash_device::Device::carry_out`]). A client that has sent no request for a while is no longer polled,
//! but wakes the core by a doorbell, which costs the client a system call. When no client is polled the core
//! sleeps. So the cost of a request does not grow with the number of idle clients.
//!
//! The path of a request allocates nothing and takes no lock. Other threads control the core by orders
//! ([`order`]).
//!
//! Operations that may block or take long run on the [`Helpers`] of the client's user: reading a client's
//! socket, and dropping what the client held. The core itself makes system calls only to submit commands and
//! reap their completions, to send and receive doorbells (eventfd, futex, a message without descriptors), to
//! sleep (epoll_wait), and to add and remove descriptors that it sleeps on.
//!
//! Invariant: the core ends each request exactly once, whether its client is still connected or not. Nothing
//! is done by a grant after its revocation was reported.

mod arenas;
mod client;
pub(crate) mod clock;
pub(crate) mod copy;
pub(crate) mod cores;
mod disk;
mod intake;
pub(crate) mod map;
pub(crate) mod order;
mod orders;
mod pins;
mod sleep;
#[cfg(feature = "testing")]
pub(crate) mod stepped;
mod thin;
mod work;

use crate::bell::Bell;
use crate::core::client::{Client, DeviceMember, WakeMode};
use crate::core::clock::{Clock, ClockStart};
use crate::core::disk::{InFlight, ServedDevice, Submitted, Submitter};
use crate::core::intake::NextRequest;
use crate::core::order::{CoreHandle, CoreOrder};
use crate::core::sleep::Sleeper;
use crate::core::thin::{Drain, ParkedRequests};
use crate::core::work::{Origin, RequestPool};
use crate::helpers::Helpers;
use crate::schedule::{self, ServedCommand};
use bywash_device::CommandError;
use bywash_protocol::layout::Status;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Timeouts of the core: how long it polls a silent client, and how long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// Time after a client's last request for which the core still polls the client's ring; `None` polls
    /// without end.
    pub poll: Option<Duration>,
    /// Timeout of a request without progress, and of a device: requests to a device that has completed
    /// nothing for this time fail.
    pub request: Duration,
}

impl Default for Timeouts {
    /// Polls for 100 µs and gives requests 30 s.
    fn default() -> Timeouts {
        Timeouts { poll: Some(Duration::from_micros(100)), request: Duration::from_secs(30) }
    }
}

impl Timeouts {
    /// Sets the time after a client's last request for which the core still polls the client's ring.
    pub fn poll(self, poll: impl Into<Option<Duration>>) -> Timeouts {
        Timeouts { poll: poll.into(), ..self }
    }

    /// Sets the timeout of requests.
    pub fn request(self, request: Duration) -> Timeouts {
        Timeouts { request, ..self }
    }
}

/// Greatest time that a stopping server waits for commands in flight and the final flushes.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Greatest number of turns that one device gives in a round.
const TURNS_PER_ROUND: usize = 64;
/// Number of refused requests that take about as much time as [`TURNS_PER_ROUND`] turns.
const REFUSALS_PER_ROUND: usize = 8;
/// Number of segments that are laid out in about the time of a request with one segment.
const SEGMENTS_PER_REQUEST_TIME: usize = 8;
/// Charge of a device's turns in one round, in bytes, after which the core looks at other devices and
/// clients.
const ROUND_CHARGE_BYTES: u64 = 512 << 10;
/// Number of times that the rings alone are polled between two full rounds, when the last round found nothing
/// to do and nothing is in flight.
const RING_POLLS: usize = 32;
/// Interval between two searches for late requests and stuck devices, and between two checks for doorbells
/// while the core does not sleep, in nanoseconds.
const SURVEY_INTERVAL_NS: u64 = 100_000_000;
const DOORBELL_CHECK_INTERVAL_NS: u64 = 50_000;
/// Interval between two exchanges of the schedules of devices with other cores, in nanoseconds.
const EXCHANGE_INTERVAL_NS: u64 = 2_000_000;

/// State of the core thread.
pub(crate) struct Core {
    disks: Slab<ServedDevice>,
    /// Devices that have commands in flight or clients in line, or had until recently. Only these are polled.
    active: Vec<usize>,
    clients: Slab<Client>,
    works: RequestPool,
    /// Clients whose rings are polled.
    polled: Vec<usize>,
    /// Work that is submitted without a turn: flushes after a request's writes, requests that were parked for a
    /// thin volume and are charged already, and the server's own commands.
    resumed: VecDeque<usize>,
    /// Requests that wait for a change of a thin volume's map, by the volume's id.
    thin: HashMap<u64, ParkedRequests>,
    /// Requests that others wait for until none of them is left.
    drains: Vec<Drain>,
    finished: Vec<CompletedCommand>,
    /// Clients whose requests have completed, and who are to be woken if they sleep, once for all requests of a round.
    unrung: Vec<usize>,
    clock: Clock,
    timeouts: Timeouts,
    sleeper: Sleeper,
    /// Handle by which helpers send orders to the core.
    own_orders: CoreHandle,
    orders: Receiver<CoreOrder>,
    bell: Arc<Bell>,
    helpers: Helpers,
    surveyed_ns: u64,
    glanced_ns: u64,
    /// Time at which the schedules of devices were last exchanged with other cores.
    exchanged_ns: u64,
    /// Time at which a round last found something to do.
    busy_ns: u64,
    stopping: bool,
}

/// Adds the device to those that are polled.
#[inline]
fn note_active(active: &mut Vec<usize>, disk: &mut ServedDevice, number: usize) {
    if !std::mem::replace(&mut disk.is_active, true) {
        active.push(number);
    }
}

/// Adds the client to those that are to be woken.
#[inline]
fn note_unrung(unrung: &mut Vec<usize>, client: &mut Client, number: usize) {
    if !std::mem::replace(&mut client.is_unrung, true) {
        unrung.push(number);
    }
}

/// A command that a device has completed.
pub(crate) struct CompletedCommand {
    pub(crate) work: usize,
    pub(crate) result: Result<(), CommandError>,
}

/// Result of a client's turn at a device.
enum TurnResult {
    /// A command was submitted.
    Served(ServedCommand),
    /// The request has failed, or has no command for the device.
    Nothing,
    /// The device accepts no further command before one has completed.
    Full,
}

/// Limit of the turns of one device in a round.
struct RoundLimit {
    turns: usize,
    bytes: u64,
}

impl RoundLimit {
    #[inline]
    fn is_left(&self) -> bool {
        self.turns > 0 && self.bytes > 0
    }

    /// Takes off a turn that moves this number of bytes.
    #[inline]
    fn charge(&mut self, bytes: u64) {
        self.turns -= 1;
        self.bytes = self.bytes.saturating_sub(bytes + schedule::REQUEST_CHARGE_BYTES as u64);
    }
}

/// Result of looking at a client's ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RingResult {
    Nothing,
    /// Only requests that were completed at once.
    Answered,
    /// A request to be carried out, whose first command is for this device.
    Work {
        device: usize,
    },
}

impl Core {
    pub(crate) fn new(
        own_orders: CoreHandle,
        orders: Receiver<CoreOrder>,
        bell: Arc<Bell>,
        timeouts: Timeouts,
        helpers: Helpers,
        start: ClockStart,
    ) -> rustix::io::Result<Core> {
        let sleeper = Sleeper::new(&bell)?;
        Ok(Core {
            disks: Slab::new(),
            active: Vec::new(),
            clients: Slab::new(),
            works: RequestPool::default(),
            polled: Vec::new(),
            resumed: VecDeque::new(),
            thin: HashMap::new(),
            drains: Vec::new(),
            finished: Vec::new(),
            unrung: Vec::new(),
            clock: Clock::since(start),
            timeouts,
            sleeper,
            own_orders,
            orders,
            bell,
            helpers,
            surveyed_ns: 0,
            glanced_ns: 0,
            exchanged_ns: 0,
            busy_ns: 0,
            stopping: false,
        })
    }

    /// Makes the core return from sleep at once, for a caller that steps it.
    #[cfg(feature = "testing")]
    pub(crate) fn stepped(mut self) -> Core {
        self.sleeper.is_stepped = true;
        self
    }

    /// Serves until an order to stop arrives.
    pub(crate) fn run(mut self) {
        let mut found = false;
        while !self.stopping {
            found = self.round(found);
        }
        self.finish();
    }

    /// Carries out one round. Returns true if the round ended by polling the rings alone and took a request
    /// from one of them; `found` is this result of the previous round.
    #[inline]
    pub(crate) fn round(&mut self, found: bool) -> bool {
        if self.bell.take_rung() {
            self.carry_out_orders();
            if self.stopping {
                return false;
            }
        }
        let now = if found { self.clock.now() } else { self.clock.read() };
        let mut busy = self.poll_rings() | found;
        busy |= self.submit_resumed();
        busy |= self.serve_turns(now);
        busy |= self.reap(busy);
        if !self.drains.is_empty() {
            self.check_drains();
        }
        if now - self.surveyed_ns > SURVEY_INTERVAL_NS {
            self.check_timeouts(now);
        }
        self.ring_clients();
        if now - self.glanced_ns > DOORBELL_CHECK_INTERVAL_NS {
            // Hearing a doorbell silences its descriptor, so another round must look at the ring before the
            // core may sleep.
            self.sleep_and_note(Some(Duration::ZERO));
            return false;
        }
        if busy {
            self.busy_ns = now;
            return false;
        }
        self.idle(now)
    }

    /// Looks at the rings of all polled clients. Returns true if one had a request.
    #[inline]
    fn poll_rings(&mut self) -> bool {
        let mut found = false;
        let mut at = 0;
        while at < self.polled.len() {
            let number = self.polled[at];
            found |= self.clients[number].current.is_none() && self.poll_ring(number);
            // A client that was disconnected is no longer in the list, and another may be at its index.
            if self.polled.get(at) == Some(&number) {
                at += 1;
            }
        }
        found
    }

    /// Looks at the ring of a client whose last request is fully submitted. Returns true if there was a
    /// request.
    #[inline]
    fn poll_ring(&mut self, number: usize) -> bool {
        let found = self.take(number);
        if let RingResult::Work { device } = found {
            self.begin(number, device);
        }
        found != RingResult::Nothing
    }

    /// Takes requests from a client's ring until one of them has a command for a device.
    #[inline]
    fn take(&mut self, number: usize) -> RingResult {
        match self.take_one(number) {
            NextRequest::Nothing => RingResult::Nothing,
            NextRequest::Work { device } => RingResult::Work { device },
            taken => self.answer_at_once(number, taken),
        }
    }

    #[inline]
    fn take_one(&mut self, number: usize) -> NextRequest {
        let Core { clients, works, disks, clock, .. } = self;
        clients
            .get_mut(number)
            .map_or(NextRequest::Nothing, |client| client.take(number, works, disks, clock))
    }

    /// Completes requests that have no command for a device, until one has.
    #[cold]
    fn answer_at_once(&mut self, number: usize, mut taken: NextRequest) -> RingResult {
        // The limit keeps the time near that of one round, so that no other client waits long.
        let mut looked = 0;
        loop {
            match taken {
                NextRequest::Nothing => return RingResult::Answered,
                NextRequest::Work { device } => return RingResult::Work { device },
                NextRequest::Empty { place } => {
                    looked += 1;
                    self.complete(place);
                }
                NextRequest::Missing { place } => {
                    looked += 1;
                    self.park(place);
                }
                NextRequest::Refused { place } => looked += self.complete_refused(place),
                NextRequest::Broken => {
                    self.abandon_channel(number);
                    return RingResult::Answered;
                }
            }
            if looked >= TURNS_PER_ROUND {
                return RingResult::Answered;
            }
            taken = self.take_one(number);
        }
    }

    /// Returns the client's membership in the device's schedule. At the client's first use of the device it joins. `None` if
    /// it cannot: its request has failed then.
    #[inline]
    fn member(&mut self, number: usize, device: usize) -> Option<DeviceMember> {
        match self.clients[number].members.get(device) {
            Some(Some(member)) => Some(*member),
            _ => self.join_device(number, device),
        }
    }

    #[cold]
    fn join_device(&mut self, number: usize, device: usize) -> Option<DeviceMember> {
        match self.disks[device].add_member(&mut self.clients[number], number, device) {
            Ok(member) => Some(member),
            // Too many clients, or invalid limits; both were ruled out when the client joined.
            Err(_) => {
                self.fail_current(number, Status::Failed);
                None
            }
        }
    }

    /// Gives a client that is in no line a turn at the device at once, if nobody is in line there. For its next command, and
    /// if others are in line, puts it in line.
    #[inline]
    fn begin(&mut self, number: usize, device: usize) {
        let Some(member) = self.member(number, device) else { return };
        let disk = &mut self.disks[device];
        note_active(&mut self.active, disk, device);
        let Some(place) = self.clients[number].current else { return };
        if disk.is_full || !disk.schedule.would_be_next(member.turn) {
            return disk.schedule.wants(member.turn);
        }
        match self.submit_current(number, device, member.user, place, self.clock.now()) {
            TurnResult::Served(command) => {
                let now = self.clock.now();
                self.disks[device].schedule.served_alone(member.turn, command, now);
            }
            TurnResult::Nothing => {}
            TurnResult::Full => {
                let disk = &mut self.disks[device];
                disk.is_full = true;
                return disk.schedule.wants(member.turn);
            }
        }
        if let RingResult::Work { device } = self.next_request(number, place) {
            self.enqueue(number, device);
        }
    }

    /// Puts the client in line for a turn at the device.
    #[inline]
    fn enqueue(&mut self, number: usize, device: usize) {
        let Some(member) = self.member(number, device) else { return };
        let disk = &mut self.disks[device];
        disk.schedule.wants(member.turn);
        note_active(&mut self.active, disk, device);
    }

    /// Gives each device's turns to the clients in line. Returns true if a client had a turn.
    #[inline]
    fn serve_turns(&mut self, now: u64) -> bool {
        let mut busy = false;
        let mut at = 0;
        while let Some(&device) = self.active.get(at) {
            at += 1;
            let mut left = RoundLimit { turns: TURNS_PER_ROUND, bytes: ROUND_CHARGE_BYTES };
            while left.is_left() && self.turns(device, now, &mut left) {
                busy = true;
            }
        }
        busy
    }

    /// Gives the next client its turn at a device, and more turns while the client is next again. Returns false if no client
    /// is in line or the device is full.
    #[inline]
    fn turns(&mut self, device: usize, now: u64, left: &mut RoundLimit) -> bool {
        let disk = &mut self.disks[device];
        if disk.is_full {
            return false;
        }
        let Some(mut run) = disk.schedule.next_run(now) else { return false };
        let member = run.member;
        let number = disk.holders.get(member.index()).copied().unwrap_or(usize::MAX);
        let client = self.clients.get(number);
        let joined = client.and_then(|client| Some((client, client.membership(device, member)?)));
        let Some((client, &DeviceMember { user, .. })) = joined else {
            disk.schedule.leave(member);
            left.charge(0);
            return true;
        };
        let Some(mut place) = client.current else {
            disk.schedule.wants_nothing(member);
            left.charge(0);
            return true;
        };
        let next = loop {
            let is_next = match self.submit_current(number, device, user, place, now) {
                TurnResult::Served(command) => {
                    left.charge(command.bytes);
                    run.serve(command)
                }
                TurnResult::Nothing => {
                    left.charge(0);
                    false
                }
                TurnResult::Full => {
                    let disk = &mut self.disks[device];
                    disk.is_full = true;
                    disk.schedule.end_run(&run, now);
                    return false;
                }
            };
            let next = self.next_request(number, place);
            let goes_on = is_next && left.is_left() && next == RingResult::Work { device };
            match self.clients.get(number).and_then(|client| client.current) {
                Some(next) if goes_on => place = next,
                _ => break next,
            }
        };
        self.disks[device].schedule.end_run(&run, now);
        if next != (RingResult::Work { device }) {
            self.move_on(number, device, member, next);
        }
        true
    }

    /// Submits the next command of the client's current request, if it has one for this device.
    #[inline(always)]
    fn submit_current(
        &mut self,
        number: usize,
        device: usize,
        user: schedule::ClientKey,
        place: usize,
        now: u64,
    ) -> TurnResult {
        let Core { clients, works, disks, finished, .. } = self;
        let (client, work, disk) = (&clients[number], &mut works.all[place], &mut disks[device]);
        if let Some((operation, segment)) = work.plain_segment(device)
            && let (Some(channel), Origin::Client { request: Some(request), .. }) =
                (&client.channel, &work.origin)
        {
            let memory = channel.server.memory(request);
            if let Some(region) = client.plain_region(device, disk, &memory) {
                let in_flight = InFlight { work: place, user: Some((user, segment.length)) };
                let (memory, command) = ((channel, &memory), (operation, segment));
                let in_flight_bytes =
                    match disk.submit_plain(memory, command, region, in_flight, now, finished) {
                        Submitted::InFlight { bytes } => Some(bytes),
                        Submitted::AtOnce => None,
                        Submitted::Full => return TurnResult::Full,
                    };
                work.note_plain_submitted(now);
                return TurnResult::Served(ServedCommand { bytes: segment.length, in_flight_bytes });
            }
        }
        self.submit_slice(number, device, user, place, now)
    }

    /// Submits the next command of any request, if it has one for this device.
    #[inline(never)]
    fn submit_slice(
        &mut self,
        number: usize,
        device: usize,
        user: schedule::ClientKey,
        place: usize,
        now: u64,
    ) -> TurnResult {
        let Core { clients, works, disks, finished, helpers, own_orders, .. } = self;
        let (client, work, disk) = (&mut clients[number], &mut works.all[place], &mut disks[device]);
        if work.next_device() != Some(device) {
            return TurnResult::Nothing;
        }
        let slice = disk.next_slice(work);
        let region = client.region(device, disk);
        let by = Submitter { client: Some(client), user: Some(user), region };
        let in_flight_bytes = match disk.submit(by, work, place, &slice, now, finished) {
            Submitted::InFlight { bytes } => Some(bytes),
            Submitted::AtOnce => None,
            Submitted::Full => return TurnResult::Full,
        };
        if let Some(pinner) = &disk.pinner
            && let Some(order) = client.note_moved(device, pinner, work, &slice)
        {
            let key = own_orders.key(number, client.number);
            arenas::have_pinned(client.uid, key, order, helpers, own_orders);
        }
        TurnResult::Served(ServedCommand { bytes: slice.length, in_flight_bytes })
    }

    /// Returns the device of the next command of the client's current request or, if all its commands are submitted, of the
    /// next request in its ring.
    #[inline(always)]
    fn next_request(&mut self, number: usize, place: usize) -> RingResult {
        let (client, work) = (&mut self.clients[number], &self.works.all[place]);
        if let Some(device) = work.next_device() {
            return RingResult::Work { device };
        }
        client.current = None;
        if work.commands == 0 {
            // The request has failed. The client's next request is found when its ring is polled.
            self.complete(place);
            return RingResult::Nothing;
        }
        match client.attention {
            WakeMode::Polled => self.take(number),
            _ => RingResult::Nothing,
        }
    }

    /// Takes a client out of line at one device, and puts it in line at the next if there is one.
    #[inline(never)]
    fn move_on(&mut self, number: usize, device: usize, member: schedule::ConnectionKey, next: RingResult) {
        self.disks[device].schedule.wants_nothing(member);
        if let RingResult::Work { device } = next {
            self.enqueue(number, device);
        }
    }

    /// Submits work that needs no turn. Returns true if some was submitted.
    fn submit_resumed(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..self.resumed.len().min(TURNS_PER_ROUND) {
            let Some(place) = self.resumed.pop_front() else { break };
            let Some(device) = self.works.all[place].next_device() else {
                // The work has failed. Its last command in flight completes it.
                if self.works.all[place].commands == 0 {
                    self.complete(place);
                }
                continue;
            };
            busy |= self.submit_aside(place, device);
            // The rest goes to the back: its device may be full while the devices of others are not.
            if self.works.all[place].next_device().is_some() {
                self.resumed.push_back(place);
            }
        }
        busy
    }

    /// Submits the next slice of some work without a turn. Returns false if the device is full.
    fn submit_aside(&mut self, place: usize, device: usize) -> bool {
        let Core { clients, works, disks, finished, .. } = self;
        let (work, disk) = (&mut works.all[place], &mut disks[device]);
        let client = match work.origin {
            Origin::Client { client, .. } => Some(&clients[client]),
            Origin::Server(_) => None,
        };
        let slice = disk.next_slice(work);
        let submitted = disk.submit(
            Submitter { client, user: None, region: None },
            work,
            place,
            &slice,
            self.clock.now(),
            finished,
        );
        let is_taken = submitted != Submitted::Full;
        if is_taken {
            note_active(&mut self.active, disk, device);
        }
        is_taken
    }

    /// Reaps the devices' completed commands, and completes their requests. Returns true if there were any. `is_old` tells if
    /// work was done since the clock was read.
    #[inline]
    fn reap(&mut self, is_old: bool) -> bool {
        let mut finished = std::mem::take(&mut self.finished);
        for device in &self.active {
            self.disks[*device].poll(self.clock.now(), &mut finished);
        }
        let busy = !finished.is_empty();
        // If nothing was done before in this round, the last reading is recent.
        if busy && is_old {
            self.clock.read();
        }
        for CompletedCommand { work: place, result } in finished.drain(..) {
            let work = &mut self.works.all[place];
            work.note_done(result, self.clock.now());
            // Work that failed before all of it was submitted is completed where its submission would have
            // continued.
            if work.commands == 0 && (work.is_submitted() || self.is_given_up(place)) {
                self.complete(place);
            }
        }
        self.finished = finished;
        busy
    }

    /// Returns true if the work has failed and nothing will continue its submission.
    #[cold]
    fn is_given_up(&self, place: usize) -> bool {
        let work = &self.works.all[place];
        let goes_on = match work.origin {
            Origin::Client { client, .. } if self.clients[client].current == Some(place) => true,
            Origin::Client { .. } | Origin::Server(_) => self.resumed.contains(&place),
        };
        work.next_device().is_none() && !goes_on
    }

    /// Ends some work whose commands are all completed: starts its flush, or completes the request and
    /// returns the work's slot.
    #[inline]
    fn complete(&mut self, place: usize) {
        let Core { clients, works, disks, resumed, unrung, clock, .. } = self;
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
        for segment in &work.segments {
            client.end_segment(segment.grant);
        }
        let is_broken = client.answer(request, work.status, work.value);
        note_unrung(unrung, client, number);
        works.give(place);
        if is_broken || client.leaving.is_some() {
            self.end_channel_or_client(number, is_broken);
        }
    }

    /// Wakes the clients whose requests have completed, if they sleep.
    #[inline]
    pub(super) fn ring_clients(&mut self) {
        while let Some(number) = self.unrung.pop() {
            // A client that has left needs nothing, and another one at its index is merely woken.
            if let Some(client) = self.clients.get_mut(number) {
                client.ring();
            }
        }
    }

    /// Ends work of the server's own, and sends its reply.
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

    /// Disconnects a channel that broke the protocol, and releases a leaving client if this was its last
    /// request.
    #[cold]
    fn end_channel_or_client(&mut self, number: usize, is_broken: bool) {
        let is_leaving = self.clients[number].leaving.is_some();
        if is_broken {
            self.abandon_channel(number);
        }
        if is_leaving {
            self.remove_client(number);
        }
    }

    /// Completes a request that the server refuses. Returns the number of turns that the refusal counts for,
    /// because no schedule is charged for it.
    #[cold]
    fn complete_refused(&mut self, place: usize) -> usize {
        let work = &mut self.works.all[place];
        let looked =
            1 + work.segments.len() / SEGMENTS_PER_REQUEST_TIME + TURNS_PER_ROUND / REFUSALS_PER_ROUND;
        if let Origin::Client { client: number, request } = &mut work.origin {
            let (number, request) = (*number, request.take());
            let client = &mut self.clients[number];
            client.counts.refusals += 1;
            let is_broken = client.answer(request, work.status, work.value);
            note_unrung(&mut self.unrung, client, number);
            self.works.give(place);
            if is_broken || client.leaving.is_some() {
                self.end_channel_or_client(number, is_broken);
            }
        }
        looked
    }

    /// Fails the client's request that is not fully submitted: no more of its commands are submitted.
    #[cold]
    fn fail_current(&mut self, number: usize, status: Status) {
        let Some(place) = self.clients[number].current.take() else { return };
        let work = &mut self.works.all[place];
        work.status = status;
        if work.commands == 0 {
            self.complete(place);
        }
    }

    /// Abandons a client's channel that was closed or broke the protocol. Commands in flight continue, but
    /// the client is not told about them.
    #[cold]
    fn abandon_channel(&mut self, number: usize) {
        self.polled.retain(|polled| *polled != number);
        let client = &mut self.clients[number];
        client.attention = WakeMode::None;
        if let Some(channel) = &client.channel {
            self.sleeper.forget(channel);
        }
        self.fail_current(number, Status::Failed);
    }
}
