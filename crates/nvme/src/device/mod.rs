//! A namespace of a controller as a block device.
//!
//! ```text
//!            submit                                              reap
//!              │                                                   ▲
//!              ▼         free to go                                │
//!   slot ──► order ─────────────────► submission queue ──► completion queue ──► finished
//!              ▲                          ▲                   │  │
//!              └── frees those that wait ─┼───────────────────┘  │
//!                                         └── more to be done ◄──┘
//! ```
//!
//! A command has a slot until it completes, whose number is the identifier of the controller's commands that carry it
//! out. It waits for earlier commands that it overlaps. Data moves between the namespace and registered memory without a
//! copy; other memory is copied through bounce pieces. Commands allocate nothing.
//!
//! Most commands are direct, and go around all of the above: see `direct`, which also has the transfers, whose commands were
//! checked when they were prepared.
//!
//! A command that does not complete in time is aborted; if that does not help, the controller is reset, and every command
//! that was in flight is repeated. A command that was repeated [`REPEATS_MAX`] times fails with ETIMEDOUT. Commands of a
//! controller that was removed fail with ENODEV.

mod bounce;
mod direct;
mod divide;
mod free;
mod issue;
mod link;
mod options;
mod order;
mod pinner;
mod recovery;
mod regions;
mod shape;
mod slot;
mod transfer;

pub use options::{DEPTH_MAX, Options, QUEUES_MAX};
pub use transfer::TransferId;

use crate::completion::{Entry, IoEntry, StatusField};
use crate::controller::{Controller, Identity, Settings};
use crate::dma::{DmaMemory, PAGE};
use crate::error::Error;
use crate::event::Event;
use crate::function::Function;
use crate::queue::QueuePair;
use bounce::BounceBuffers;
use bywash_device::{
    Access, ClaimAttempt, Claims, Command, CommandError, Completion, Device, Geometry, Operation,
    PinnedRegion, Pinner, QueueFull, RegionId, SEGMENTS_MAX,
};
use free::FreeSlots;
use issue::Key;
use link::Link;
use order::Order;
use pinner::DmaPinner;
use regions::{REGIONS_MAX, Regions};
use shape::Limits;
use slot::{Progress, Slot};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use transfer::Prepared;

/// Greatest number of times that a command is repeated, after resets of the controller or because the controller says so.
const REPEATS_MAX: u32 = 3;
/// Greatest length of a command of the device, in bytes; the controller's commands may be shorter.
const TRANSFER_MAX: u64 = 16 << 20;
/// Greatest length of a command of the device that discards or writes zeros, in bytes.
const RANGE_MAX: u64 = 1 << 30;
/// Number of polls after which the clock is looked at.
const POLLS: u32 = 256;
/// Interval between two looks at the controller's status and at late commands.
const CHECK: Duration = Duration::from_millis(20);
/// Greatest time that dropping the device waits for commands in flight.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// Numbers of what a device has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands of the controller that were submitted.
    pub commands: u64,
    /// Bytes that were copied through bounce pieces, since their memory was not registered.
    pub bytes_copied: u64,
    /// Resets of the controller after it was first ready.
    pub resets: u32,
    /// Commands that were submitted again, after a reset or because the controller said so.
    pub repeated: u64,
    /// Abort commands.
    pub aborts: u64,
    /// Completions of commands that were not in flight, which were ignored.
    pub strays: u64,
}

/// Block device that drives an NVMe controller.
pub struct Nvme<F: Function> {
    /// Dropped before all memory that it accesses.
    controller: Link<F>,
    queues: Vec<QueuePair<F>>,
    /// Interrupt of the device's queues.
    vector: u16,
    function: Arc<F>,
    options: Options,
    identity: Identity,
    geometry: Geometry,
    limits: Limits,
    slots: Box<[Slot]>,
    /// A page for each slot: its list of pages or pieces, or its range to deallocate.
    lists: DmaMemory<F>,
    zeroes: DmaMemory<F>,
    bounce: BounceBuffers<F>,
    regions: Regions,
    pinner: Arc<DmaPinner<F>>,
    order: Order,
    /// Claims of ranges that writes share and a compare-and-write has alone, if other devices share the controller.
    claims: Option<Arc<Claims>>,
    /// Slots whose commands wait for a claim of another device.
    blocked: Vec<u16>,
    free: FreeSlots,
    /// True if the controller is ready, no command waits for anything but the controller, no completion is kept, and no region
    /// that was unregistered is in use. All that changes this calls [`Nvme::settle`] in the end.
    is_usual: bool,
    /// Key of the transfers that can be submitted without another look. Closed while a command changes the device.
    key: Key,
    /// Transfers, by their slots.
    transfers: Box<[Option<Prepared>]>,
    /// Slots whose next command is to be submitted; each is at most once in here.
    runnable: Vec<u16>,
    finished: VecDeque<Completion>,
    polls: u32,
    next_check: Duration,
    stats: Stats,
}

