//! Time of the simulation.

use std::ops::Add;

/// Time since the start of a simulation, or a difference of two times; counted in whole picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Start of the simulation.
    pub const ZERO: Time = Time(0);
    /// Greatest time, 213 days; no simulation gets there.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns a time of picoseconds.
    pub const fn from_picoseconds(picoseconds: u64) -> Time {
        Time(picoseconds)
    }

    /// Returns a time of nanoseconds, at most [`Time::MAX`].
    pub const fn from_nanoseconds(nanoseconds: u64) -> Time {
        Time(nanoseconds.saturating_mul(1000))
    }

    /// Returns the picoseconds.
    pub const fn picoseconds(self) -> u64 {
        self.0
    }

    /// Returns the whole nanoseconds.
    pub const fn nanoseconds(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the time from an earlier one to this one; zero if it is not earlier.
    pub const fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Time {
    type Output = Time;

    fn add(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }
}
