//! Floating-point arithmetic against an independent implementation (rustc_apfloat, from LLVM), in all
//! rounding modes, with and without the inexact flag set before (which selects the host's arithmetic).

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_cpu::float::{self, Double, Flags, Format, Rounding, Single};
use bywash_cpu::memory::Width;
use rustc_apfloat::ieee::{Double as OracleDouble, Single as OracleSingle};
use rustc_apfloat::{Float, FloatConvert, Round, Status, StatusAnd};

/// Number of random operand tuples for each format.
const TUPLES: usize = 20_000;

const ROUNDINGS: [(Rounding, Round); 5] = [
    (Rounding::NearestEven, Round::NearestTiesToEven),
    (Rounding::TowardsZero, Round::TowardZero),
    (Rounding::Down, Round::TowardNegative),
    (Rounding::Up, Round::TowardPositive),
    (Rounding::NearestAway, Round::NearestTiesToAway),
];

/// Random numbers (xorshift64*), from a seed that failures print.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number of a format: special, near another, of few bits, or any.
    fn operand<F: Format>(&mut self, near: u64) -> u64 {
        let mask = F::SIGN | (F::SIGN - 1);
        let sign = if self.next() & 1 == 0 { 0 } else { F::SIGN };
        let one = F::INFINITY & !(F::INFINITY >> 1) & F::INFINITY;
        let specials = [
            0,
            1,
            F::FRACTION,
            F::FRACTION + 1,
            F::FRACTION + 2,
            F::INFINITY,
            F::INFINITY - 1,
            F::INFINITY - F::FRACTION - 1,
            F::NAN,
            F::NAN | 5,
            F::INFINITY | 1,
            one >> 1,
            (F::INFINITY >> 1) & F::INFINITY,
        ];
        let bits = match self.next() % 8 {
            0 => specials[self.next() as usize % specials.len()],
            1 => near ^ (self.next() & 15),
            2 => near ^ ((self.next() & 7) << (F::PRECISION - 2)),
            3 => self.next() & F::INFINITY | F::FRACTION & !(F::FRACTION >> (self.next() % 12)),
            4 => {
                // Exponents near one, so that sums cancel and integers are in range.
                let exponent = (F::EXPONENT_MAX as u64).wrapping_add(self.next() % 140).wrapping_sub(70);
                (exponent << (F::PRECISION - 1) & F::INFINITY) | self.next() & F::FRACTION
            }
            5 => self.next() & (F::FRACTION << 1 | 1),
            _ => self.next(),
        };
        (bits ^ sign) & mask
    }
}

/// Returns the flags of a status. The oracle's underflow is that after rounding, too.
fn flags(status: Status) -> Flags {
    let mut flags = Flags::default();
    for (bit, flag) in [
        (Status::INVALID_OP, Flags::INVALID),
        (Status::DIV_BY_ZERO, Flags::DIVIDE_BY_ZERO),
        (Status::OVERFLOW, Flags::OVERFLOW),
        (Status::UNDERFLOW, Flags::UNDERFLOW),
        (Status::INEXACT, Flags::INEXACT),
    ] {
        if status.contains(bit) {
            flags.raise(flag);
        }
    }
    flags
}

/// Takes over flags where the oracle does not have them, for inexact results: overflow if the result is
/// rounded to the greatest finite number, and underflow if it is rounded to the smallest normal one.
/// [`overflow_is_flagged_in_all_rounding_modes`] and
/// [`underflow_is_that_after_rounding_with_an_unbounded_exponent`] have these cases.
fn allow_limits<F: Format>(expected: u64, before: Flags, raised: Flags, wanted: &mut Flags) {
    let is_smallest = expected & !F::SIGN == F::FRACTION + 1;
    if is_smallest
        && wanted.contains(Flags::INEXACT)
        && raised.contains(Flags::UNDERFLOW)
        && !before.contains(Flags::UNDERFLOW)
    {
        wanted.raise(Flags::UNDERFLOW);
    }
    let is_greatest = expected & !F::SIGN == F::INFINITY - 1;
    if is_greatest
        && wanted.contains(Flags::INEXACT)
        && raised.contains(Flags::OVERFLOW)
        && !before.contains(Flags::OVERFLOW)
    {
        wanted.raise(Flags::OVERFLOW);
    }
}

