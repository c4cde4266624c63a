//! The machine that executes programs in simulated time: processors with caches, above the memory, interconnect and
//! devices of the engine.
//!
//! ```text
//!     Execution ── next ──► the earliest of: engine's event, kernel's work, alarm, hart that may run
//!         │                                    │
//!         └─────── run ──► hart, until it misses its caches or its turn is over
//!                                              │ miss: a job of the engine; the processor waits for its note
//! ```
//!
//! Each processor has a clock of its own. What others can notice, a miss or a step of the operating system, happens in
//! the order of time: the one with the earliest clock goes first. Between such moments a hart runs ahead of the other
//! processors, by at most [`TURN_CYCLES`] cycles.
//!
//! Work of the operating system becomes a list of steps of its processor: cycles, passes over data line by line through
//! the caches, and requests to devices.
//!
//! Invariants: the engine's present is never later than the clock of a processor that is not waiting for it. A
//! processor that waits has exactly one job with its note.

mod work;

use super::addresses::Addresses;
use super::caches::{Found, Kind, LINE_BYTES, Miss, SharedCaches, Traffic};
use super::costs::PathCosts;
use super::devices::Devices;
use super::memory::{Clock, ProcessorMemory};
use super::profile::Profile;
use super::report::{ProcessorUse, ProgramReport, ProgramTimeline, ThreadSpan};
use crate::engine::{Moves, Net, Register, Registers, Run, Script};
use crate::server::hardware::at_least_one;
use bywash_cpu::memory::Space;
use bywash_cpu::{Blocks, Exit, Hart};
use bywash_execute::Time;
use bywash_execute::machine::{
    Continuation, Device, Direction, Event, Location, Machine, Request, Tag, ThreadId, Work,
};
use bywash_model::{Architecture, Demand, Description, MissingProcessor};
use std::collections::{BTreeMap, VecDeque};

/// Number of cycles by which a hart may run ahead of the other processors.
pub const TURN_CYCLES: u64 = 200;
/// Number of instructions after which a machine's only busy processor lets its caller look around.
const TURN_INSTRUCTIONS_MAX: u64 = 1_000_000;
/// First note of a request to a device; notes below are numbers of processors.
const FIRST_REQUEST: u32 = 1 << 16;
/// Greatest number of processors.
const PROCESSORS_MAX: u32 = 256;

/// Reason for which a description is no machine for programs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The description has no memory.
    #[error(
        "the description has no machine.memory, whose caches and bus a program needs; add it, as in \
         'bywash plan presets carrera-table-4'"
    )]
    NoMemory,
    /// A cache of the description has no size.
    #[error("machine.memory.{0} is 0, and a program needs a cache there; give its size, such as \"32 KiB\"")]
    NoCache(&'static str),
    /// Too many processors.
    #[error("{0} processors are too many to execute a program on; at most {PROCESSORS_MAX}")]
    TooManyProcessors(f64),
    /// The architecture needs processors that the devices do not have.
    #[error(transparent)]
    MissingProcessor(#[from] MissingProcessor),
}

/// One processor.
#[derive(Debug)]
struct Processor {
    clock: Clock,
    /// Work of the operating system that is not done, in order.
    steps: VecDeque<Step>,
    /// Misses that are not performed, in order.
    misses: VecDeque<Miss>,
    /// Moment since which the processor waits for memory.
    waits_since: Option<u64>,
    /// True if the processor had a thread at the latest event.
    was_occupied: bool,
    /// True while the present misses are those of the operating system.
    is_in_system: bool,
    /// Number of the present or latest system call.
    call: u64,
    /// Data that the interface sends: what was copied to a socket last, or what it was copied from if it is sent from
    /// there.
    sent_from: Option<Location>,
    /// Thread, and the moment since which it has the processor.
    thread: Option<(u32, u64)>,
    /// Line of the latest instruction.
    code_line: u64,
    /// Address of the program's latest instruction.
    pc: u64,
    measured: ProcessorUse,
}

/// Step of the operating system's work.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Computing, in cycles.
    Compute(u64),
    /// Pass over data.
    Pass(Pass),
    /// Lines that devices have written or will read: they leave the caches, or their modified ones go to memory.
    Device {
        /// Location of the first byte.
        at: Location,
        /// Number of bytes.
        bytes: u64,
        /// True if a device has written them.
        is_written: bool,
    },
    /// Request to a device.
    Submit(Script, Registers),
}

