//! Random numbers of a simulation, which depend on its seed only.

/// Generator of random numbers (SplitMix64, by Sebastiano Vigna, 2015).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Makes a generator from a seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns an integer below `end`, which is not 0. The probabilities differ by at most one part in 2^64 / `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number above 0 and at most 1, with 53 random bits. Its logarithm is finite.
    pub fn unit_interval(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number of the exponential distribution with mean 1. The logarithm is one that is the same on every
    /// host.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit_interval())
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.word().to_le_bytes()[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.word(), 6_457_827_717_110_365_317);
        assert_eq!(random.word(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(3);
        let count = 100_000;
        let sums = (0..count).fold([0.0; 3], |[below, unit, exponential], _| {
            let next = (random.below(7), random.unit_interval(), random.exponential());
            assert!(next.0 < 7 && next.1 > 0.0 && next.1 <= 1.0 && next.2 >= 0.0);
            [below + next.0 as f64, unit + next.1, exponential + next.2]
        });
        for (sum, mean) in sums.into_iter().zip([3.0, 0.5, 1.0]) {
            let found = sum / f64::from(count);
            assert!((found / mean - 1.0).abs() < 0.02, "{found} instead of {mean}");
        }
    }
}
