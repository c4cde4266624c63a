//! Execution of programs on the machine of a description, in simulated time.
//!
//! - [`TimedMachine`]: the machine, on which an [`Execution`](bywash_execute::Execution) runs a program
//! - [`run_load`]: an execution with clients
//! - [`ProgramReport`]: what was measured; [`Profile`]: instructions and stalls by address; [`ProgramTimeline`]: spans of
//!   threads, and of what the other parts did
//! - [`ClientTimes`], [`functions`]: the clients' response times, and the functions that took the time
//! - `caches`: the processors' caches and their coherence; `memory`: memory as a hart sees it
//! - `devices`: the net below the processors; `costs`: the operating system's paths; `addresses`: locations of what it
//!   copies
//!
//! The processors execute an instruction in a cycle, in order. What the operating system itself executes is not there
//! as instructions: its paths take the cycles of the description's costs, while its copies and checksums pass through
//! the caches as the program's own accesses do.
//!
//! Iterations of a loop that waits for a value in memory are counted instead of executed, until the processor's turn is
//! over: before, nobody can change the value. The result is that of each iteration executed
//! ([`TimedMachine::executing_each_iteration`]).

mod addresses;
mod caches;
mod costs;
mod devices;
mod load;
mod machine;
mod memory;
mod profile;
mod report;
mod summary;

pub use load::run_load;
pub use machine::{MachineError, TURN_CYCLES, TimedMachine};
pub use profile::{Profile, Share};
pub use report::{PartUse, ProcessorUse, ProgramReport, ProgramTimeline, ThreadSpan, TimeShares};
pub use summary::{ClientTimes, FunctionUse, functions};