/// Pass of a processor over data, line by line: it reads, writes, or copies.
#[derive(Clone, Copy, Debug)]
struct Pass {
    reads: Option<Location>,
    writes: Option<Location>,
    /// Bytes that are left.
    bytes: u64,
    /// Cycles for each byte, including the stalls on an idle memory.
    cycles: f64,
}

/// Machine of a description, on which an [`Execution`](bywash_execute::Execution) runs a program.
pub struct TimedMachine {
    engine: Run<Box<Net>, SharedCaches>,
    devices: DeviceParts,
    processors: Vec<Processor>,
    /// Numbers of the processors that had a thread or work at the latest event, in order.
    active: Vec<usize>,
    costs: PathCosts,
    addresses: Addresses,
    /// Cycles that an access to the second-level cache adds.
    second_cycles: u64,
    /// Time that an idle memory takes for a line, in picoseconds.
    idle_line: u64,
    /// Time of the latest event, in picoseconds.
    time: u64,
    /// Clock of the processor that acted last, in picoseconds.
    actor_time: u64,
    /// Time of the next alarm, in picoseconds.
    alarm: u64,
    /// Requests in flight, by their notes.
    in_flight: BTreeMap<u32, Flight>,
    next_note: u32,
    /// Requests of the interfaces in flight, by interface and direction, in the order of submission: note, and true if
    /// it is completed.
    in_order: BTreeMap<(u32, bool), VecDeque<(u32, bool)>>,
    /// Completed requests that the operating system does not know of yet.
    completed: VecDeque<Flight>,
    /// Completed request that the operating system was told of last.
    latest: Option<Request>,
    profile: Option<Profile>,
    /// True if iterations of loops that wait are counted instead of executed.
    counts_iterations: bool,
    /// Spans of threads, if they are recorded.
    threads: Option<ThreadSpans>,
}

/// Spans of threads on processors, up to a greatest number.
struct ThreadSpans {
    spans: Vec<ThreadSpan>,
    spans_max: usize,
}

/// Request in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    tag: Tag,
    request: Request,
}

/// Scripts and counts of the devices.
struct DeviceParts {
    scripts: super::devices::RequestScripts,
    lines: crate::server::hardware::LineScripts,
    interfaces: u32,
    disks: u32,
    tracks: u32,
    rows: Vec<(&'static str, crate::engine::Station, u32)>,
}

impl TimedMachine {
    /// Makes the machine of a description, whose devices and operating system work as `architecture` has it. Equal seeds
    /// give equal runs.
    ///
    /// # Errors
    /// [`MachineError`] if the description is no machine for programs.
    pub fn new(
        description: &Description,
        architecture: Architecture,
        seed: u64,
    ) -> Result<TimedMachine, MachineError> {
        let machine = &description.machine;
        let memory = machine.memory.as_ref().ok_or(MachineError::NoMemory)?;
        for (name, size) in [("l1", memory.l1), ("l2", memory.l2)] {
            if size.0 < LINE_BYTES as f64 {
                return Err(MachineError::NoCache(name));
            }
        }
        let processors = at_least_one(machine.processors.count);
        if processors > PROCESSORS_MAX {
            return Err(MachineError::TooManyProcessors(machine.processors.count));
        }
        let work = description.workload();
        Demand::check(machine, &work, architecture)?;
        let Devices { net, hardware, lines, idle_line, scripts } =
            Devices::new(description, architecture).ok_or(MachineError::NoMemory)?;
        let caches = SharedCaches::new(processors as usize, memory.l1.0, memory.l2.0, memory.three_phase);
        let hertz = (machine.processors.speed.0 as u64).max(1);
        let [interfaces, disks] = hardware.counts;
        let tracks = machine.disks.rotating.map_or(1, |rotating| at_least_one(rotating.tracks));
        let rows = hardware.rows;
        let processor = || Processor {
            clock: Clock { origin: 0, cycles: 0, hertz },
            steps: VecDeque::new(),
            misses: VecDeque::new(),
            waits_since: None,
            was_occupied: false,
            is_in_system: false,
            call: 0,
            sent_from: None,
            thread: None,
            code_line: u64::MAX,
            pc: 0,
            measured: ProcessorUse::default(),
        };
        Ok(TimedMachine {
            engine: Run::with_caches(Box::new(net), seed, Some(caches)),
            devices: DeviceParts { scripts, lines, interfaces, disks, tracks, rows },
            processors: (0..processors).map(|_| processor()).collect(),
            active: Vec::new(),
            costs: PathCosts::new(description, architecture),
            addresses: Addresses::new(work.costs.piece.0 as u64),
            second_cycles: (memory.l2_latency.0 * hertz as f64).round() as u64,
            idle_line: idle_line.0,
            time: 0,
            actor_time: 0,
            alarm: u64::MAX,
            in_flight: BTreeMap::new(),
            next_note: FIRST_REQUEST,
            in_order: BTreeMap::new(),
            completed: VecDeque::new(),
            latest: None,
            profile: None,
            counts_iterations: true,
            threads: None,
        })
    }

