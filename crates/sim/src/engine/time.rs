//! Simulated time, in picoseconds since the beginning of the run.
//!
//! Times are integers, so that sums do not depend on the order of addition. 2^64 picoseconds are 213 days.

use std::ops::{Add, Sub};

/// Moment or duration, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

const PER_SECOND: f64 = 1e12;

impl Time {
    /// Latest representable moment.
    pub const MAX: Time = Time(u64::MAX);

    /// Converts seconds to the nearest picosecond. Negative values become 0.
    #[inline]
    pub fn from_seconds(seconds: f64) -> Time {
        Time::from_picoseconds(seconds * PER_SECOND)
    }

    /// Rounds to the nearest picosecond. Negative values become 0.
    #[inline]
    pub(super) fn from_picoseconds(picoseconds: f64) -> Time {
        // The cast truncates, and maps values out of range to the nearest bound of `u64`.
        Time((picoseconds + 0.5) as u64)
    }

    /// Returns the time in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / PER_SECOND
    }
}

impl Add for Time {
    type Output = Time;

    fn add(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }
}

impl Sub for Time {
    type Output = Time;

    fn sub(self, other: Time) -> Time {
        Time(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_there_and_back() {
        for seconds in [0.0, 250e-9, 0.002, 7.5e-9, 3600.0] {
            assert!((Time::from_seconds(seconds).seconds() - seconds).abs() < 1e-12);
        }
        assert_eq!((Time::from_seconds(-1.0), Time(3) - Time(5)), (Time(0), Time(0)));
    }
}
