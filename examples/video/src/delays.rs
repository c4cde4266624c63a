//! Delays of chunks behind their schedule, counted in steps of a fourth of a power of two.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of delays in each step. Written by one thread, read by others.
#[derive(Debug)]
pub struct Delays([AtomicU64; STEPS]);

/// Delays of several threads.
#[derive(Clone, Debug)]
pub struct DelayTotals([u64; STEPS]);

impl Default for Delays {
    fn default() -> Delays {
        Delays(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Default for DelayTotals {
    fn default() -> DelayTotals {
        DelayTotals([0; STEPS])
    }
}

impl Delays {
    /// Counts a delay.
    pub fn add(&self, delay: Duration) {
        self.0[step(delay)].fetch_add(1, Ordering::Relaxed);
    }
}

impl DelayTotals {
    /// Adds the delays of a thread.
    pub fn add(&mut self, delays: &Delays) {
        for (sum, count) in self.0.iter_mut().zip(&delays.0) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// Returns a delay that at least `share` of the delays do not exceed; at most a fourth more than the least one.
    pub fn percentile(&self, share: f64) -> Duration {
        let all: u64 = self.0.iter().sum();
        let mut left = (all as f64 * share).ceil() as u64;
        for (step, count) in self.0.iter().enumerate() {
            if *count >= left {
                return if left == 0 { Duration::ZERO } else { end(step) };
            }
            left -= count;
        }
        Duration::ZERO
    }
}

impl fmt::Display for DelayTotals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |share| self.percentile(share).as_secs_f64() * 1e3;
        let (half, most) = (milliseconds(0.5), milliseconds(1.0));
        let (p99, p999) = (milliseconds(0.99), milliseconds(0.999));
        write!(formatter, "delay p50 {half:.1} ms, p99 {p99:.1} ms, p99.9 {p999:.1} ms, most {most:.1} ms")
    }
}

fn step(delay: Duration) -> usize {
    let microseconds = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX).clamp(4, 1 << 40);
    let power = microseconds.ilog2();
    let quarter = (microseconds >> (power - 2)) & 3;
    (4 * (power - 2)) as usize + quarter as usize
}

/// Returns the end of a step.
fn end(step: usize) -> Duration {
    let (power, quarter) = (step / 4 + 2, step % 4);
    Duration::from_micros((5 + quarter as u64) << (power - 2))
}

/// Number of steps: from 4 us to more than two weeks.
const STEPS: usize = 4 * 39;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_contains_its_delays() {
        for microseconds in (4..5000).chain([1 << 20, (1 << 33) + 12345, 1 << 40]) {
            let delay = Duration::from_micros(microseconds);
            let end = end(step(delay));
            assert!(end > delay && end <= delay.mul_f64(1.26), "{delay:?} in {end:?}");
        }
        assert_eq!(step(Duration::ZERO), 0);
        assert!(step(Duration::MAX) < STEPS);
    }

    #[test]
    fn percentiles_are_counted() {
        let (delays, mut totals) = (Delays::default(), DelayTotals::default());
        assert_eq!(totals.percentile(0.5), Duration::ZERO);
        for _ in 0..990 {
            delays.add(Duration::from_millis(1));
        }
        for _ in 0..10 {
            delays.add(Duration::from_millis(100));
        }
        totals.add(&delays);
        totals.add(&delays);
        let within = |share, least, most| {
            let found = totals.percentile(share).as_millis();
            assert!((least..=most).contains(&found), "{share}: {found} ms");
        };
        within(0.5, 1, 1);
        within(0.99, 1, 1);
        within(0.991, 100, 125);
        within(1.0, 100, 125);
    }
}
