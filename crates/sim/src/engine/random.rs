//! Random numbers that a seed determines: ChaCha with eight rounds, which passes the known statistical tests
//! and whose streams do not overlap.
//!
//! Exponential numbers are drawn with a ziggurat (Marsaglia and Tsang, *The Ziggurat Method for Generating
//! Random Variables*, 2000): 256 layers of equal area cover the density, and 99 of 100 draws cost one choice
//! of a layer and one product.
//!
//! ```text
//!     f(x) = exp(-x)                    256 = the top, x = 0
//!     |####                             a layer reaches to `edges[layer]`; up to `edges[layer + 1]`
//!     |#######__                        it is under the curve for certain
//!     |##########____
//!     |##############_________          0 = the base, of which what lies beyond `edges[1]` is the tail
//! ```
//!
//! Logarithms and other functions are those of `libm`: the system's own differ between machines in the last
//! bit, and a run must be the same everywhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::LazyLock;

const LAYERS: usize = 256;
/// Value at which the tail begins, for 256 layers.
const TAIL: f64 = 7.697_117_470_131_05;

/// Tables of the ziggurat's layers.
#[derive(Debug)]
struct Layers {
    edges: [f64; LAYERS + 1],
    /// Density exp(-edge) at each edge. The base is an exception: `heights[0]` is the density at the start of
    /// the tail.
    heights: [f64; LAYERS + 1],
}

static EXPONENTIAL: LazyLock<Layers> = LazyLock::new(|| {
    let (mut edges, mut heights) = ([0.0; LAYERS + 1], [1.0; LAYERS + 1]);
    // The base is a rectangle plus the tail; together they have the area of any other layer.
    let height = libm::exp(-TAIL);
    let area = (TAIL + 1.0) * height;
    (edges[0], heights[0]) = (area / height, height);
    (edges[1], heights[1]) = (TAIL, height);
    for layer in 2..LAYERS {
        heights[layer] = area / edges[layer - 1] + heights[layer - 1];
        edges[layer] = -libm::log(heights[layer]);
    }
    Layers { edges, heights }
});

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    bits: ChaCha8Rng,
    layers: &'static Layers,
}

impl Random {
    /// Returns the stream that belongs to `seed`.
    pub fn new(seed: u64) -> Random {
        Random { bits: ChaCha8Rng::seed_from_u64(seed), layers: &EXPONENTIAL }
    }

    /// Draws a number above 0 and at most 1, with 53 random bits. Its logarithm is finite.
    #[inline]
    pub fn unit_interval(&mut self) -> f64 {
        above_nothing(self.bits.next_u64())
    }

    /// Draws an integer below `end`. The probabilities differ by at most one part in 2^64 / `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Draws from the exponential distribution with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        let bits = self.bits.next_u64();
        // The lowest eight bits choose the layer, the highest 53 the position in it.
        let layer = (bits % LAYERS as u64) as usize;
        let value = above_nothing(bits) * self.layers.edges[layer];
        if value < self.layers.edges[layer + 1] { value } else { self.near_the_curve(layer, value) }
    }

    /// Completes a draw whose `value` in `layer` may lie above the density.
    #[cold]
    fn near_the_curve(&mut self, mut layer: usize, mut value: f64) -> f64 {
        let Layers { edges, heights } = self.layers;
        // Each iteration ends the loop with a probability of at least 98 %, independently of earlier
        // iterations.
        loop {
            if layer == 0 {
                // The exponential distribution is memoryless: beyond the start of the tail it has the same
                // shape.
                return TAIL - libm::log(self.unit_interval());
            }
            let height = heights[layer] + (heights[layer + 1] - heights[layer]) * self.unit_interval();
            if height < libm::exp(-value) {
                return value;
            }
            let bits = self.bits.next_u64();
            layer = (bits % LAYERS as u64) as usize;
            value = above_nothing(bits) * edges[layer];
            if value < edges[layer + 1] {
                return value;
            }
        }
    }

    /// Draws from the normal distribution with mean 0 and variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) =
            ((2.0 * self.exponential()).sqrt(), std::f64::consts::TAU * self.unit_interval());
        radius * libm::cos(angle)
    }

    /// Draws from the lognormal distribution whose logarithm has mean 0 and standard deviation `deviation`.
    pub fn log_normal(&mut self, deviation: f64) -> f64 {
        libm::exp(deviation * self.normal())
    }
}

/// Converts the highest 53 bits to a number above 0 and at most 1.
#[inline]
fn above_nothing(bits: u64) -> f64 {
    // The integer is below 2^63, and one instruction converts a signed integer to a float.
    ((bits >> 11) as i64 + 1) as f64 * (1.0 / (1u64 << 53) as f64)
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
        near(moments(Box::new(|| random.unit_interval())), (0.5, 1.0 / 12.0));
        near(moments(Box::new(|| random.exponential())), (1.0, 1.0));
        near(moments(Box::new(|| random.normal())), (0.0, 1.0));
        near(
            moments(Box::new(|| random.log_normal(0.5))),
            (0.125f64.exp(), 0.25f64.exp() * 0.25f64.exp_m1()),
        );
        near(moments(Box::new(|| random.below(3) as f64)), (1.0, 2.0 / 3.0));
    }

    #[test]
    fn exponentials_are_exponential_in_every_layer_and_in_the_tail() {
        // Kolmogorov-Smirnov test: with a million values, one stream in a thousand deviates by more than
        // 1.95e-3.
        const COUNT: usize = 1_000_000;
        let mut random = Random::new(2);
        let mut all: Vec<f64> = (0..COUNT).map(|_| random.exponential()).collect();
        all.sort_by(f64::total_cmp);
        let furthest = all
            .iter()
            .enumerate()
            .map(|(rank, value)| (-(-value).exp_m1() - (rank as f64 + 0.5) / COUNT as f64).abs())
            .fold(0.0, f64::max);
        assert!(furthest < 1.95e-3, "{furthest}");
        // About 454 of a million values (standard deviation 21) lie beyond the start of the tail, and the
        // excess over that start is again exponential with mean 1.
        let tail: Vec<f64> = all.iter().copied().filter(|value| *value > TAIL).collect();
        let mean = tail.iter().sum::<f64>() / tail.len() as f64 - TAIL;
        assert!((360..550).contains(&tail.len()) && (0.8..1.2).contains(&mean), "{} {mean}", tail.len());
        assert!(all[0] > 0.0);
    }

    #[test]
    fn layers_are_equally_large_and_end_at_the_top() {
        let Layers { edges, heights } = &*EXPONENTIAL;
        let area = |layer: usize| edges[layer] * (heights[layer + 1] - heights[layer]);
        for layer in 1..LAYERS {
            assert!((area(layer) / area(1) - 1.0).abs() < 1e-9, "{layer}: {} {}", area(layer), area(1));
        }
        assert_eq!((edges[LAYERS], heights[LAYERS]), (0.0, 1.0));
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
