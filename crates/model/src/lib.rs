//! An analytic model of servers: computes the resource that limits throughput, and the effect of another I/O
//! architecture.
//!
//! ```
//! use bywash_model::{Architecture, Machine, Resource, Workload, bound};
//!
//! let (machine, work) = (Machine::carrera_2003(), Workload::web(0.10));
//! let now = bound(&machine, &work, Architecture::Conventional);
//! let then = bound(&machine, &work, Architecture::Active);
//! assert_eq!(now.binding, Resource::Processors);
//! assert!(then.throughput > 1.6 * now.throughput);
//! ```
//!
//! The model is that of Carrera, Rangarajan, Bianchini and Iftode, *Impact of Next-Generation I/O
//! Architectures on the Design and Performance of Network Servers*, with its misprints corrected. This crate
//! extends the model to video, stream and dynamic-content servers, to user-level I/O on the host, and to a
//! limited number of threads; the extensions follow from the same structure.
//!
//! - [`units`]: rates, sizes and times, parsed from text with units
//! - [`machine`]: the parts of a server; [`work`]: its requests and their costs
//! - [`demand`]: busy time of each resource for one byte; [`bound()`]: the throughput bound that follows
//! - [`closed`]: throughput and response time for a given number of threads (mean-value analysis)
//! - [`performance()`]: the same for any load, also for requests that arrive at a given rate
//! - [`describe`]: machine and workload from TOML or JSON
//! - [`sweep`]: many descriptions at once, with numbers that vary
//! - [`figures`], [`check`]: the paper's figures, and the statements of its text beside the computed numbers
//! - [`claim`]: a source's statement about a number, and the verdict that follows
//!
//! Invariant: everything here is a pure function of its arguments. Units are bytes, seconds and cycles. MB in
//! the paper's figures is 2^20 bytes: only with that reading are the numbers of the paper's text reproduced.

#![forbid(unsafe_code)]

pub mod bound;
pub mod check;
pub mod claim;
pub mod closed;
pub mod demand;
pub mod describe;
pub mod figures;
pub mod machine;
pub mod performance;
pub mod sweep;
pub mod units;
pub mod work;

pub use bound::{Bound, bound};
pub use demand::{Architecture, Demand, MissingProcessor, Resource};
pub use describe::Description;
pub use machine::Machine;
pub use performance::{Performance, performance};
pub use work::Workload;