impl<F: Function> Nvme<F> {
    /// Resets the controller of `function`, and opens one of its namespaces. Waits until the controller is ready, for as
    /// long as the controller says that this may take (CAP.TO).
    ///
    /// # Errors
    /// [`Error::Option`] if an option is out of range, [`Error::Unsupported`] if the controller or the namespace has
    /// properties that this driver does not support, [`Error::Timeout`], [`Error::Admin`] or [`Error::Removed`] if the
    /// controller does not react, refuses or is gone, [`Error::Io`] if memory cannot be allocated or mapped.
    pub fn open(function: F, options: &Options) -> Result<Nvme<F>, Error> {
        options.check()?;
        let function = Arc::new(function);
        let interrupts = options.interrupts && function.descriptor(0).is_some();
        let settings = Settings {
            namespace: options.namespace,
            queues: options.queues.min(options.depth as u16),
            depth: options.depth,
            interrupts,
            vectors: false,
            shadow_doorbells: options.shadow_doorbells,
        };
        let mut controller = Controller::new(&function, settings)?;
        let identity = controller.wait_until_ready(&mut [])?;
        let pairs = controller.take_queues();
        // A queue takes one command less than it has entries.
        let room: usize = pairs.iter().map(|queue| usize::from(queue.entries) - 1).sum();
        let depth = options.depth.min(room / pairs.len() * pairs.len()).max(1);
        let is_read_only = options.read_only || identity.namespace.is_read_only;
        let access = if is_read_only { Access::Read } else { Access::ReadWrite };
        let geometry = Geometry {
            bytes: identity.namespace.bytes(),
            block: identity.namespace.block,
            optimal: PAGE as u32,
            transfer_max: TRANSFER_MAX,
            range_max: RANGE_MAX,
            segments_max: SEGMENTS_MAX,
            access,
        };
        let options = Options { interrupts, ..options.clone() };
        let pinner = Arc::new(DmaPinner::new(&function));
        Nvme::with_queues(
            Link::Own(controller),
            (pairs, 0),
            function,
            options,
            (identity, geometry),
            pinner,
            depth,
        )
    }

    /// Makes a device with queues of its own, and the interrupt of their completions.
    fn with_queues(
        controller: Link<F>,
        (queues, vector): (Vec<QueuePair<F>>, u16),
        function: Arc<F>,
        options: Options,
        (identity, geometry): (Identity, Geometry),
        pinner: Arc<DmaPinner<F>>,
        depth: usize,
    ) -> Result<Nvme<F>, Error> {
        let limits = Limits::new(&identity, geometry.access);
        Ok(Nvme {
            slots: slots(depth, queues.len(), &limits),
            lists: DmaMemory::new(&function, depth * PAGE)?,
            zeroes: DmaMemory::new(&function, PAGE)?,
            bounce: BounceBuffers::new(&function, depth)?,
            regions: Regions::default(),
            order: Order::default(),
            claims: None,
            blocked: Vec::with_capacity(depth),
            free: FreeSlots::new(depth as u16),
            is_usual: true,
            key: Key::open(0),
            transfers: (0..depth).map(|_| None).collect(),
            runnable: Vec::with_capacity(depth),
            finished: VecDeque::with_capacity(depth),
            polls: 0,
            next_check: Duration::ZERO,
            stats: Stats::default(),
            controller,
            queues,
            vector,
            options,
            geometry,
            limits,
            pinner,
            identity,
            function,
        })
    }

