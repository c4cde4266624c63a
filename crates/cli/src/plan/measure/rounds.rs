//! How much is measured, and what comes of it: the median of several rounds, with the quartiles.

use bywash_bench::statistics::Summary;
use std::io;
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Rounds of each measurement, after one that does not count.
    pub rounds: usize,
    /// How long a round of a small thing lasts.
    pub slice: Duration,
    /// How long a round lasts of what needs to get going: transfers, requests, queues.
    pub stretch: Duration,
    /// Bytes of the file that is read and written.
    pub file: usize,
    /// Bytes that are copied where memory is to be measured and not a cache.
    pub memory: usize,
}

impl Effort {
    /// Under 20 seconds.
    pub const FULL: Effort = Effort {
        rounds: 7,
        slice: Duration::from_millis(20),
        stretch: Duration::from_millis(150),
        file: 256 * super::MIB,
        memory: 256 * super::MIB,
    };
    /// Under 5 seconds.
    pub const QUICK: Effort = Effort {
        rounds: 3,
        slice: Duration::from_millis(5),
        stretch: Duration::from_millis(30),
        file: 64 * super::MIB,
        memory: 128 * super::MIB,
    };

    /// The one that was asked for.
    pub fn of(is_quick: bool) -> Effort {
        if is_quick { Effort::QUICK } else { Effort::FULL }
    }

    /// What `round` answers in as many rounds as there are to be; the first one only warms up.
    ///
    /// # Errors
    /// The first error of a round.
    pub fn rounds(&self, mut round: impl FnMut() -> io::Result<f64>) -> io::Result<Summary> {
        round()?;
        let values = (0..self.rounds).map(|_| round()).collect::<io::Result<Vec<f64>>>()?;
        summary(&values)
    }

    /// Seconds that one call of `once` takes: in each round the batch in the middle, as another program that is let in
    /// lengthens only some.
    ///
    /// # Errors
    /// The first error of a call.
    pub fn each(&self, batch: usize, mut once: impl FnMut() -> io::Result<()>) -> io::Result<Summary> {
        self.rounds(|| {
            let (start, mut batches) = (Instant::now(), Vec::new());
            while batches.is_empty() || start.elapsed() < self.slice {
                let begin = Instant::now();
                for _ in 0..batch {
                    once()?;
                }
                batches.push(begin.elapsed().as_secs_f64() / batch as f64);
            }
            Ok(summary(&batches)?.median)
        })
    }
}

/// Median and quartiles of values that were measured.
///
/// # Errors
/// That there are none.
pub fn summary(values: &[f64]) -> io::Result<Summary> {
    Summary::of(values).ok_or_else(|| io::Error::other("there was time for nothing"))
}

/// The same in another unit, or less something that is known; where that turns it round, so do the quartiles.
pub fn mapped(summary: Summary, map: impl Fn(f64) -> f64) -> Summary {
    let (one, other) = (map(summary.low), map(summary.high));
    Summary { median: map(summary.median), low: one.min(other), high: one.max(other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_does_not_count_and_an_error_ends_it() {
        let mut round = 0.0;
        let counted = Effort::QUICK
            .rounds(|| {
                round += 1.0;
                Ok(round)
            })
            .unwrap();
        assert_eq!((counted.low, counted.median, counted.high), (2.5, 3.0, 3.5));
        assert!(Effort::QUICK.rounds(|| Err(io::Error::other("no"))).is_err());
    }

    #[test]
    fn a_call_takes_what_it_takes() {
        let nap = Duration::from_millis(1);
        let each = Effort::QUICK.each(1, || {
            std::thread::sleep(nap);
            Ok(())
        });
        let seconds = each.unwrap().median;
        assert!(seconds >= nap.as_secs_f64(), "{seconds}");
    }

    #[test]
    fn quartiles_stay_in_order() {
        let inverse = mapped(Summary { low: 1.0, median: 2.0, high: 4.0 }, |value| 4.0 / value);
        assert_eq!((inverse.low, inverse.median, inverse.high), (1.0, 2.0, 4.0));
    }
}
