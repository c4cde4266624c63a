//! Programs for RISC-V Linux inside the machine of a description, executed in steps beside the page.
//!
//! - [`Session`]: one execution, which is begun, continued until it ends or is stopped, and then looked at
//! - [`examples`]: programs of the page with their arguments, files and clients
//! - `run`: the execution and its clients; `lanes`: a timeline as shares of time in equal parts of a window
//! - `words`: arguments and paths as people write them; `error`: reasons for refusing a question
//!
//! The bytes of the program and of its files are passed beside the questions. A run is that of
//! `bywash plan execute` with the same program, files, machine and seed: steps do not change it.

mod error;
pub mod examples;
mod lanes;
mod run;
mod session;
mod words;

pub use error::Error;
pub use session::Session;
