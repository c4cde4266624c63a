//! An analytic model of servers: what binds them, and what another structure of their I/O would change.
//!
//! ```
//! use bywash_model::{Architecture, Machine, Resource, Workload, bound};
//!
//! let (machine, work) = (Machine::of_2003(), Workload::web(0.10));
//! let now = bound(&machine, &work, Architecture::Conventional);
//! let then = bound(&machine, &work, Architecture::Active);
//! assert_eq!(now.binding, Resource::Processors);
//! assert!(then.throughput > 1.6 * now.throughput);
//! ```
//!
//! The model is that of Carrera, Rangarajan, Bianchini and Iftode, *Impact of Next-Generation I/O Architectures on the
//! Design and Performance of Network Servers*, with its misprints corrected; what it leaves out (servers of video, streams
//! and dynamic content; user-level I/O on the host; how many threads it takes) follows from the same structure.
//!
//! - [`units`]: rates, sizes, times as people write them
//! - [`machine`]: what a server is made of; [`work`]: what it does, and what that costs
//! - [`demand`]: how long each resource is busy for a byte; [`bound()`]: what follows for the whole
//! - [`closed`]: the same with a number of threads: throughput and response time (mean-value analysis)
//! - [`describe`]: machine and work from TOML or JSON
//! - [`sweep`]: many of them at once
//! - [`figures`], [`check`]: the paper's figures, and what it says in its text against what is computed
//! - [`claim`]: what a source states about a number, and the verdict that follows
//!
//! Invariant: everything here is a pure function of its arguments. Units are bytes, seconds and cycles; MB in the paper's
//! figures is 2^20 bytes (only then do the numbers of its text come out).

#![forbid(unsafe_code)]

pub mod bound;
pub mod check;
pub mod claim;
pub mod closed;
pub mod demand;
pub mod describe;
pub mod figures;
pub mod machine;
pub mod sweep;
pub mod units;
pub mod work;

pub use bound::{Bound, bound};
pub use demand::{Architecture, Demand, Resource};
pub use describe::Description;
pub use machine::Machine;
pub use work::Workload;
