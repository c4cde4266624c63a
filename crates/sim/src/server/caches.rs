//! Part of a copy or a checksum that reaches the memory bus. The builder of request scripts (`request`) calls
//! it.
//!
//! The host handles data in pieces. A piece that was just copied is in the second-level cache if the piece
//! and its source fit there together. Data that a device wrote is not cached, because the device's writes
//! invalidate the processors' caches. So
//!
//! ```text
//!                                 crosses the bus, waited for       crosses it later
//!     copy, source in memory      source                            target, if it is kept and not overwritten there
//!     copy, source in the cache   nothing                           likewise
//!     copy that does not fit      source, and the target's lines    target
//!     checksum                    the data, unless it is cached     nothing
//!     a device reads or writes    the data                          nothing
//! ```
//!
//! A device that reads data which a processor's cache holds modified gets it from the cache; this transfer
//! crosses the bus like one from memory.

use bywash_model::machine::Memory;

/// Location of data when a processor accesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In memory, not in the processor's cache.
    Memory,
    /// In the processor's second-level cache.
    Cache,
}

/// Further use of a copy's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The next piece overwrites the target, such as a socket's or a program's buffer.
    Reused,
    /// The target stays, as in a cache of files.
    Kept,
}

/// Load that a pass of a processor over data puts on the bus. One crossing moves all bytes of the data once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// Number of crossings that the processor waits for.
    pub waited: f64,
    /// Number of crossings that happen later.
    pub posted: f64,
    /// Share of the data that moves from the second-level cache into the first, 0 to 1.
    pub l2_share: f64,
}

/// Returns the load of a copy in pieces of `piece` bytes, and the location of the target afterwards.
pub fn copy(memory: &Memory, piece: f64, from: Location, target: Target) -> (Pass, Location) {
    let fits = 2.0 * piece <= memory.l2.0;
    let source = if from == Location::Cache && fits { 0.0 } else { 1.0 };
    let second = if source == 0.0 { second(memory, 2.0 * piece) } else { 0.0 };
    if !fits {
        return (Pass { waited: source + 1.0, posted: 1.0, l2_share: second }, Location::Memory);
    }
    let posted = if target == Target::Kept { 1.0 } else { 0.0 };
    (Pass { waited: source, posted, l2_share: second }, Location::Cache)
}

/// Returns the load of a processor that reads data in pieces of `piece` bytes.
pub fn read(memory: &Memory, piece: f64, from: Location) -> Pass {
    match from {
        Location::Memory => Pass { waited: 1.0, ..Pass::default() },
        Location::Cache => Pass { l2_share: second(memory, piece), ..Pass::default() },
    }
}

/// Returns the share of data in the second-level cache that is not in the first: all of it or nothing.
fn second(memory: &Memory, bytes: f64) -> f64 {
    if bytes > memory.l1.0 { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_model::units::{Rate, Size, Time};

    fn memory() -> Memory {
        Memory {
            rate: Rate(1.064e9),
            banks: 8.0,
            latency: Time(60e-9),
            l1: Size(32768.0),
            l2: Size(131072.0),
            l2_latency: Time(5e-9),
            write_buffer: Size(0.0),
            file_cache: Size(0.0),
        }
    }

    #[test]
    fn a_small_piece_stays_in_the_cache() {
        let (pass, lies) = copy(&memory(), 16384.0, Location::Memory, Target::Reused);
        assert_eq!((pass, lies), (Pass { waited: 1.0, posted: 0.0, l2_share: 0.0 }, Location::Cache));
        let (again, _) = copy(&memory(), 16384.0, lies, Target::Kept);
        assert_eq!((again.waited, again.posted), (0.0, 1.0));
        assert_eq!(read(&memory(), 16384.0, lies), Pass::default(), "even the first cache has it");
    }

    #[test]
    fn a_large_piece_passes_the_bus_each_time() {
        let (pass, lies) = copy(&memory(), 131072.0, Location::Cache, Target::Reused);
        assert_eq!((pass.waited, pass.posted, lies), (2.0, 1.0, Location::Memory));
        assert_eq!(read(&memory(), 131072.0, lies).waited, 1.0);
        assert_eq!(read(&memory(), 65536.0, Location::Cache).l2_share, 1.0);
    }
}
