//! Means with their confidence, and distributions.
//!
//! Consecutive response times depend on one another, so their variance says little about their mean. They are cut into
//! batches, so long that the means of two of them hardly depend on one another any more, and the confidence comes from
//! those (Law, *Simulation Modeling and Analysis*, Section 9.5.3).

use serde::Serialize;

/// Batches of a sample.
const BATCHES: usize = 20;
/// Student's t for 95 % and 19 degrees of freedom.
const T: f64 = 2.093;

/// A mean, and how far from it the true one is, with 95 % confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// The mean of what was seen.
    pub mean: f64,
    /// The true one is at most so far away.
    pub half_width: f64,
}

impl Interval {
    /// Whether the interval has `value` in it.
    pub fn holds(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }
}

/// Values one after the other, of which the means of equal batches are kept.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Sums of full batches, of `size` values each.
    sums: Vec<f64>,
    size: u64,
    sum: f64,
    here: u64,
    count: u64,
    distribution: Distribution,
}

impl Sample {
    /// One more.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.here += 1;
        self.distribution.add(value);
        if self.here >= self.size.max(1) {
            self.sums.push(self.sum);
            (self.sum, self.here) = (0.0, 0);
            // Twice as many as needed: each two become one.
            if self.sums.len() >= 2 * BATCHES {
                self.sums = self.sums.chunks(2).map(|two| two.iter().sum()).collect();
                self.size = self.size.max(1) * 2;
            }
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; infinitely wide as long as there are not enough.
    pub fn mean_interval(&self) -> Interval {
        // The last ones, in equal groups.
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

    /// How they are distributed.
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }
}

/// 2 to this many steps of a doubling, equally wide: a value is known to 1.6 %.
const STEPS_LOG2: u32 = 6;
/// Bits of a float's fraction that a step does not look at.
const BELOW_STEP: u32 = f64::MANTISSA_DIGITS - 1 - STEPS_LOG2;
/// The step, counted from 0.0, of 2^-50; what is less is in it too.
const LEAST: u64 = (1023 - 50) << STEPS_LOG2;

/// How values are distributed: counts of steps that grow with the value.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    counts: Vec<u64>,
    all: u64,
}

impl Distribution {
    fn add(&mut self, value: f64) {
        // Exponent and the first of the fraction, as they lie in a float (IEEE 754, Section 3.4), grow with it.
        let step = (value.max(0.0).to_bits() >> BELOW_STEP).saturating_sub(LEAST) as usize;
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.all += 1;
    }

    /// The value that the share `below` of all is at most, to 1.6 %; 0 if there are none.
    pub fn quantile(&self, below: f64) -> f64 {
        let wanted = (below * self.all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                // The middle of the step.
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
