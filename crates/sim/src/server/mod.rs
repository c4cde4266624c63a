//! Simulation of servers: translates a description into stations and scripts, and runs them.
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
//! - [`simulate`](simulate()): runs a description and returns a report
//! - [`replay`](replay()): replays a recorded trace on the description's machine; `file_cache`: decides which calls
//!   find their data in memory
//! - [`gains`]: finds the resource that limits the throughput
//! - [`replicate`](replicate()): runs a description several times for a mean with its confidence interval
//! - [`size`](mod@size): searches the most load, or the fewest parts, with a response time under a limit
//! - `hardware`: the stations, and the way of data through them, block by block: memory, interconnect, disks
//! - `buffers`: the buffers in memory between which data moves
//! - `request`: the steps of each kind of request under each I/O architecture
//! - `script`: builder of scripts
//!
//! Not modelled: competition of instructions and program data with I/O for the caches and the bus; the client and
//! the network behind the wire, which respond at once.
//!
//! Requests of an open load wait in one queue until a thread is free; they are lost nowhere.

pub(crate) mod buffers;
mod file_cache;
pub(crate) mod hardware;
mod limits;
mod replay;
mod replicate;
mod request;
pub(crate) mod script;
mod simulate;
pub mod size;

pub use limits::{FASTER, Gain, gains};
pub use replay::{Pace, replay};
pub use replicate::{combine, replicate};
pub use simulate::{
    Error, Latency, LoadState, Options, ProcessorShares, Report, ResourceUtilisation, Stop, simulate,
    simulate_timeline, within_limits,
};
