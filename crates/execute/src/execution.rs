//! Execution of a program: joins the operating system, the machine and the harts of its threads.

use std::collections::BTreeSet;

use bywash_cpu::elf::{Arguments, ElfError, Image};
use bywash_cpu::memory::{Fault, MapError, PAGE_BYTES, Permissions, Space};
use bywash_cpu::{Blocks, Exit};

use crate::address_space::{AddressSpace, PROGRAM_BASE, STACK_BYTES, STACK_TOP, TRAMPOLINE};
use crate::clock::Time;
use crate::errno::Errno;
use crate::file::{FileSystem, ROOT};
use crate::machine::{Continuation, Event, Machine, ThreadId};
use crate::page_cache::PageCache;
use crate::random::Random;
use crate::signal::TRAMPOLINE_CODE;
use crate::socket::State;
use crate::system::{CallRecord, End, Facts, Failure, System};
use crate::thread::Key;

/// Reason for which a program cannot be executed, or no further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The program cannot be loaded.
    #[error("cannot load the program: {0}")]
    Load(#[from] ElfError),
    /// The page with the return from signal handlers cannot be made.
    #[error("cannot map the page with the return from signal handlers: {0}")]
    Map(#[from] MapError),
    /// The page with the return from signal handlers cannot be filled.
    #[error("cannot fill the page with the return from signal handlers: {0}")]
    Fill(#[from] Fault),
    /// The current folder is none.
    #[error("the program cannot begin in {0}: there is no such folder in the simulated file system; add it")]
    Folder(String),
    /// The program needs something that the simulated system does not have.
    #[error(transparent)]
    Unserved(#[from] Failure),
    /// A client's call is not possible.
    #[error("a client cannot {operation}: error {}; {hint}", errno.number())]
    Client {
        /// Operation.
        operation: &'static str,
        /// Error.
        errno: Errno,
        /// Advice.
        hint: &'static str,
    },
}

/// Program with its arguments and the world in which it runs.
#[derive(Clone, Debug)]
pub struct Program {
    /// Arguments, the program's name first.
    arguments: Vec<Vec<u8>>,
    /// Variables of the environment, each `name=value`.
    environment: Vec<Vec<u8>>,
    /// Files.
    files: FileSystem,
    /// Folder in which the program begins.
    folder: String,
    /// Seed of all that is random.
    seed: u64,
    /// Limit of the program's memory, in bytes.
    memory_bytes: u64,
    /// Number of pages that the page cache holds.
    cache_pages: usize,
    /// True if reads of files bypass the page cache.
    reads_directly: bool,
}

/// Limit of a program's memory without [`Program::memory_bytes`], in bytes: 1 GiB.
pub const MEMORY_BYTES: u64 = 1 << 30;
/// Limit of the files of [`Program::new`], in bytes: 1 GiB.
pub const FILE_BYTES: u64 = 1 << 30;
/// Number of pages of the page cache without [`Program::cache_pages`]: 256 MiB.
pub const CACHE_PAGES: usize = 65_536;
/// Number of instructions that an event of the machine counts for in [`Execution::run_for`].
const EVENT_INSTRUCTIONS: u64 = 500;

impl Program {
    /// Makes a program of its arguments, the first of which is its name. It has an empty environment and an empty
    /// file system, and begins in the root folder.
    pub fn new<T: AsRef<[u8]>>(arguments: impl IntoIterator<Item = T>) -> Program {
        Program {
            arguments: arguments.into_iter().map(|argument| argument.as_ref().to_vec()).collect(),
            environment: Vec::new(),
            files: FileSystem::new(FILE_BYTES),
            folder: "/".into(),
            seed: 0,
            memory_bytes: MEMORY_BYTES,
            cache_pages: CACHE_PAGES,
            reads_directly: false,
        }
    }

    /// Adds a variable of the environment, `name=value`.
    pub fn variable(mut self, variable: impl AsRef<[u8]>) -> Program {
        self.environment.push(variable.as_ref().to_vec());
        self
    }

    /// Sets the files.
    pub fn files(mut self, files: FileSystem) -> Program {
        self.files = files;
        self
    }

    /// Sets the folder in which the program begins.
    pub fn folder(mut self, folder: impl Into<String>) -> Program {
        self.folder = folder.into();
        self
    }

    /// Sets the seed of all that is random.
    pub fn seed(mut self, seed: u64) -> Program {
        self.seed = seed;
        self
    }

    /// Sets the limit of the program's memory, in bytes.
    pub fn memory_bytes(mut self, bytes: u64) -> Program {
        self.memory_bytes = bytes;
        self
    }

    /// Lets the disk read files into the program's memory, past the page cache, as where programs have the disk for
    /// themselves. Writes go to the page cache, and what is there is read from there.
    pub fn direct_reads(mut self, is_direct: bool) -> Program {
        self.reads_directly = is_direct;
        self
    }

    /// Sets the number of pages that the page cache holds.
    pub fn cache_pages(mut self, pages: usize) -> Program {
        self.cache_pages = pages;
        self
    }
}

/// Reason for which [`Execution::run`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The program has ended.
    Ended(End),
    /// A thread reads standard input, which has no bytes: [`Execution::input`] adds some, or the end.
    Input,
    /// Much was written to the outputs: [`Execution::output`] takes it.
    Output,
    /// Something has changed at a client: [`Execution::client_events`] tells where.
    Clients,
    /// The time limit is reached.
    Time,
    /// The instructions of [`Execution::run_for`] are used up.
    Paused,
    /// All threads wait, and for nothing that could come by itself: for clients, or for each other.
    Idle,
}

/// Client's end of a connection to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(u64);

/// State of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The request is on its way.
    Connecting,
    /// Nothing listens at the port, or too many connections wait there.
    Refused,
    /// Bytes can pass.
    Open,
    /// The program sends no more, and all it has sent was taken.
    Ended,
}

/// Program that is being executed on a machine.
pub struct Execution<M> {
    /// Operating system.
    system: System,
    /// Machine.
    machine: M,
    /// Decoded instructions.
    blocks: Blocks,
    /// Thread on each processor.
    on: Vec<Option<ThreadId>>,
    /// True for each processor that has a thread.
    occupied: Vec<bool>,
}

impl<M: Machine> Execution<M> {
    /// Loads a program from its file's bytes.
    ///
    /// # Errors
    ///
    /// [`ExecuteError::Load`] if the file is no static executable of RISC-V Linux or does not fit into the memory,
    /// and [`ExecuteError::Folder`].
    pub fn new(file: &[u8], program: Program, machine: M) -> Result<Execution<M>, ExecuteError> {
        let Program {
            arguments,
            environment,
            mut files,
            folder,
            seed,
            memory_bytes,
            cache_pages,
            reads_directly,
        } = program;
        let mut random = Random::new(seed);
        let mut space = Space::new(memory_bytes);
        let image = Image::parse(file)?;
        let loaded = image.load(&mut space, PROGRAM_BASE)?;
        let symbols = image.symbols(&loaded)?;
        let name = arguments.first().cloned().unwrap_or_default();
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        let start =
            Arguments { arguments, environment, file_name: name.clone(), random: bytes, user: 0, group: 0 };
        let hart = start.start(&loaded, &mut space, STACK_TOP, STACK_BYTES)?;
        space.map(TRAMPOLINE, PAGE_BYTES, Permissions::READ | Permissions::EXECUTE)?;
        let code: Vec<u8> = TRAMPOLINE_CODE.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        space.initialise(TRAMPOLINE, &code)?;
        let processors = machine.processors();
        let online = if processors == 1 { "0\n".into() } else { format!("0-{}\n", processors - 1) };
        for file in ["online", "possible", "present"] {
            // A file that the caller has made stays.
            let _ = files.add_file(&format!("/sys/devices/system/cpu/{file}"), online.as_bytes());
        }
        let folder_id = files.resolve(ROOT, folder.as_bytes(), true).ok().and_then(|found| found.node);
        let folder_id = folder_id.filter(|&id| files.is_folder(id)).ok_or(ExecuteError::Folder(folder))?;
        let facts = Facts { processors, memory_bytes, reads_directly, program: absolute(&name), symbols };
        let memory = AddressSpace::new(space, loaded.end);
        let mut system = System::new(memory, hart, files, PageCache::new(cache_pages), random, facts);
        // It is a folder, as was checked.
        let _ = system.enter_folder(folder_id);
        Ok(Execution {
            system,
            machine,
            blocks: Blocks::new(),
            on: vec![None; processors],
            occupied: vec![false; processors],
        })
    }

    /// Runs the program until it ends or needs its caller.
    ///
    /// # Errors
    ///
    /// [`ExecuteError::Unserved`]: the program needs something that the simulated system does not have.
    pub fn run(&mut self) -> Result<Progress, ExecuteError> {
        self.run_until(Time::MAX)
    }

    /// Runs the program until it ends or needs its caller, or a time has come.
    ///
    /// # Errors
    ///
    /// As [`Execution::run`].
    pub fn run_until(&mut self, limit: Time) -> Result<Progress, ExecuteError> {
        let mut instructions = u64::MAX;
        self.run_for(limit, &mut instructions)
    }

    /// Runs the program as [`Execution::run_until`], and returns [`Progress::Paused`] when about `instructions` were
    /// executed, which this reduces: what the system does counts, too. Unlike time limits, pauses do not change the run.
    ///
    /// # Errors
    ///
    /// As [`Execution::run`].
    pub fn run_for(&mut self, limit: Time, instructions: &mut u64) -> Result<Progress, ExecuteError> {
        loop {
            if let Some(failure) = self.system.take_failure() {
                return Err(failure.into());
            }
            if let Some(progress) = self.pause() {
                return Ok(progress);
            }
            if *instructions == 0 {
                return Ok(Progress::Paused);
            }
            self.dispatch();
            for (is_occupied, thread) in self.occupied.iter_mut().zip(&self.on) {
                *is_occupied = thread.is_some();
            }
            let alarm = self.system.next_alarm();
            let next_alarm = alarm.unwrap_or(Time::MAX).min(limit);
            let event = self.machine.next(&self.occupied, Some(next_alarm).filter(|&at| at < Time::MAX));
            *instructions = instructions.saturating_sub(EVENT_INSTRUCTIONS);
            match event {
                Event::Run { processor } => {
                    *instructions = instructions.saturating_sub(self.turn(processor));
                }
                Event::Completion { tag, processor } => {
                    self.system.complete(tag);
                    self.settle(Some(processor));
                }
                Event::Resume { thread, processor } => {
                    self.system.resume(thread);
                    self.settle(Some(processor));
                }
                Event::Alarm { processor } => {
                    let now = self.machine.time();
                    if alarm.is_some_and(|alarm| alarm <= now) {
                        self.system.alarm(now);
                        self.settle(Some(processor));
                    }
                    if now >= limit {
                        return Ok(Progress::Time);
                    }
                }
                Event::Nothing => return Ok(Progress::Idle),
            }
        }
    }

    /// Adds bytes to standard input; `is_end` tells that none will follow.
    pub fn input(&mut self, bytes: &[u8], is_end: bool) {
        self.system.add_input(bytes, is_end);
        self.settle(None);
    }

    /// Takes what the program has written to standard output (1) and standard error (2), in order.
    pub fn output(&mut self) -> Vec<(u8, Vec<u8>)> {
        self.system.take_output()
    }

    /// Returns whether the program listens at a port, so that clients can connect.
    pub fn is_listening(&self, port: u16) -> bool {
        self.system.network.is_listening(port)
    }

    /// Lets a client connect to a port. The connection is open or refused when the request has passed the
    /// interface.
    ///
    /// # Errors
    ///
    /// [`ExecuteError::Client`]: there are too many sockets.
    pub fn connect(&mut self, port: u16) -> Result<Client, ExecuteError> {
        let connected = self.system.network.connect_client(port);
        let hint = "close other connections first";
        let (client, open) =
            connected.map_err(|errno| ExecuteError::Client { operation: "connect", errno, hint })?;
        self.system.transmit(open);
        self.settle(None);
        Ok(Client(client))
    }

    /// Lets a client send bytes, and returns how many there was room for.
    ///
    /// # Errors
    ///
    /// [`ExecuteError::Client`]: the client is not connected, or the connection has ended.
    pub fn send(&mut self, client: Client, bytes: &[u8]) -> Result<usize, ExecuteError> {
        let hint = "connect, and wait until the connection is open";
        let sent = self.system.network.send(client.0, bytes);
        let (count, effects) =
            sent.map_err(|errno| ExecuteError::Client { operation: "send", errno, hint })?;
        self.system.apply(effects);
        self.settle(None);
        Ok(count)
    }

    /// Takes the bytes that a client has received.
    pub fn receive(&mut self, client: Client) -> Vec<u8> {
        match self.system.network.receive(client.0, usize::MAX, false) {
            Ok((bytes, _, effects)) => {
                self.system.apply(effects);
                self.settle(None);
                bytes
            }
            // Nothing has come, or the connection has ended, as its state tells.
            Err(_) => Vec::new(),
        }
    }

    /// Returns the state of a client's connection; [`Connection::Ended`] after [`Execution::close`].
    pub fn connection(&self, client: Client) -> Connection {
        match self.system.network.get(client.0).map(|socket| &socket.state) {
            Ok(State::Connecting) => Connection::Connecting,
            Ok(State::Refused) => Connection::Refused,
            Ok(_) if !self.system.network.is_at_end(client.0) => Connection::Open,
            _ => Connection::Ended,
        }
    }

    /// Closes a client's end.
    pub fn close(&mut self, client: Client) {
        let effects = self.system.network.close(client.0);
        self.system.apply(effects);
        self.settle(None);
    }

    /// Takes the clients at which something has changed: bytes have come, or the state of the connection is
    /// another.
    pub fn client_events(&mut self) -> BTreeSet<Client> {
        self.system.take_client_events().into_iter().map(Client).collect()
    }

    /// Returns the files, with what the program has written.
    pub fn files(&mut self) -> &FileSystem {
        // An error would be a lost file, and the files of mappings are not lost while they are mapped.
        let _ = self.system.flush_areas(0, u64::MAX);
        &self.system.files
    }

    /// Returns the time.
    pub fn time(&self) -> Time {
        self.machine.time()
    }

    /// Returns the machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the name of the program's function at an address; `None` if the program's file does not tell.
    pub fn function(&self, address: u64) -> Option<&str> {
        self.system.facts.symbols.symbol_of(address).map(|symbol| symbol.name.as_str())
    }

    /// Returns the number of instructions that all threads have retired.
    pub fn retired(&self) -> u64 {
        let threads = self.system.threads.ids().filter_map(|id| self.system.threads.get(id));
        threads.map(|thread| thread.hart.retired).sum::<u64>() + self.system.ended_retired
    }

    /// Returns the number of calls that have returned, and a hash of their threads, times, numbers, arguments and
    /// values.
    pub fn calls(&self) -> (u64, u64) {
        self.system.digest()
    }

    /// Records finished calls for [`Execution::records`], or no longer. The caller takes them often enough.
    pub fn set_recording(&mut self, is_recording: bool) {
        self.system.set_recording(is_recording);
    }

    /// Takes the recorded calls.
    pub fn records(&mut self) -> Vec<CallRecord> {
        self.system.take_records()
    }

    /// Returns the reason to return to the caller, if there is one.
    fn pause(&self) -> Option<Progress> {
        if let Some(end) = self.system.end() {
            return Some(Progress::Ended(end.clone()));
        }
        if self.system.has_much_output() {
            return Some(Progress::Output);
        }
        if self.system.has_client_events() {
            return Some(Progress::Clients);
        }
        self.system.needs_input().then_some(Progress::Input)
    }

    /// Gives idle processors to ready threads.
    fn dispatch(&mut self) {
        for processor in 0..self.on.len() {
            if self.on[processor].is_none() && self.system.threads.has_ready() {
                let now = self.machine.now(processor).max(self.machine.time());
                self.on[processor] = self.system.dispatch(processor, now);
                self.settle(Some(processor));
            }
        }
    }

    /// Lets the thread on a processor go on: in its call, or by running its instructions. Returns their number.
    fn turn(&mut self, processor: usize) -> u64 {
        let Some(id) = self.on[processor] else { return 0 };
        let start = self.machine.now(processor);
        self.system.deliver_pending(id);
        let has_ended = self.system.end().is_some();
        let Some(thread) = self.system.threads.get_mut(id) else { return 0 };
        let mut executed = 0;
        if thread.call.is_some() {
            self.system.call(id, processor, start);
        } else if !has_ended {
            let space = &mut self.system.memory.space;
            let before = thread.hart.retired;
            let exit = self.machine.run(processor, &mut thread.hart, space, &mut self.blocks);
            executed = thread.hart.retired - before;
            let now = self.machine.now(processor);
            thread.busy = thread.busy + now.since(start);
            match exit {
                Exit::EnvironmentCall => self.system.call(id, processor, now),
                Exit::Budget | Exit::Stop => {}
                stopped => self.system.stop(id, stopped),
            }
        }
        if self.settle_for(processor, Some(id)) == Continuation::Deferred && self.system.is_running(id) {
            self.system.threads.block(id, vec![Key::Device]);
        }
        let now = self.machine.now(processor);
        if !self.system.is_running(id) {
            self.on[processor] = None;
        } else if self.system.is_slice_over(id, now) {
            self.system.threads.preempt(id);
            self.on[processor] = None;
        }
        executed
    }

    /// Tells the machine the work and the requests since the last time, which are for no thread's call.
    fn settle(&mut self, processor: Option<usize>) {
        match processor {
            // There is no thread that could be deferred.
            Some(processor) => {
                self.settle_for(processor, None);
            }
            None => {
                // What the caller causes is told as the work of the first processor.
                let work = self.system.take_work();
                if !work.is_empty() {
                    self.machine.work(0, None, &work, &mut self.system.memory.space);
                }
                for (tag, request) in self.system.take_requests() {
                    self.machine.submit(None, tag, request);
                }
            }
        }
    }

    /// Tells the machine the work and the requests since the last time, for a thread's call if there is one.
    fn settle_for(&mut self, processor: usize, thread: Option<ThreadId>) -> Continuation {
        let work = self.system.take_work();
        let continuation = if work.is_empty() {
            Continuation::Immediate
        } else {
            self.machine.work(processor, thread, &work, &mut self.system.memory.space)
        };
        for (tag, request) in self.system.take_requests() {
            self.machine.submit(Some(processor), tag, request);
        }
        continuation
    }
}

/// Returns a program's name as an absolute path.
fn absolute(name: &[u8]) -> Vec<u8> {
    if name.starts_with(b"/") { name.to_vec() } else { [b"/", name].concat() }
}
