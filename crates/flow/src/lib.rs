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
//! - [`syntax`]: the endpoints, stages and movers that exist
//! - [`plan`]: plans of flows, made by a pure function from facts and the user's options
//! - [`report`]: the result of a flow, for people and for programs
//! - [`Error`], [`Failed`]: the reason of a failure, and the report up to it
//!
//! # Layers
//!
//! The modules form layers, and each uses only modules that stand before it here (a test holds that):
//!
//! ```text
//!     movers error shell sys                     | names of movers, errors, shell quoting, system calls
//!     mac congestion hash scene                  | words that the user writes
//!     facts plan explain                         | the planner, pure
//!     control block_buffer rate_limiter          | what everything that moves bytes needs
//!     timing block_io                            | times of live streams, blocks
//!     address                                    | names of hosts
//!     video media                                | frames and their pixels, streams cut into units
//!     datagram reliable rtp                      | datagrams, QUIC, RTP
//!     report                                     | results
//!     end                                        | open sources and sinks
//!     endpoint stage                             | everything that can be named: a module and a row each
//!     machine description part                   | a flow as described, its parts, their facts
//!     mover transfer                             | how bytes move; one part, in one thread
//!     assembly run                               | opens the ends, runs all parts, commits the sinks
//!     serve                                      | a flow for each connection
//!     flow                                       | the front door
//! ```

mod address;
mod assembly;
mod block_buffer;
mod block_io;
mod congestion;
mod control;
mod datagram;
mod description;
mod end;
mod endpoint;
mod error;
mod explain;
mod facts;
mod flow;
mod hash;
mod mac;
mod machine;
mod media;
mod mover;
mod movers;
mod part;
pub mod plan;
mod rate_limiter;
#[cfg(feature = "reliable")]
mod reliable;
pub mod report;
mod rtp;
mod run;
#[cfg(feature = "accelerator")]
mod scene;
mod serve;
mod shell;
mod stage;
mod sys;
mod timing;
mod transfer;
mod video;

pub use datagram::{Accounting, Engine, Probing, Range, Relayed, Step};
pub use endpoint::Endpoint;
pub use error::Error;
pub use flow::{Flow, ProgressHandle, Running};
pub use hash::HashAlgorithm;
pub use report::{Acceleration, Bottleneck, Failed, Fallback, Hash, Piece, Presentation, Report, Share};
pub use stage::Stage;
pub use timing::{LiveStream, Percentiles, Reception, SoundStream, Transmission};

/// The syntax of flows: the endpoints, stages and movers that exist, and shell quoting.
pub mod syntax {
    pub use crate::endpoint::endpoints;
    pub use crate::movers::{MoverRow, movers};
    pub use crate::shell::{quoted, quoted_path};
    pub use crate::stage::stages;
}
