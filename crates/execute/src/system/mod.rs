//! The operating system as a state machine: it takes calls, faults, completions and alarms, changes its state,
//! and says what that costs. It never waits and never looks at the host.
//!
//! ```text
//!     thread executes ECALL ──► System::call ──► handler of the table ──► returns a value
//!                                   ▲                   │            └──► fails: error number, or the end of all
//!                                   │                   └──► blocks: the thread waits for keys, or a deadline
//!                                   └── again, once one of them has come (Call keeps what was done before)
//! ```
//!
//! - `table`: numbers, names and handlers of the calls
//! - `transfer`, `storage`: reads and writes of descriptors; pages of files and requests to the disk
//! - `paths`, `status`, `descriptors`: names of files; what is known of them; descriptors and their flags
//! - `mappings`, `threads`, `signals`, `sockets`, `waits`, `times`, `facts`: the calls of these
//!
//! Invariant: whatever a program passes, a call ends with a value or an error number. Only what this operating
//! system does not have ends the run, as a [`Failure`].

mod descriptors;
mod facts;
mod mappings;
mod paths;
mod signals;
mod sockets;
mod status;
mod storage;
mod table;
mod threads;
mod times;
mod transfer;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bywash_cpu::elf::Symbols;
use bywash_cpu::memory::Fault;
use bywash_cpu::{Exit, Hart, Register};

pub use table::{call_name, is_served};

use crate::address_space::AddressSpace;
use crate::clock::Time;
use crate::descriptor::{Descriptors, Object};
use crate::errno::Errno;
use crate::file::{FileSystem, Locks, NodeId, ROOT};
use crate::machine::{Device, Location, Path, Request, Tag, ThreadId, Work};
use crate::page_cache::{PageCache, PageKey};
use crate::pipe::{Counter, Pipe, Timer};
use crate::poll::{Epolls, event};
use crate::random::Random;
use crate::signal::{Signals, ThreadSignals};
use crate::socket::{Arrival, Effects, Network};
use crate::thread::{Call, Futexes, Key, Source, State, Threads};

/// Time for which a thread has a processor while others wait for one.
pub const SLICE: Time = Time::from_nanoseconds(4_000_000);
/// Greatest number of bytes that a program has written to its outputs and the caller has not taken; at more the
/// run pauses.
pub const OUTPUT_BYTES: usize = 64 << 10;
/// Greatest number of pipes, counters and timers.
pub const SOURCES_LIMIT: usize = 16_384;
/// Greatest number of bytes that one call moves (`MAX_RW_COUNT`).
pub(crate) const TRANSFER_LIMIT: u64 = 0x7fff_f000;

/// End of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program called exit.
    Exited(u8),
    /// A signal ended it.
    Killed {
        /// Number of the signal.
        signal: u32,
        /// Cause, with the program's function.
        message: String,
    },
}

/// Thing that this operating system does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The program made a call that is not served.
    #[error(
        "the program calls {name} (system call {number}) in {function}, which the simulated system does not serve; \
         run the program with options that avoid it"
    )]
    UnknownCall {
        /// Number.
        number: u64,
        /// Name, or `unknown`.
        name: &'static str,
        /// Function of the program, and the address.
        function: String,
    },
    /// The program made a call in a form that is not served.
    #[error(
        "the program calls {name} in {function} {form}, which the simulated system does not serve; {hint}"
    )]
    Unsupported {
        /// Name of the call.
        name: &'static str,
        /// Function of the program, and the address.
        function: String,
        /// Form of the call.
        form: &'static str,
        /// Advice.
        hint: &'static str,
    },
    /// The program's memory reached its limit.
    #[error("the program needs more memory than the limit of {limit} bytes, in {function}; raise the limit")]
    OutOfMemory {
        /// Limit in bytes.
        limit: u64,
        /// Function of the program, and the address.
        function: String,
    },
}

/// Reason for which a call has no value.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// Error number.
    Error(Errno),
    /// The thread waits for one of some events, or its call's deadline.
    Block(Vec<Key>),
    /// The thread or the program has ended.
    End,
    /// The registers are set already (rt_sigreturn).
    Restored,
    /// The run ends.
    Failed(Failure),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Error(errno)
    }
}

