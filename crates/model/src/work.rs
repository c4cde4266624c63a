//! What a server does, and what that costs.

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
        }
    }
}

/// How many requests there are at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// Threads of the server, or clients that wait for an answer before they ask again.
    pub threads: u32,
    /// How long one waits between an answer and the next request.
    pub think: Time,
}

impl Default for Load {
    /// Enough that nothing waits for a thread.
    fn default() -> Load {
        Load { threads: 256, think: Time(0.0) }
    }
}

impl Workload {
    /// The paper's Web server: files of 16 KiB, of which the share `miss` comes from a disk.
    pub fn web(miss: f64) -> Workload {
        Workload::of(Request::Web { file: Size(16384.0), miss: Share(miss) })
    }

    /// At the paper's costs, with threads enough.
    pub fn of(request: Request) -> Workload {
        Workload { request, costs: Costs::default(), load: Load::default() }
    }

    /// Bytes that a request moves.
    pub fn request_bytes(&self) -> f64 {
        match self.request {
            Request::Web { file, .. } | Request::Video { file } => file.0,
            Request::Streams { block, .. } => block.0,
            Request::Dynamic { page, .. } => page.0,
        }
    }
}
