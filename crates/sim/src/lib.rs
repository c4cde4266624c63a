//! Discrete-event simulator of servers, and the engine under it.
//!
//! ```
//! use bywash_sim::engine::{ServiceTime, Net, Op, Run};
//!
//! // Requests come at random, one in 2 us on the average, and take 1 us: M/M/1 at half load.
//! let mut net = Net::new();
//! let server = net.station("server", 1);
//! let request = net.script(vec![
//!     Op::BeginRequest,
//!     Op::Use { station: server, time: ServiceTime::exponential(1e-6) },
//!     Op::EndRequest,
//! ]);
//! let clients = net.script(vec![
//!     Op::Delay(ServiceTime::exponential(2e-6)),
//!     Op::Send { script: request },
//!     Op::Jump { to: 0 },
//! ]);
//! net.start(clients, 1);
//! let run = Run::new(&net, 7).until_finished(20_000, 200_000);
//! let response = run.response.mean_interval();
//! assert!((response.mean - 2e-6).abs() < 3.0 * response.half_width);
//! ```
//!
//! - [`server`]: simulates a description of the model in detail
//! - [`paper`]: the simulations of the papers; [`preset`]: descriptions included in this crate
//! - [`many`]: several simulations at once, on all cores
//! - [`program`]: executes programs on the machine of a description
//! - [`trace`]: recorded calls of programs for a replay, their file format, and the parsers of strace's and
//!   blkparse's output
//! - [`trace_events`]: timelines as files for Perfetto
//! - [`engine`]: stations, scripts of operations on stations, the queue of events, and measurements
//!
//! Invariant: the result of a run depends only on its net and its seed. A run uses no clock, no thread and no
//! address, so the same seed gives the same run on every machine.

#![forbid(unsafe_code)]

pub mod engine;
pub mod many;
pub mod paper;
pub mod preset;
pub mod program;
pub mod server;
pub mod trace;
pub mod trace_events;

pub use preset::Preset;
pub use server::{Options, Report, Stop, simulate};
