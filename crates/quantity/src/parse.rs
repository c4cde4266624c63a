//! Parsers. Invariant: the result is exactly the quantity that the text states.

use core::fmt;
use core::time::Duration;

/// Error for a text that is no quantity of the expected kind. Its message states the accepted notation; the
/// caller adds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The text is not a size.
    Size,
    /// The text is not a rate.
    Rate,
    /// The text is not a duration. The unit is that of a number alone.
    Duration(TimeUnit),
    /// The quantity does not fit 64 bits.
    TooLarge,
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Size => out.write_str(
                "not a size: give bytes, or a whole number with K, M, G, T or P (powers of 1024) or KB, MB ... \
                 (powers of 1000), as in 4096, 64K or 1M",
            ),
            ParseError::Rate => out.write_str(
                "not a rate: give bytes per second, or a whole number with K, M, G or T, as in 100M or 100M/s",
            ),
            ParseError::Duration(unit) => {
                write!(out, "not a duration: give {unit}, or a number with ns, us, ms, s, min or h, as in ")?;
                out.write_str(match unit {
                    TimeUnit::Nanosecond => "300 or 10us",
                    TimeUnit::Microsecond => "100 or 2ms",
                    TimeUnit::Millisecond => "500 or 2s",
                    TimeUnit::Second => "2, 0.5 or 500ms",
                })
            }
            ParseError::TooLarge => out.write_str("too large: it must fit 64 bits"),
        }
    }
}

impl core::error::Error for ParseError {}

/// Unit of a duration that is written without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeUnit {
    /// 10^-9 seconds.
    Nanosecond,
    /// 10^-6 seconds.
    Microsecond,
    /// 10^-3 seconds.
    Millisecond,
    /// One second.
    Second,
}

impl TimeUnit {
    fn nanoseconds(self) -> u64 {
        match self {
            TimeUnit::Nanosecond => 1,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Second => 1_000_000_000,
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TimeUnit::Nanosecond => "nanoseconds",
            TimeUnit::Microsecond => "microseconds",
            TimeUnit::Millisecond => "milliseconds",
            TimeUnit::Second => "seconds",
        })
    }
}

/// Units of sizes, in bytes: a letter alone and with `iB` is a power of 1024, with `B` a power of 1000, as in
/// dd(1) and truncate(1).
const SIZES: [(&str, u64); 17] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("P", 1 << 50),
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
];

/// Units of durations, in nanoseconds.
const DURATIONS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a number of bytes: decimal digits, optionally followed by a unit in upper or lower case: K, M, G, T
/// and P, also with `iB`, are powers of 1024; with `B` they are powers of 1000.
///
/// # Errors
/// [`ParseError::Size`] if the text is not a whole number with such a unit, [`ParseError::TooLarge`] if the
/// size does not fit 64 bits.
pub fn size(text: &str) -> Result<u64, ParseError> {
    let (digits, unit) = text.split_at(digits_of(text));
    let known = SIZES.iter().find(|known| known.0.eq_ignore_ascii_case(unit));
    let (Some((_, factor)), false) = (known, digits.is_empty()) else { return Err(ParseError::Size) };
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(*factor)).ok_or(ParseError::TooLarge)
}

/// Parses a number of bytes per second: a size, optionally followed by `/s`.
///
/// # Errors
/// [`ParseError::Rate`] if the text is neither, [`ParseError::TooLarge`] if the rate does not fit 64 bits.
pub fn rate(text: &str) -> Result<u64, ParseError> {
    size(text.strip_suffix("/s").unwrap_or(text)).map_err(|error| match error {
        ParseError::Size => ParseError::Rate,
        other => other,
    })
}

