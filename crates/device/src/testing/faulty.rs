//! A device that passes its commands to an inner device, and injects failures, delays and crashes.
//!
//! Every write reaches the inner device at once. Its blocks are recorded in [`super::cache`], with their
//! earlier contents, until a flush or a durable write makes them durable. So reads return correct contents,
//! and a crash only has to choose for each block which contents it has; [the crate's rules](crate#rules)
//! allow every choice. The behaviour is determined by the seed and the injected faults.

use super::cache::Cache;
use crate::command::{Command, CommandError, Completion, Operation, QueueFull};
use crate::device::{Device, Geometry};
use crate::pages::Pages;
use crate::segment::{MemoryOwner, Segment, gather};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Greatest time that the inner device may take for its commands.
const LIMIT: Duration = Duration::from_secs(60);

/// Fault that affects some of the commands.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Operation that the fault affects; `None` for all.
    pub operation: Option<Operation>,
    /// Range of bytes: the fault affects commands that overlap it, and every flush.
    pub range: Range<u64>,
    /// Number of such commands that are spared first.
    pub skip: u32,
    /// Greatest number of commands that the fault affects.
    pub times: u32,
    /// Effect on the command.
    pub what: FaultEffect,
}

/// Effect of a fault on a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The command fails with this errno(3). If it is a write, a random number of its blocks, from the first
    /// on, was written.
    Fail(i32),
    /// The command's completion is reported later, by this time.
    Delay(Duration),
    /// The command's completion is not reported before [`Faulty::release`].
    Hold,
}

/// Choice of the writes that survive a crash, among those that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// No write survives.
    Lose,
    /// All writes survive.
    Keep,
    /// A random number of commands in the order of submission survive, and a part of the last one's blocks.
    Prefix,
    /// For each block independently, a random number of its writes: writes are lost, torn between blocks, and
    /// reordered.
    Any,
}

/// Command that the inner device has, or whose completion has not been reported yet.
#[derive(Debug)]
struct InFlight {
    token: u64,
    operation: Operation,
    owner: Option<MemoryOwner>,
    blocks: Range<u64>,
    /// Data of a compare-and-write: expected and new contents.
    new: Option<Arc<Pages>>,
    /// Value of `Faulty::now` at its submission.
    submitted: u64,
    what: Option<FaultEffect>,
}

/// Completion that has not been reported yet.
#[derive(Debug)]
struct PendingCompletion {
    command: u64,
    in_flight: InFlight,
    result: Result<(), CommandError>,
}

/// Device that passes commands to `D`, and fails, delays and crashes on demand.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    chance: ChaCha8Rng,
    faults: Vec<Fault>,
    cache: Cache,
    in_flight: HashMap<u64, InFlight>,
    ready: VecDeque<PendingCompletion>,
    /// Delayed completions with the times of their reports; `None` until [`Faulty::release`].
    late: Vec<(Option<Instant>, PendingCompletion)>,
    /// Number of the inner device's next command.
    next: u64,
    /// Number of completions reported so far, which serves as the clock.
    now: u64,
}

impl<D: Device> Faulty<D> {
    /// Makes a device over `inner`, whose contents count as durable.
    pub fn over(inner: D, seed: u64) -> Faulty<D> {
        Faulty {
            inner,
            chance: ChaCha8Rng::seed_from_u64(seed),
            faults: Vec::new(),
            cache: Cache::default(),
            in_flight: HashMap::new(),
            ready: VecDeque::new(),
            late: Vec::new(),
            next: 0,
            now: 0,
        }
    }

    /// Injects a fault from now on. If a command matches several faults, the first one injected counts.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Lets the next [`Device::reap`] report the completions that were held back.
    pub fn release(&mut self) {
        let (held, late): (Vec<_>, _) = self.late.drain(..).partition(|(until, _)| until.is_none());
        self.late = late;
        self.ready.extend(held.into_iter().map(|(_, ready)| ready));
    }

    /// Simulates a power failure, and returns the inner device as it is afterwards. Commands in flight count
    /// as completed, but not as flushed.
    ///
    /// # Panics
    /// If the inner device fails, or takes longer than 60 s.
    pub fn crash(mut self, crash: Crash) -> D {
        self.wait(|faulty| faulty.inner.in_flight() == 0);
        let commands = self.cache.commands();
        let mut chance = self.chance.clone();
        let mut below = move |most: usize| (chance.next_u64() % most as u64) as usize;
        // The last command of [`Crash::Prefix`], whose write may be torn; `None` if all survive.
        let torn = commands.get(below(commands.len() + 1)).copied();
        let blocks = std::mem::take(&mut self.cache).crash(|writes| match crash {
            Crash::Lose => 0,
            Crash::Keep => writes.count(),
            Crash::Any => below(writes.count() + 1),
            Crash::Prefix => {
                let is_there = |command: &u64| torn.is_none_or(|torn| *command <= torn);
                let (count, last) =
                    writes.take_while(is_there).fold((0, None), |(n, _), last| (n + 1, Some(last)));
                count - if count > 0 && last == torn { below(2) } else { 0 }
            }
        });
        let size = u64::from(self.inner.geometry().block);
        for (block, bytes) in blocks {
            let pages = pages_of(&bytes);
            let segment = [all_of(&pages)];
            self.carry_out(Command::write_durable(0, block * size, &segment).owner(pages.clone()));
        }
        self.inner
    }

