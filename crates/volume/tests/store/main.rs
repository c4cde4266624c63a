//! The store as a whole: at random against a model, and killed in the middle.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kill;
mod model;
mod operation;