/// Value of a call, or the reason for which there is none.
pub(crate) type Served = Result<u64, Stop>;

/// Call of a thread, as handlers get it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Thread.
    pub thread: ThreadId,
    /// Number of the call.
    pub number: u64,
    /// Arguments.
    pub arguments: [u64; 6],
    /// Time.
    pub now: Time,
    /// Processor.
    pub processor: usize,
}

impl Caller {
    /// Returns an argument that is a descriptor.
    pub fn descriptor(&self, index: usize) -> i32 {
        self.arguments[index] as i32
    }
}

/// Record of a finished call, for traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Thread.
    pub thread: ThreadId,
    /// Time of the return.
    pub time: Time,
    /// Number of the call.
    pub number: u64,
    /// Arguments.
    pub arguments: [u64; 6],
    /// Value; a negative error number if the call failed.
    pub value: u64,
}

/// Request that a device works on.
#[derive(Clone, Debug)]
enum Flight {
    /// Pages are read.
    Read(Vec<PageKey>),
    /// Pages of a file are written.
    Write(NodeId),
    /// Something passes the interface.
    Arrival(Arrival),
}

/// Facts about the program and the machine that calls tell.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Number of processors.
    pub processors: usize,
    /// Limit of the program's memory, in bytes.
    pub memory_bytes: u64,
    /// True if reads of files bypass the page cache.
    pub reads_directly: bool,
    /// Path of the program's file (`/proc/self/exe`).
    pub program: Vec<u8>,
    /// Functions of the program.
    pub symbols: Symbols,
}

/// Operating system with its one process.
pub struct System {
    /// Memory of the program.
    pub(crate) memory: AddressSpace,
    /// Threads.
    pub(crate) threads: Threads,
    /// Files.
    pub(crate) files: FileSystem,
    /// Cached pages of files.
    pub(crate) cache: PageCache,
    /// Sockets.
    pub(crate) network: Network,
    /// Descriptors.
    descriptors: Descriptors,
    /// Record locks of files.
    locks: BTreeMap<NodeId, Locks>,
    /// Folder in which relative paths begin.
    folder: NodeId,
    /// Bits that new files do not get (umask(2)).
    mask: u32,
    /// Pipes by their number.
    pipes: BTreeMap<u64, Pipe>,
    /// Event counters by their number.
    counters: BTreeMap<u64, Counter>,
    /// Timers with descriptors by their number.
    timers: BTreeMap<u64, Timer>,
    /// Timer that sends SIGALRM (setitimer(2)).
    interval: Timer,
    /// Number of the latest pipe, counter or timer.
    last_source: u64,
    /// Sets of descriptors.
    epolls: Epolls,
    /// Queues of futexes.
    futexes: Futexes,
    /// Signals of the process.
    signals: Signals,
    /// Source of random numbers.
    random: Random,
    /// Bytes of standard input that were not read.
    input: VecDeque<u8>,
    /// True if standard input has an end behind these bytes.
    is_input_ended: bool,
    /// Bytes written to standard output (1) and standard error (2), in order.
    output: Vec<(u8, Vec<u8>)>,
    /// Number of bytes in `output`.
    output_bytes: usize,
    /// Requests in flight.
    in_flight: BTreeMap<Tag, Flight>,
    /// Tag of the latest request.
    last_tag: u64,
    /// Work since the machine was told last.
    work: Vec<Work>,
    /// Requests that the machine does not have yet.
    requests: Vec<(Tag, Request)>,
    /// Clients' sockets at which something changed.
    client_events: BTreeSet<u64>,
    /// Facts.
    pub(crate) facts: Facts,
    /// End of the program.
    end: Option<End>,
    /// Reason for the end of the run.
    failure: Option<Failure>,
    /// Finished calls, if they are recorded.
    records: Option<Vec<CallRecord>>,
    /// Number of finished calls.
    calls: u64,
    /// Hash of all finished calls.
    digest: u64,
    /// Time that ended threads have spent on processors.
    ended_busy: Time,
    /// Number of instructions that ended threads have retired.
    pub(crate) ended_retired: u64,
}