    /// Executes each iteration of a loop that waits for a value in memory, and does not count those that are the same. The
    /// result is the same, as tests show by this.
    pub fn executing_each_iteration(self) -> TimedMachine {
        TimedMachine { counts_iterations: false, ..self }
    }

    /// Records a profile of the program.
    pub fn with_profile(self) -> TimedMachine {
        TimedMachine { profile: Some(Profile::default()), ..self }
    }

    /// Records the first `spans_max` spans of the processors' threads, and of what the other parts do.
    pub fn with_timeline(self, spans_max: usize) -> TimedMachine {
        let threads = Some(ThreadSpans { spans: Vec::new(), spans_max });
        TimedMachine { engine: self.engine.with_timeline(spans_max), threads, ..self }
    }

    /// Returns the timeline, if one is recorded. The spans of threads that have a processor now end now.
    pub fn timeline(&self) -> Option<ProgramTimeline> {
        let ThreadSpans { spans, spans_max } = self.threads.as_ref()?;
        let running = self.processors.iter().enumerate().filter_map(|(number, processor)| {
            let (thread, from) = processor.thread?;
            let [from, to] = [from, processor.clock.after(0)].map(crate::engine::Time);
            (from < to).then_some(ThreadSpan { processor: number as u32, thread, from, to })
        });
        let threads = spans.iter().copied().chain(running).take(*spans_max).collect();
        Some(ProgramTimeline { threads, parts: self.engine.timeline()?.clone() })
    }

    /// Ends the span of the thread on a processor, and begins that of another one.
    fn change_thread(&mut self, processor: usize, to: Option<u32>) {
        let now = self.clock(processor);
        let before =
            std::mem::replace(&mut self.processors[processor].thread, to.map(|thread| (thread, now)));
        let (Some(threads), Some((thread, from))) = (&mut self.threads, before) else { return };
        if threads.spans.len() < threads.spans_max {
            let [from, to] = [from, now].map(crate::engine::Time);
            threads.spans.push(ThreadSpan { processor: processor as u32, thread, from, to });
        }
    }

    /// Returns the profile, if one is recorded.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Returns the clock frequency of the processors, in cycles per second.
    pub fn hertz(&self) -> u64 {
        self.processors[0].clock.hertz
    }

    /// Returns what was measured so far.
    pub fn report(&self) -> ProgramReport {
        let end = self.processors.iter().map(|one| one.clock.after(0)).max().unwrap_or(0).max(self.time);
        let mut engine = self.engine.clone();
        let caches = engine.caches().cloned();
        let result = engine.end(crate::engine::Time(end));
        ProgramReport::new(
            end,
            self.hertz(),
            self.processors.iter().map(|one| one.measured).collect(),
            caches.as_ref(),
            &result,
            &self.devices.rows,
        )
    }