    /// Polls the inner device until a condition holds.
    fn wait(&mut self, is_there: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_there(self) {
            assert!(Instant::now() < end, "the inner device is stuck");
            self.poll_inner();
        }
    }

    /// Carries out a command of this device itself. Called while fewer commands are in flight than the depth,
    /// so the inner device has room.
    fn carry_out(&mut self, command: Command<'_>) {
        let number = self.next;
        self.next += 1;
        let Ok(()) = self.inner.submit(Command { token: number, ..command }) else {
            panic!("the inner device is not as deep as it says")
        };
        let end = Instant::now() + LIMIT;
        let mut result = None;
        while result.is_none() {
            assert!(Instant::now() < end, "the inner device is stuck");
            for done in self.polled() {
                if done.token == number { result = Some(done.result) } else { self.came(done) }
            }
        }
        assert_eq!(result, Some(Ok(())), "the inner device fails by itself");
    }

    fn polled(&mut self) -> Vec<Completion> {
        let mut all = Vec::new();
        self.inner.reap(&mut |done| all.push(done));
        all
    }

    fn poll_inner(&mut self) {
        for done in self.polled() {
            self.came(done);
        }
    }

    /// Takes a completion of the inner device.
    fn came(&mut self, done: Completion) {
        let Some(in_flight) = self.in_flight.remove(&done.token) else { return };
        if let (Some(new), Ok(())) = (&in_flight.new, done.result) {
            let block = self.inner.geometry().block as usize;
            self.cache.write(in_flight.blocks.start, done.token, &bytes_of(new)[block..]);
        }
        let result = match in_flight.what {
            Some(FaultEffect::Fail(error)) => Err(CommandError::Io(error)),
            _ => done.result,
        };
        self.put(PendingCompletion { command: done.token, in_flight, result });
    }

    /// Queues a completion for its report, now or later.
    fn put(&mut self, ready: PendingCompletion) {
        match ready.in_flight.what {
            Some(FaultEffect::Delay(time)) => self.late.push((Some(Instant::now() + time), ready)),
            Some(FaultEffect::Hold) => self.late.push((None, ready)),
            _ => self.ready.push_back(ready),
        }
    }

    /// Updates the cache and the clock for a completion that is reported now.
    fn give_out(&mut self, ready: PendingCompletion) -> Completion {
        let PendingCompletion { command, in_flight, result } = ready;
        self.now += 1;
        if result.is_ok() {
            match in_flight.operation {
                Operation::Flush => self.cache.flush(in_flight.submitted),
                Operation::WriteDurable => self.cache.settle(in_flight.blocks, command),
                _ => self.cache.done(in_flight.blocks, command, self.now),
            }
        }
        Completion { token: in_flight.token, owner: in_flight.owner, result }
    }

    /// Returns the effect of the first matching fault on a command, and counts the match.
    fn fault(&mut self, operation: Operation, range: Range<u64>) -> Option<FaultEffect> {
        let concerns = |fault: &&mut Fault| {
            let overlaps = fault.range.start < range.end && range.start < fault.range.end;
            fault.times > 0
                && fault.operation.is_none_or(|wanted| wanted == operation)
                && (overlaps || operation == Operation::Flush)
        };
        let fault = self.faults.iter_mut().find(concerns)?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.times -= 1;
        Some(fault.what)
    }

    /// Reads the durable contents of blocks that are about to be written, if they are not known.
    fn learn(&mut self, blocks: Range<u64>) {
        let block = self.inner.geometry().block as usize;
        for number in blocks {
            if !self.cache.knows(number) {
                let pages = Arc::new(Pages::new(block));
                let segment = [all_of(&pages)];
                self.carry_out(Command::read(0, number * block as u64, &segment).owner(pages.clone()));
                self.cache.learn(number, &bytes_of(&pages));
            }
        }
    }

    /// Submits a command that changes the device to the inner one, with a copy of its data.
    fn hand_on(&mut self, command: u64, offset: u64, mut in_flight: InFlight, data: Vec<u8>) {
        let block = u64::from(self.inner.geometry().block);
        if let (Some(FaultEffect::Fail(error)), operation) = (in_flight.what, in_flight.operation) {
            // A failing write is torn after a random number of blocks; a failing compare-and-write changes
            // nothing.
            let some =
                if operation == Operation::CompareAndWrite { 1 } else { data.len() as u64 / block + 1 };
            in_flight.blocks.end = in_flight.blocks.start + self.chance.next_u64() % some;
            if in_flight.blocks.is_empty() {
                return self.put(PendingCompletion {
                    command,
                    in_flight,
                    result: Err(CommandError::Io(error)),
                });
            }
        }
        self.learn(in_flight.blocks.clone());
        let pages = pages_of(&data);
        let is_swap = in_flight.operation == Operation::CompareAndWrite;
        let bytes = if is_swap { 2 * block } else { (in_flight.blocks.end - in_flight.blocks.start) * block };
        // SAFETY: the command owns the pages, which have at least `bytes` bytes; no reference points into
        // them.
        let segment = [unsafe { Segment::new(pages.base(), bytes as usize) }];
        let inner = if is_swap {
            in_flight.new = Some(pages.clone());
            Command::compare_and_write(command, offset, &segment)
        } else {
            for (number, bytes) in in_flight.blocks.clone().zip(data.chunks(block as usize)) {
                self.cache.write(number, command, bytes);
            }
            Command::write(command, offset, &segment)
        };
        self.start(inner.owner(pages), command, in_flight);
    }