    /// Returns serial number, model and firmware revision of the controller, in this order.
    pub fn identity(&self) -> (&str, &str, &str) {
        let controller = &self.identity.controller;
        (&controller.serial, &controller.model, &controller.firmware)
    }

    /// Returns the function that the device drives.
    pub fn function(&self) -> &F {
        &self.function
    }

    /// Returns the number of pairs of I/O queues.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Returns the number of commands that can be submitted besides those that are in flight and those by transfers.
    pub fn room(&self) -> usize {
        self.free.len().min(self.depth() - self.in_flight())
    }

    /// Returns what the device has done so far.
    pub fn stats(&self) -> Stats {
        Stats { resets: self.controller.resets(), ..self.stats }
    }

    /// Takes the oldest event that was not taken yet. At most 16 are kept; older ones are dropped.
    pub fn next_event(&mut self) -> Option<Event> {
        self.controller.next_event()
    }

    /// Ends interrupts until the next call of [`Device::arm`], so that they cost a user nothing who polls.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses.
    pub fn silence(&mut self) -> Result<(), Error> {
        self.function.silence()
    }

    /// Gives the controller up, because it is not this device's any more: cuts it off from memory at once, and fails all
    /// commands, those in flight included, with ENODEV.
    pub fn give_up(&mut self) {
        if self.controller.failure().is_none() {
            self.controller.fail(Error::Removed);
        }
        self.fail_if_lost();
        self.settle();
    }

    /// Submits the next command of every runnable slot, and tells the controller.
    fn run(&mut self) {
        if !self.controller.is_ready() {
            return;
        }
        while let Some(number) = self.runnable.pop() {
            self.issue_claimed(number);
        }
    }

    /// Claims what the slot's command has to, unless it has the claim already. Returns false if another device has it.
    fn claim(&mut self, number: u16, attempt: ClaimAttempt) -> bool {
        let (slot, Some(claims)) = (&mut self.slots[usize::from(number)], &self.claims) else { return true };
        let Some((range, is_alone)) = slot.claimed() else { return true };
        slot.has_claim = slot.has_claim || claims.try_claim(&range, is_alone, attempt);
        slot.has_claim
    }

    /// Submits the next command of a slot, unless it has to wait for the claim of another device.
    fn issue_claimed(&mut self, number: u16) {
        match self.claim(number, ClaimAttempt::First) {
            true => self.issue(number),
            false => self.blocked.push(number),
        }
    }

    /// Submits commands that waited for the claim of another device and need not any more.
    #[cold]
    fn issue_blocked(&mut self) {
        let mut at = 0;
        while let Some(&number) = self.blocked.get(at) {
            if self.claim(number, ClaimAttempt::Again) {
                self.blocked.swap_remove(at);
                self.issue(number);
            } else {
                at += 1;
            }
        }
    }

    /// Submits the next command of a slot, unless it waits for a bounce piece.
    fn issue(&mut self, number: u16) {
        let Nvme { slots, limits, bounce, lists, zeroes, queues, .. } = self;
        let slot = &mut slots[usize::from(number)];
        let Some(command) = slot.next(number, limits, bounce, lists, zeroes.address(0)) else { return };
        // There is room: a queue has more entries than slots.
        queues[slot.queue()].push(&command);
        slot.set_issued();
        self.stats.commands += 1;
    }

