//! Monotonic clock that costs a few nanoseconds: CLOCK_MONOTONIC_COARSE through the vDSO.

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    /// clock_gettime(3) of the C library, which makes no system call for this clock.
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// Returns the monotonic time in milliseconds, with the resolution of the kernel's tick (1 to 10 ms).
#[inline]
pub fn coarse_ms() -> u64 {
    const CLOCK_MONOTONIC_COARSE: i32 = 6;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: `time` is a local variable that the call fills in; the clock exists since Linux 2.6.32.
    unsafe { clock_gettime(CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.seconds as u64 * 1000 + time.nanoseconds as u64 / 1_000_000
}