/// Returns the bits of an oracle's number; any NaN as the canonical one.
fn bits<F: Format, O: Float>(value: O) -> u64 {
    if value.is_nan() { F::NAN } else { value.to_bits() as u64 }
}

/// Compares the operations of a format with the oracle's.
fn compare<F: Format, O: Float>(seed: u64) {
    let mut random = Random(seed);
    for tuple in 0..TUPLES {
        let a = random.operand::<F>(0);
        let b = random.operand::<F>(a);
        let c = random.operand::<F>(b);
        let oracle = |bits: u64| O::from_bits(bits.into());
        let is_signalling = [a, b].iter().any(|&bits| oracle(bits).is_signaling());
        for (rounding, round) in ROUNDINGS {
            for before in [Flags::default(), Flags::INEXACT] {
                let check = |name: &str, expected: StatusAnd<O>, operation: &dyn Fn(&mut Flags) -> u64| {
                    let mut raised = before;
                    let result = operation(&mut raised);
                    let mut wanted = flags(expected.status);
                    wanted.raise(before);
                    if is_signalling {
                        wanted.raise(Flags::INVALID);
                    }
                    let expected = bits::<F, O>(expected.value);
                    allow_limits::<F>(expected, before, raised, &mut wanted);
                    assert_eq!(
                        (F::unbox(result), raised),
                        (expected, wanted),
                        "{name} of {a:#x}, {b:#x}, {rounding:?}, tuple {tuple} of seed {seed}"
                    );
                };
                let (x, y) = (F::to_box(a), F::to_box(b));
                check("sum", oracle(a).add_r(oracle(b), round), &|flags| {
                    float::add::<F>(x, y, rounding, flags)
                });
                check("difference", oracle(a).sub_r(oracle(b), round), &|flags| {
                    float::subtract::<F>(x, y, rounding, flags)
                });
                check("product", oracle(a).mul_r(oracle(b), round), &|flags| {
                    float::multiply::<F>(x, y, rounding, flags)
                });
                check("quotient", oracle(a).div_r(oracle(b), round), &|flags| {
                    float::divide::<F>(x, y, rounding, flags)
                });
                check_fused::<F, O>((a, b, c), rounding, round, before, seed);
            }
        }
    }
}

/// Compares fused multiply-add with its four pairs of signs.
fn check_fused<F: Format, O: Float>(
    operands: (u64, u64, u64),
    rounding: Rounding,
    round: Round,
    before: Flags,
    seed: u64,
) {
    let (a, b, c) = operands;
    let oracle = |bits: u64| O::from_bits(bits.into());
    for (negates_product, negates_addend) in [(false, false), (false, true), (true, false), (true, true)] {
        let negated = |value: O, is_negated: bool| if is_negated { -value } else { value };
        let expected = negated(oracle(a), negates_product).mul_add_r(
            oracle(b),
            negated(oracle(c), negates_addend),
            round,
        );
        let mut raised = before;
        let boxed = (F::to_box(a), F::to_box(b), F::to_box(c));
        let result = float::multiply_add::<F>(boxed, negates_product, negates_addend, rounding, &mut raised);
        let mut wanted = flags(expected.status);
        wanted.raise(before);
        let (x, y) = (oracle(a), oracle(b));
        let is_undefined = x.is_infinite() && y.is_zero() || x.is_zero() && y.is_infinite();
        if is_undefined || [a, b, c].iter().any(|&bits| oracle(bits).is_signaling()) {
            wanted.raise(Flags::INVALID);
        }
        let expected = bits::<F, O>(expected.value);
        allow_limits::<F>(expected, before, raised, &mut wanted);
        assert_eq!(
            (F::unbox(result), raised),
            (expected, wanted),
            "fused {a:#x}, {b:#x}, {c:#x}, {negates_product}, {negates_addend}, {rounding:?}, seed {seed}"
        );
    }
}

