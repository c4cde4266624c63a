//! Tests of the whole store: random operations compared with a model, and a process killed at random moments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kill;
mod model;
mod operation;
