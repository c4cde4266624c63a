//! The workload of a server: its requests, and what they cost.

use crate::demand::Architecture;
use crate::units::{Cycles, CyclesPerByte, PerSecond, Share, Size, Time};
use serde::{Deserialize, Serialize};

/// Workload of a server: the kind and size of its requests, their costs, and the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Kind and size of the requests.
    pub request: Request,
    /// Costs of the requests on the processors.
    pub costs: Costs,
    /// Requests that come, and the threads that serve them.
    pub load: Load,
    /// Parts of the I/O that a user-level server performs at user level.
    pub mechanisms: Mechanisms,
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Web server: files from a cache in memory; files that miss the cache are read from a disk.
    Web {
        /// Size of a file, in bytes.
        file: Size,
        /// Share of the requests that miss the cache, 0 to 1.
        miss: Share,
    },
    /// Video server: large files without reuse, so every byte is read from a disk.
    Video {
        /// Size of a request, in bytes.
        file: Size,
    },
    /// Streams of blocks between disks and network, in either direction.
    Streams {
        /// Size of a block, in bytes.
        block: Size,
        /// Share of the blocks that move from the network to a disk, 0 to 1. The other blocks move from a
        /// disk to the network.
        writes: Share,
    },
    /// Blocks that local programs read from disks and write to disks, without a network.
    Blocks {
        /// Size of a block, in bytes.
        block: Size,
        /// Share of the requests that are writes, 0 to 1.
        writes: Share,
        /// True if each thread accesses its blocks sequentially, false if it accesses them at random.
        #[serde(default, rename = "in-order")]
        in_order: bool,
    },
    /// Transactions of a database: reads pages, some of which miss the buffer pool, and writes a log.
    Database {
        /// Size of a page, in bytes.
        page: Size,
        /// Number of pages that a transaction reads.
        pages: f64,
        /// Share of the pages that miss the buffer pool, 0 to 1.
        miss: Share,
        /// Bytes of log that a transaction writes before it commits.
        log: Size,
        /// Processor cycles of a transaction, independent of the I/O architecture.
        compute: Cycles,
    },
    /// Dynamic pages: a program generates a page for each request.
    Dynamic {
        /// Size of a page, in bytes.
        page: Size,
        /// Processor cycles to generate a page, independent of the I/O architecture.
        compute: Cycles,
        /// Bytes that are read from a disk to generate a page.
        data: Size,
    },
}

/// Processor costs of I/O, per byte and per operation. Costs are the same on a host's processor and on a
/// device's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Costs {
    /// Cost of the server program, and of the part of the operating system that stays on the host under every
    /// architecture (w'_h).
    pub server: CyclesPerByte,
    /// Cost of TCP (w_n), for bytes that pass the network.
    pub tcp: CyclesPerByte,
    /// Cost of TCP for the bytes of a request of [`Costs::LARGE`] bytes or more, which leave the caches; 0 for that of `tcp`.
    pub tcp_large: CyclesPerByte,
    /// Cost of the file system (w_d), for bytes that pass a disk.
    pub file_system: CyclesPerByte,
    /// Cost of a request to a disk, whatever its size, in addition to the submission and the notification: the file system
    /// and the driver. Active devices bear it, like `file_system`.
    pub access: Cycles,
    /// Cost of the remaining work of a conventional server's operating system: copies, kernel crossings,
    /// interrupts.
    pub system: CyclesPerByte,
    /// Cost of a system call that submits I/O, including the kernel's work until the device is notified.
    pub call: Cycles,
    /// Cost of a system call that submits no I/O, from the trap into the kernel to the return. Only programs that are
    /// executed make such calls: the requests of a model and of a simulation do not.
    pub trap: Cycles,
    /// Cost of an interrupt, including the kernel's work until the waiting thread can run.
    pub interrupt: Cycles,
    /// Cost of the context switches of a thread that sleeps and later resumes.
    pub switch: Cycles,
    /// Cost of submitting I/O at user level.
    pub doorbell: Cycles,
    /// Cost of detecting a completion at user level.
    pub poll: Cycles,
    /// Size of the pieces in which data is passed on and copied, in bytes.
    pub piece: Size,
}

