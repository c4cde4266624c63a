//! Vectors of 256 bits, with multiplication and addition in one instruction.
//!
//! Unsafe code: instructions of a vector unit. [`run`] alone makes code of them, and its caller has seen that the processor has
//! the unit.

use super::{Computation, Vector};
use std::arch::x86_64::*;

/// Numbers of a vector.
const LANES: usize = 8;

#[derive(Clone, Copy)]
struct Avx2(__m256);

/// Runs a computation.
#[target_feature(enable = "avx2,fma")]
pub(super) fn run(computation: impl Computation) {
    computation.compute::<LANES, Avx2>();
}

// SAFETY, of all blocks below: `run` is the only caller, and is compiled for this vector unit. Loads and stores touch the numbers of
// the reference that they are given, and need no alignment.
impl Vector<LANES> for Avx2 {
    #[inline(always)]
    fn splat(number: f32) -> Avx2 {
        // SAFETY: `run` has the unit.
        Avx2(unsafe { _mm256_set1_ps(number) })
    }

    #[inline(always)]
    fn load(numbers: &[f32; LANES]) -> Avx2 {
        // SAFETY: `run` has the unit; the numbers are readable.
        Avx2(unsafe { _mm256_loadu_ps(numbers.as_ptr()) })
    }

    #[inline(always)]
    fn load_part(numbers: &[f32]) -> Avx2 {
        assert!(numbers.len() <= LANES, "a vector has no room for {} numbers", numbers.len());
        // SAFETY: `run` has the unit; the mask keeps the load within the numbers.
        Avx2(unsafe { _mm256_maskload_ps(numbers.as_ptr(), mask(numbers.len())) })
    }

    #[inline(always)]
    fn store(self, numbers: &mut [f32; LANES]) {
        // SAFETY: `run` has the unit; the numbers are writable.
        unsafe { _mm256_storeu_ps(numbers.as_mut_ptr(), self.0) };
    }

    #[inline(always)]
    fn times(self, factor: Avx2) -> Avx2 {
        // SAFETY: `run` has the unit.
        Avx2(unsafe { _mm256_mul_ps(self.0, factor.0) })
    }

    #[inline(always)]
    fn mul_add(self, factor: Avx2, sum: Avx2) -> Avx2 {
        // SAFETY: `run` has the unit.
        Avx2(unsafe { _mm256_fmadd_ps(self.0, factor.0, sum.0) })
    }

    /// Even numbers are `re * re - im * im`, odd ones `im * re + re * im`.
    #[inline(always)]
    fn times_complex(self, factor: Avx2) -> Avx2 {
        // SAFETY: `run` has the unit.
        Avx2(unsafe {
            let (re, im) = (_mm256_moveldup_ps(factor.0), _mm256_movehdup_ps(factor.0));
            let swapped = _mm256_permute_ps::<0b10_11_00_01>(self.0);
            _mm256_fmaddsub_ps(self.0, re, _mm256_mul_ps(swapped, im))
        })
    }

    #[inline(always)]
    fn sum_complex(self) -> [f32; 2] {
        let mut sum = [0.0; 4];
        // SAFETY: `run` has the unit; the sum has room for four numbers.
        unsafe {
            let half = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            _mm_storeu_ps(sum.as_mut_ptr(), _mm_add_ps(half, _mm_movehl_ps(half, half)));
        }
        [sum[0], sum[1]]
    }
}

/// Returns a mask of the first `count` numbers.
#[inline(always)]
fn mask(count: usize) -> __m256i {
    // SAFETY: `run` has the unit.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}
