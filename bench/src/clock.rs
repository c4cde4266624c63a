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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_uses_no_processor() {
        let begin = thread_seconds();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let slept = thread_seconds() - begin;
        let mut sum = 0u64;
        while thread_seconds() - begin < slept + 0.01 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(slept < 0.04 && sum > 0, "{slept}");
    }
}
