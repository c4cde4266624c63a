//! Sizes, rates and durations as people write and read them.
//!
//! All commands, specifications, configuration files and environment variables of Bywash parse quantities by
//! these functions, so that a suffix means the same everywhere.
//!
//! ```
//! use bywash_quantity::{Bytes, TimeUnit, duration, rate, size};
//! use std::time::Duration;
//!
//! assert_eq!((size("64K")?, size("64KiB")?, size("64KB")?), (65_536, 65_536, 64_000));
//! assert_eq!(rate("100M/s")?, 100 << 20);
//! assert_eq!(duration("1.5ms", TimeUnit::Second)?, Duration::from_micros(1500));
//! assert_eq!(duration("2", TimeUnit::Second)?, Duration::from_secs(2));
//! assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
//! # Ok::<_, bywash_quantity::ParseError>(())
//! ```
//!
//! There is no standard library in it and no allocation, since the preloaded library parses its environment
//! by it.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod display;
mod parse;

pub use display::{Bytes, Count};
pub use parse::{ParseError, TimeUnit, duration, rate, size};
