//! Rate limiter: a token bucket that is stored as one point in time.
//!
//! ```text
//!     ----+----------+-------------------> time
//!         now        due          `due` moves by bytes / rate with each piece that is sent;
//!                                 a sender that is early sleeps until `due`
//! ```
//!
//! Invariant: in any interval, no more bytes pass than rate × interval, plus [`BURST`] and [`SLEEP_MIN`] at
//! that rate, plus one piece. Called by all code that sends at a rate. A sleep that ends late is made up for
//! by the burst that follows, so that no wait needs to spin.

use crate::control::Control;
use crate::error::Error;
use std::time::{Duration, Instant};

/// Greatest lost time that later sends may make up for. A sleep ends tens of microseconds late, seldom a
/// millisecond.
const BURST: Duration = Duration::from_millis(1);
/// Shortest sleep. A shorter wait is skipped, since the sleep would cost as much.
const SLEEP_MIN: Duration = Duration::from_micros(60);
/// Largest piece of [`RateLimiter::take`], as the time that it takes at the rate.
const PIECE: Duration = Duration::from_millis(10);
/// Largest send of one call ([`RateLimiter::pieces`]), as the time that it takes at the rate, so that a slow
/// flow has no bursts.
const QUANTUM: Duration = Duration::from_micros(500);

/// A rate in bytes a second, and the time up to which it has been used.
#[derive(Clone, Debug)]
pub(crate) struct RateLimiter {
    bytes_per_s: Option<f64>,
    due: Instant,
}

impl RateLimiter {
    /// Creates a limiter; `None` means no limit.
    pub(crate) fn new(bytes_per_s: Option<u64>) -> RateLimiter {
        RateLimiter { bytes_per_s: bytes_per_s.map(|rate| rate.max(1) as f64), due: Instant::now() }
    }

    pub(crate) fn bytes_per_s(&self) -> Option<u64> {
        self.bytes_per_s.map(|rate| rate as u64)
    }

    /// Changes the rate to `bytes_per_s`.
    pub(crate) fn set(&mut self, bytes_per_s: u64) {
        self.bytes_per_s = Some(bytes_per_s.max(1) as f64);
    }

    /// Returns how many pieces of `piece` bytes one call may send, 1 to `most`.
    pub(crate) fn pieces(&self, piece: usize, most: usize) -> usize {
        match self.bytes_per_s {
            None => most,
            Some(rate) => {
                ((rate * QUANTUM.as_secs_f64() / piece.max(1) as f64) as usize).clamp(1, most.max(1))
            }
        }
    }

    /// Waits until the next piece of at most `most` bytes may be sent, and returns its size in bytes.
    ///
    /// # Errors
    /// Same as [`RateLimiter::wait`].
    pub(crate) fn take(&mut self, most: u64, control: &Control) -> Result<u64, Error> {
        let piece = self.bytes_per_s.map_or(most, |rate| (rate * PIECE.as_secs_f64()) as u64).max(1);
        let bytes = most.min(piece);
        self.wait(bytes, control)?;
        Ok(bytes)
    }

    /// Waits until `bytes` bytes may be sent, and counts them as sent.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the flow is cancelled, [`Error::Io`] if poll(2) fails.
    pub(crate) fn wait(&mut self, bytes: u64, control: &Control) -> Result<(), Error> {
        let Some(rate) = self.bytes_per_s else { return Ok(()) };
        let mut now = Instant::now();
        if self.due > now + SLEEP_MIN {
            control.sleep_until(self.due)?;
            now = Instant::now();
        }
        // Unused time beyond one burst is lost.
        self.due = self.due.max(now.checked_sub(BURST).unwrap_or(now));
        self.due += Duration::from_secs_f64((bytes as f64 / rate).min(WAIT_S_MAX));
        Ok(())
    }
}

/// Greatest time that one piece counts for, in seconds (a day), so that the sum stays in the range of the
/// clock at any rate.
const WAIT_S_MAX: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept() {
        let control = Control::new().unwrap();
        for rate in [1_000_000u64, 100_000_000, 2_000_000_000] {
            let mut pace = RateLimiter::new(Some(rate));
            let (begin, piece) = (Instant::now(), 10_000);
            let pieces = rate / 10 / piece;
            for _ in 0..pieces {
                pace.wait(piece, &control).unwrap();
            }
            let took = begin.elapsed().as_secs_f64();
            // The rate is never exceeded by more than a burst and the last piece; a busy machine may be
            // slower.
            assert!(took > 0.1 - 0.002 - piece as f64 / rate as f64, "{rate}: {took}");
            assert!(took < 1.0, "{rate}: {took}");
        }
    }

    #[test]
    fn a_rest_does_not_make_a_burst() {
        let control = Control::new().unwrap();
        let mut pace = RateLimiter::new(Some(1_000_000));
        std::thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        for _ in 0..20 {
            pace.wait(1000, &control).unwrap();
        }
        assert!(begin.elapsed() >= Duration::from_millis(17), "{:?}", begin.elapsed());
    }

    #[test]
    fn without_a_rate_nobody_waits_and_a_wait_can_be_cancelled() {
        let control = Control::new().unwrap();
        RateLimiter::new(None).wait(u64::MAX, &control).unwrap();
        let mut pace = RateLimiter::new(Some(1));
        pace.wait(1000, &control).unwrap();
        control.cancel();
        assert!(matches!(pace.wait(1, &control), Err(Error::Cancelled)));
    }

    #[test]
    fn slow_flows_go_in_small_pieces() {
        assert_eq!(RateLimiter::new(None).pieces(1400, 46), 46);
        assert_eq!(RateLimiter::new(Some(1_000_000)).pieces(1400, 46), 1);
        assert_eq!(RateLimiter::new(Some(28_000_000)).pieces(1400, 46), 10);
        assert_eq!(RateLimiter::new(Some(u64::MAX)).pieces(1400, 46), 46);
    }
}
