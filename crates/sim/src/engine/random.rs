//! Numbers that follow from a seed: ChaCha with eight rounds, which passes every test there is and whose streams do not
//! overlap.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// One stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// More than 0 and at most 1: 53 bits, of which the logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `end`, each as likely as any other but for one part in 2^64 / `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// With mean 1 and without memory.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// With mean 0 and variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = ((2.0 * self.exponential()).sqrt(), std::f64::consts::TAU * self.unit());
        radius * angle.cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_distributions() {
        const COUNT: usize = 200_000;
        let mut random = Random::new(1);
        let moments = |mut draw: Box<dyn FnMut() -> f64 + '_>| {
            let all: Vec<f64> = (0..COUNT).map(|_| draw()).collect();
            let mean = all.iter().sum::<f64>() / COUNT as f64;
            (mean, all.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / COUNT as f64)
        };
        let near = |(mean, variance): (f64, f64), wanted: (f64, f64)| {
            assert!(
                (mean - wanted.0).abs() < 0.01 && (variance - wanted.1).abs() < 0.03,
                "{mean} {variance}"
            );
        };
        near(moments(Box::new(|| random.unit())), (0.5, 1.0 / 12.0));
        near(moments(Box::new(|| random.exponential())), (1.0, 1.0));
        near(moments(Box::new(|| random.normal())), (0.0, 1.0));
        near(moments(Box::new(|| random.below(3) as f64)), (1.0, 2.0 / 3.0));
    }

    #[test]
    fn a_seed_is_a_stream() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [(); 4].map(|()| random.below(u64::MAX))
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }
}
