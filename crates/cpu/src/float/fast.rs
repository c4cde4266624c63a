//! Arithmetic on the host, where it provably gives the same result and flags.
//!
//! IEEE 754 determines the rounded result of an operation, and Rust's arithmetic on the hosts in
//! [`HOST_IS_EXACT`] rounds to the nearest, ties to even. The flags are known without the host's if the
//! inexact flag is set already and the result is normal, above the smallest binade: then nothing overflowed,
//! underflowed, was divided by zero or invalid. All other cases are computed in integers.

use super::{Double, Flags, Format, Rounding, Single};

/// True if Rust's arithmetic on this host is that of IEEE 754 without excess precision (x87 has such).
const HOST_IS_EXACT: bool = cfg!(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "wasm32"
));

/// True if `mul_add` is one instruction of this host, or a function that uses the instruction where the
/// processor has it and else rounds once, too, as `tests/float.rs` compares.
const HOST_FUSES: bool = HOST_IS_EXACT
    && cfg!(any(
        target_feature = "fma",
        target_arch = "aarch64",
        target_arch = "riscv64",
        all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")
    ));

/// Returns whether flags allow the host's arithmetic.
#[inline(always)]
fn is_allowed(rounding: Rounding, flags: Flags) -> bool {
    HOST_IS_EXACT && rounding == Rounding::NearestEven && flags.contains(Flags::INEXACT)
}

/// Returns the bits of a double-precision result if it is normal and not in the smallest binade.
#[inline(always)]
fn normal_double(result: f64) -> Option<u64> {
    let bits = result.to_bits();
    let exponent = (bits >> 52) as u32 & 0x7ff;
    (exponent.wrapping_sub(2) < 0x7fd).then_some(bits)
}

/// Returns the register of a single-precision result if it is normal and not in the smallest binade.
#[inline(always)]
fn normal_single(result: f32) -> Option<u64> {
    let bits = result.to_bits();
    let exponent = bits >> 23 & 0xff;
    (exponent.wrapping_sub(2) < 0xfd).then_some(Single::to_box(bits.into()))
}

/// Returns the number of a register as the host's; a register that is not boxed gives a NaN.
#[inline(always)]
fn single(register: u64) -> f32 {
    f32::from_bits(Single::unbox(register) as u32)
}

impl Format for Double {
    const PRECISION: u32 = 53;
    const EXPONENT_MIN: i32 = -1022;
    const EXPONENT_MAX: i32 = 1023;
    const BITS: u32 = 64;

    #[inline(always)]
    fn unbox(register: u64) -> u64 {
        register
    }

    #[inline(always)]
    fn to_box(number: u64) -> u64 {
        number
    }

    #[inline(always)]
    fn add_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_double(f64::from_bits(a) + f64::from_bits(b)) } else { None }
    }

    #[inline(always)]
    fn subtract_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_double(f64::from_bits(a) - f64::from_bits(b)) } else { None }
    }

    #[inline(always)]
    fn multiply_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_double(f64::from_bits(a) * f64::from_bits(b)) } else { None }
    }

    #[inline(always)]
    fn divide_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_double(f64::from_bits(a) / f64::from_bits(b)) } else { None }
    }

    #[inline(always)]
    fn square_root_fast(a: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_double(f64::from_bits(a).sqrt()) } else { None }
    }

    #[inline(always)]
    fn multiply_add_fast(a: u64, b: u64, c: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if HOST_FUSES && is_allowed(rounding, flags) {
            normal_double(f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)))
        } else {
            None
        }
    }
}

impl Format for Single {
    const PRECISION: u32 = 24;
    const EXPONENT_MIN: i32 = -126;
    const EXPONENT_MAX: i32 = 127;
    const BITS: u32 = 32;

    #[inline(always)]
    fn unbox(register: u64) -> u64 {
        if register >> 32 == 0xffff_ffff { register & 0xffff_ffff } else { Self::NAN }
    }

    #[inline(always)]
    fn to_box(number: u64) -> u64 {
        number | 0xffff_ffff << 32
    }

    #[inline(always)]
    fn add_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_single(single(a) + single(b)) } else { None }
    }

    #[inline(always)]
    fn subtract_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_single(single(a) - single(b)) } else { None }
    }

    #[inline(always)]
    fn multiply_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_single(single(a) * single(b)) } else { None }
    }

    #[inline(always)]
    fn divide_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_single(single(a) / single(b)) } else { None }
    }

    #[inline(always)]
    fn square_root_fast(a: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if is_allowed(rounding, flags) { normal_single(single(a).sqrt()) } else { None }
    }

    #[inline(always)]
    fn multiply_add_fast(a: u64, b: u64, c: u64, rounding: Rounding, flags: Flags) -> Option<u64> {
        if HOST_FUSES && is_allowed(rounding, flags) {
            normal_single(single(a).mul_add(single(b), single(c)))
        } else {
            None
        }
    }
}
