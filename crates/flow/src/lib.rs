//! Flows: say where from and where to, and the data goes the best way there.

mod control;
mod end;
mod error;
pub mod plan;
pub mod size;

pub use error::Error;