impl System {
    /// Makes an operating system that is about to run a program: its memory, and its first thread.
    pub(crate) fn new(
        memory: AddressSpace,
        hart: Hart,
        files: FileSystem,
        cache: PageCache,
        random: Random,
        facts: Facts,
    ) -> System {
        let mut descriptors = Descriptors::default();
        for (object, flags) in [(Object::Input, 0), (Object::Output(1), 1), (Object::Output(2), 1)] {
            // An empty table has room.
            let _ = descriptors.open(object, flags, false, 0);
        }
        let mut threads = Threads::default();
        // The first of all threads.
        let _ = threads.add(hart, ThreadSignals::default());
        System {
            memory,
            threads,
            files,
            cache,
            network: Network::default(),
            descriptors,
            locks: BTreeMap::new(),
            folder: ROOT,
            mask: 0o022,
            pipes: BTreeMap::new(),
            counters: BTreeMap::new(),
            timers: BTreeMap::new(),
            interval: Timer::default(),
            last_source: 0,
            epolls: Epolls::default(),
            futexes: Futexes::default(),
            signals: Signals::default(),
            random,
            input: VecDeque::new(),
            is_input_ended: false,
            output: Vec::new(),
            output_bytes: 0,
            in_flight: BTreeMap::new(),
            last_tag: 0,
            work: Vec::new(),
            requests: Vec::new(),
            client_events: BTreeSet::new(),
            facts,
            end: None,
            failure: None,
            records: None,
            calls: 0,
            digest: 0,
            ended_busy: Time::ZERO,
            ended_retired: 0,
        }
    }

    /// Serves the call that a thread is in, for the first time or again.
    pub(crate) fn call(&mut self, id: ThreadId, processor: usize, now: Time) {
        let Some(thread) = self.threads.get_mut(id) else { return };
        let number = thread.hart.x(Register::R17);
        let arguments = std::array::from_fn(|index| thread.hart.x(Register::new(10 + index as u32)));
        let path = if thread.call.is_none() { Path::Entry { call: number } } else { Path::Resume };
        thread.call.get_or_insert_with(Call::default);
        self.work.push(Work::Path(path));
        let caller = Caller { thread: id, number, arguments, now, processor };
        match table::serve(self, &caller) {
            Ok(value) => self.finish(&caller, value),
            Err(Stop::Error(errno)) => self.finish(&caller, errno.value()),
            Err(Stop::Block(keys)) => self.block(&caller, keys),
            Err(Stop::Restored) => {
                if let Some(thread) = self.threads.get_mut(id) {
                    thread.call = None;
                }
                self.work.push(Work::Path(Path::Return));
                self.deliver_signals(id);
            }
            Err(Stop::End) => {}
            Err(Stop::Failed(failure)) => self.failure = Some(failure),
        }
    }

    /// Serves what has stopped a thread that is not in a call: a fault, or an instruction that cannot be
    /// executed.
    pub(crate) fn stop(&mut self, id: ThreadId, exit: Exit) {
        use crate::signal::number;
        use bywash_cpu::memory::Cause;

        let (signal, code, address, text) = match exit {
            Exit::Fault { pc, fault: Fault { cause: Cause::OutOfMemory, .. } } => {
                let (limit, function) = (self.facts.memory_bytes, self.function_at(pc));
                self.failure = Some(Failure::OutOfMemory { limit, function });
                return;
            }
            Exit::Fault { pc, fault } => {
                let (signal, code) = match fault.cause {
                    Cause::Misaligned => (number::BUS, 1),
                    Cause::Permission => (number::SEGV, 2),
                    _ => (number::SEGV, 1),
                };
                (signal, code, fault.address, format!("{fault}, in {}", self.function_at(pc)))
            }
            Exit::IllegalInstruction { pc, bits } => {
                (number::ILL, 1, pc, format!("illegal instruction {bits:#x}, in {}", self.function_at(pc)))
            }
            Exit::Breakpoint => {
                let pc = self.threads.get(id).map_or(0, |thread| thread.hart.pc);
                (number::TRAP, 1, pc, format!("breakpoint, in {}", self.function_at(pc)))
            }
            Exit::EnvironmentCall | Exit::Budget | Exit::Stop => return,
        };
        self.force_signal(id, crate::signal::Information { signal, code, address }, text);
    }

