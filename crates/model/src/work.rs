//! What a server does, and what that costs.

use crate::demand::Architecture;
use crate::units::{Cycles, CyclesPerByte, Share, Size, Time};
use serde::{Deserialize, Serialize};

/// What is asked of a server, how much of it at a time, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Which requests.
    pub request: Request,
    /// What they cost the processors.
    pub costs: Costs,
    /// How many there are.
    pub load: Load,
    /// What a user-level server does at user level.
    pub mechanisms: Mechanisms,
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Files out of a cache in memory, and those that miss it from the disks.
    Web {
        /// Bytes of a file.
        file: Size,
        /// The share of requests that is not in the cache.
        miss: Share,
    },
    /// Large files without reuse: every byte comes from a disk.
    Video {
        /// Bytes of a request.
        file: Size,
    },
    /// Streams of blocks between disks and network, some in, some out.
    Streams {
        /// Bytes of a block.
        block: Size,
        /// The share of the blocks that comes in from the network and goes to the disks; the others go the other way.
        writes: Share,
    },
    /// Blocks that programs read from disks and write to them; no network.
    Blocks {
        /// Bytes of a block.
        block: Size,
        /// The share of writes.
        writes: Share,
        /// Whether each thread reads or writes its blocks in order.
        #[serde(default, rename = "in-order")]
        in_order: bool,
    },
    /// Transactions of a database: pages read, of which some miss the buffer pool, and a log written.
    Database {
        /// Bytes of a page.
        page: Size,
        /// Pages of a transaction.
        pages: f64,
        /// The share of pages that is not in the buffer pool.
        miss: Share,
        /// Bytes of log that a transaction writes before it has committed.
        log: Size,
        /// Processor cycles of a transaction, whatever the structure of the I/O.
        compute: Cycles,
    },
    /// Pages that a program makes for each request.
    Dynamic {
        /// Bytes of a page.
        page: Size,
        /// Processor cycles to make one, whatever the structure of the I/O.
        compute: Cycles,
        /// Bytes that come from disks for one.
        data: Size,
    },
}

/// What a byte costs whichever processor works on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Costs {
    /// The server program, and what of the operating system stays with it in any structure (w'_h).
    pub server: CyclesPerByte,
    /// TCP (w_n).
    pub tcp: CyclesPerByte,
    /// The file system, for what comes from a disk (w_d).
    pub file_system: CyclesPerByte,
    /// What else the operating system of a conventional server does for a byte: copies, crossings, interrupts.
    pub system: CyclesPerByte,
    /// A system call that asks for I/O, with what the kernel does until the device knows.
    pub call: Cycles,
    /// An interrupt, with what the kernel does until the thread that waits can run.
    pub interrupt: Cycles,
    /// From one thread to another, when it waits and when it goes on.
    pub switch: Cycles,
    /// To ask for I/O at user level.
    pub doorbell: Cycles,
    /// To notice at user level that it is done.
    pub poll: Cycles,
    /// Bytes that are handed over and copied at a time.
    pub piece: Size,
}

/// What of the host's I/O is at user level on a user-level server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mechanisms {
    /// Programs ask the devices themselves, without a system call.
    pub initiation: bool,
    /// Devices move data to and from programs' own memory, without a copy.
    pub transfer: bool,
    /// Programs notice themselves that it is done, without an interrupt and a switch.
    pub notification: bool,
}

impl Mechanisms {
    /// All three.
    pub const ALL: Mechanisms = Mechanisms { initiation: true, transfer: true, notification: true };
    /// None: a conventional server.
    pub const NONE: Mechanisms = Mechanisms { initiation: false, transfer: false, notification: false };
}

impl Default for Mechanisms {
    fn default() -> Mechanisms {
        Mechanisms::ALL
    }
}

impl Default for Costs {
    /// Those of the paper: 8.5 cycles a byte in all on a conventional host, of which 3.8 are TCP and 0.15 are left on an
    /// active one; 1.5 for the file system.
    fn default() -> Costs {
        Costs {
            server: CyclesPerByte(0.15),
            tcp: CyclesPerByte(3.8),
            file_system: CyclesPerByte(1.5),
            system: CyclesPerByte(4.55),
            call: Cycles(0.0),
            interrupt: Cycles(0.0),
            switch: Cycles(0.0),
            doorbell: Cycles(0.0),
            poll: Cycles(0.0),
            piece: Size(16384.0),
        }
    }
}

/// How many requests there are at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// Threads of the server, or clients that wait for an answer before they ask again.
    pub threads: f64,
    /// How long one waits between an answer and the next request, on the average.
    pub think: Time,
    /// Whether a thread keeps its processor while it waits for I/O.
    pub spin: bool,
}

impl Default for Load {
    /// Enough that nothing waits for a thread.
    fn default() -> Load {
        Load { threads: 256.0, think: Time(0.0), spin: false }
    }
}

impl Workload {
    /// The paper's Web server: files of 16 KiB, of which the share `miss` comes from a disk.
    pub fn web(miss: f64) -> Workload {
        Workload::of(Request::Web { file: Size(16384.0), miss: Share(miss) })
    }

    /// At the paper's costs, with threads enough.
    pub fn of(request: Request) -> Workload {
        let (costs, load, mechanisms) = (Costs::default(), Load::default(), Mechanisms::ALL);
        Workload { request, costs, load, mechanisms }
    }

    /// Bytes that a request moves.
    pub fn request_bytes(&self) -> f64 {
        match self.request {
            Request::Web { file, .. } | Request::Video { file } => file.0,
            Request::Streams { block, .. } | Request::Blocks { block, .. } => block.0,
            Request::Database { page, pages, .. } => page.0 * pages,
            Request::Dynamic { page, .. } => page.0,
        }
    }

    /// Times that a request has a device do something.
    pub fn operations(&self) -> f64 {
        match self.request {
            Request::Web { miss, .. } => 1.0 + miss.0,
            Request::Video { .. } | Request::Streams { .. } => 2.0,
            Request::Blocks { .. } => 1.0,
            Request::Database { pages, miss, log, .. } => {
                pages * miss.0 + if log.0 > 0.0 { 1.0 } else { 0.0 }
            }
            Request::Dynamic { data, .. } => 1.0 + if data.0 > 0.0 { 1.0 } else { 0.0 },
        }
    }

    /// Bytes for which a disk is asked at a time, and whether it is asked in order.
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

    /// What of the host's I/O is at user level.
    pub fn mechanisms_of(&self, architecture: Architecture) -> Mechanisms {
        match architecture {
            Architecture::Conventional => Mechanisms::NONE,
            Architecture::UserLevel => self.mechanisms,
            // Devices that run the protocols put data where it belongs and are talked to by rings.
            Architecture::Active | Architecture::Direct => Mechanisms::ALL,
        }
    }

    /// Cycles of the host for a byte that are neither the program's nor a protocol's: asking for I/O, moving its data
    /// across the kernel, being told.
    pub fn handling(&self, architecture: Architecture) -> f64 {
        let (costs, at_user_level) = (&self.costs, self.mechanisms_of(architecture));
        let asking = if at_user_level.initiation { costs.doorbell.0 } else { costs.call.0 };
        let told = if at_user_level.notification { costs.poll.0 } else { costs.interrupt.0 + costs.switch.0 };
        let moving = if at_user_level.transfer { 0.0 } else { costs.system.0 };
        moving + (asking + told) * self.operations() / self.request_bytes()
    }
}
