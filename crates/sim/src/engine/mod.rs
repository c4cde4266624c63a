//! The simulation engine: jobs that execute scripts of operations at stations.
//!
//! A [`Net`] defines the stations (several equal servers with a queue), the scripts (operations in order) and
//! the jobs that exist at the beginning. A [`Run`] executes them. Everything that takes time ends with an
//! event; events of the same moment happen in the order in which they were created.
//!
//! - `net`: stations, scripts, distributions of service times
//! - `arm`: the arm of a disk; `controller`: the cache and the read-ahead of its controller
//! - `coherence`: the processors' caches
//! - `timeline`: an optional record of the jobs that occupied each station
//! - `queue`: the queue of future events
//! - `run`: execution of the jobs
//! - `time`: simulated time in picoseconds
//! - `random`: random numbers that a seed determines
//! - `measure`: means with confidence intervals, and distributions

mod arm;
mod coherence;
mod controller;
mod measure;
mod net;
mod queue;
mod random;
mod run;
mod time;
mod timeline;

pub use arm::Arm;
pub use coherence::{Access, Caches, Coherence, Moves, Region, SECTOR};
pub use controller::Controller;
pub use measure::{Distribution, Interval, Sample};
pub use net::{ARRIVALS_MAX, Movement, Net, Op, Record, Register, Registers, Script, ServiceTime, Station};
#[cfg(test)]
pub(crate) use random::Random;
pub use run::{Run, RunResult, StationUse, StopCondition};
pub use time::Time;
pub use timeline::{Span, Timeline};
