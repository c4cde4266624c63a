//! Conversions between formats, and from and to integers.

use super::round::{round, shift_right_sticky};
use super::unpacked::{Kind, Unpacked, infinity, nan_of, zero};
use super::{Double, Flags, Format, Rounding, Single};
use crate::memory::Width;

/// Converts double to single precision (FCVT.S.D).
pub fn narrow(register: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    convert::<Double, Single>(register, rounding, flags)
}

/// Converts single to double precision, which is exact (FCVT.D.S).
pub fn widen(register: u64, flags: &mut Flags) -> u64 {
    convert::<Single, Double>(register, Rounding::NearestEven, flags)
}

/// Converts an integer, of which a narrower width uses the lower half, to a number.
pub fn from_integer<F: Format>(
    value: u64,
    width: Width,
    is_signed: bool,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    let value = if is_signed { width.sign_extend(value) } else { width.truncate(value) };
    let is_negative = is_signed && (value as i64) < 0;
    let magnitude = if is_negative { value.wrapping_neg() } else { value };
    if magnitude == 0 {
        return zero::<F>(false);
    }
    let zeros = magnitude.leading_zeros();
    round::<F>(is_negative, 63 - zeros as i32, magnitude << zeros, rounding, flags)
}

/// Converts a number to an integer of 32 or 64 bits, sign-extended to 64 bits.
///
/// A number out of range gives the nearest integer, a NaN the greatest (table 11.4), and both the flag of an
/// invalid operation.
pub fn to_integer<F: Format>(
    register: u64,
    width: Width,
    is_signed: bool,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    let number = Unpacked::new::<F>(register);
    let (least, greatest) = range(width, is_signed);
    let (magnitude, is_inexact) = match number.kind {
        Kind::Zero => (0, false),
        Kind::Finite => integer_magnitude(number, rounding),
        _ => (u128::MAX, false),
    };
    let is_negative = number.is_negative && !number.is_nan();
    let limit = if is_negative { least } else { greatest };
    if magnitude > limit.into() {
        flags.raise(Flags::INVALID);
        return width.sign_extend(if is_negative { limit.wrapping_neg() } else { limit });
    }
    if is_inexact {
        flags.raise(Flags::INEXACT);
    }
    let magnitude = magnitude as u64;
    width.sign_extend(if is_negative { magnitude.wrapping_neg() } else { magnitude })
}

/// Returns the magnitudes of the least and the greatest integer.
fn range(width: Width, is_signed: bool) -> (u64, u64) {
    let all = width.truncate(u64::MAX);
    if is_signed { (all / 2 + 1, all / 2) } else { (0, all) }
}

/// Rounds the magnitude of a finite number to an integer, and returns whether anything was lost.
fn integer_magnitude(number: Unpacked, rounding: Rounding) -> (u128, bool) {
    if number.exponent > 64 {
        return (u128::MAX, false);
    }
    if number.exponent >= 63 {
        return (u128::from(number.significand) << (number.exponent - 63), false);
    }
    // Two bits below the integer are kept for rounding: a half, and all below.
    let fraction_bits = (63 - number.exponent) as u32;
    let scaled = if fraction_bits >= 2 {
        shift_right_sticky(number.significand, fraction_bits - 2)
    } else {
        return round_small(number, fraction_bits, rounding);
    };
    let (rounded, is_inexact) = super::round::round_at(number.is_negative, scaled, 2, rounding);
    (rounded.into(), is_inexact)
}

/// Rounds a magnitude of which one bit is below the integer.
fn round_small(number: Unpacked, fraction_bits: u32, rounding: Rounding) -> (u128, bool) {
    let (rounded, is_inexact) =
        super::round::round_at(number.is_negative, number.significand, fraction_bits, rounding);
    (rounded.into(), is_inexact)
}

/// Converts between formats.
fn convert<From: Format, To: Format>(register: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    let number = Unpacked::new::<From>(register);
    if let Some(nan) = nan_of::<To>(&[number], flags) {
        return nan;
    }
    match number.kind {
        Kind::Zero => zero::<To>(number.is_negative),
        Kind::Infinity => infinity::<To>(number.is_negative),
        _ => round::<To>(number.is_negative, number.exponent, number.significand, rounding, flags),
    }
}
