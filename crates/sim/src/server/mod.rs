//! Servers: a description becomes stations and scripts, and runs.
//!
//! ```text
//!     threads ── processors ──┬── memory bus ── banks
//!                             │        │
//!                             │      bridge
//!                             │        │
//!                             └── interconnect (a bus, or a switch with a link each way for each part)
//!                                   │        │
//!                                 disks   interfaces ── wire        each with a processor, on active servers
//! ```
//!
//! - [`simulate`]: runs a description, and what it answers
//! - [`replay`]: runs a recorded trace on its machine; `file_cache`: which of its calls find their data in memory
//! - [`replicate`]: several runs of it, for their mean and its confidence
//! - `hardware`: the stations, and how data passes them, block by block
//! - `caches`: which part of a copy or a checksum reaches the memory bus
//! - `request`: what each structure of the I/O does for each kind of request
//! - `script`: scripts as they are written
//!
//! What is not modelled: the instructions and data of programs and of the operating system compete with no I/O for the
//! bus; a cache holds what was last copied or nothing; the client and the network behind the wire answer at once.

mod caches;
mod file_cache;
mod hardware;
mod replay;
mod replicate;
mod request;
mod script;
mod simulate;

pub use replay::{Pace, replay};
pub use replicate::{combine, replicate};
pub use simulate::{
    Error, Latency, Options, Report, ResourceUse, Stop, simulate, simulate_timeline, within_limits,
};