#[test]
fn double_precision_is_that_of_the_oracle() {
    compare::<Double, OracleDouble>(0x1234_5678_9abc_def1);
}

#[test]
fn single_precision_is_that_of_the_oracle() {
    compare::<Single, OracleSingle>(0x0fed_cba9_8765_4321);
}

#[test]
fn overflow_is_flagged_in_all_rounding_modes() {
    let greatest = Double::INFINITY - 1;
    let both = Flags(Flags::OVERFLOW.0 | Flags::INEXACT.0);
    // Half a unit in the last place of the greatest number, and a quarter of it.
    let (half, quarter) = ((2046 - 53) << 52, (2046 - 54) << 52);
    for (rounding, addend, result, flags) in [
        (Rounding::NearestEven, half, Double::INFINITY, both),
        (Rounding::NearestEven, quarter, greatest, Flags::INEXACT),
        (Rounding::NearestAway, half, Double::INFINITY, both),
        (Rounding::TowardsZero, half, greatest, Flags::INEXACT),
        (Rounding::TowardsZero, greatest, greatest, both),
        (Rounding::Down, greatest, greatest, both),
        (Rounding::Down, half, greatest, Flags::INEXACT),
        (Rounding::Up, quarter, Double::INFINITY, both),
    ] {
        let mut raised = Flags::default();
        let sum = float::add::<Double>(greatest, addend, rounding, &mut raised);
        assert_eq!((sum, raised), (result, flags), "{rounding:?}, {addend:#x}");
        let mut raised = Flags::default();
        let mirrored = match rounding {
            Rounding::Down => Rounding::Up,
            Rounding::Up => Rounding::Down,
            other => other,
        };
        let difference = float::subtract::<Double>(greatest | Double::SIGN, addend, mirrored, &mut raised);
        assert_eq!((difference, raised), (result | Double::SIGN, flags), "{mirrored:?}, -{addend:#x}");
    }
}

#[test]
fn underflow_is_that_after_rounding_with_an_unbounded_exponent() {
    let smallest = Double::FRACTION + 1;
    let both = Flags(Flags::UNDERFLOW.0 | Flags::INEXACT.0);
    // The smallest normal number times 1 - 2^-54 and times 1 - 2^-53, as one minus a product with one
    // rounding: 1 - 2^-54 rounds up to one in 53 bits, and 1 - 2^-53 does not, but both results are the
    // smallest normal number.
    for (negative_power, rounding, flags) in [
        (54, Rounding::NearestEven, Flags::INEXACT),
        (53, Rounding::NearestEven, both),
        (54, Rounding::Up, Flags::INEXACT),
        (53, Rounding::Up, both),
        (100, Rounding::Up, Flags::INEXACT),
    ] {
        let mut raised = Flags::default();
        let power = (1023 - negative_power) << 52;
        let result =
            float::multiply_add::<Double>((smallest, power, smallest), true, false, rounding, &mut raised);
        assert_eq!((result, raised), (smallest, flags), "2^-{negative_power}, {rounding:?}");
    }
}

