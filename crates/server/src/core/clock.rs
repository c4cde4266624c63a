//! Clock of a core in nanoseconds since the server's cores began. It is read once a round, and while the core only polls
//! rings, when a request is found.

use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    now: u64,
    is_old: bool,
}

impl Clock {
    /// Makes a clock that counts from this time on, which is the same for all cores of a server.
    pub(crate) fn since(began: Instant) -> Clock {
        Clock { began, now: 0, is_old: false }
    }

    /// Reads the time from the system.
    #[inline]
    pub(crate) fn read(&mut self) -> u64 {
        // A `u64` holds 584 years.
        self.now = self.began.elapsed().as_nanos() as u64;
        self.is_old = false;
        self.now
    }

    /// Returns the time of the last reading.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Marks the last reading as too old for the beginning of a request.
    #[inline]
    pub(crate) fn mark_stale(&mut self) {
        self.is_old = true;
    }

    /// Returns the time of the last reading, or reads again if that was marked as old.
    #[inline]
    pub(crate) fn now_or_read(&mut self) -> u64 {
        if self.is_old { self.read() } else { self.now }
    }
}
