//! Machine: the hardware below the simulated operating system, as the operating system needs to know it.
//!
//! The operating system ([`System`](crate::System)) is functional: a call takes effect at once. Its cost is
//! told in abstract terms, as a list of [`Work`] and as [`Request`]s to devices. A [`Machine`] decides how long
//! these take: on which bus words travel, which caches hold them, how much of it a device's own processor does.
//! It also decides which processor runs next, and for how long.
//!
//! Invariant of every implementation: it depends on nothing but what it is given, so that the same program
//! with the same seed runs alike on every host.

use bywash_cpu::memory::Space;
use bywash_cpu::{Blocks, Exit, Hart};

use crate::clock::Time;

/// Number of a device request, which its completion has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Number of a thread of the program, as gettid(2) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// Memory that the operating system copies from or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// Address of the program.
    Program(u64),
    /// Byte of a file in the page cache.
    Page {
        /// Number of the file.
        file: u64,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// Buffer of received data of a socket.
    Socket {
        /// Number of the receiving socket.
        socket: u64,
        /// Offset in the stream of received bytes.
        offset: u64,
    },
    /// Buffer of a pipe.
    Pipe {
        /// Number of the pipe.
        pipe: u64,
        /// Offset in the stream of bytes.
        offset: u64,
    },
    /// Memory of the operating system without an address of its own: structures that a call returns, the
    /// terminal.
    System,
}

impl Location {
    /// Returns the location of the byte that follows at a distance of `bytes`.
    pub fn behind(self, bytes: u64) -> Location {
        match self {
            Location::Program(address) => Location::Program(address.wrapping_add(bytes)),
            Location::Page { file, offset } => Location::Page { file, offset: offset + bytes },
            Location::Socket { socket, offset } => Location::Socket { socket, offset: offset + bytes },
            Location::Pipe { pipe, offset } => Location::Pipe { pipe, offset: offset + bytes },
            Location::System => Location::System,
        }
    }
}

/// Path through the operating system that a call or an event takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Entry by a system call.
    Entry {
        /// Number of the call.
        call: u64,
    },
    /// Return to the program.
    Return,
    /// Continuation of a call whose thread was blocked.
    Resume,
    /// Resolution of a path name.
    Lookup {
        /// Number of names in it.
        names: u32,
    },
    /// Page of a file found in the page cache.
    CacheHit,
    /// Page of a file not found, for which the disk is needed.
    CacheMiss,
    /// Change of mappings.
    Map {
        /// Number of pages.
        pages: u64,
    },
    /// Transmission of data by TCP: segments, checksums.
    Send {
        /// Number of bytes.
        bytes: u64,
    },
    /// Reception of data by TCP.
    Receive {
        /// Number of bytes.
        bytes: u64,
    },
    /// Establishment of a connection.
    Connect,
    /// Acceptance of a connection.
    Accept,
    /// End of a connection.
    Disconnect,
    /// Check of descriptors for readiness.
    Poll {
        /// Number of descriptors that were looked at.
        descriptors: u32,
    },
    /// Thread blocks.
    Block,
    /// Blocked threads become ready.
    Wake {
        /// Number of threads.
        threads: u32,
    },
    /// Processor changes to another thread.
    Switch {
        /// Thread that runs from now on.
        to: ThreadId,
    },
    /// Creation of a thread.
    Create,
    /// End of a thread.
    End,
    /// Delivery of a signal to a handler, or the return from it.
    Signal,
    /// Interrupt by a device or a timer.
    Interrupt {
        /// Device; `None` for the timer.
        device: Option<Device>,
    },
}

/// Work of the operating system on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Instructions of a path.
    Path(Path),
    /// Copy of bytes by the processor.
    Copy {
        /// First byte that is read.
        from: Location,
        /// First byte that is written.
        to: Location,
        /// Number of bytes.
        bytes: u64,
    },
}

/// Device of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// Disk.
    Disk,
    /// Network interface.
    Interface,
}

/// Direction of a device request, seen from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the device to memory: a disk reads, an interface receives.
    In,
    /// From memory to the device: a disk writes, an interface sends.
    Out,
}

/// Request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Transfer between the disk and consecutive bytes of memory: pages of the page cache, or the program's buffer.
    Disk {
        /// Direction.
        direction: Direction,
        /// Number of the file.
        file: u64,
        /// Offset of the first byte in the file, in bytes.
        position: u64,
        /// First byte on the disk.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// First byte in memory.
        memory: Location,
    },
    /// Data of a connection that arrives or leaves.
    Interface {
        /// Direction.
        direction: Direction,
        /// Number of bytes; 0 for the establishment or the end of a connection.
        bytes: u64,
        /// First byte in memory.
        memory: Location,
    },
}

impl Request {
    /// Returns the device that the request is for.
    pub const fn device(&self) -> Device {
        match self {
            Request::Disk { .. } => Device::Disk,
            Request::Interface { .. } => Device::Interface,
        }
    }
}

/// Event that a machine comes to next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A processor that has a thread runs it.
    Run {
        /// Number of the processor, from 0.
        processor: usize,
    },
    /// A device has completed a request.
    Completion {
        /// Number of the request.
        tag: Tag,
        /// Processor that serves the interrupt.
        processor: usize,
    },
    /// The processor of a device has finished its part of a thread's call ([`Continuation::Deferred`]).
    Resume {
        /// Thread.
        thread: ThreadId,
        /// Processor that serves the interrupt.
        processor: usize,
    },
    /// The alarm's time has come.
    Alarm {
        /// Processor that serves the interrupt.
        processor: usize,
    },
    /// No processor has a thread, no request is in flight, and there is no alarm.
    Nothing,
}

/// Effect of work on the thread for whose call it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Continuation {
    /// The thread goes on when the processor has done the work.
    Immediate,
    /// The thread leaves the processor until [`Event::Resume`], as when a device's processor does the work. A
    /// thread that the call has blocked waits for what it is blocked for, and for nothing else.
    Deferred,
}

/// Hardware that runs threads and completes requests.
pub trait Machine {
    /// Returns the number of processors, at least 1.
    fn processors(&self) -> usize;

    /// Returns a processor's time.
    fn now(&self, processor: usize) -> Time;

    /// Returns the time of the latest event; no later event has an earlier time.
    fn time(&self) -> Time;

    /// Chooses the next event and brings the time to it. `occupied` tells which processors have a thread; one
    /// that had none before begins at the time of the event before. `alarm` is the time of the earliest timer.
    fn next(&mut self, occupied: &[bool], alarm: Option<Time>) -> Event;

    /// Runs a thread on a processor, until the thread needs the operating system or the machine wants the
    /// other processors to follow ([`Exit::Budget`] or [`Exit::Stop`]).
    fn run(&mut self, processor: usize, hart: &mut Hart, space: &mut Space, blocks: &mut Blocks) -> Exit;

    /// Lets a processor do the operating system's work, for a thread's call or, without a thread, for an
    /// interrupt or a switch, after which the processor always goes on.
    fn work(
        &mut self,
        processor: usize,
        thread: Option<ThreadId>,
        work: &[Work],
        space: &mut Space,
    ) -> Continuation;

    /// Gives a request to a device. Its completion is an [`Event::Completion`].
    ///
    /// `processor` is the one that submits it; `None` for data that arrives from a client. Requests of the
    /// interface for one connection and in one direction are completed in the order of their submission, since a
    /// connection's data stays in order.
    fn submit(&mut self, processor: Option<usize>, tag: Tag, request: Request);
}