#[test]
fn square_roots_are_exactly_rounded() {
    // The oracle has no square root: the rounded root r is checked by comparing r² and its neighbours' with
    // the radicand.
    let mut random = Random(77);
    for _ in 0..TUPLES {
        let a = random.operand::<Double>(0);
        let value = f64::from_bits(a);
        for before in [Flags::default(), Flags::INEXACT] {
            let mut raised = before;
            let root = float::square_root::<Double>(a, Rounding::NearestEven, &mut raised);
            if value.is_nan() || value < 0.0 {
                assert_eq!(root, Double::NAN, "{a:#x}");
                let is_quiet = value.is_nan() && a & Double::QUIET != 0;
                assert_eq!(raised.contains(Flags::INVALID), !is_quiet, "{a:#x}");
                continue;
            }
            assert_eq!(root, value.sqrt().to_bits(), "{a:#x}");
            if value.is_finite() {
                let exact = OracleDouble::from_bits(root.into());
                let square = exact.mul_r(exact, Round::NearestTiesToEven);
                let is_exact =
                    square.status == Status::OK && f64::from_bits(square.value.to_bits() as u64) == value;
                assert_eq!(raised.contains(Flags::INEXACT), !is_exact || before == Flags::INEXACT, "{a:#x}");
                let down = float::square_root::<Double>(a, Rounding::Down, &mut raised);
                let up = float::square_root::<Double>(a, Rounding::Up, &mut raised);
                assert_eq!(up - down, u64::from(!is_exact), "{a:#x}");
                assert!(down == root || up == root, "{a:#x}");
                assert_eq!(
                    float::square_root::<Double>(a, Rounding::TowardsZero, &mut raised),
                    down,
                    "{a:#x}"
                );
                assert_eq!(
                    float::square_root::<Double>(a, Rounding::NearestAway, &mut raised),
                    root,
                    "{a:#x}"
                );
            }
        }
        let single = random.operand::<Single>(0);
        let value = f32::from_bits(single as u32);
        if value >= 0.0 {
            let root = float::square_root::<Single>(
                Single::to_box(single),
                Rounding::NearestEven,
                &mut Flags::default(),
            );
            assert_eq!(root, Single::to_box(value.sqrt().to_bits().into()), "{single:#x}");
        }
    }
}

/// Compares conversions to integers of a width with the oracle's.
fn compare_to_integers<F: Format, O: Float>(a: u64) {
    for (rounding, round) in ROUNDINGS {
        for (width, is_signed) in
            [(Width::Word, true), (Width::Word, false), (Width::Double, true), (Width::Double, false)]
        {
            let bits = 8 * width.bytes() as usize;
            let mut raised = Flags::default();
            let result = float::to_integer::<F>(F::to_box(a), width, is_signed, rounding, &mut raised);
            let value = O::from_bits(a.into());
            let mut is_exact = false;
            let (expected, status) = if is_signed {
                let converted = value.to_i128_r(bits, round, &mut is_exact);
                (converted.value as u64, converted.status)
            } else {
                let converted = value.to_u128_r(bits, round, &mut is_exact);
                (converted.value as u64, converted.status)
            };
            // The oracle converts a NaN to zero, RISC-V to the greatest integer.
            let greatest = width.truncate(u64::MAX) >> u32::from(is_signed);
            let expected = if value.is_nan() { greatest } else { expected };
            let context = format!("{a:#x} to {width:?}, signed {is_signed}, {rounding:?}");
            assert_eq!(result, width.sign_extend(expected), "{context}");
            assert_eq!(raised, flags(status), "{context}");
        }
    }
}

/// Compares conversions from integers with the oracle's.
fn compare_from_integers<F: Format, O: Float>(value: u64) {
    for (rounding, round) in ROUNDINGS {
        for (width, is_signed) in
            [(Width::Word, true), (Width::Word, false), (Width::Double, true), (Width::Double, false)]
        {
            let mut raised = Flags::default();
            let result = float::from_integer::<F>(value, width, is_signed, rounding, &mut raised);
            let expected = if is_signed {
                O::from_i128_r(i128::from(width.sign_extend(value) as i64), round)
            } else {
                O::from_u128_r(u128::from(width.truncate(value)), round)
            };
            let context = format!("{value:#x} as {width:?}, signed {is_signed}, {rounding:?}");
            assert_eq!(
                (F::unbox(result), raised),
                (bits::<F, O>(expected.value), flags(expected.status)),
                "{context}"
            );
        }
    }
}