    /// Returns the caches.
    fn caches(&mut self) -> Option<&mut SharedCaches> {
        self.engine.caches()
    }

    /// Returns a processor's clock, in picoseconds.
    fn clock(&self, processor: usize) -> u64 {
        self.processors[processor].clock.after(0)
    }

    /// Returns true if a processor has misses or work of the operating system to do, and does not wait.
    fn has_work(&self, processor: usize) -> bool {
        let Processor { steps, misses, waits_since, .. } = &self.processors[processor];
        waits_since.is_none() && !(steps.is_empty() && misses.is_empty())
    }

    /// Returns the earliest moment at which anything but `processor` may act.
    fn earliest_other(&self, processor: usize) -> u64 {
        let others = self.active.iter().filter(|number| **number != processor);
        let others = others.map(|number| &self.processors[*number]).filter(|one| one.waits_since.is_none());
        others.map(|one| one.clock.after(0)).min().unwrap_or(u64::MAX).min(self.alarm)
    }

    /// Executes the engine's next event.
    fn step_engine(&mut self) {
        self.engine.step();
        let now = self.engine.now().0;
        self.time = self.time.max(now);
        self.take_notes();
    }

    /// Lets those go on whose notes the engine's jobs have left.
    fn take_notes(&mut self) {
        let now = self.engine.now().0;
        while let Some(note) = self.engine.take_note() {
            if note < FIRST_REQUEST {
                self.end_wait(note as usize, now);
            } else {
                self.complete(note);
            }
        }
    }

    /// Ends a processor's wait for memory.
    fn end_wait(&mut self, processor: usize, now: u64) {
        let one = &mut self.processors[processor];
        let Some(since) = one.waits_since.take() else { return };
        let waited = now.saturating_sub(since);
        if one.is_in_system {
            one.measured.system_stalled += waited;
        } else {
            one.measured.program_stalled += waited;
            if let Some(profile) = &mut self.profile {
                profile.stall(one.pc, waited);
            }
        }
        one.clock.set(now.max(since));
    }

    /// Marks a request as completed; requests of one interface in one direction are told of in order.
    fn complete(&mut self, note: u32) {
        let Some(Flight { request, .. }) = self.in_flight.get(&note) else { return };
        let Some(key) = self.order_of(request) else { return self.tell(note) };
        let Some(queue) = self.in_order.get_mut(&key) else { return };
        if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == note) {
            entry.1 = true;
        }
        let is_done = |queue: &VecDeque<(u32, bool)>| queue.front().is_some_and(|entry| entry.1);
        let mut done = Vec::new();
        while is_done(queue) {
            done.extend(queue.pop_front().map(|(note, _)| note));
        }
        done.into_iter().for_each(|note| self.tell(note));
    }

    /// Adds a request to those that the operating system is told of.
    fn tell(&mut self, note: u32) {
        self.completed.extend(self.in_flight.remove(&note));
    }

    /// Returns the interface and direction of a request to an interface.
    fn order_of(&self, request: &Request) -> Option<(u32, bool)> {
        match *request {
            Request::Interface { direction, memory, .. } => {
                Some((self.interface_of(memory), direction == Direction::Out))
            }
            Request::Disk { .. } => None,
        }
    }

    /// Returns the number of the interface that a connection uses.
    fn interface_of(&self, memory: Location) -> u32 {
        match memory {
            // A connection's ends have adjacent numbers.
            Location::Socket { socket, .. } => (socket / 2 % u64::from(self.devices.interfaces)) as u32,
            _ => 0,
        }
    }

    /// Performs the first miss of a processor; the processor then waits, unless its caches have got the line meanwhile.
    fn perform(&mut self, processor: usize) {
        let Some(miss) = self.processors[processor].misses.pop_front() else { return };
        let Some(traffic) = self.caches().map(|caches| caches.perform(processor, miss)) else { return };
        let lines = self.devices.lines;
        match traffic {
            Traffic::None => {}
            Traffic::Upgrade => self.wait_for(processor, lines.upgrade, Moves::default()),
            Traffic::Data(moves) if miss.kind == Kind::Store => self.wait_for(processor, lines.store, moves),
            Traffic::Data(moves) => self.wait_for(processor, lines.fetch, moves),
        }
    }

