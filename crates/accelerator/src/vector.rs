//! Computations that are written once for all vector units of processors.
//!
//! A [`Computation`] is generic over a [`Vector`] of `N` numbers; [`Unit::run`] compiles it for each kind of vector, and runs
//! the one that the processor has. The vectors are made of the processor's own instructions, so the compiler cannot take them
//! apart again: under link-time optimisation it made scalar instructions of loops over arrays, ten times slower.
//!
//! Everything in a computation is inlined into a function that is compiled for the vector unit. So its functions are
//! `inline(always)`, and vectors are handled in loops, not in closures, which may stay functions of their own.
//!
//! - `plain`: arrays, for every processor
//! - `avx2`: x86-64 with AVX2 and FMA
//! - [`convolve`], [`Product`]: what several kernels compute
//!
//! Unsafe code: the call of functions that are compiled for a vector unit, behind the check that the processor has it.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod plain;

/// Vectors that [`convolve`] computes at a time: so a weight is loaded once for all of them, and their sums, each of which
/// takes four cycles, do not wait for each other.
const GROUP: usize = 8;

/// Vector of `N` numbers, an even number. Complex numbers are pairs of them: real part, imaginary part.
pub(crate) trait Vector<const N: usize>: Copy {
    /// Makes a vector of equal numbers.
    fn splat(number: f32) -> Self;

    /// Loads numbers.
    fn load(numbers: &[f32; N]) -> Self;

    /// Loads up to `N` numbers; those that are missing are zeros.
    fn load_part(numbers: &[f32]) -> Self;

    /// Stores the numbers.
    fn store(self, numbers: &mut [f32; N]);

    /// Multiplies number by number.
    fn times(self, factor: Self) -> Self;

    /// Returns `self * factor + sum`, number by number.
    fn mul_add(self, factor: Self, sum: Self) -> Self;

    /// Multiplies complex numbers.
    fn times_complex(self, factor: Self) -> Self;

    /// Returns the sum of the complex numbers.
    fn sum_complex(self) -> [f32; 2];

    /// Makes a vector of equal complex numbers.
    #[inline(always)]
    fn splat_complex(number: [f32; 2]) -> Self {
        let mut all = [0.0; N];
        for (index, part) in all.iter_mut().enumerate() {
            *part = number[index % 2];
        }
        Self::load(&all)
    }

    /// Stores the first numbers, up to `N`.
    #[inline(always)]
    fn store_part(self, numbers: &mut [f32]) {
        let mut all = [0.0; N];
        self.store(&mut all);
        numbers.copy_from_slice(&all[..numbers.len()]);
    }
}

/// Computation that is written for any vector.
pub(crate) trait Computation {
    /// Computes with vectors of `N` numbers. Implementations are `inline(always)`.
    fn compute<const N: usize, V: Vector<N>>(self);
}

/// Vector unit that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Plain,
}

impl Unit {
    /// Lists the vector units of this processor, the fastest first.
    pub(crate) fn all() -> impl Iterator<Item = Unit> {
        [
            #[cfg(target_arch = "x86_64")]
            (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Unit(Kind::Avx2)),
            Some(Unit(Kind::Plain)),
        ]
        .into_iter()
        .flatten()
    }

    /// Returns the fastest vector unit of this processor.
    pub(crate) fn fastest() -> Unit {
        Unit::all().next().unwrap_or(Unit(Kind::Plain))
    }

    /// Runs a computation.
    pub(crate) fn run(self, computation: impl Computation) {
        match self.0 {
            // SAFETY: the processor has this vector unit: `all` lists a unit only where the check found it.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { avx2::run(computation) },
            Kind::Plain => plain::run(computation),
        }
    }
}