#[test]
fn conversions_are_those_of_the_oracle() {
    let mut random = Random(4711);
    for _ in 0..TUPLES {
        let double = random.operand::<Double>(0);
        let single = random.operand::<Single>(0);
        compare_to_integers::<Double, OracleDouble>(double);
        compare_to_integers::<Single, OracleSingle>(single);
        let integer = random.next() >> (random.next() % 64);
        compare_from_integers::<Double, OracleDouble>(integer);
        compare_from_integers::<Single, OracleSingle>(integer.wrapping_neg());
        for (rounding, round) in ROUNDINGS {
            let mut loses = false;
            let value = OracleDouble::from_bits(double.into());
            let expected: StatusAnd<OracleSingle> = value.convert_r(round, &mut loses);
            let mut raised = Flags::default();
            let result = float::narrow(double, rounding, &mut raised);
            let mut wanted = flags(expected.status);
            if value.is_nan() {
                wanted = if value.is_signaling() { Flags::INVALID } else { Flags::default() };
            }
            let expected = bits::<Single, OracleSingle>(expected.value);
            allow_limits::<Single>(expected, Flags::default(), raised, &mut wanted);
            assert_eq!((Single::unbox(result), raised), (expected, wanted), "{double:#x}, {rounding:?}");
        }
        let mut raised = Flags::default();
        let result = float::widen(Single::to_box(single), &mut raised);
        let value = f32::from_bits(single as u32);
        if value.is_nan() {
            assert_eq!(result, Double::NAN);
            assert_eq!(raised.contains(Flags::INVALID), single & Single::QUIET == 0, "{single:#x}");
        } else {
            assert_eq!((result, raised), (f64::from(value).to_bits(), Flags::default()), "{single:#x}");
        }
    }
}

#[test]
fn comparisons_are_those_of_the_host_and_flag_nans() {
    let mut random = Random(99);
    for _ in 0..TUPLES {
        let a = random.operand::<Double>(0);
        let b = random.operand::<Double>(a);
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        let is_nan = x.is_nan() || y.is_nan();
        let is_signal = |bits: u64| f64::from_bits(bits).is_nan() && bits & Double::QUIET == 0;
        let has_signal = is_signal(a) || is_signal(b);
        let context = format!("{a:#x}, {b:#x}");
        let mut raised = Flags::default();
        assert_eq!(float::equal::<Double>(a, b, &mut raised), x == y, "{context}");
        assert_eq!(raised.contains(Flags::INVALID), has_signal, "{context}");
        let mut raised = Flags::default();
        assert_eq!(float::less::<Double>(a, b, &mut raised), x < y, "{context}");
        assert_eq!(raised.contains(Flags::INVALID), is_nan, "{context}");
        let mut raised = Flags::default();
        assert_eq!(float::less_or_equal::<Double>(a, b, &mut raised), x <= y, "{context}");
        assert_eq!(raised.contains(Flags::INVALID), is_nan, "{context}");
        let mut raised = Flags::default();
        let least = float::minimum::<Double>(a, b, &mut raised);
        let greatest = float::maximum::<Double>(a, b, &mut raised);
        assert_eq!(raised.contains(Flags::INVALID), has_signal, "{context}");
        let (expected_least, expected_greatest) = match (x.is_nan(), y.is_nan()) {
            (true, true) => (Double::NAN, Double::NAN),
            (true, false) => (b, b),
            (false, true) => (a, a),
            _ if x.total_cmp(&y).is_le() => (a, b),
            _ => (b, a),
        };
        assert_eq!((least, greatest), (expected_least, expected_greatest), "{context}");
    }
}

#[test]
fn classes_are_those_of_the_specification() {
    for (bits, class) in [
        (0xfff0_0000_0000_0000, 0),
        (0xbff0_0000_0000_0000, 1),
        (0x8000_0000_0000_0001, 2),
        (0x8000_0000_0000_0000, 3),
        (0, 4),
        (0x000f_ffff_ffff_ffff, 5),
        (0x0010_0000_0000_0000, 6),
        (0x7ff0_0000_0000_0000, 7),
        (0x7ff0_0000_0000_0001, 8),
        (0x7ff8_0000_0000_0000, 9),
        (0xfff8_0000_0000_0000, 9),
    ] {
        assert_eq!(float::classify::<Double>(bits), 1 << class, "{bits:#x}");
    }
    // A register that holds no single-precision number counts as the canonical NaN.
    assert_eq!(float::classify::<Single>(0x3f80_0000), 1 << 9);
    assert_eq!(float::classify::<Single>(0xffff_ffff_3f80_0000), 1 << 6);
    assert_eq!(float::classify::<Single>(0xffff_ffff_0000_0001), 1 << 5);
}
