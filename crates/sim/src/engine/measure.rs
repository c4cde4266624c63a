//! Means with confidence intervals, and distributions.
//!
//! Consecutive response times are correlated, so their variance says little about the error of their mean.
//! The module therefore divides them into batches that are long enough for nearly uncorrelated means, and
//! computes the confidence interval from the means of the batches (Law, *Simulation Modeling and Analysis*,
//! Section 9.5.3).

use serde::Serialize;

/// Number of batches of a sample.
const BATCHES: usize = 20;
/// Student's t for 95 % confidence and 19 degrees of freedom.
const T: f64 = 2.093;

/// Mean with its confidence interval of 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// Mean of the sample.
    pub mean: f64,
    /// Half of the interval's width: the greatest distance of the true mean, with 95 % confidence.
    pub half_width: f64,
}

impl Interval {
    /// Returns true if the interval contains `value`.
    pub fn holds(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }
}

/// Sequence of values, stored as the sums of equal batches and as a distribution.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Sums of the full batches, of `size` values each.
    sums: Vec<f64>,
    size: u64,
    sum: f64,
    in_batch: u64,
    count: u64,
    distribution: Distribution,
}

impl Sample {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.in_batch += 1;
        self.distribution.add(value);
        if self.in_batch >= self.size.max(1) {
            self.sums.push(self.sum);
            (self.sum, self.in_batch) = (0.0, 0);
            // With twice the needed number of batches, pairs of batches are merged.
            if self.sums.len() >= 2 * BATCHES {
                self.sums = self.sums.chunks(2).map(|two| two.iter().sum()).collect();
                self.size = self.size.max(1) * 2;
            }
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean with its confidence interval, which is infinite while fewer than 20 batches are full.
    pub fn mean_interval(&self) -> Interval {
        // Uses the last batches, in 20 equal groups.
        let per = self.sums.len() / BATCHES;
        if per == 0 {
            let all = self.sums.iter().sum::<f64>() + self.sum;
            return Interval { mean: all / self.count.max(1) as f64, half_width: f64::INFINITY };
        }
        let used = &self.sums[self.sums.len() - per * BATCHES..];
        let size = (self.size.max(1) * per as u64) as f64;
        let means: Vec<f64> = used.chunks(per).map(|batch| batch.iter().sum::<f64>() / size).collect();
        let mean = means.iter().sum::<f64>() / BATCHES as f64;
        let variance = means.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (BATCHES - 1) as f64;
        Interval { mean, half_width: T * (variance / BATCHES as f64).sqrt() }
    }

    /// Returns the distribution of the values.
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }
}

/// Logarithm (base 2) of the number of equally wide steps per doubling of the value. 64 steps give an error
/// of at most 1.6 %.
const STEPS_LOG2: u32 = 6;
/// Number of low bits of a float's fraction that do not affect the step.
const BELOW_STEP: u32 = f64::MANTISSA_DIGITS - 1 - STEPS_LOG2;
/// Number of the step of 2^-50, counted from 0.0. Smaller values are counted in this step too.
const LEAST: u64 = (1023 - 50) << STEPS_LOG2;

/// Distribution of values, as a histogram with steps whose width grows with the value.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    counts: Vec<u64>,
    all: u64,
}

impl Distribution {
    fn add(&mut self, value: f64) {
        // The bits of a positive float, exponent before fraction, increase with its value (IEEE 754, Section
        // 3.4), so their upper part numbers the steps.
        let step = (value.max(0.0).to_bits() >> BELOW_STEP).saturating_sub(LEAST) as usize;
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.all += 1;
    }

    /// Returns the quantile `below` (0 to 1) of the values, with an error of at most 1.6 %, or 0 if there are
    /// no values.
    pub fn quantile(&self, below: f64) -> f64 {
        let wanted = (below * self.all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                // The result is the middle of the step.
                return f64::from_bits(((step as u64 + LEAST) << BELOW_STEP) + (1 << (BELOW_STEP - 1)));
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn nineteen_of_twenty_intervals_hold_the_mean() {
        let mut held = 0;
        for seed in 0..400 {
            let (mut random, mut sample) = (Random::new(seed), Sample::default());
            (0..3000).for_each(|_| sample.add(random.exponential()));
            held += u32::from(sample.mean_interval().holds(1.0));
        }
        assert!((365..=395).contains(&held), "{held} of 400");
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut sample = Sample::default();
        (1..=10_000).for_each(|value| sample.add(f64::from(value) * 1e-6));
        for (share, wanted) in [(0.5, 5e-3), (0.99, 9.9e-3), (0.0, 1e-6), (1.0, 1e-2)] {
            let found = sample.distribution().quantile(share);
            assert!((found / wanted - 1.0).abs() < 0.016, "{share}: {found}");
        }
        assert_eq!(Sample::default().distribution().quantile(0.5), 0.0);
        assert_eq!(Sample::default().mean_interval().half_width, f64::INFINITY);
    }
}
