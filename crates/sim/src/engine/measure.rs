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
/// Student's t above which the slope of the batches' means counts as a rise.
const T_RISING: f64 = 4.0;

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

/// Sequence of values, stored as the sums of equal batches; on request, as the distribution of each batch too.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Distributions of the full batches, and of the batch that is being filled, if they are kept.
    distributions: Option<(Vec<Distribution>, Distribution)>,
    /// Sums of the full batches, of `size` values each.
    sums: Vec<f64>,
    size: u64,
    sum: f64,
    in_batch: u64,
    count: u64,
}

impl Sample {
    /// Returns an empty sample that keeps the distribution of each batch, for quantiles and their confidence.
    pub fn with_distribution() -> Sample {
        Sample { distributions: Some(Default::default()), ..Sample::default() }
    }

    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.in_batch += 1;
        if let Some((_, filling)) = &mut self.distributions {
            filling.add(value);
        }
        if self.in_batch >= self.size.max(1) {
            self.end_batch();
        }
    }

    fn end_batch(&mut self) {
        self.sums.push(self.sum);
        (self.sum, self.in_batch) = (0.0, 0);
        if let Some((full, filling)) = &mut self.distributions {
            full.push(std::mem::take(filling));
        }
        // With twice the needed number of batches, pairs of batches are merged.
        if self.sums.len() >= 2 * BATCHES {
            self.sums = self.sums.chunks(2).map(|two| two.iter().sum()).collect();
            self.size = self.size.max(1) * 2;
            if let Some((full, _)) = &mut self.distributions {
                *full = full.chunks(2).map(Distribution::sum).collect();
            }
        }
    }

    /// Returns the means of 20 equal batches in order, the last of them at the end of the sample, or `None` while
    /// fewer are full.
    fn batch_means(&self) -> Option<Vec<f64>> {
        let per = self.sums.len() / BATCHES;
        let used = &self.sums[self.sums.len() - per * BATCHES..];
        let size = (self.size.max(1) * per as u64) as f64;
        (per > 0).then(|| used.chunks(per).map(|batch| batch.iter().sum::<f64>() / size).collect())
    }

    /// Returns true if the values rise towards the end of the sample by more than chance explains: if a line
    /// through the means of the batches rises with t > 4 (once in 2,000 samples that do not rise).
    pub fn rises(&self) -> bool {
        let Some(means) = self.batch_means() else { return false };
        let middle = (BATCHES - 1) as f64 / 2.0;
        let mean = means.iter().sum::<f64>() / BATCHES as f64;
        let from_middle = |at: usize| at as f64 - middle;
        let spread: f64 = (0..BATCHES).map(|at| from_middle(at).powi(2)).sum();
        let slope =
            means.iter().enumerate().map(|(at, one)| from_middle(at) * (one - mean)).sum::<f64>() / spread;
        let off = |(at, one): (usize, &f64)| (one - mean - slope * from_middle(at)).powi(2);
        let left = means.iter().enumerate().map(off).sum::<f64>() / (BATCHES - 2) as f64;
        slope > T_RISING * (left / spread).sqrt()
    }

    /// Returns the 95 % confidence interval of the quantile `below` (0 to 1): its least and its greatest value.
    /// The greatest is infinite where the sample has no values beyond it. Without distributions the interval is
    /// from 0 to infinity.
    ///
    /// The interval follows from the share of each batch's values that are at most the quantile: the variance of
    /// these shares gives the confidence interval of their mean, and the quantiles of its ends are the ends of
    /// the quantile's interval. Unlike quantiles of batches, shares are without bias in short batches. The
    /// interval of the share is symmetric in its log odds, which keeps it between 0 and 1.
    pub fn quantile_bounds(&self, below: f64) -> [f64; 2] {
        let full = self.distributions.as_ref().map_or(&[][..], |(full, _)| full);
        let per = full.len() / BATCHES;
        if per == 0 {
            return [0.0, f64::INFINITY];
        }
        let all = self.distribution();
        let value = all.quantile(below);
        let batches = full[full.len() - per * BATCHES..].chunks(per);
        let shares: Vec<f64> = batches.map(|batch| Distribution::sum(batch).share_up_to(value)).collect();
        let mean = shares.iter().sum::<f64>() / BATCHES as f64;
        let variance = shares.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (BATCHES - 1) as f64;
        let half = T * (variance / BATCHES as f64).sqrt() / (below * (1.0 - below));
        let odds = libm::log(below / (1.0 - below));
        let share = |odds: f64| 1.0 / (1.0 + libm::exp(-odds));
        let (least, greatest) = (share(odds - half), share(odds + half));
        let low = all.quantile(least);
        let is_beyond = (1.0 - greatest) * self.count as f64 >= 1.0;
        let high = if is_beyond { all.quantile(greatest) } else { f64::INFINITY };
        // The steps of the histogram are half a step wide on each side of their middle.
        [low * (1.0 - STEP_ERROR), high * (1.0 + STEP_ERROR)]
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean with its confidence interval, which is infinite while fewer than 20 batches are full.
    pub fn mean_interval(&self) -> Interval {
        let Some(means) = self.batch_means() else {
            let all = self.sums.iter().sum::<f64>() + self.sum;
            return Interval { mean: all / self.count.max(1) as f64, half_width: f64::INFINITY };
        };
        let mean = means.iter().sum::<f64>() / BATCHES as f64;
        let variance = means.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (BATCHES - 1) as f64;
        Interval { mean, half_width: T * (variance / BATCHES as f64).sqrt() }
    }

    /// Returns the distribution of the values; an empty one if the sample keeps none.
    pub fn distribution(&self) -> Distribution {
        self.distributions.as_ref().map_or_else(Distribution::default, |(full, filling)| {
            Distribution::sum(full.iter().chain([filling]))
        })
    }
}

