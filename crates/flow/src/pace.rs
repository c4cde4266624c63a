//! Keeps a flow to a rate.

use crate::control::Control;
use crate::error::Error;
use std::time::{Duration, Instant};

/// A bucket that fills at a rate; what is moved is taken out of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    bytes_per_second: u64,
    /// When the bucket will be empty.
    paid_until: Instant,
}

/// What the bucket holds, in time: a flow that had to wait may catch up that much.
const DEPTH: Duration = Duration::from_millis(50);
/// A piece that is moved in one go takes no longer than this, so that the flow is even.
const PIECE: Duration = Duration::from_millis(20);

impl Pace {
    pub(crate) fn new(bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second, paid_until: Instant::now() }
    }

    /// Waits until it is time for the next piece of at most `most` bytes; answers how large it may be.
    pub(crate) fn take(&mut self, most: u64, control: &Control) -> Result<u64, Error> {
        let piece = (u128::from(self.bytes_per_second) * PIECE.as_millis() / 1000).max(1) as u64;
        let bytes = most.min(piece);
        let now = Instant::now();
        self.paid_until = self.paid_until.max(now.checked_sub(DEPTH).unwrap_or(now));
        if self.paid_until > now {
            control.sleep_until(self.paid_until)?;
        }
        self.paid_until += Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_and_pieces_are_small() {
        let control = Control::new().unwrap();
        let mut pace = Pace::new(1_000_000);
        let begin = Instant::now();
        let mut taken = 0;
        while taken < 200_000 {
            let bytes = pace.take(1 << 20, &control).unwrap();
            assert!(bytes <= 20_000);
            taken += bytes;
        }
        // 200 ms less what the bucket holds and what the last piece has not been waited for.
        let seconds = begin.elapsed().as_secs_f64();
        assert!((0.12..1.0).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn even_the_slowest_rate_moves() {
        assert_eq!(Pace::new(1).take(100, &Control::new().unwrap()).unwrap(), 1);
    }
}
