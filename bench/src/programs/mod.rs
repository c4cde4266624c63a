//! Unmodified programs, on any of the sides of a comparison.
//!
//! - [`executables`]: finding programs, and compiling those of our own
//! - [`mod@line`]: command lines with placeholders, and who serves the program's file I/O
//! - [`stage`]: where a run works, the data that it starts from, and how much it does
//! - [`servers`]: database servers, each on a folder of its own
//! - [`output`]: figures in what programs tell

pub mod executables;
pub mod line;
pub mod output;
pub mod servers;
pub mod stage;

pub use executables::{Programs, find, require};
