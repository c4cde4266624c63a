//! Comparisons, minimum and maximum, and classes of numbers.

use std::cmp::Ordering;

use super::unpacked::{Kind, Unpacked};
use super::{Flags, Format};

/// Returns whether two numbers are equal; only a signalling NaN is invalid (FEQ).
#[inline]
pub fn equal<F: Format>(a: u64, b: u64, flags: &mut Flags) -> bool {
    order::<F>(a, b, false, flags) == Some(Ordering::Equal)
}

/// Returns whether a number is less than another; any NaN is invalid (FLT).
#[inline]
pub fn less<F: Format>(a: u64, b: u64, flags: &mut Flags) -> bool {
    order::<F>(a, b, true, flags) == Some(Ordering::Less)
}

/// Returns whether a number is less than or equal to another; any NaN is invalid (FLE).
#[inline]
pub fn less_or_equal<F: Format>(a: u64, b: u64, flags: &mut Flags) -> bool {
    order::<F>(a, b, true, flags).is_some_and(Ordering::is_le)
}

/// Returns the lesser number, or the one that is not a NaN; -0 is less than +0 (FMIN).
pub fn minimum<F: Format>(a: u64, b: u64, flags: &mut Flags) -> u64 {
    extreme::<F>(a, b, Ordering::Less, flags)
}

/// Returns the greater number, or the one that is not a NaN (FMAX).
pub fn maximum<F: Format>(a: u64, b: u64, flags: &mut Flags) -> u64 {
    extreme::<F>(a, b, Ordering::Greater, flags)
}

/// Returns the number's class as one bit of ten (FCLASS, table 11.5).
pub fn classify<F: Format>(register: u64) -> u64 {
    let number = Unpacked::new::<F>(register);
    let is_subnormal = number.exponent < F::EXPONENT_MIN;
    let bit = match (number.kind, number.is_negative) {
        (Kind::Infinity, true) => 0,
        (Kind::Finite, true) if !is_subnormal => 1,
        (Kind::Finite, true) => 2,
        (Kind::Zero, true) => 3,
        (Kind::Zero, false) => 4,
        (Kind::Finite, false) if is_subnormal => 5,
        (Kind::Finite, false) => 6,
        (Kind::Infinity, false) => 7,
        (Kind::SignallingNan, _) => 8,
        (Kind::QuietNan, _) => 9,
    };
    1 << bit
}

/// Returns the order of two numbers; `None` if one is a NaN.
#[inline]
fn order<F: Format>(a: u64, b: u64, is_signalling: bool, flags: &mut Flags) -> Option<Ordering> {
    let (a, b) = (F::unbox(a), F::unbox(b));
    let magnitude = |bits: u64| bits & !F::SIGN;
    if magnitude(a) > F::INFINITY || magnitude(b) > F::INFINITY {
        let is_signal = |bits: u64| magnitude(bits) > F::INFINITY && bits & F::QUIET == 0;
        if is_signalling || is_signal(a) || is_signal(b) {
            flags.raise(Flags::INVALID);
        }
        return None;
    }
    Some(total_key::<F>(a).cmp(&total_key::<F>(b)))
}

/// Returns an integer that orders numbers as they are ordered; both zeros have the same.
#[inline]
fn total_key<F: Format>(bits: u64) -> i64 {
    let magnitude = (bits & !F::SIGN) as i64;
    if bits & F::SIGN != 0 { -magnitude } else { magnitude }
}

/// Returns the number that has an order to the other one.
fn extreme<F: Format>(a: u64, b: u64, wanted: Ordering, flags: &mut Flags) -> u64 {
    let (bits_a, bits_b) = (F::unbox(a), F::unbox(b));
    let is_nan = |bits: u64| bits & !F::SIGN > F::INFINITY;
    let order = order::<F>(a, b, false, flags);
    match order {
        None if is_nan(bits_a) && is_nan(bits_b) => F::to_box(F::NAN),
        None if is_nan(bits_a) => F::to_box(bits_b),
        None => F::to_box(bits_a),
        Some(Ordering::Equal) => {
            // Zeros of both signs are equal, and the negative one is the minimum.
            let is_first = (bits_a & F::SIGN != 0) == (wanted == Ordering::Less);
            F::to_box(if is_first { bits_a } else { bits_b })
        }
        Some(order) => F::to_box(if order == wanted { bits_a } else { bits_b }),
    }
}