    /// Submits a command that is not direct, or not valid.
    #[inline(never)]
    fn submit_any<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        if self.in_flight() >= self.slots.len() {
            return Err(QueueFull(command));
        }
        self.controller.begin(self.order.in_flight() > 0);
        let submitted = self.submit_checked(command, None);
        self.settle();
        submitted
    }

    /// Submits a command with its own slot `reserved`, or with one that is free.
    fn submit_checked<'a>(
        &mut self,
        command: Command<'a>,
        reserved: Option<u16>,
    ) -> Result<(), QueueFull<'a>> {
        let failed = |command: Command<'a>, failure| command.done(Err(failure));
        let bytes = match command.check(&self.geometry) {
            Ok(bytes) => bytes,
            Err(failure) => {
                self.finished.push_back(failed(command, failure));
                return Ok(());
            }
        };
        if let Some(errno) = self.controller.failure() {
            let failure = CommandError::Io(errno);
            self.finished.push_back(failed(command, failure));
            return Ok(());
        }
        let operation = command.operation();
        let is_nothing = match operation {
            Operation::Flush => false,
            Operation::Discard => bytes == 0 || self.limits.deallocate_max == 0,
            _ => bytes == 0,
        };
        if is_nothing {
            self.finished.push_back(command.done(Ok(())));
            return Ok(());
        }
        // Slots of transfers are not free.
        let Some(number) = reserved.or_else(|| self.free.take()) else { return Err(QueueFull(command)) };
        let (offset, region) = (command.offset(), command.registered_region());
        // A flush overlaps nothing.
        let slots = &self.slots[..self.free.ever_used()];
        let blockers = self.order.conflicts(slots, offset..offset + bytes, operation.is_write());
        let Nvme { slots, regions, limits, .. } = self;
        let slot = &mut slots[usize::from(number)];
        slot.fill(command, bytes, limits, |segments| regions.find(region?, segments));
        slot.blockers = blockers;
        self.order.enter(operation.is_write());
        if blockers > 0 {
            self.order.wait();
        } else if self.controller.is_ready() {
            self.issue_claimed(number);
        } else {
            self.runnable.push(number);
        }
        Ok(())
    }

    /// Tells the controller of the commands that were submitted.
    #[inline]
    fn ring(&mut self) {
        for queue in &mut self.queues {
            queue.ring(&self.function);
        }
    }

    /// Takes a completion of a pair of queues and those behind it, after `count` others, and keeps them for
    /// [`Nvme::give_out`].
    #[inline(never)]
    fn reap_others(&mut self, index: usize, entry: Entry, mut count: u16) {
        let mut next = Some(entry);
        while let Some(entry) = next {
            self.completed(index, entry);
            count += 1;
            let queue = &mut self.queues[index];
            next = if count < queue.completion_entries { queue.pop_io().map(IoEntry::entry) } else { None };
        }
        self.queues[index].free_in_time(&self.function, count);
    }

    /// Does what is not done for direct commands, and gives out completions that were kept. Returns their number.
    #[inline(never)]
    fn reap_rest(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let mut count = self.give_out(done);
        self.controller.begin(self.order.in_flight() > 0);
        self.advance();
        count += self.give_out(done);
        self.settle();
        count
    }

    /// Takes completions of commands that are not direct, and of admin commands; goes on with a reset; submits commands that became
    /// runnable; looks at the controller's status and at late commands if it is time to.
    fn advance(&mut self) {
        if !self.is_usual || !self.controller.is_ready() {
            self.kick();
        }
        if self.controller.is_ready() {
            for index in 0..self.queues.len() {
                if let Some(entry) = self.queues[index].pop_io() {
                    self.reap_others(index, entry.entry(), 0);
                }
            }
        }
        self.look();
        if !self.runnable.is_empty() || !self.blocked.is_empty() {
            self.run();
            if self.controller.is_ready() {
                self.issue_blocked();
            }
            if self.controller.is_ready() {
                self.ring();
            }
        }
    }

    /// Looks at the controller's admin completions and, if it is time to, at its status and at late commands.
    fn look(&mut self) {
        // A look at a shared controller takes a lock: it is looked at when all else is.
        if !self.controller.is_shared() && self.controller.has_admin_completion() {
            self.controller.poll_admin();
        }
        if self.polls.is_multiple_of(POLLS) {
            self.check();
        }
    }

    /// Finds out whether direct commands can go the short way from now on; see [`Nvme::is_usual`].
    fn settle(&mut self) {
        self.is_usual = self.controller.is_ready()
            && self.finished.is_empty()
            && self.runnable.is_empty()
            && self.blocked.is_empty()
            && !self.order.has_waiting()
            && !self.regions.is_leaving();
        if self.order.in_flight() == 0 {
            self.controller.rest();
        }
        let is_open = self.is_usual && self.order.is_unchanging();
        self.key = if is_open { Key::open(self.regions.unregistered()) } else { Key::CLOSED };
    }

    /// Takes the completion of a command of the controller, whatever it is.
    #[inline(never)]
    fn completed(&mut self, queue: usize, entry: Entry) {
        let number = entry.identifier;
        let is_expected = |slot: &&mut Slot| slot.is_issued() && slot.queue() == queue;
        let Some(slot) = self.slots.get_mut(usize::from(number)).filter(is_expected) else {
            self.stats.strays += 1;
            return;
        };
        slot.clear_issued();
        if !entry.status.is_success() {
            return if entry.status.can_be_repeated() {
                let failure =
                    if entry.status.is_same(StatusField::ABORTED) { libc::ETIMEDOUT } else { libc::EIO };
                self.repeat(number, CommandError::Io(failure));
            } else {
                self.finish(number, Err(entry.status.failure()));
            };
        }
        self.controller.note_progress();
        match slot.succeeded(&self.limits, &self.bounce) {
            Progress::More => self.runnable.push(number),
            Progress::Done => self.finish(number, Ok(())),
            Progress::Mismatch => self.finish(number, Err(CommandError::Mismatch)),
        }
    }

    fn finish(&mut self, number: u16, result: Result<(), CommandError>) {
        let Nvme { slots, bounce, runnable, order, regions, free, .. } = self;
        let slot = &mut slots[usize::from(number)];
        let (is_waiting, region) = (slot.blockers > 0, slot.forget_region());
        let Some(completion) = slot.complete(result) else { return };
        if slot.piece.is_some() {
            self.stats.bytes_copied += slot.copied();
        }
        if let Some(claims) = &self.claims {
            release_claim(slot, claims);
        }
        self.finished.push_back(completion);
        if let Some(waiting) = slot.piece.take().and_then(|piece| bounce.numbers.give(piece)) {
            runnable.push(waiting);
        }
        if let Some(region) = region {
            regions.leave(region);
        }
        slot.blockers = 0;
        let (range, changes) = (slot.range(), slot.is_write());
        order.leave(changes);
        if is_waiting {
            // Only when all commands fail, so that nothing waits for it in vain.
            order.wait_no_longer();
        }
        if order.has_waiting() {
            let slots = &mut slots[..free.ever_used()];
            order.free_others(slots, &range, changes, |freed| runnable.push(freed));
        }
        if !slots[usize::from(number)].is_reserved() {
            free.give(number);
        }
    }

    #[cold]
    fn give_out(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let mut count = 0;
        while let Some(next) = self.finished.pop_front() {
            done(next);
            count += 1;
        }
        count
    }

    fn has_completion(&self) -> bool {
        let is_ready = self.controller.is_ready();
        is_ready
            && (self.controller.has_admin_completion()
                || self.queues.iter().any(|queue| queue.has_completion()))
    }
}

