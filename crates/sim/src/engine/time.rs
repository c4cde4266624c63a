//! Simulated time: picoseconds since the beginning.
//!
//! Whole numbers, so that adding up never depends on the order. 2^64 of them are 213 days.

use std::ops::{Add, Sub};

/// A moment, or how long something takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

const PER_SECOND: f64 = 1e12;

impl Time {
    /// The end of time.
    pub const MAX: Time = Time(u64::MAX);

    /// So many seconds, to the nearest picosecond; what is negative is none.
    #[inline]
    pub fn of_seconds(seconds: f64) -> Time {
        Time::of_picoseconds(seconds * PER_SECOND)
    }

    /// So many picoseconds, to the nearest; what is negative is none.
    #[inline]
    pub(super) fn of_picoseconds(picoseconds: f64) -> Time {
        // A cast cuts off, and of what is out of range it makes the nearest that is in it.
        Time((picoseconds + 0.5) as u64)
    }

    /// In seconds.
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
            assert!((Time::of_seconds(seconds).seconds() - seconds).abs() < 1e-12);
        }
        assert_eq!((Time::of_seconds(-1.0), Time(3) - Time(5)), (Time(0), Time(0)));
    }
}
