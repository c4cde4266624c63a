//! What the fuzz targets have in common: what a liar needs to speak to a victim by hand, and what is looked at after
//! each input.
//!
//! A target turns an input into steps, takes them one by one, in one thread, and is over: so every run can be repeated.
//! Some steps are the victim's, which uses the library as any program does; some are those of a peer that keeps to the
//! protocol; some are lies. As long as there was no lie everything must arrive whole and in order; from then on there
//! may be errors, but only those that a peer can bring about.
//!
//! - [`Steps`]: what an input consists of
//! - [`Ring`]: a ring as crates/ring/src/layout.rs draws it, spoken by hand
//! - [`Picture`]: memory whose contents tell where they were taken from
//! - [`Kind`], [`Packet`]: descriptors and messages of every kind
//! - [`Value`], [`Few`], [`Size`]: numbers that a liar likes
//! - [`served`]: a device server that is stepped, and its clients
//! - [`disk`]: a disk that is exported by vhost-user, its frontends and guests
//! - [`watched`], [`settled`]: nothing is left behind

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