    /// Starts a job that moves a line, and lets a processor wait for its note.
    fn wait_for(&mut self, processor: usize, script: Script, moves: Moves) {
        let at = self.clock(processor);
        let mut registers = Registers { note: processor as u32, ..Registers::default() };
        registers.picks[Register::Processor as usize] = processor as u32;
        registers.moved = [moves.written_back, moves.fetched, moves.replaced, 0];
        self.processors[processor].waits_since = Some(at);
        self.processors[processor].measured.misses += 1;
        let events = self.engine.next_event().map_or(u64::MAX, |at| at.0);
        if at < events.min(self.earliest_other(processor)) {
            self.engine.begin(crate::engine::Time(at), script, registers);
            self.time = self.time.max(at);
            self.take_notes();
        } else {
            self.engine.submit(crate::engine::Time(at), script, registers);
        }
    }

    /// Does a part of a processor's work, up to its next wait or step.
    fn advance(&mut self, processor: usize) {
        if !self.processors[processor].misses.is_empty() {
            return self.perform(processor);
        }
        let Some(step) = self.processors[processor].steps.pop_front() else { return };
        let one = &mut self.processors[processor];
        match step {
            Step::Compute(cycles) => {
                one.clock.cycles += cycles;
                one.measured.system_cycles += cycles;
            }
            Step::Submit(script, registers) => {
                let at = one.clock.after(0);
                self.engine.submit(crate::engine::Time(at), script, registers);
            }
            Step::Device { at, bytes, is_written } => self.pass_device(processor, at, bytes, is_written),
            Step::Pass(pass) => self.pass(processor, pass),
        }
        self.actor_time = self.actor_time.max(self.clock(processor));
    }

    /// Lets a processor pass over data until it has to wait.
    fn pass(&mut self, processor: usize, mut pass: Pass) {
        while pass.bytes > 0 {
            let [from, to] =
                [pass.reads, pass.writes].map(|at| at.map(|at| (self.addresses.address(at), at)));
            // Up to the next line of either side.
            let mut part = pass.bytes;
            for (address, location) in [from, to].into_iter().flatten() {
                part = part.min(LINE_BYTES - address % LINE_BYTES).min(self.addresses.consecutive(location));
            }
            let mut spent = 0;
            let mut misses = VecDeque::new();
            let second_cycles = self.second_cycles;
            let Some(caches) = self.engine.caches() else { return };
            for (access, kind) in [(from, Kind::Load), (to, Kind::Store)] {
                let Some((address, _)) = access else { continue };
                let line = address / LINE_BYTES;
                match caches.processor(processor).access(line, kind) {
                    Found::First => {}
                    Found::Second => spent += second_cycles,
                    Found::Beyond => {
                        misses.push_back(Miss { line, kind });
                        if kind == Kind::Load {
                            spent += self.processors[processor].clock.cycles_in(self.idle_line);
                        }
                    }
                }
            }
            let one = &mut self.processors[processor];
            let cycles = ((pass.cycles * part as f64).round() as u64).saturating_sub(spent);
            one.clock.cycles += cycles;
            one.measured.system_cycles += cycles;
            pass.bytes -= part;
            pass.reads = pass.reads.map(|at| at.behind(part));
            pass.writes = pass.writes.map(|at| at.behind(part));
            if !misses.is_empty() {
                (one.misses, one.is_in_system) = (misses, true);
                if pass.bytes > 0 {
                    one.steps.push_front(Step::Pass(pass));
                }
                return self.perform(processor);
            }
        }
    }

