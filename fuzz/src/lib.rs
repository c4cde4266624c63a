//! Common parts of the fuzz targets: a malicious peer that speaks the protocols by hand, and checks after
//! each input.
//!
//! A target turns an input into steps and carries them out one by one in one thread, so every run can be
//! repeated. Some steps use the library as any program does (the tested side, or victim). Some are those of a
//! peer that keeps to the protocol. Some are those of a malicious peer that breaks it. Before the first
//! violation everything must arrive complete and in order; afterwards errors are allowed, but only those that
//! a peer can cause.
//!
//! - [`Steps`]: the steps of an input
//! - [`Ring`]: a ring as drawn in crates/link/src/ring/layout.rs, accessed by hand
//! - [`Picture`]: memory whose contents tell where they were copied from
//! - [`Kind`], [`Packet`]: descriptors and messages of every kind
//! - [`Value`], [`Few`], [`Size`]: numbers that are likely to find errors
//! - [`served`]: a device server that is run step by step, and its clients
//! - [`disk`]: a disk exported by vhost-user, its frontends and guests
//! - [`watched`], [`settled`]: checks that nothing is left behind

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a fuzz target fails by panicking")]

mod belongings;
pub mod disk;
mod files;
mod packet;
mod picture;
mod ring;
pub mod served;
mod steps;
mod value;

pub use belongings::{settled, watched};
pub use files::{Kind, SEALED_BYTES};
pub use packet::{Packet, hello};
pub use picture::{ARENA, arena, is_in_a_picture, offered_arena, other_arena, seeded};
pub use ring::{Ring, Where};
pub use steps::Steps;
pub use value::{Few, Size, Value};
