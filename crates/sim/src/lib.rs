//! A discrete-event simulator of servers, and the engine that it runs on.
//!
//! ```
//! use bywash_sim::engine::{Draw, Net, Op, Run};
//!
//! // Requests come at random, one in 2 us on the average, and take 1 us: M/M/1 at half load.
//! let mut net = Net::new();
//! let server = net.station("server", 1);
//! let request = net.script(vec![Op::Begin, Op::Use { station: server, time: Draw::exponential(1e-6) }, Op::Finish]);
//! let clients = net.script(vec![
//!     Op::Delay(Draw::exponential(2e-6)),
//!     Op::Send { script: request },
//!     Op::Jump { to: 0 },
//! ]);
//! net.start(clients, 1);
//! let run = Run::new(&net, 7).until_finished(20_000, 200_000);
//! let response = run.response.mean_interval();
//! assert!((response.mean - 2e-6).abs() < 3.0 * response.half_width);
//! ```
//!
//! - [`server`]: descriptions as the model has them, run in detail
//! - [`paper`]: what the papers simulated; [`preset`]: descriptions that come along
//! - [`trace`]: recorded calls, to be replayed
//! - [`many`]: several simulations on all cores
//! - [`trace`]: recorded calls of programs, their form, and what reads strace's and blkparse's
//! - [`engine`]: stations, scripts of operations on them, the queue of events, and what is measured
//!
//! Invariant: what a run answers follows from its net and its seed alone. There is no clock, no thread and no address in
//! it: the same seed gives the same run on every machine.

#![forbid(unsafe_code)]

pub mod engine;
pub mod many;
pub mod paper;
pub mod preset;
pub mod server;
pub mod trace;

pub use preset::Preset;
pub use server::{Options, Report, Stop, simulate};
