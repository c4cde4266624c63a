//! Latencies: counts by time, with 128 steps to each power of two, so that a quantile is exact within 1 %.

use serde::{Deserialize, Serialize};

/// Number of leading bits of a time that are kept.
const BITS: u32 = 7;
const STEPS: usize = 1 << BITS;
/// Number of buckets: for times of up to 2^40 ns, which is 18 minutes; longer ones count as that.
const BUCKETS: usize = (40 - BITS as usize + 1) * STEPS;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, u64)>", into = "Vec<(usize, u64)>")]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts a time.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the time that a fraction of all times did not exceed, as the middle of its step; none if there are no times.
    pub fn quantile(&self, fraction: f64) -> Option<f64> {
        let wanted = (self.count() as f64 * fraction).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        let (from, to) = (begin(found), begin(found + 1));
        Some((from + to - 1) as f64 / 2.0)
    }
}

/// Returns the bucket of a time: below 2·128 each is one ns; beyond, there are 128 to each power of two.
#[inline]
fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    ((shift as usize) * STEPS + (ns >> shift) as usize).min(BUCKETS - 1)
}

/// Returns the least time of a bucket.
fn begin(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    ((bucket - shift * STEPS) as u64) << shift
}

impl From<Histogram> for Vec<(usize, u64)> {
    fn from(histogram: Histogram) -> Vec<(usize, u64)> {
        histogram.counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
    }
}

impl From<Vec<(usize, u64)>> for Histogram {
    fn from(counts: Vec<(usize, u64)>) -> Histogram {
        let mut histogram = Histogram::default();
        for (bucket, count) in counts {
            histogram.counts[bucket.min(BUCKETS - 1)] += count;
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_begins_before_it() {
        let mut ns = 0u64;
        while ns < 1 << 40 {
            let bucket = bucket(ns);
            assert!(begin(bucket) <= ns && ns < begin(bucket + 1), "{ns} in {bucket}");
            assert!(begin(bucket + 1) - begin(bucket) <= (ns / 100).max(1), "{ns}");
            ns += ns / 31 + 1;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=100).for_each(|ns| histogram.add(ns));
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.99)), (Some(50.0), Some(99.0)));
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        twice.add(1_000_000);
        assert_eq!((twice.count(), twice.quantile(0.5)), (201, Some(51.0)));
        let last = twice.quantile(1.0).unwrap();
        assert!((last - 1e6).abs() < 1e4, "{last}");
    }

    #[test]
    fn what_is_written_down_is_what_is_read() {
        let mut histogram = Histogram::default();
        [0, 5, 5, 12_345, u64::MAX].into_iter().for_each(|ns| histogram.add(ns));
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
    }
}
