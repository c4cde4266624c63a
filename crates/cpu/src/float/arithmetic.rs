//! Sum, product, quotient, square root, and product and sum with one rounding.

use super::round::{round, round_wide, shift_right_sticky_wide};
use super::unpacked::{Kind, Unpacked, infinity, invalid, nan_of, zero};
use super::{Flags, Format, Rounding};

/// Adds.
#[inline]
pub fn add<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    F::add_fast(a, b, rounding, *flags).unwrap_or_else(|| sum::<F>(a, b, false, rounding, flags))
}

/// Subtracts.
#[inline]
pub fn subtract<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    F::subtract_fast(a, b, rounding, *flags).unwrap_or_else(|| sum::<F>(a, b, true, rounding, flags))
}

/// Multiplies.
#[inline]
pub fn multiply<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    F::multiply_fast(a, b, rounding, *flags).unwrap_or_else(|| product::<F>(a, b, rounding, flags))
}

/// Divides.
#[inline]
pub fn divide<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    F::divide_fast(a, b, rounding, *flags).unwrap_or_else(|| quotient::<F>(a, b, rounding, flags))
}

/// Takes the square root.
#[inline]
pub fn square_root<F: Format>(a: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    F::square_root_fast(a, rounding, *flags).unwrap_or_else(|| root::<F>(a, rounding, flags))
}

/// Returns ±(a · b) ± c, rounded once; the signs are those of the four instructions.
#[inline]
pub fn multiply_add<F: Format>(
    (a, b, c): (u64, u64, u64),
    negates_product: bool,
    negates_addend: bool,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    let flip = |register: u64, is_flipped: bool| {
        if is_flipped { F::to_box(F::unbox(register) ^ F::SIGN) } else { register }
    };
    let (a, c) = (flip(a, negates_product), flip(c, negates_addend));
    F::multiply_add_fast(a, b, c, rounding, *flags).unwrap_or_else(|| fused::<F>(a, b, c, rounding, flags))
}

/// Adds or subtracts in integers.
#[inline(never)]
fn sum<F: Format>(a: u64, b: u64, is_difference: bool, rounding: Rounding, flags: &mut Flags) -> u64 {
    let a = Unpacked::new::<F>(a);
    let b = Unpacked::new::<F>(b);
    if let Some(nan) = nan_of::<F>(&[a, b], flags) {
        return nan;
    }
    let b = if is_difference { b.negated() } else { b };
    if a.is_infinite() || b.is_infinite() {
        return sum_of_infinities::<F>(a, b, flags);
    }
    sum_of_wide::<F>(Wide::new(a), Wide::new(b), rounding, flags)
}

/// Adds two numbers of which one or both are infinite.
fn sum_of_infinities<F: Format>(a: Unpacked, b: Unpacked, flags: &mut Flags) -> u64 {
    match (a.is_infinite(), b.is_infinite()) {
        (true, true) if a.is_negative != b.is_negative => invalid::<F>(flags),
        (true, _) => infinity::<F>(a.is_negative),
        _ => infinity::<F>(b.is_negative),
    }
}

/// Finite number ± `significand` · 2^(`exponent` - 126); bit 126 of the significand is set, or it is zero.
#[derive(Clone, Copy)]
struct Wide {
    /// True if the sign is minus.
    is_negative: bool,
    /// Exponent.
    exponent: i32,
    /// Significand.
    significand: u128,
}

impl Wide {
    /// Makes a wide number of a finite one.
    fn new(number: Unpacked) -> Wide {
        let significand = if number.is_zero() { 0 } else { u128::from(number.significand) << 63 };
        Wide { is_negative: number.is_negative, exponent: number.exponent, significand }
    }

    /// Returns the exact product of finite numbers.
    fn product(a: Unpacked, b: Unpacked) -> Wide {
        let is_negative = a.is_negative != b.is_negative;
        if a.is_zero() || b.is_zero() {
            return Wide { is_negative, exponent: 0, significand: 0 };
        }
        let product = u128::from(a.significand) * u128::from(b.significand);
        // Both factors have zeros below their precision, so that a shift to the right loses nothing.
        let exponent = a.exponent + b.exponent;
        if product >> 127 == 0 {
            Wide { is_negative, exponent, significand: product }
        } else {
            Wide { is_negative, exponent: exponent + 1, significand: product >> 1 }
        }
    }
}

