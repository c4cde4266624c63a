//! Unpacked numbers: sign, exponent and significand of a number apart, whatever its format.

use super::{Flags, Format};

/// Kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Zero.
    Zero,
    /// Finite number other than zero.
    Finite,
    /// Infinity.
    Infinity,
    /// Quiet NaN.
    QuietNan,
    /// Signalling NaN.
    SignallingNan,
}

/// Number taken apart. A finite one is ± `significand` · 2^(`exponent` - 63), and bit 63 of its significand
/// is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unpacked {
    /// Kind.
    pub kind: Kind,
    /// True if the sign is minus.
    pub is_negative: bool,
    /// Exponent of a finite number.
    pub exponent: i32,
    /// Significand of a finite number.
    pub significand: u64,
}

impl Unpacked {
    /// Takes the number of a register apart.
    pub fn new<F: Format>(register: u64) -> Unpacked {
        let bits = F::unbox(register);
        let biased = ((bits & F::INFINITY) >> (F::PRECISION - 1)) as i32;
        let fraction = bits & F::FRACTION;
        let kind = match (biased == 2 * F::EXPONENT_MAX + 1, fraction) {
            (true, 0) => Kind::Infinity,
            (true, _) if fraction & F::QUIET != 0 => Kind::QuietNan,
            (true, _) => Kind::SignallingNan,
            (false, 0) if biased == 0 => Kind::Zero,
            (false, _) => Kind::Finite,
        };
        // The leading one of a subnormal number is found by its zeros.
        let (exponent, significand) = match biased {
            0 => (F::EXPONENT_MIN, fraction),
            _ => (biased - F::EXPONENT_MAX, fraction | 1 << (F::PRECISION - 1)),
        };
        let zeros = significand.leading_zeros();
        Unpacked {
            kind,
            is_negative: bits & F::SIGN != 0,
            exponent: exponent + 64 - F::PRECISION as i32 - zeros as i32,
            significand: significand.checked_shl(zeros).unwrap_or(0),
        }
    }

    /// Returns whether the number is a NaN.
    pub fn is_nan(self) -> bool {
        matches!(self.kind, Kind::QuietNan | Kind::SignallingNan)
    }

    /// Returns whether the number is infinite.
    pub fn is_infinite(self) -> bool {
        self.kind == Kind::Infinity
    }

    /// Returns whether the number is zero.
    pub fn is_zero(self) -> bool {
        self.kind == Kind::Zero
    }

    /// Returns the number with the other sign.
    pub fn negated(self) -> Unpacked {
        Unpacked { is_negative: !self.is_negative, ..self }
    }
}

/// Returns the canonical NaN if an operand is a NaN; raises the flag of an invalid operation if one is
/// signalling.
pub(super) fn nan_of<F: Format>(operands: &[Unpacked], flags: &mut Flags) -> Option<u64> {
    if operands.iter().any(|operand| operand.kind == Kind::SignallingNan) {
        flags.raise(Flags::INVALID);
    }
    operands.iter().any(|operand| operand.is_nan()).then(|| F::to_box(F::NAN))
}

/// Returns the canonical NaN of an operation without a defined result, and raises its flag.
pub(super) fn invalid<F: Format>(flags: &mut Flags) -> u64 {
    flags.raise(Flags::INVALID);
    F::to_box(F::NAN)
}

/// Returns a zero.
pub(super) fn zero<F: Format>(is_negative: bool) -> u64 {
    F::to_box(if is_negative { F::SIGN } else { 0 })
}

/// Returns an infinity.
pub(super) fn infinity<F: Format>(is_negative: bool) -> u64 {
    F::to_box(F::INFINITY | if is_negative { F::SIGN } else { 0 })
}
