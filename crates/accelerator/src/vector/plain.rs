//! Vectors as arrays: the compiler makes instructions of them that all processors of the architecture have.

use super::{Computation, Vector};

/// Numbers of a vector: 128 bits, as most architectures have.
const LANES: usize = 4;

type Plain = [f32; LANES];

/// Runs a computation.
pub(super) fn run(computation: impl Computation) {
    computation.compute::<LANES, Plain>();
}

impl Vector<LANES> for Plain {
    #[inline(always)]
    fn splat(number: f32) -> Plain {
        [number; LANES]
    }

    #[inline(always)]
    fn load(numbers: &[f32; LANES]) -> Plain {
        *numbers
    }

    #[inline(always)]
    fn load_part(numbers: &[f32]) -> Plain {
        let mut all = [0.0; LANES];
        all[..numbers.len()].copy_from_slice(numbers);
        all
    }

    #[inline(always)]
    fn store(self, numbers: &mut [f32; LANES]) {
        *numbers = self;
    }

    #[inline(always)]
    fn times(self, factor: Plain) -> Plain {
        std::array::from_fn(|lane| self[lane] * factor[lane])
    }

    #[inline(always)]
    fn mul_add(self, factor: Plain, sum: Plain) -> Plain {
        std::array::from_fn(|lane| self[lane] * factor[lane] + sum[lane])
    }

    #[inline(always)]
    fn times_complex(self, factor: Plain) -> Plain {
        let ([a, b, c, d], [e, f, g, h]) = (self, factor);
        [a * e - b * f, a * f + b * e, c * g - d * h, c * h + d * g]
    }

    #[inline(always)]
    fn sum_complex(self) -> [f32; 2] {
        [self[0] + self[2], self[1] + self[3]]
    }
}