impl Costs {
    /// Size from which on a request is a large one, in bytes.
    pub const LARGE: f64 = 262_144.0;
}

/// Parts of the host's I/O that a user-level server performs at user level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mechanisms {
    /// Programs submit to the devices themselves, without a system call.
    pub initiation: bool,
    /// Devices transfer data to and from the programs' own memory, without a copy.
    pub transfer: bool,
    /// Programs detect completions themselves, without an interrupt and a context switch.
    pub notification: bool,
}

impl Mechanisms {
    /// All three mechanisms.
    pub const ALL: Mechanisms = Mechanisms { initiation: true, transfer: true, notification: true };
    /// No mechanism: a conventional server.
    pub const NONE: Mechanisms = Mechanisms { initiation: false, transfer: false, notification: false };
}

impl Default for Mechanisms {
    fn default() -> Mechanisms {
        Mechanisms::ALL
    }
}

impl Default for Costs {
    /// Returns the paper's costs: 8.5 cycles per byte in all on a conventional host, of which 3.8 are TCP and
    /// 0.15 remain on an active server's host; 1.5 cycles per byte for the file system. The paper has no cost of a
    /// system call without I/O, for which this counts the 322 instructions of getppid(2) in Linux 6.1 on x86-64.
    fn default() -> Costs {
        Costs {
            server: CyclesPerByte(0.15),
            tcp: CyclesPerByte(3.8),
            tcp_large: CyclesPerByte(0.0),
            file_system: CyclesPerByte(1.5),
            access: Cycles(0.0),
            system: CyclesPerByte(4.55),
            call: Cycles(0.0),
            trap: Cycles(322.0),
            interrupt: Cycles(0.0),
            switch: Cycles(0.0),
            doorbell: Cycles(0.0),
            poll: Cycles(0.0),
            piece: Size(16384.0),
        }
    }
}

/// Load of a server: the requests that come, and the threads that serve them.
///
/// A load is closed or open. In a closed load every thread sends its next request after the response to the
/// one before (and a think time), so the number of requests in the server is bounded, and a slower server
/// receives fewer requests. In an open load requests arrive at a rate that does not depend on the server, and
/// wait, in order of arrival, until one of the threads is free; the response time includes this wait.
///
/// The arrivals of an open load are a batch Poisson process: bursts begin at the times of a Poisson process
/// of rate `arrivals / burst`, and the number of requests of each burst has a geometric distribution on 1, 2,
/// ... with mean `burst`, independent of all others. The requests of a burst arrive at the same moment. With
/// a `burst` of 1 the arrivals are Poisson.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// Number of threads of the server. In a closed load, also the number of clients that wait for a response
    /// before the next request.
    pub threads: f64,
    /// Mean think time of a closed load: the time from a response to the same thread's next request, in
    /// seconds.
    pub think: Time,
    /// True if a thread spins, that is, occupies its processor while it waits for I/O.
    pub spin: bool,
    /// Mean number of requests that arrive per second. With 0, the load is closed.
    #[serde(skip_serializing_if = "is_closed")]
    pub arrivals: PerSecond,
    /// Mean number of requests that arrive at the same moment, at least 1, of an open load.
    #[serde(skip_serializing_if = "is_single")]
    pub burst: f64,
}

impl Load {
    /// Returns true if requests arrive at a rate that does not depend on the server.
    pub fn is_open(&self) -> bool {
        self.arrivals.0 > 0.0
    }
}

/// Returns true for the arrival rate of a closed load.
fn is_closed(arrivals: &PerSecond) -> bool {
    arrivals.0 == 0.0
}

/// Returns true for the burst of arrivals that come one at a time.
fn is_single(burst: &f64) -> bool {
    *burst == 1.0
}