    /// Takes the lines out of the caches that a device has written, or writes those back that it will read.
    fn pass_device(&mut self, processor: usize, at: Location, bytes: u64, is_written: bool) {
        let (mut at, mut left) = (at, bytes);
        let mut written_back = 0;
        while left > 0 {
            let address = self.addresses.address(at);
            let part = left.min(self.addresses.consecutive(at));
            let Some(caches) = self.engine.caches() else { return };
            for line in super::caches::lines(address, part) {
                if is_written {
                    caches.remove(line);
                } else if caches.clean(line) {
                    written_back += LINE_BYTES as u32;
                }
            }
            (at, left) = (at.behind(part), left - part);
        }
        if written_back > 0 {
            self.processors[processor].is_in_system = true;
            let moves = Moves { written_back, ..Moves::default() };
            self.wait_for(processor, self.devices.lines.write_back, moves);
        }
    }
}

impl Machine for TimedMachine {
    fn processors(&self) -> usize {
        self.processors.len()
    }

    fn now(&self, processor: usize) -> Time {
        Time::from_picoseconds(self.clock(processor))
    }

    fn time(&self) -> Time {
        Time::from_picoseconds(self.time)
    }

    fn next(&mut self, occupied: &[bool], alarm: Option<Time>) -> Event {
        self.alarm = alarm.map_or(u64::MAX, Time::picoseconds);
        let begins = self.time.max(self.actor_time);
        for (one, &is_occupied) in self.processors.iter_mut().zip(occupied) {
            if is_occupied && !one.was_occupied && one.steps.is_empty() && one.clock.after(0) < begins {
                one.clock.set(begins);
            }
            one.was_occupied = is_occupied;
        }
        for (number, is_occupied) in occupied.iter().enumerate() {
            if !is_occupied && self.processors[number].thread.is_some() {
                self.change_thread(number, None);
            }
        }
        self.note_active();
        loop {
            if let Some(Flight { tag, request }) = self.completed.pop_front() {
                self.latest = Some(request);
                self.actor_time = self.actor_time.max(self.time);
                return Event::Completion { tag, processor: self.server() };
            }
            let events = self.engine.next_event().map_or(u64::MAX, |at| at.0);
            let mut first: Option<(u64, usize)> = None;
            for &number in &self.active {
                if self.has_work(number) || occupied[number] && self.processors[number].waits_since.is_none()
                {
                    let at = self.clock(number);
                    if first.is_none_or(|(earliest, _)| at < earliest) {
                        first = Some((at, number));
                    }
                }
            }
            let processor_at = first.map_or(u64::MAX, |(at, _)| at);
            if events <= processor_at.min(self.alarm) && events < u64::MAX {
                self.step_engine();
            } else if self.alarm <= processor_at && self.alarm < u64::MAX {
                self.time = self.time.max(self.alarm);
                return Event::Alarm { processor: self.server() };
            } else if let Some((at, processor)) = first {
                self.time = self.time.max(at);
                if !self.has_work(processor) {
                    return Event::Run { processor };
                }
                self.advance(processor);
            } else {
                return Event::Nothing;
            }
        }
    }

    fn run(&mut self, processor: usize, hart: &mut Hart, space: &mut Space, blocks: &mut Blocks) -> Exit {
        let mut instructions = 0;
        loop {
            let horizon = self.earliest_other(processor).saturating_add(self.turn());
            let horizon = horizon.min(self.engine.next_event().map_or(u64::MAX, |at| at.0)).min(self.alarm);
            let one = &mut self.processors[processor];
            let left = one.clock.cycles_until(horizon);
            if instructions > 0 && (left == 0 || instructions >= TURN_INSTRUCTIONS_MAX) {
                return Exit::Stop;
            }
            let budget = left.clamp(1, TURN_INSTRUCTIONS_MAX);
            let before = hart.retired;
            one.is_in_system = false;
            let Some(caches) = self.engine.caches() else { return Exit::Stop };
            let mut memory = ProcessorMemory {
                space,
                caches: caches.processor(processor),
                misses: &mut one.misses,
                profile: self.profile.as_mut(),
                second_cycles: self.second_cycles,
                stalls: 0,
                code_line: &mut one.code_line,
                clock: one.clock,
                retired: before,
                counts_iterations: self.counts_iterations,
                slow_accesses: 0,
                slow_before: None,
                is_stopped: false,
                stalls_max: budget,
            };
            let exit = hart.run(&mut memory, blocks, budget);
            let stalls = memory.stalls;
            let executed = hart.retired - before;
            one.clock.cycles += executed + stalls;
            one.measured.instructions += executed;
            one.measured.second_cycles += stalls;
            one.pc = hart.pc;
            instructions += executed;
            self.actor_time = one.clock.after(0);
            if exit != Exit::Stop || one.misses.is_empty() {
                return exit;
            }
            if !self.waits_alone(processor) {
                return Exit::Stop;
            }
        }
    }

