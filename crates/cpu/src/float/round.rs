//! Rounding of exact results to a format.

use super::{Flags, Format, Rounding};

/// Rounds ± `significand` · 2^(`exponent` - 63) to a format and returns the register's contents.
///
/// Bit 63 of the significand is set. Its lowest bit also stands for everything below it ("sticky"): it is set
/// if the exact significand has any ones there.
pub(super) fn round<F: Format>(
    is_negative: bool,
    exponent: i32,
    significand: u64,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    let unused = 64 - F::PRECISION;
    let sign = if is_negative { F::SIGN } else { 0 };
    if exponent < F::EXPONENT_MIN {
        // A result is tiny unless it is rounded up to the smallest normal number even with an unbounded
        // exponent.
        let (rounded, _) = round_at(is_negative, significand, unused, rounding);
        let is_tiny = exponent < F::EXPONENT_MIN - 1 || rounded >> F::PRECISION == 0;
        let shifted = shift_right_sticky(significand, (F::EXPONENT_MIN - exponent) as u32);
        let (rounded, is_inexact) = round_at(is_negative, shifted, unused, rounding);
        if is_inexact {
            flags.raise(Flags::INEXACT);
            if is_tiny {
                flags.raise(Flags::UNDERFLOW);
            }
        }
        // A carry into the leading one makes the smallest normal number.
        return F::to_box(sign | rounded);
    }
    let (rounded, is_inexact) = round_at(is_negative, significand, unused, rounding);
    let (rounded, exponent) =
        if rounded >> F::PRECISION != 0 { (rounded >> 1, exponent + 1) } else { (rounded, exponent) };
    if exponent > F::EXPONENT_MAX {
        flags.raise(Flags::OVERFLOW);
        flags.raise(Flags::INEXACT);
        let is_infinite = match rounding {
            Rounding::NearestEven | Rounding::NearestAway => true,
            Rounding::TowardsZero => false,
            Rounding::Down => is_negative,
            Rounding::Up => !is_negative,
        };
        return F::to_box(sign | if is_infinite { F::INFINITY } else { F::INFINITY - 1 });
    }
    if is_inexact {
        flags.raise(Flags::INEXACT);
    }
    let biased = (exponent + F::EXPONENT_MAX) as u64;
    F::to_box(sign | biased << (F::PRECISION - 1) | rounded & F::FRACTION)
}

/// Rounds a significand to a multiple of 2^`unused`, and returns the multiple and whether anything was lost.
pub(super) fn round_at(is_negative: bool, significand: u64, unused: u32, rounding: Rounding) -> (u64, bool) {
    let kept = significand >> unused;
    let lost = significand & ((1 << unused) - 1);
    let half = 1 << (unused - 1);
    let is_up = match rounding {
        Rounding::NearestEven => lost > half || lost == half && kept & 1 == 1,
        Rounding::TowardsZero => false,
        Rounding::Down => is_negative && lost != 0,
        Rounding::Up => !is_negative && lost != 0,
        Rounding::NearestAway => lost >= half,
    };
    (kept + u64::from(is_up), lost != 0)
}

/// Shifts right and sets the lowest bit if ones are lost.
pub(super) fn shift_right_sticky(value: u64, count: u32) -> u64 {
    match count {
        0 => value,
        1..64 => value >> count | u64::from(value << (64 - count) != 0),
        _ => u64::from(value != 0),
    }
}

/// Shifts 128 bits right and sets the lowest bit if ones are lost.
pub(super) fn shift_right_sticky_wide(value: u128, count: u32) -> u128 {
    match count {
        0 => value,
        1..128 => value >> count | u128::from(value << (128 - count) != 0),
        _ => u128::from(value != 0),
    }
}

/// Rounds ± `significand` · 2^(`exponent` - 127), whose significand has its leading one anywhere.
pub(super) fn round_wide<F: Format>(
    is_negative: bool,
    exponent: i32,
    significand: u128,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    let zeros = significand.leading_zeros();
    let normal = significand << zeros;
    let upper = (normal >> 64) as u64 | u64::from(normal as u64 != 0);
    round::<F>(is_negative, exponent - zeros as i32, upper, rounding, flags)
}