    /// Lets what waits for a completed request go on.
    pub(crate) fn complete(&mut self, tag: Tag) {
        let Some(flight) = self.in_flight.remove(&tag) else { return };
        let device = match flight {
            Flight::Arrival(_) => Device::Interface,
            _ => Device::Disk,
        };
        self.work.push(Work::Path(Path::Interrupt { device: Some(device) }));
        match flight {
            Flight::Read(pages) => pages.into_iter().for_each(|page| self.cache.complete(page)),
            Flight::Write(_) => {}
            Flight::Arrival(arrival) => {
                let bytes = arrival.bytes();
                if bytes > 0 && self.network.get(arrival.socket()).is_ok_and(|socket| !socket.is_client) {
                    self.work.push(Work::Path(Path::Receive { bytes }));
                }
                let effects = self.network.arrive(arrival);
                self.apply(effects);
            }
        }
        self.wake(Key::Completion(tag));
    }

    /// Lets the threads go on whose time has come, and counts the timers' expirations.
    pub(crate) fn alarm(&mut self, now: Time) {
        self.work.push(Work::Path(Path::Interrupt { device: None }));
        let expired: Vec<u64> =
            self.timers.iter_mut().filter_map(|(&id, timer)| timer.expire(now).then_some(id)).collect();
        for id in expired {
            self.notify(Source::Timer(id), event::IN);
        }
        if self.interval.expire(now) {
            self.interval.expirations = 0;
            self.send_to_process(crate::signal::Information {
                signal: crate::signal::number::ALRM,
                code: 128,
                address: 0,
            });
        }
        let threads = self.threads.expire(now) as u32;
        if threads > 0 {
            self.work.push(Work::Path(Path::Wake { threads }));
        }
    }

    /// Returns the time of the next alarm.
    pub(crate) fn next_alarm(&self) -> Option<Time> {
        let timers = self.timers.values().chain([&self.interval]).filter_map(|timer| timer.next);
        timers.chain(self.threads.deadline()).min()
    }

    /// Lets a thread go on for which a device's processor has worked.
    pub(crate) fn resume(&mut self, id: ThreadId) {
        self.work.push(Work::Path(Path::Interrupt { device: None }));
        // A thread whose call waits for something else goes on when that has come.
        let waits = matches!(self.threads.get(id).map(|thread| &thread.state),
            Some(State::Blocked(keys)) if keys.contains(&Key::Device));
        if waits && self.threads.wake_thread(id) {
            self.work.push(Work::Path(Path::Wake { threads: 1 }));
        }
    }

    /// Gives a processor to a ready thread.
    pub(crate) fn dispatch(&mut self, processor: usize, now: Time) -> Option<ThreadId> {
        let id = self.threads.dispatch(processor, now + SLICE)?;
        self.work.push(Work::Path(Path::Switch { to: id }));
        Some(id)
    }

    /// Takes the work since the last time.
    pub(crate) fn take_work(&mut self) -> Vec<Work> {
        std::mem::take(&mut self.work)
    }

    /// Takes the requests since the last time.
    pub(crate) fn take_requests(&mut self) -> Vec<(Tag, Request)> {
        std::mem::take(&mut self.requests)
    }

    /// Returns the end of the program, if it has ended.
    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Takes the reason for the end of the run.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Adds bytes to standard input.
    pub(crate) fn add_input(&mut self, bytes: &[u8], is_end: bool) {
        self.input.extend(bytes);
        self.is_input_ended |= is_end;
        self.notify(Source::Input, event::IN);
    }

    /// Returns whether a thread waits for standard input, or a set of descriptors does.
    pub(crate) fn needs_input(&self) -> bool {
        let is_waiting = |source| self.threads.is_waiting(Key::Source(source));
        let sets = || self.epolls.watching(Source::Input).into_iter();
        !self.is_input_ended
            && self.input.is_empty()
            && (is_waiting(Source::Input) || sets().any(|set| is_waiting(Source::Epoll(set))))
    }

    /// Takes what the program has written to its outputs.
    pub(crate) fn take_output(&mut self) -> Vec<(u8, Vec<u8>)> {
        self.output_bytes = 0;
        std::mem::take(&mut self.output)
    }

