//! Sends no faster than a rate: a bucket of tokens, kept as the time at which it will be full.
//!
//! ```text
//!     ----+----------+-------------------> time
//!         now        due          `due` moves by bytes / rate with everything that is sent;
//!                                 who sends waits until it is less than a burst ahead
//! ```
//!
//! Invariant: over any stretch of time, no more is let through than rate x time and one burst. Called by whatever sends
//! at a rate. A wait that is shorter than the system's clockwork can sleep is made up for by the burst, so that it needs
//! no spinning.

use crate::control::Control;
use crate::error::Error;
use std::time::{Duration, Instant};

/// How much may be made up for at once: a sleep is late by tens of microseconds, seldom by a millisecond.
const BURST: Duration = Duration::from_millis(1);
/// Shorter than this nobody sleeps: a sleep costs as much.
const SLEEP_MIN: Duration = Duration::from_micros(60);
/// At most so much of a second's bytes are moved in one go where calls are large.
const PIECE: Duration = Duration::from_millis(10);
/// At most so much of a second's bytes are sent by one call, so that a slow flow does not come in bursts.
const QUANTUM: Duration = Duration::from_micros(500);

/// A rate, and how much of it was used.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    bytes_per_s: Option<f64>,
    due: Instant,
}

impl Pace {
    /// `None`: as fast as it goes.
    pub(crate) fn new(bytes_per_s: Option<u64>) -> Pace {
        Pace { bytes_per_s: bytes_per_s.map(|rate| rate.max(1) as f64), due: Instant::now() }
    }

    pub(crate) fn bytes_per_s(&self) -> Option<u64> {
        self.bytes_per_s.map(|rate| rate as u64)
    }

    /// From now on at this rate.
    pub(crate) fn set(&mut self, bytes_per_s: u64) {
        self.bytes_per_s = Some(bytes_per_s.max(1) as f64);
    }

    /// How many pieces of `piece` bytes may go at once, at most `most`.
    pub(crate) fn pieces(&self, piece: usize, most: usize) -> usize {
        match self.bytes_per_s {
            None => most,
            Some(rate) => {
                ((rate * QUANTUM.as_secs_f64() / piece.max(1) as f64) as usize).clamp(1, most.max(1))
            }
        }
    }

    /// Waits until it is time for the next piece of at most `most` bytes; answers how large it may be.
    ///
    /// # Errors
    /// That the flow was cancelled.
    pub(crate) fn take(&mut self, most: u64, control: &Control) -> Result<u64, Error> {
        let piece = self.bytes_per_s.map_or(most, |rate| (rate * PIECE.as_secs_f64()) as u64).max(1);
        let bytes = most.min(piece);
        self.wait(bytes, control)?;
        Ok(bytes)
    }

    /// Waits until `bytes` may go, and counts them as gone.
    ///
    /// # Errors
    /// That the flow was cancelled.
    pub(crate) fn wait(&mut self, bytes: u64, control: &Control) -> Result<(), Error> {
        let Some(rate) = self.bytes_per_s else { return Ok(()) };
        let mut now = Instant::now();
        if self.due > now + SLEEP_MIN {
            control.sleep_until(self.due)?;
            now = Instant::now();
        }
        // What was not used for longer than a burst is gone.
        self.due = self.due.max(now.checked_sub(BURST).unwrap_or(now));
        self.due += Duration::from_secs_f64((bytes as f64 / rate).min(WAIT_S_MAX));
        Ok(())
    }
}

/// Longest wait for one piece: a day, so that no rate is too low for the arithmetic.
const WAIT_S_MAX: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept() {
        let control = Control::new().unwrap();
        for rate in [1_000_000u64, 100_000_000, 2_000_000_000] {
            let mut pace = Pace::new(Some(rate));
            let (begin, piece) = (Instant::now(), 10_000);
            let pieces = rate / 10 / piece;
            for _ in 0..pieces {
                pace.wait(piece, &control).unwrap();
            }
            let took = begin.elapsed().as_secs_f64();
            // Never faster, but for a burst and the last piece; slower if the machine is busy.
            assert!(took > 0.1 - 0.002 - piece as f64 / rate as f64, "{rate}: {took}");
            assert!(took < 1.0, "{rate}: {took}");
        }
    }

    #[test]
    fn a_rest_does_not_make_a_burst() {
        let control = Control::new().unwrap();
        let mut pace = Pace::new(Some(1_000_000));
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
        Pace::new(None).wait(u64::MAX, &control).unwrap();
        let mut pace = Pace::new(Some(1));
        pace.wait(1000, &control).unwrap();
        control.cancel();
        assert!(matches!(pace.wait(1, &control), Err(Error::Cancelled)));
    }

    #[test]
    fn slow_flows_go_in_small_pieces() {
        assert_eq!(Pace::new(None).pieces(1400, 46), 46);
        assert_eq!(Pace::new(Some(1_000_000)).pieces(1400, 46), 1);
        assert_eq!(Pace::new(Some(28_000_000)).pieces(1400, 46), 10);
        assert_eq!(Pace::new(Some(u64::MAX)).pieces(1400, 46), 46);
    }
}
