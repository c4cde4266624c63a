//! Clocks of the kernel, in seconds.

use rustix::time::{ClockId, clock_gettime};

/// Returns the seconds that `clock` shows: the CPU time of this thread or process, or the time since the machine started.
pub fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the CPU time of this thread so far, in seconds.
pub fn thread_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}