/// Adds exact numbers and rounds the sum.
fn sum_of_wide<F: Format>(a: Wide, b: Wide, rounding: Rounding, flags: &mut Flags) -> u64 {
    if a.significand == 0 && b.significand == 0 {
        let is_negative =
            if a.is_negative == b.is_negative { a.is_negative } else { rounding == Rounding::Down };
        return zero::<F>(is_negative);
    }
    let is_first_greater = b.significand == 0
        || a.significand != 0 && (a.exponent, a.significand) >= (b.exponent, b.significand);
    let (great, small) = if is_first_greater { (a, b) } else { (b, a) };
    let distance = great.exponent.wrapping_sub(small.exponent).max(0) as u32;
    let aligned = shift_right_sticky_wide(small.significand, distance);
    let sum = if great.is_negative == small.is_negative {
        great.significand + aligned
    } else {
        great.significand - aligned
    };
    if sum == 0 {
        return zero::<F>(rounding == Rounding::Down);
    }
    round_wide::<F>(great.is_negative, great.exponent + 1, sum, rounding, flags)
}

/// Multiplies in integers.
#[inline(never)]
fn product<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    let a = Unpacked::new::<F>(a);
    let b = Unpacked::new::<F>(b);
    if let Some(nan) = nan_of::<F>(&[a, b], flags) {
        return nan;
    }
    let is_negative = a.is_negative != b.is_negative;
    if a.is_infinite() || b.is_infinite() {
        let is_undefined = a.is_zero() || b.is_zero();
        return if is_undefined { invalid::<F>(flags) } else { infinity::<F>(is_negative) };
    }
    if a.is_zero() || b.is_zero() {
        return zero::<F>(is_negative);
    }
    let product = u128::from(a.significand) * u128::from(b.significand);
    round_wide::<F>(is_negative, a.exponent + b.exponent + 1, product, rounding, flags)
}

/// Divides in integers.
#[inline(never)]
fn quotient<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    let a = Unpacked::new::<F>(a);
    let b = Unpacked::new::<F>(b);
    if let Some(nan) = nan_of::<F>(&[a, b], flags) {
        return nan;
    }
    let is_negative = a.is_negative != b.is_negative;
    match (a.kind, b.kind) {
        (Kind::Infinity, Kind::Infinity) | (Kind::Zero, Kind::Zero) => return invalid::<F>(flags),
        (Kind::Infinity, _) => return infinity::<F>(is_negative),
        (Kind::Zero, _) | (_, Kind::Infinity) => return zero::<F>(is_negative),
        (_, Kind::Zero) => {
            flags.raise(Flags::DIVIDE_BY_ZERO);
            return infinity::<F>(is_negative);
        }
        _ => {}
    }
    // The quotient has its leading one at bit 63 or 64.
    let dividend = u128::from(a.significand) << 64;
    let divisor = u128::from(b.significand);
    let quotient = dividend / divisor;
    let is_inexact = dividend % divisor != 0;
    round_wide::<F>(
        is_negative,
        a.exponent - b.exponent + 62,
        quotient << 1 | u128::from(is_inexact),
        rounding,
        flags,
    )
}

/// Takes the square root in integers.
#[inline(never)]
fn root<F: Format>(a: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    let a = Unpacked::new::<F>(a);
    if let Some(nan) = nan_of::<F>(&[a], flags) {
        return nan;
    }
    match a.kind {
        Kind::Zero => return zero::<F>(a.is_negative),
        _ if a.is_negative => return invalid::<F>(flags),
        Kind::Infinity => return infinity::<F>(false),
        _ => {}
    }
    // With an even exponent, half of it is the root's: a · 2^-126 lies between 1 and 4.
    let is_odd = a.exponent & 1 != 0;
    let radicand = u128::from(a.significand) << if is_odd { 64 } else { 63 };
    let root = radicand.isqrt();
    let is_inexact = root * root != radicand;
    // The root has its leading one at bit 63.
    let significand = root as u64;
    let exponent = (a.exponent - i32::from(is_odd)) / 2;
    round::<F>(false, exponent, significand | u64::from(is_inexact), rounding, flags)
}

/// Multiplies and adds in integers.
#[inline(never)]
fn fused<F: Format>(a: u64, b: u64, c: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    let a = Unpacked::new::<F>(a);
    let b = Unpacked::new::<F>(b);
    let c = Unpacked::new::<F>(c);
    // Infinity times zero is invalid even if a quiet NaN is added (chapter 11.6).
    if a.is_infinite() && b.is_zero() || a.is_zero() && b.is_infinite() {
        return invalid::<F>(flags);
    }
    if let Some(nan) = nan_of::<F>(&[a, b, c], flags) {
        return nan;
    }
    if a.is_infinite() || b.is_infinite() || c.is_infinite() {
        let is_product_infinite = a.is_infinite() || b.is_infinite();
        let product = Unpacked {
            kind: if is_product_infinite { Kind::Infinity } else { Kind::Finite },
            is_negative: a.is_negative != b.is_negative,
            ..a
        };
        return sum_of_infinities::<F>(product, c, flags);
    }
    sum_of_wide::<F>(Wide::product(a, b), Wide::new(c), rounding, flags)
}