/// Parses a duration: a decimal number, optionally followed by ns, us, ms, s, min or h. A number alone is in
/// `unit`. Fractions of a nanosecond are cut off.
///
/// # Errors
/// [`ParseError::Duration`] if the text is not such a number, [`ParseError::TooLarge`] if the duration is
/// 2^64 nanoseconds (584 years) or more.
pub fn duration(text: &str, unit: TimeUnit) -> Result<Duration, ParseError> {
    let wrong = ParseError::Duration(unit);
    let (whole, rest) = text.split_at(digits_of(text));
    let behind_point = rest.strip_prefix('.').unwrap_or("");
    let fraction = &behind_point[..digits_of(behind_point)];
    let name = if rest.starts_with('.') { &behind_point[fraction.len()..] } else { rest };
    if whole.is_empty() || (rest.starts_with('.') && fraction.is_empty()) {
        return Err(wrong);
    }
    let factor = match name {
        "" => unit.nanoseconds(),
        name => DURATIONS.iter().find(|known| known.0 == name).ok_or(wrong)?.1,
    };
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(factor));
    let whole = whole.ok_or(ParseError::TooLarge)?;
    // Digits behind the eighteenth are less than a nanosecond, also of hours.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = fraction.parse::<u128>().unwrap_or(0) * u128::from(factor) / 10u128.pow(fraction.len() as u32);
    // Less than one unit, which fits.
    whole.checked_add(part as u64).map(Duration::from_nanos).ok_or(ParseError::TooLarge)
}

/// Returns the number of decimal digits at the beginning of `text`.
fn digits_of(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn sizes_in_binary_and_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("7B", 7),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("64kib", 65_536),
            ("64KB", 64_000),
            ("64kB", 64_000),
            ("1M", 1 << 20),
            ("1MB", 1_000_000),
            ("3g", 3 << 30),
            ("1T", 1 << 40),
            ("2PiB", 2 << 50),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(rate(text), Ok(bytes), "{text}");
            assert_eq!(rate(&format!("{text}/s")), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in ["", "K", "-1", "+1", "1.5M", "64X", "64 K", "0x10", "1Ki", "1/s", "١", " 1"] {
            assert_eq!(size(text), Err(ParseError::Size), "{text}");
        }
        for text in ["99999999999999999999", "99999999999G", "16384P"] {
            assert_eq!(size(text), Err(ParseError::TooLarge), "{text}");
        }
        assert_eq!(rate("fast"), Err(ParseError::Rate));
        assert!(ParseError::Size.to_string().contains("as in 4096, 64K or 1M"));
    }

    #[test]
    fn durations_with_and_without_a_unit() {
        for (text, unit, nanoseconds) in [
            ("0", TimeUnit::Second, 0),
            ("2", TimeUnit::Second, 2_000_000_000),
            ("0.5", TimeUnit::Second, 500_000_000),
            ("300", TimeUnit::Nanosecond, 300),
            ("1.5us", TimeUnit::Nanosecond, 1_500),
            ("10ms", TimeUnit::Second, 10_000_000),
            ("2min", TimeUnit::Second, 120_000_000_000),
            ("1h", TimeUnit::Millisecond, 3_600_000_000_000),
            ("100", TimeUnit::Microsecond, 100_000),
            ("0.0000000019", TimeUnit::Second, 1),
            ("1.00000000000000000000001h", TimeUnit::Second, 3_600_000_000_000),
        ] {
            assert_eq!(duration(text, unit), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in ["", ".", "1.", ".5", "-1", "1e3", "s", "1 s", "1S", "inf", "1.5.5", "1m"] {
            let error = duration(text, TimeUnit::Second).unwrap_err();
            assert_eq!(error, ParseError::Duration(TimeUnit::Second), "{text}");
        }
        assert_eq!(duration("99999999999999", TimeUnit::Second), Err(ParseError::TooLarge));
        assert!(ParseError::Duration(TimeUnit::Second).to_string().contains("give seconds"));
    }

    proptest! {
        #[test]
        fn every_number_with_every_unit(number in 0u64..1 << 20, index in 0..SIZES.len()) {
            let (unit, factor) = SIZES[index];
            prop_assert_eq!(size(&format!("{number}{unit}")), number.checked_mul(factor).ok_or(ParseError::TooLarge));
        }

        #[test]
        fn durations_are_exact(nanoseconds in any::<u64>()) {
            let expected = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(duration(&format!("{nanoseconds}ns"), TimeUnit::Second), Ok(expected));
            let (seconds, part) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
            prop_assert_eq!(duration(&format!("{seconds}.{part:09}"), TimeUnit::Second), Ok(expected));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,12}") {
            let _ = (size(&text), rate(&text), duration(&text, TimeUnit::Millisecond));
        }
    }
}
