//! Flows: say where from and where to, and the data goes the best way there.
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
//! A [`Flow`] has a source and a sink ([`Endpoint`]) and stages between them ([`Stage`]). [`Flow::plan`] tells which of
//! the ways to move data ([`plan::Mover`]) it would take on this machine, and why not the others; [`Flow::start`]
//! starts it; [`Report`] says what was done, by which way, and what it cost.
//!
//! - [`spec`]: endpoints and stages, as text and as values
//! - [`plan`]: pure: facts and wishes in, a plan out; [`facts`] is what it is made from
//! - [`report`]: what became of a flow, for people and for machines
//! - [`size`]: sizes as people write and read them
//! - [`Error`], [`Failed`]: what can go wrong, and how far it came
//!
//! Inside, in the order of a flow's life: `part` cuts it at its programs, `look` finds the facts out, `address` looks names up, `assembly` opens
//! the ends (`end`, `datagram`, `reliable`), each `line` moves (`mover`, through `stage`s), `run` commits; `control` is
//! how a flow is seen and stopped from outside.

mod address;
mod assembly;
mod control;
mod datagram;
mod end;
mod error;
mod explain;
pub mod facts;
mod flow;
mod line;
mod look;
mod memory;
mod mover;
mod pace;
mod part;
pub mod plan;
#[cfg(feature = "reliable")]
mod reliable;
pub mod report;
mod run;
mod serve;
pub mod size;
pub mod spec;
mod stage;
mod sys;

pub use datagram::{Accounting, Engine, Probing, Range, Relayed, Step};
pub use error::Error;
pub use flow::{Flow, Running, Watch};
pub use report::{Failed, Fallback, Hash, Piece, Report, Share};
pub use spec::{Endpoint, Stage};