impl Default for Load {
    /// Returns a closed load of 256 threads without think time, meant as enough threads that they do not limit
    /// the throughput.
    fn default() -> Load {
        Load { threads: 256.0, think: Time(0.0), spin: false, arrivals: PerSecond(0.0), burst: 1.0 }
    }
}

impl Workload {
    /// Returns the workload of the paper's Web server: files of 16 KiB, of which the share `miss` is read
    /// from a disk.
    pub fn web(miss: f64) -> Workload {
        Workload::new(Request::Web { file: Size(16384.0), miss: Share(miss) })
    }

    /// Returns a workload of `request` with the paper's costs, the default load and all user-level
    /// mechanisms.
    pub fn new(request: Request) -> Workload {
        let (costs, load, mechanisms) = (Costs::default(), Load::default(), Mechanisms::ALL);
        Workload { request, costs, load, mechanisms }
    }

    /// Returns the cost of TCP for a byte of a request.
    pub fn tcp(&self) -> CyclesPerByte {
        let Costs { tcp, tcp_large, .. } = self.costs;
        if self.request_bytes() >= Costs::LARGE && tcp_large.0 > 0.0 { tcp_large } else { tcp }
    }

    /// Returns the bytes that a request moves.
    pub fn request_bytes(&self) -> f64 {
        match self.request {
            Request::Web { file, .. } | Request::Video { file } => file.0,
            Request::Streams { block, .. } | Request::Blocks { block, .. } => block.0,
            Request::Database { page, pages, .. } => page.0 * pages,
            Request::Dynamic { page, .. } => page.0,
        }
    }

    /// Returns the mean number of operations of disks and interfaces that a request submits.
    pub fn operations(&self) -> f64 {
        let on_the_network = match self.request {
            Request::Blocks { .. } | Request::Database { .. } => 0.0,
            _ => 1.0,
        };
        self.disk_operations() + on_the_network
    }

    /// Returns the mean number of operations of disks that a request submits.
    pub fn disk_operations(&self) -> f64 {
        let one_if = |is_one: bool| if is_one { 1.0 } else { 0.0 };
        match self.request {
            Request::Web { miss, .. } => miss.0,
            Request::Video { .. } | Request::Streams { .. } | Request::Blocks { .. } => 1.0,
            Request::Database { pages, miss, log, .. } => pages * miss.0 + one_if(log.0 > 0.0),
            Request::Dynamic { data, .. } => one_if(data.0 > 0.0),
        }
    }

    /// Returns the bytes of one disk access, and true if the accesses of a thread are sequential.
    pub fn disk_access(&self) -> (f64, bool) {
        match self.request {
            Request::Web { file, .. } => (file.0, false),
            Request::Video { file } => (file.0, true),
            Request::Streams { block, .. } => (block.0, true),
            Request::Blocks { block, in_order, .. } => (block.0, in_order),
            Request::Database { page, .. } => (page.0, false),
            Request::Dynamic { data, .. } => (data.0, false),
        }
    }

    /// Returns the mechanisms that the host uses under `architecture`.
    pub fn mechanisms_of(&self, architecture: Architecture) -> Mechanisms {
        match architecture {
            Architecture::Conventional => Mechanisms::NONE,
            Architecture::UserLevel => self.mechanisms,
            // Active devices place data directly in the program's memory and are driven through rings.
            Architecture::Active | Architecture::Direct => Mechanisms::ALL,
        }
    }

    /// Returns the host's cycles per byte that belong neither to the program nor to a protocol: submitting
    /// I/O, copying data through the kernel, and learning of completions.
    pub fn io_overhead_per_byte(&self, architecture: Architecture) -> f64 {
        let (costs, at_user_level) = (&self.costs, self.mechanisms_of(architecture));
        let asking = if at_user_level.initiation { costs.doorbell.0 } else { costs.call.0 };
        let told = if at_user_level.notification { costs.poll.0 } else { costs.interrupt.0 + costs.switch.0 };
        let moving = if at_user_level.transfer { 0.0 } else { costs.system.0 };
        moving + (asking + told) * self.operations() / self.request_bytes()
    }
}