    fn start(&mut self, inner: Command<'_>, command: u64, in_flight: InFlight) {
        let Ok(()) = self.inner.submit(inner) else { panic!("the inner device is not as deep as it says") };
        self.in_flight.insert(command, in_flight);
    }
}

impl<D: Device> Device for Faulty<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        if self.in_flight() >= self.depth() {
            return Err(QueueFull(command));
        }
        let geometry = self.inner.geometry();
        let checked = command.check(&geometry);
        let Command { token, operation, offset, length: _, segments, region: _, owner } = command;
        let bytes = checked.unwrap_or(0);
        let block = u64::from(geometry.block);
        let range = offset..offset.saturating_add(bytes);
        let blocks = offset / block..range.end / block;
        let what = if checked.is_ok() { self.fault(operation, range) } else { None };
        let (number, submitted) = (self.next, self.now);
        self.next += 1;
        let in_flight = InFlight { token, operation, owner, blocks, new: None, submitted, what };
        match (operation, what) {
            _ if checked.is_err() || (bytes == 0 && operation != Operation::Flush) => {
                self.put(PendingCompletion { command: number, in_flight, result: checked.map(|_| ()) });
            }
            (Operation::Read | Operation::Flush | Operation::Discard, Some(FaultEffect::Fail(error))) => {
                self.put(PendingCompletion {
                    command: number,
                    in_flight,
                    result: Err(CommandError::Io(error)),
                });
            }
            // A discard is a hint, which this device ignores.
            (Operation::Discard, _) => {
                self.put(PendingCompletion { command: number, in_flight, result: Ok(()) })
            }
            (Operation::Flush, _) => self.start(Command::flush(number), number, in_flight),
            (Operation::Read, _) => {
                let inner = Command::read(number, offset, segments);
                let owner = in_flight.owner.clone();
                self.start(Command { owner, ..inner }, number, in_flight);
            }
            (Operation::WriteZeroes, _) => self.hand_on(number, offset, in_flight, vec![0; bytes as usize]),
            _ => {
                let length = if operation == Operation::CompareAndWrite { 2 * bytes } else { bytes };
                let mut data = vec![0; length as usize];
                // SAFETY: `check` found `data.len()` bytes in the segments, whose memory is mapped as
                // `Segment::new` requires.
                unsafe { gather(segments, 0, data.as_mut_ptr(), data.len()) };
                self.hand_on(number, offset, in_flight, data);
            }
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        self.poll_inner();
        let now = Instant::now();
        let is_due =
            |(until, _): &(Option<Instant>, PendingCompletion)| until.is_some_and(|until| until <= now);
        let (due, late): (Vec<_>, _) = self.late.drain(..).partition(is_due);
        self.late = late;
        self.ready.extend(due.into_iter().map(|(_, ready)| ready));
        let mut count = 0;
        while let Some(ready) = self.ready.pop_front() {
            let given = self.give_out(ready);
            done(given);
            count += 1;
        }
        count
    }

    fn arm(&mut self) -> bool {
        // Delayed completions can only be found by polling; those held back wait for `release`.
        !self.ready.is_empty() || self.late.iter().any(|(until, _)| until.is_some()) || self.inner.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len() + self.ready.len() + self.late.len()
    }

    fn description(&self) -> String {
        format!("with faults over {}", self.inner.description())
    }
}

fn all_of(pages: &Arc<Pages>) -> Segment {
    // SAFETY: every command here owns the pages of its segment; no reference points into them.
    unsafe { Segment::new(pages.base(), pages.bytes()) }
}

fn pages_of(bytes: &[u8]) -> Arc<Pages> {
    let pages = Pages::new(bytes.len());
    // SAFETY: the new pages have `bytes.len()` bytes, and nobody else knows them yet.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pages.base(), bytes.len()) };
    Arc::new(pages)
}

fn bytes_of(pages: &Arc<Pages>) -> Vec<u8> {
    let mut bytes = vec![0; pages.bytes()];
    // SAFETY: the vector is as large as the pages, and no command that uses them is in flight.
    unsafe { std::ptr::copy_nonoverlapping(pages.base().cast_const(), bytes.as_mut_ptr(), bytes.len()) };
    bytes
}
