//! Flows: a program names a source and a sink, and the library chooses the fastest way to move the data.
//!
//! ```no_run
//! use bywash_flow::Flow;
//!
//! let flow = Flow::new("/var/log/syslog".parse()?, "tcp:backup.example:9000".parse()?)
//!     .stage("compress:zstd".parse()?);
//! let running = flow.start()?;
//! println!("{} bytes so far", running.watch().moved());
//! println!("{:.2} CPU seconds", running.wait()?.cpu_seconds);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Flow`] has a source and a sink ([`Endpoint`]) and stages between them ([`Stage`]). [`Flow::plan`]
//! names the mechanisms ([`plan::Mover`]) that the flow would use on this machine, and the reason against
//! each other one. [`Flow::start`] starts the flow. Its [`Report`] says how much was moved, by which mover
//! and at what cost.
//!
//! - [`spec`]: endpoints and stages, as text and as values
//! - [`plan`]: the planner, a pure function from [`facts`] and the user's options to a plan
//! - [`report`]: the result of a flow, for people and for programs
//! - [`size`]: sizes and counts as people write and read them
//! - [`Error`], [`Failed`]: the reason of a failure, and the report up to it
//!
//! The private modules, in the order of a flow's life: `part` splits the flow at its programs, `inspect`
//! collects the facts, `address` resolves host names, `assembly` opens the ends (`end`, `datagram`,
//! `reliable`), each `transfer` moves one part (by a `mover`, through `stage`s), and `run` commits the sinks.
//! `control` holds the counters and the cancellation of a flow.

mod address;
mod assembly;
mod block_buffer;
mod control;
mod datagram;
mod end;
mod error;
mod explain;
pub mod facts;
mod flow;
mod inspect;
mod mover;
mod part;
pub mod plan;
mod rate_limiter;
#[cfg(feature = "reliable")]
mod reliable;
pub mod report;
mod run;
mod serve;
pub mod size;
pub mod spec;
mod stage;
mod sys;
mod transfer;

pub use datagram::{Accounting, Engine, Probing, Range, Relayed, Step};
pub use error::Error;
pub use flow::{Flow, Running, Watch};
pub use report::{Failed, Fallback, Hash, Piece, Report, Share};
pub use spec::{Endpoint, Stage};