/// Filters consecutive complex numbers: each output is the sum of as many inputs, from the one of its own number on, as there are
/// weights, each times its weight.
#[inline(always)]
pub(crate) fn convolve<const N: usize, V: Vector<N>>(weights: &[f32], input: &[f32], output: &mut [f32]) {
    let mut done = 0;
    let mut groups = output.chunks_exact_mut(N * GROUP);
    for group in groups.by_ref() {
        let sums = weighted::<N, V, GROUP>(weights, &input[done..]);
        let vectors = group.as_chunks_mut::<N>().0;
        for index in 0..GROUP {
            sums[index].store(&mut vectors[index]);
        }
        done += N * GROUP;
    }
    let (vectors, part) = groups.into_remainder().as_chunks_mut::<N>();
    for numbers in vectors {
        let [sum] = weighted::<N, V, 1>(weights, &input[done..]);
        sum.store(numbers);
        done += N;
    }
    if !part.is_empty() {
        let mut sum = V::splat(0.0);
        for (weight, window) in weights.iter().zip(input[done..].windows(part.len()).step_by(2)) {
            sum = V::splat(*weight).mul_add(V::load_part(window), sum);
        }
        sum.store_part(part);
    }
}

/// Returns the first vectors of a convolution.
#[inline(always)]
fn weighted<const N: usize, V: Vector<N>, const COUNT: usize>(weights: &[f32], input: &[f32]) -> [V; COUNT] {
    let mut sums = [V::splat(0.0); COUNT];
    let input = &input[..2 * weights.len() + N * COUNT - 2];
    for (tap, weight) in weights.iter().enumerate() {
        let (vectors, weight) = (input[2 * tap..2 * tap + N * COUNT].as_chunks::<N>().0, V::splat(*weight));
        for index in 0..COUNT {
            sums[index] = weight.mul_add(V::load(&vectors[index]), sums[index]);
        }
    }
    sums
}

/// Multiplication of complex numbers by as many others.
pub(crate) struct Product<'a> {
    pub(crate) numbers: &'a mut [f32],
    pub(crate) factors: &'a [f32],
}

impl Computation for Product<'_> {
    #[inline(always)]
    fn compute<const N: usize, V: Vector<N>>(self) {
        let (vectors, part) = self.numbers.as_chunks_mut::<N>();
        let (factors, factors_part) = self.factors.as_chunks::<N>();
        for (numbers, factors) in vectors.iter_mut().zip(factors) {
            V::load(numbers).times_complex(V::load(factors)).store(numbers);
        }
        V::load_part(part).times_complex(V::load_part(factors_part)).store_part(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Convolution<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

    impl Computation for Convolution<'_> {
        #[inline(always)]
        fn compute<const N: usize, V: Vector<N>>(self) {
            convolve::<N, V>(self.0, self.1, self.2);
        }
    }

    fn noise(seed: usize, count: usize) -> Vec<f32> {
        (0..count).map(|number| ((number + seed) * 7919 % 1009) as f32 / 504.5 - 1.0).collect()
    }

    fn is_near(numbers: &[f32], expected: &[f32]) -> bool {
        numbers.len() == expected.len() && numbers.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5)
    }

    #[test]
    fn all_units_convolve() {
        for (taps, samples) in [(1, 0), (1, 1), (8, 3), (8, 4), (8, 31), (3, 32), (5, 107)] {
            let (weights, input) = (noise(1, taps), noise(2, 2 * (samples + taps - 1)));
            let sum = |number: usize| (0..taps).map(|tap| weights[tap] * input[number + 2 * tap]).sum();
            let expected: Vec<f32> = (0..2 * samples).map(sum).collect();
            for unit in Unit::all() {
                let mut output = vec![f32::NAN; 2 * samples];
                unit.run(Convolution(&weights, &input, &mut output));
                assert!(is_near(&output, &expected), "{unit:?}: {taps} taps, {samples} samples");
            }
        }
    }

    #[test]
    fn all_units_multiply() {
        for samples in [0, 1, 3, 4, 5, 8, 29] {
            let (numbers, factors) = (noise(3, 2 * samples), noise(4, 2 * samples));
            let product = |number: usize| {
                let ([re, im], [factor_re, factor_im]) = (
                    [numbers[number & !1], numbers[number | 1]],
                    [factors[number & !1], factors[number | 1]],
                );
                if number.is_multiple_of(2) {
                    re * factor_re - im * factor_im
                } else {
                    re * factor_im + im * factor_re
                }
            };
            let expected: Vec<f32> = (0..2 * samples).map(product).collect();
            for unit in Unit::all() {
                let mut output = numbers.clone();
                unit.run(Product { numbers: &mut output, factors: &factors });
                assert!(is_near(&output, &expected), "{unit:?}: {samples} samples");
            }
        }
    }
}