/// Logarithm (base 2) of the number of equally wide steps per doubling of the value. 64 steps give an error
/// of at most 1.6 %.
const STEPS_LOG2: u32 = 6;
/// Greatest relative distance of a value from the middle of its step.
const STEP_ERROR: f64 = 0.5 / (1 << STEPS_LOG2) as f64;
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
    /// Returns the distribution of all values of `parts`.
    fn sum<'a>(parts: impl IntoIterator<Item = &'a Distribution>) -> Distribution {
        let mut sum = Distribution::default();
        for part in parts {
            if part.counts.len() > sum.counts.len() {
                sum.counts.resize(part.counts.len(), 0);
            }
            sum.counts.iter_mut().zip(&part.counts).for_each(|(sum, count)| *sum += count);
            sum.all += part.all;
        }
        sum
    }

    /// Returns the share of the values that are in the step of `value` or below.
    fn share_up_to(&self, value: f64) -> f64 {
        let last = self.counts.len().min(step(value) + 1);
        self.counts[..last].iter().sum::<u64>() as f64 / self.all.max(1) as f64
    }

    fn add(&mut self, value: f64) {
        let step = step(value);
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

/// Returns the number of the histogram's step that `value` is in.
fn step(value: f64) -> usize {
    // The bits of a positive float, exponent before fraction, increase with its value (IEEE 754, Section 3.4),
    // so their upper part numbers the steps.
    (value.max(0.0).to_bits() >> BELOW_STEP).saturating_sub(LEAST) as usize
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
    fn nineteen_of_twenty_intervals_hold_the_quantile() {
        for share in [0.5, 0.9, 0.99] {
            let (mut held, mut wide) = (0, 0.0f64);
            for seed in 0..400 {
                let (mut random, mut sample) = (Random::new(seed), Sample::with_distribution());
                (0..20_000).for_each(|_| sample.add(random.exponential()));
                let [low, high] = sample.quantile_bounds(share);
                let wanted = -f64::ln_1p(-share);
                held += u32::from((low..=high).contains(&wanted));
                wide = wide.max((high - low) / wanted);
            }
            // The steps of the histogram widen the intervals, so they hold it more often.
            assert!((370..=400).contains(&held) && wide < 0.25, "{share}: {held} of 400, {wide}");
        }
        let mut short = Sample::with_distribution();
        (0..400).for_each(|value| short.add(f64::from(value)));
        assert_eq!(short.quantile_bounds(0.999)[1], f64::INFINITY);
        assert_eq!(Sample::default().quantile_bounds(0.5), [0.0, f64::INFINITY]);
    }

    #[test]
    fn a_rise_is_seen_and_noise_is_none() {
        let rising = |slope: f64| {
            let seen = (0..400).filter(|seed| {
                let (mut random, mut sample) = (Random::new(*seed), Sample::default());
                (0..3000).for_each(|at| sample.add(random.exponential() + slope * f64::from(at)));
                sample.rises()
            });
            seen.count()
        };
        assert!(rising(0.0) <= 2 && rising(1e-3) == 400, "{} {}", rising(0.0), rising(1e-3));
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut sample = Sample::with_distribution();
        (1..=10_000).for_each(|value| sample.add(f64::from(value) * 1e-6));
        for (share, wanted) in [(0.5, 5e-3), (0.99, 9.9e-3), (0.0, 1e-6), (1.0, 1e-2)] {
            let found = sample.distribution().quantile(share);
            assert!((found / wanted - 1.0).abs() < 0.016, "{share}: {found}");
        }
        assert_eq!(Sample::default().distribution().quantile(0.5), 0.0);
        assert_eq!(Sample::default().mean_interval().half_width, f64::INFINITY);
    }
}
