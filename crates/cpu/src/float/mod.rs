//! Floating-point arithmetic of the F and D extensions (version 2.2) in integers: results and flags are the
//! same on every host.
//!
//! Each function takes and returns the contents of floating-point registers: 64 bits, of which a
//! single-precision number occupies the lower half below ones (NaN boxing, chapter 12.2); a register without
//! these ones counts as the canonical NaN. Flags are added to [`Flags`]. Results that are NaN are the
//! canonical NaN. Underflow is detected after rounding.
//!
//! The private module `fast` computes on the host where that provably gives the same bits and flags.

mod arithmetic;
mod compare;
mod convert;
mod fast;
mod round;
mod unpacked;

pub use arithmetic::{add, divide, multiply, multiply_add, square_root, subtract};
pub use compare::{classify, equal, less, less_or_equal, maximum, minimum};
pub use convert::{from_integer, narrow, to_integer, widen};

/// Exception flags, as in the lower five bits of `fcsr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// The result was rounded (NX).
    pub const INEXACT: Flags = Flags(1);
    /// The rounded result is tiny and inexact (UF).
    pub const UNDERFLOW: Flags = Flags(2);
    /// The rounded result exceeds the format (OF).
    pub const OVERFLOW: Flags = Flags(4);
    /// A finite number was divided by zero (DZ).
    pub const DIVIDE_BY_ZERO: Flags = Flags(8);
    /// The operation has no defined result (NV).
    pub const INVALID: Flags = Flags(16);

    /// Sets flags beside those that are set.
    #[inline(always)]
    pub fn raise(&mut self, flags: Flags) {
        self.0 |= flags.0;
    }

    /// Returns whether all of some flags are set.
    #[inline(always)]
    pub const fn contains(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// Rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearest number, ties to even (RNE).
    NearestEven,
    /// Towards zero (RTZ).
    TowardsZero,
    /// Towards minus infinity (RDN).
    Down,
    /// Towards plus infinity (RUP).
    Up,
    /// To the nearest number, ties away from zero (RMM).
    NearestAway,
}

impl Rounding {
    /// Returns the rounding mode of its number in instructions and in `frm`; `None` if the number is
    /// reserved.
    #[inline(always)]
    pub const fn new(number: u8) -> Option<Rounding> {
        Some(match number {
            0 => Rounding::NearestEven,
            1 => Rounding::TowardsZero,
            2 => Rounding::Down,
            3 => Rounding::Up,
            4 => Rounding::NearestAway,
            _ => return None,
        })
    }
}

/// Floating-point format: [`Single`] or [`Double`].
pub trait Format {
    /// Length of the significand in bits, with the leading one.
    const PRECISION: u32;
    /// Exponent of the smallest normal number.
    const EXPONENT_MIN: i32;
    /// Exponent of the greatest numbers.
    const EXPONENT_MAX: i32;
    /// Length of a number in bits.
    const BITS: u32;

    /// Returns the number in a register; of a register without a number of this format, the canonical NaN.
    fn unbox(register: u64) -> u64;

    /// Returns the contents of a register with a number.
    fn to_box(number: u64) -> u64;

    /// Adds on the host, if result and flags are certain to be right.
    fn add_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64>;

    /// Subtracts on the host, likewise.
    fn subtract_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64>;

    /// Multiplies on the host, likewise.
    fn multiply_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64>;

    /// Divides on the host, likewise.
    fn divide_fast(a: u64, b: u64, rounding: Rounding, flags: Flags) -> Option<u64>;

    /// Takes the square root on the host, likewise.
    fn square_root_fast(a: u64, rounding: Rounding, flags: Flags) -> Option<u64>;

    /// Multiplies and adds with one rounding on the host, likewise.
    fn multiply_add_fast(a: u64, b: u64, c: u64, rounding: Rounding, flags: Flags) -> Option<u64>;

    /// Mask of the sign.
    const SIGN: u64 = 1 << (Self::BITS - 1);
    /// Mask of the stored significand.
    const FRACTION: u64 = (1 << (Self::PRECISION - 1)) - 1;
    /// Bits of infinity, which are also the mask of the exponent.
    const INFINITY: u64 = Self::SIGN - 1 - Self::FRACTION;
    /// Bit of a NaN that tells that it is quiet.
    const QUIET: u64 = 1 << (Self::PRECISION - 2);
    /// Bits of the canonical NaN.
    const NAN: u64 = Self::INFINITY | Self::QUIET;
}

/// Single precision (binary32).
#[derive(Clone, Copy, Debug)]
pub enum Single {}

/// Double precision (binary64).
#[derive(Clone, Copy, Debug)]
pub enum Double {}