impl<F: Function> Device for Nvme<F> {
    #[inline]
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    // A call would copy the command and save registers, which is as much as several of the checks.
    #[inline(always)]
    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        match self.shape(&command) {
            Some(shape) => self.submit_direct(command, &shape),
            None => self.submit_any(command),
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        self.reap_each(done)
    }

    fn arm(&mut self) -> bool {
        self.controller.begin(self.order.in_flight() > 0);
        self.kick();
        // Some controllers interrupt only for completions that follow those that they know to be taken.
        if self.controller.is_ready() {
            self.queues.iter_mut().for_each(|queue| queue.free(&self.function));
        }
        // Looking at the controller may take the completions of admin commands, which can be news for the user.
        let has_news = self.controller.has_admin_completion();
        self.check();
        self.settle();
        // Nothing tells when a claim of another device ends.
        if has_news || !self.finished.is_empty() || !self.blocked.is_empty() {
            return true;
        }
        if !self.options.interrupts || !self.function.arm(self.vector, self.alarm()) {
            return self.in_flight() > 0;
        }
        // Completions that came before the descriptor was armed are found here, later ones make it readable.
        self.has_completion()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if self.options.interrupts { self.function.descriptor(self.vector) } else { None }
    }

    fn depth(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn in_flight(&self) -> usize {
        self.order.in_flight() + self.finished.len()
    }

    fn pinner(&self) -> Option<Arc<dyn Pinner>> {
        Some(self.pinner.clone())
    }

    /// Registers memory that was mapped for DMA by this device's pinner; other memory is not registered.
    fn register(&mut self, memory: &Arc<PinnedRegion>) -> Result<Option<RegionId>, bywash_device::Error> {
        let Some(address) = self.pinner.address_of(memory) else { return Ok(None) };
        match self.regions.register(memory, address) {
            Some(region) => Ok(Some(region)),
            None => Err(bywash_device::Error::Regions { most: REGIONS_MAX }),
        }
    }

    fn unregister(&mut self, region: RegionId) {
        let slots = &self.slots;
        let uses = |slot: &&Slot, index| slot.is_used() && slot.region() == Some(index);
        self.regions.unregister(region, |index| slots.iter().filter(|slot| uses(slot, index)).count() as u32);
        self.settle();
    }

    /// Gives each queue a pair of queues of the controller.
    fn more_queues(&mut self, count: usize) -> Result<Vec<Box<dyn Device>>, bywash_device::Error> {
        let devices =
            self.divide(count + 1).map_err(|error| error.of_device(&self.function.description()))?;
        Ok(devices.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect())
    }

    fn description(&self) -> String {
        let Identity { controller, namespace, .. } = &self.identity;
        let (bytes, block, number) = (namespace.bytes(), namespace.block, namespace.number);
        let queues = match self.queues() {
            1 if self.controller.is_shared() => "a pair of queues for each thread".to_owned(),
            1 => "one pair of queues".to_owned(),
            count => format!("{count} pairs of queues"),
        };
        let doorbells = if self.controller.has_shadow_doorbells() { ", shadow doorbells" } else { "" };
        let notice = if self.options.interrupts { "interrupts" } else { "polling" };
        let copied = match self.stats.bytes_copied {
            0 => String::new(),
            copied => format!("; {copied} bytes of memory that was not registered were copied"),
        };
        let state = match self.controller.failure_text() {
            Some(error) => format!("; lost: {error}"),
            None => String::new(),
        };
        format!(
            "{bytes} bytes in blocks of {block}, namespace {number} of the NVMe controller {} {} at {}, {queues}{doorbells}, \
             {notice}{copied}{state}",
            controller.model,
            controller.serial,
            self.function.description()
        )
    }
}

/// Releases the claim of a slot's command, if it has one.
#[inline]
fn release_claim(slot: &mut Slot, claims: &Claims) {
    if std::mem::take(&mut slot.has_claim)
        && let Some((range, is_alone)) = slot.claimed()
    {
        claims.release(&range, is_alone);
    }
}

/// Makes unused slots, whose commands the pairs of queues carry out by turns.
fn slots(depth: usize, queues: usize, limits: &Limits) -> Box<[Slot]> {
    let slot = |number| Slot::empty(number, (usize::from(number) % queues) as u16, limits);
    (0..depth as u16).map(slot).collect()
}

impl<F: Function> Drop for Nvme<F> {
    /// Waits for commands in flight, shuts the controller down, and takes its access to memory away. The function stays
    /// open until the last region is dropped that the device's pinner has pinned.
    fn drop(&mut self) {
        let end = self.function.now() + DROP_TIMEOUT;
        self.runnable.clear();
        // A controller that is not shared is stopped below, which ends its commands.
        let is_waiting = |link: &Link<F>| link.is_ready() || (link.is_shared() && link.failure().is_none());
        while is_waiting(&self.controller)
            && self.slots.iter().any(|slot| slot.is_issued())
            && self.function.now() < end
        {
            if !self.controller.is_ready() {
                self.recover();
                self.runnable.clear();
                self.function.pause();
                continue;
            }
            self.ring();
            for index in 0..self.queues.len() {
                while let Some(entry) = self.queues[index].pop() {
                    if let Some(slot) = self.slots.get_mut(usize::from(entry.identifier)) {
                        slot.clear_issued();
                    }
                }
                self.queues[index].free(&self.function);
            }
            self.function.pause();
        }
        let queues = std::mem::take(&mut self.queues);
        if self.controller.is_shared() && self.slots.iter().any(|slot| slot.is_issued()) {
            // The controller may still access the memory of these commands, and goes on for others: leaking it is better than
            // freeing it.
            self.lists.leak();
            self.zeroes.leak();
            self.bounce.leak();
            let users = (std::mem::take(&mut self.slots), std::mem::take(&mut self.regions));
            return self.controller.end(Box::new((queues, users)));
        }
        self.controller.end(Box::new(queues));
    }
}

impl<F: Function> fmt::Debug for Nvme<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a device of {}, {} commands in flight", self.description(), self.in_flight())
    }
}