    /// Returns whether so much was written that the caller should take it.
    pub(crate) fn has_much_output(&self) -> bool {
        self.output_bytes >= OUTPUT_BYTES
    }

    /// Takes the clients' sockets at which something has changed.
    pub(crate) fn take_client_events(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.client_events)
    }

    /// Returns whether something has changed at a client's socket.
    pub(crate) fn has_client_events(&self) -> bool {
        !self.client_events.is_empty()
    }

    /// Records finished calls, or no longer.
    pub(crate) fn set_recording(&mut self, is_recording: bool) {
        self.records = is_recording.then(Vec::new);
    }

    /// Takes the recorded calls.
    pub(crate) fn take_records(&mut self) -> Vec<CallRecord> {
        self.records.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the number of finished calls and a hash of them all.
    pub(crate) fn digest(&self) -> (u64, u64) {
        (self.calls, self.digest)
    }

    /// Applies the effects of something that passed between sockets.
    pub(crate) fn apply(&mut self, effects: Effects) {
        for (sockets, events) in
            [(effects.readable, event::IN | event::READ_HANG_UP), (effects.writable, event::OUT)]
        {
            for socket in sockets {
                match self.network.get(socket) {
                    Ok(found) if found.is_client => drop(self.client_events.insert(socket)),
                    _ => self.notify(Source::Socket(socket), events),
                }
            }
        }
        for departure in effects.departures {
            self.transmit(departure);
        }
    }

    /// Lets something pass the interface.
    pub(crate) fn transmit(&mut self, departure: Arrival) {
        use crate::machine::Direction;

        let socket = departure.socket();
        let bytes = departure.bytes();
        // What goes to a client leaves; the request of a client arrives, though it names the client.
        let is_open = matches!(departure, Arrival::Open { .. });
        let to_client = !is_open && self.network.get(socket).is_ok_and(|socket| socket.is_client);
        let direction = if to_client { Direction::Out } else { Direction::In };
        let offset = self.network.stream_end(socket).saturating_sub(bytes);
        let memory = Location::Socket { socket, offset };
        let tag = self.next_tag();
        self.in_flight.insert(tag, Flight::Arrival(departure));
        self.requests.push((tag, Request::Interface { direction, bytes, memory }));
    }

    /// Wakes the threads that wait for an event, and tells the work.
    fn wake(&mut self, key: Key) {
        let threads = self.threads.wake(key) as u32;
        if threads > 0 {
            self.work.push(Work::Path(Path::Wake { threads }));
        }
    }

    /// Lets those go on that wait for a change of a source, and makes it a candidate of the sets it is in.
    fn notify(&mut self, source: Source, events: u32) {
        self.wake(Key::Source(source));
        for set in self.epolls.notify(source, events) {
            // Sets of sets are no deeper than two.
            self.notify_set(set);
        }
    }

    /// Lets a thread go on that waits for a set of descriptors.
    fn notify_set(&mut self, set: u64) {
        self.wake(Key::Source(Source::Epoll(set)));
        for outer in self.epolls.notify(Source::Epoll(set), event::IN) {
            self.wake(Key::Source(Source::Epoll(outer)));
        }
    }

    /// Returns a call's value to its thread.
    fn finish(&mut self, caller: &Caller, value: u64) {
        let Some(thread) = self.threads.get_mut(caller.thread) else { return };
        thread.hart.set_x(Register::R10, value);
        thread.call = None;
        self.record(caller, value);
        self.work.push(Work::Path(Path::Return));
        self.deliver_signals(caller.thread);
    }

    /// Blocks a thread, unless a signal interrupts its call.
    fn block(&mut self, caller: &Caller, keys: Vec<Key>) {
        let waits_for_device = keys.iter().any(|key| matches!(key, Key::Completion(_)));
        if !waits_for_device && self.interrupt(caller) {
            return;
        }
        self.work.push(Work::Path(Path::Block));
        self.threads.block(caller.thread, keys);
    }

    /// Counts and hashes a finished call, and records it if that is wanted.
    fn record(&mut self, caller: &Caller, value: u64) {
        let record = CallRecord {
            thread: caller.thread,
            time: caller.now,
            number: caller.number,
            arguments: caller.arguments,
            value,
        };
        self.calls += 1;
        let words = [u64::from(record.thread.0), record.time.picoseconds(), record.number, value];
        for word in words.into_iter().chain(record.arguments) {
            // FNV-1a by words.
            self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
        if let Some(records) = &mut self.records {
            records.push(record);
        }
    }

    /// Returns the call that a thread is in.
    fn call_of(&mut self, id: ThreadId) -> Result<&mut Call, Stop> {
        // A handler runs only for a thread that exists.
        let thread = self.threads.get_mut(id).ok_or(Errno::ESRCH)?;
        Ok(thread.call.get_or_insert_with(Call::default))
    }

    /// Returns the deadline of a call, which the first look at it sets.
    fn deadline(&mut self, caller: &Caller, from_now: Option<Time>) -> Result<Option<Time>, Stop> {
        let call = self.call_of(caller.thread)?;
        if call.deadline.is_none() {
            call.deadline = from_now.map(|time| caller.now + time);
        }
        Ok(call.deadline)
    }

    /// Returns the name of the function at an address, with the address.
    pub(crate) fn function_at(&self, pc: u64) -> String {
        match self.facts.symbols.symbol_of(pc) {
            Some(symbol) => format!("{} at {pc:#x}", symbol.name),
            None => format!("an unknown function at {pc:#x}"),
        }
    }

    /// Returns the function that made a thread's present call: the one at the call's instruction, with its caller
    /// if that is known.
    fn function_of(&self, id: ThreadId) -> String {
        let Some(thread) = self.threads.get(id) else { return String::new() };
        let function = self.function_at(thread.hart.pc.wrapping_sub(4));
        match self.facts.symbols.symbol_of(thread.hart.x(Register::R1)) {
            Some(caller) => format!("{function} (called by {})", caller.name),
            None => function,
        }
    }

    /// Makes the failure of a call in a form that is not served.
    fn unsupported(&self, caller: &Caller, form: &'static str, hint: &'static str) -> Stop {
        let (name, function) = (call_name(caller.number), self.function_of(caller.thread));
        Stop::Failed(Failure::Unsupported { name, function, form, hint })
    }

    /// Returns the tag of a new request.
    fn next_tag(&mut self) -> Tag {
        self.last_tag += 1;
        Tag(self.last_tag)
    }

    /// Returns the number of a new pipe, counter or timer.
    fn next_source(&mut self) -> Result<u64, Errno> {
        if self.pipes.len() + self.counters.len() + self.timers.len() >= SOURCES_LIMIT {
            return Err(Errno::ENFILE);
        }
        self.last_source += 1;
        Ok(self.last_source)
    }

    /// Copies bytes into the program's memory, and tells the work.
    fn copy_out(&mut self, from: Location, to: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.memory.write(to, bytes)?;
        self.work.push(Work::Copy { from, to: Location::Program(to), bytes: bytes.len() as u64 });
        Ok(())
    }

    /// Copies bytes out of the program's memory, and tells the work.
    fn copy_in(&mut self, from: u64, to: Location, bytes: &mut [u8]) -> Result<(), Errno> {
        self.memory.read(from, bytes)?;
        self.work.push(Work::Copy { from: Location::Program(from), to, bytes: bytes.len() as u64 });
        Ok(())
    }

    /// Lets the handlers of signals begin that were sent to a running thread.
    pub(crate) fn deliver_pending(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get(id).filter(|thread| thread.call.is_none()) else { return };
        if (thread.signals.pending.set() | self.signals.pending.set()) & !thread.signals.mask != 0 {
            self.deliver_signals(id);
        }
    }

    /// Returns whether a thread's time on its processor is over, and another one waits for a processor.
    pub(crate) fn is_slice_over(&self, id: ThreadId, now: Time) -> bool {
        self.threads.has_ready() && self.threads.get(id).is_some_and(|thread| thread.slice_end <= now)
    }

    /// Returns whether a thread is on a processor.
    pub(crate) fn is_running(&self, id: ThreadId) -> bool {
        self.threads.get(id).is_some_and(|thread| matches!(thread.state, State::Running(_)))
    }
}
