//! The engine: jobs that go through scripts of operations at stations.
//!
//! A [`Net`] says what there is: stations (so many equal servers and a queue), scripts (operations in order) and the jobs
//! that are there at the beginning. A [`Run`] lets them go. Whatever takes time is an event at the end of that time; at
//! one moment events happen in the order in which they were made.
//!
//! - `net`: stations, scripts, draws
//! - `arm`: the arm of a disk
//! - `timeline`: who had what when, if somebody asks
//! - `queue`: what happens next
//! - `run`: the jobs
//! - `time`: picoseconds
//! - `random`: numbers that follow from a seed
//! - `measure`: means with their confidence, and distributions

mod arm;
mod measure;
mod net;
mod queue;
mod random;
mod run;
mod time;
mod timeline;

pub use arm::Arm;
pub use measure::{Distribution, Interval, Sample};
pub use net::{Draw, Net, Op, Record, Register, Registers, Script, Station};
pub use run::{End, Outcome, Run, StationUse};
pub use time::Time;
pub use timeline::{Span, Timeline};
