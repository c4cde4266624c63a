//! Effort of a measurement, and its result: the median of several rounds, with the quartiles.

use bywash_bench::statistics::Summary;
use std::io;
use std::time::{Duration, Instant};

/// Effort of a measurement.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of rounds that count; one more round warms up.
    pub rounds: usize,
    /// Duration of a round of a small operation.
    pub slice: Duration,
    /// Duration of a round of an operation that needs time to get going: transfers, requests, queues.
    pub stretch: Duration,
    /// Size of the file that is read and written, in bytes.
    pub file: usize,
    /// Size of the memory that is copied, in bytes: large enough that no cache holds it.
    pub memory: usize,
}

impl Effort {
    /// Effort for a whole calibration in under 20 seconds.
    pub const FULL: Effort = Effort {
        rounds: 7,
        slice: Duration::from_millis(20),
        stretch: Duration::from_millis(150),
        file: 256 * super::MIB,
        memory: 256 * super::MIB,
    };
    /// Effort for a whole calibration in under 5 seconds.
    pub const QUICK: Effort = Effort {
        rounds: 3,
        slice: Duration::from_millis(5),
        stretch: Duration::from_millis(30),
        file: 64 * super::MIB,
        memory: 128 * super::MIB,
    };

    /// Returns the quick or the full effort.
    pub fn new(is_quick: bool) -> Effort {
        if is_quick { Effort::QUICK } else { Effort::FULL }
    }

    /// Returns the effort of a description that holds for one turn among many: fewer rounds.
    pub fn turn(self) -> Effort {
        Effort { rounds: Effort::QUICK.rounds, ..self }
    }

    /// Calls `round` once to warm up and then as often as rounds count. Returns the summary of the latter
    /// results.
    ///
    /// # Errors
    /// The first error of a round.
    pub fn rounds(&self, mut round: impl FnMut() -> io::Result<f64>) -> io::Result<Summary> {
        let [one] = self.rounds_of(|| Ok([round()?]))?;
        Ok(one)
    }

    /// Same as [`Effort::rounds`], for rounds with several results.
    ///
    /// # Errors
    /// The first error of a round.
    pub fn rounds_of<const N: usize>(
        &self,
        mut round: impl FnMut() -> io::Result<[f64; N]>,
    ) -> io::Result<[Summary; N]> {
        round()?;
        let mut values = [const { Vec::new() }; N];
        for _ in 0..self.rounds {
            values.iter_mut().zip(round()?).for_each(|(all, value)| all.push(value));
        }
        let mut summaries = [Summary { median: 0.0, low: 0.0, high: 0.0 }; N];
        for (one, values) in summaries.iter_mut().zip(&values) {
            *one = summary(values)?;
        }
        Ok(summaries)
    }

    /// Measures the time of one call of `once`, in seconds. Each round takes its median batch, since another
    /// program that interrupts lengthens only some batches.
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

/// Returns median and quartiles of measured values.
///
/// # Errors
/// An error if `values` is empty.
pub fn summary(values: &[f64]) -> io::Result<Summary> {
    Summary::of(values).ok_or_else(|| io::Error::other("there was time for nothing"))
}

/// Applies `map` to median and quartiles, for a change of units or a subtraction. If `map` decreases, the
/// quartiles change places.
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
