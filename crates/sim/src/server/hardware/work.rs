//! Processor cycles of a request.

use crate::engine::ServiceTime;
use bywash_model::work::Costs;

/// Processor cycles of a request: a number for each request, and one for each of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    each: f64,
    byte: f64,
}

impl Work {
    /// Returns `cycles` cycles for each byte.
    pub fn per_byte(cycles: f64) -> Work {
        Work { each: 0.0, byte: cycles }
    }

    /// Returns the file system's cycles of a request to a disk.
    pub fn file_system(costs: &Costs) -> Work {
        Work { each: costs.access.0, byte: costs.file_system.0 }
    }

    /// Returns the cycles of a request of `bytes` bytes.
    pub fn cycles(self, bytes: u64) -> f64 {
        self.each + self.byte * bytes as f64
    }

    /// Returns the time of it, with `cycle` seconds for each cycle.
    pub fn time(self, cycle: f64) -> ServiceTime {
        ServiceTime::fixed_and_per_byte(self.each * cycle, self.byte * cycle)
    }
}
