//! Clock of a core in nanoseconds since the server's cores began. It is read once a round, and while the core only polls
//! rings, when a request is found.

/// Time from which the clocks of all cores of a server count, in nanoseconds of the system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockStart(u64);

impl ClockStart {
    pub(crate) fn now() -> ClockStart {
        ClockStart(monotonic_ns())
    }
}

#[derive(Debug)]
pub(crate) struct Clock {
    start: ClockStart,
    now: u64,
    is_old: bool,
}

impl Clock {
    /// Makes a clock that counts from this time on, which is the same for all cores of a server.
    pub(crate) fn since(start: ClockStart) -> Clock {
        Clock { start, now: 0, is_old: false }
    }

    /// Reads the time from the system.
    #[inline]
    pub(crate) fn read(&mut self) -> u64 {
        self.now = monotonic_ns() - self.start.0;
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

/// Reads the system's monotonic clock. `std::time::Instant` takes three times as many instructions, and `rustix` finds no
/// clock under valgrind, where instructions are counted.
#[expect(unsafe_code, reason = "the C library writes the time to where it is told")]
#[inline]
fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing. The call fails for no such address and no such clock only, and there are both.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Neither is negative, and a `u64` holds 584 years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
