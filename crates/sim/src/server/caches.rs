//! Which part of a copy or a checksum reaches the memory bus.
//!
//! The host handles data in pieces. A piece that was just copied is in the second cache if it and its source fit there
//! together; what a device has written is not, as its writes invalidate what processors hold. So
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
//! A device that reads what a processor holds modified gets it from there, and that crosses the bus like memory.

use bywash_model::machine::Memory;

/// Where data is when a processor comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Not in its cache.
    Memory,
    /// In its second cache.
    Cache,
}

/// What becomes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The next piece overwrites it: a socket's buffers, a program's.
    Reused,
    /// It stays, as in a cache of files.
    Kept,
}

/// What a pass of a processor over data does to the bus, in crossings of all its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// The processor waits for these.
    pub waited: f64,
    /// These happen some time later.
    pub posted: f64,
    /// The share that comes from the second cache into the first.
    pub second: f64,
}

/// A copy; answers also where its target is then.
pub fn copy(memory: &Memory, piece: f64, from: Lies, target: Target) -> (Pass, Lies) {
    let fits = 2.0 * piece <= memory.l2.0;
    let source = if from == Lies::Cache && fits { 0.0 } else { 1.0 };
    let second = if source == 0.0 { second(memory, 2.0 * piece) } else { 0.0 };
    if !fits {
        return (Pass { waited: source + 1.0, posted: 1.0, second }, Lies::Memory);
    }
    let posted = if target == Target::Kept { 1.0 } else { 0.0 };
    (Pass { waited: source, posted, second }, Lies::Cache)
}

/// A processor reads data.
pub fn read(memory: &Memory, piece: f64, from: Lies) -> Pass {
    match from {
        Lies::Memory => Pass { waited: 1.0, ..Pass::default() },
        Lies::Cache => Pass { second: second(memory, piece), ..Pass::default() },
    }
}

/// The share of data in the second cache that is not in the first.
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
        let (pass, lies) = copy(&memory(), 16384.0, Lies::Memory, Target::Reused);
        assert_eq!((pass, lies), (Pass { waited: 1.0, posted: 0.0, second: 0.0 }, Lies::Cache));
        let (again, _) = copy(&memory(), 16384.0, lies, Target::Kept);
        assert_eq!((again.waited, again.posted), (0.0, 1.0));
        assert_eq!(read(&memory(), 16384.0, lies), Pass::default(), "even the first cache has it");
    }

    #[test]
    fn a_large_piece_passes_the_bus_each_time() {
        let (pass, lies) = copy(&memory(), 131072.0, Lies::Cache, Target::Reused);
        assert_eq!((pass.waited, pass.posted, lies), (2.0, 1.0, Lies::Memory));
        assert_eq!(read(&memory(), 131072.0, lies).waited, 1.0);
        assert_eq!(read(&memory(), 65536.0, Lies::Cache).second, 1.0);
    }
}
