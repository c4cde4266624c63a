//! Logs on real file systems: what recovery and the keeper do, and what they refuse.
//!
//! - [`machine`]: an ext4 on a loop device, a log outside of it, and a program that commits
//! - [`create`]: making and removing
//! - [`recover`]: after a crash, and without one; [`refuse`]: what recovery must not do
//! - [`keep`]: the keeper, as a process of its own
//! - [`volume`]: logs on volumes of a device server
//!
//! Tests that need a mounted file system are left out unless root runs them.

// A test that unwraps what is not there fails, as it should.
#![allow(clippy::unwrap_used)]

mod create;
mod keep;
mod machine;
mod recover;
mod refuse;
mod volume;
