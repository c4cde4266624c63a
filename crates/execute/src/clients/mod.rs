//! Clients as processes of the model: they connect to a program's port, send requests, check the responses and measure
//! the time until they come.
//!
//! ```
//! use bywash_execute::clients::{Body, Clients, Load, LoadError, Mix, Report, Request};
//! use bywash_execute::machine::Machine;
//! use bywash_execute::Execution;
//!
//! fn measure<M: Machine>(execution: Execution<M>) -> Result<Report, LoadError> {
//!     let pages = ["/a", "/b"].map(|path| Request::get(path).body(Body::Length(16384)));
//!     let (report, _) = Clients::new(execution, Load::closed(8080, 16, Mix::uniform(pages)))?.run()?;
//!     Ok(report)
//! }
//! # drop(measure::<bywash_execute::Functional>);
//! ```
//!
//! - [`Load`]: port, requests, arrivals (closed or open), warm-up and measurement; a [`Span`] is a number of responses or
//!   a time
//! - [`Request`], [`Body`], [`Mix`]: requests, the responses that are right, and the order in which requests come
//! - [`Clients`]: the clients of a load with the [`Execution`](crate::Execution) that they are connected to
//! - [`Report`], [`Times`]: what was measured
//! - [`LoadError`], [`Mismatch`]: which request went wrong, and what came instead
//!
//! Clients are outside the machine: they take no time themselves, and what they send and receive passes the machine's
//! interface.
//!
//! Invariant: a run with clients depends on the program's run and on the load with its seed, and on nothing else.

mod driver;
mod error;
mod load;
mod report;
mod request;
mod response;

pub use driver::{Clients, MEASURED_MAX, Moment, OUTPUT_BYTES_MAX, WAITING_MAX};
pub use error::LoadError;
pub use load::{Load, MEASURED_RESPONSES, OPEN_CONNECTIONS, Span, TIMEOUT, TIMEOUT_MAX};
pub use report::{Report, Times};
pub use request::{Body, Mix, Request};
pub use response::Mismatch;