    fn work(
        &mut self,
        processor: usize,
        _thread: Option<ThreadId>,
        work: &[Work],
        _space: &mut Space,
    ) -> Continuation {
        let one = &mut self.processors[processor];
        if !one.was_occupied && one.steps.is_empty() && one.clock.after(0) < self.time {
            one.clock.set(self.time);
        }
        for item in work {
            match *item {
                Work::Path(path) => self.add_path(processor, path),
                Work::Copy { from, to, bytes } => self.add_copy(processor, from, to, bytes),
            }
        }
        Continuation::Immediate
    }

    fn submit(&mut self, processor: Option<usize>, tag: Tag, request: Request) {
        let note = self.next_note;
        self.next_note = self.next_note.checked_add(1).unwrap_or(FIRST_REQUEST);
        if let Some(key) = self.order_of(&request) {
            self.in_order.entry(key).or_default().push_back((note, false));
        }
        self.in_flight.insert(note, Flight { tag, request });
        let (script, registers) = self.prepare(processor, note, &request);
        let Some(processor) = processor.filter(|_| !is_arrival(&request)) else {
            let at = self.time.max(self.engine.now().0);
            return self.engine.submit(crate::engine::Time(at), script, registers);
        };
        let bytes = u64::from(registers.bytes);
        let cycles = self.costs.submission(request.device() == Device::Disk, bytes);
        self.processors[processor].measured.requests += 1;
        self.add(processor, Step::Compute(cycles));
        self.add(processor, Step::Submit(script, registers));
    }
}

/// Returns true for data that comes from a client.
fn is_arrival(request: &Request) -> bool {
    matches!(request, Request::Interface { direction: Direction::In, .. })
}

impl TimedMachine {
    /// Lists the processors that have a thread or work.
    fn note_active(&mut self) {
        let is_active = |one: &Processor| {
            one.was_occupied || !(one.steps.is_empty() && one.misses.is_empty()) || one.waits_since.is_some()
        };
        self.active.clear();
        let processors = self.processors.iter().enumerate();
        self.active.extend(processors.filter(|(_, one)| is_active(one)).map(|(number, _)| number));
    }

    /// Returns the processor that serves an interrupt: an idle one, or else the one that is behind the others.
    fn server(&self) -> usize {
        let key = |number: &usize| {
            let one = &self.processors[*number];
            let is_busy = one.was_occupied || !one.steps.is_empty();
            (is_busy, if is_busy { one.clock.after(0) } else { 0 })
        };
        (0..self.processors.len()).min_by_key(key).unwrap_or(0)
    }

    /// Returns the time by which a hart may run ahead, in picoseconds.
    fn turn(&self) -> u64 {
        let hertz = self.processors[0].clock.hertz;
        (u128::from(TURN_CYCLES) * 1_000_000_000_000 / u128::from(hertz)) as u64
    }

    /// Lets a processor wait for its misses, and returns true if nothing else came first.
    fn waits_alone(&mut self, processor: usize) -> bool {
        loop {
            let one = &self.processors[processor];
            if one.waits_since.is_some() {
                let Some(at) = self.engine.next_event() else { return false };
                if at.0 > self.earliest_other(processor) {
                    return false;
                }
                self.step_engine();
                if !self.completed.is_empty() {
                    return false;
                }
            } else if one.misses.is_empty() {
                return true;
            } else {
                let at = one.clock.after(0);
                let events = self.engine.next_event().map_or(u64::MAX, |at| at.0);
                if at > self.earliest_other(processor).min(events) {
                    return false;
                }
                self.perform(processor);
            }
        }
    }
}
