//! Quantities as text with a unit: `"1.5 GHz"`, `"116 MiB/s"`, `"2 ms"`, `"10 %"`.
//!
//! A number without a unit is refused, and so is a unit of another quantity; the error lists the units that
//! fit. [`crate::describe`] parses these types. They are written back in the largest unit in which the value
//! is at least 1.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Error for a text that is not a quantity of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {what}: write a number and one of {units}, as in '{example}'")]
pub struct ParseQuantityError {
    text: String,
    what: &'static str,
    units: String,
    example: &'static str,
}

/// Splits a text into its number and its unit. Returns `None` if the number is missing, negative or not
/// finite.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = unit_begin(text);
    let (number, unit) = match text[..end].trim().parse::<f64>() {
        Ok(number) => (number, text[end..].trim()),
        Err(_) => return None,
    };
    (number.is_finite() && number >= 0.0).then_some((number, unit))
}

/// Returns the index of the first byte of the unit: the first letter that is not the `e` of an exponent, or the
/// first `%` or `/`.
fn unit_begin(text: &str) -> usize {
    let is_exponent = |rest: &str| {
        let digits = rest[1..].strip_prefix(['+', '-']).unwrap_or(&rest[1..]);
        rest.starts_with(['e', 'E']) && digits.starts_with(|digit: char| digit.is_ascii_digit())
    };
    let letters =
        text.char_indices().filter(|(_, letter)| letter.is_alphabetic() || ['%', '/'].contains(letter));
    let mut units = letters.filter(|(index, _)| !is_exponent(&text[*index..]));
    units.next().map_or(text.len(), |(index, _)| index)
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $what:literal, $example:literal, [$(($unit:literal, $factor:expr)),+ $(,)?]) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        pub struct $name(pub f64);

        impl $name {
            const UNITS: &'static [(&'static str, f64)] = &[$(($unit, $factor)),+];
        }

        impl FromStr for $name {
            type Err = ParseQuantityError;

            fn from_str(text: &str) -> Result<$name, ParseQuantityError> {
                let refused = || ParseQuantityError {
                    text: text.into(),
                    what: $what,
                    units: $name::UNITS.iter().map(|unit| unit.0).collect::<Vec<_>>().join(", "),
                    example: $example,
                };
                let (number, unit) = split(text).ok_or_else(refused)?;
                let known = $name::UNITS.iter().find(|known| known.0 == unit).ok_or_else(refused)?;
                Ok($name(number * known.1))
            }
        }

        impl fmt::Display for $name {
            /// Writes the value in the largest unit in which it is at least 1, or else in the first unit of
            /// the list.
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                let fits = |unit: &&(&str, f64)| self.0 >= unit.1;
                let largest = $name::UNITS.iter().filter(fits).max_by(|one, other| one.1.total_cmp(&other.1));
                let unit = largest.or($name::UNITS.first()).copied().unwrap_or(("", 1.0));
                write!(out, "{} {}", self.0 / unit.1, unit.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(out, "{} with its unit, as in \"{}\"", $what, $example)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;
const GIB: f64 = KIB * MIB;

quantity!(
    /// Rate, in bytes per second.
    Rate, "a rate", "116 MiB/s",
    [
        ("B/s", 1.0), ("kB/s", 1e3), ("KiB/s", KIB), ("MB/s", 1e6), ("MiB/s", MIB), ("GB/s", 1e9), ("GiB/s", GIB),
        ("Mbit/s", 1e6 / 8.0), ("Gbit/s", 1e9 / 8.0),
    ]
);
quantity!(
    /// Frequency, in cycles per second.
    Frequency, "a frequency", "1.5 GHz",
    [("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)]
);
quantity!(
    /// Size, in bytes.
    Size, "a size", "16 KiB",
    [("B", 1.0), ("kB", 1e3), ("KiB", KIB), ("MB", 1e6), ("MiB", MIB), ("GB", 1e9), ("GiB", GIB), ("TB", 1e12), ("TiB", KIB * GIB)]
);
quantity!(
    /// Time, in seconds.
    Time, "a time", "2 ms",
    [("s", 1.0), ("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("min", 60.0)]
);
quantity!(
    /// Share of a whole, 0 to 1.
    Share, "a share", "10 %",
    [("%", 0.01)]
);
quantity!(
    /// Cost per byte, in processor cycles.
    CyclesPerByte, "a cost for a byte", "3.8 cycles/B",
    [("cycles/B", 1.0)]
);
quantity!(
    /// Number of events per second.
    PerSecond, "a number in a time", "2000 /s",
    [("/s", 1.0), ("/min", 1.0 / 60.0), ("/h", 1.0 / 3600.0)]
);
quantity!(
    /// Number of processor cycles.
    Cycles, "a number of cycles", "20000 cycles",
    [("cycles", 1.0)]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        assert_eq!("1.5 GHz".parse(), Ok(Frequency(1.5e9)));
        assert_eq!("116 MiB/s".parse(), Ok(Rate(116.0 * MIB)));
        assert_eq!("100 Gbit/s".parse(), Ok(Rate(12.5e9)));
        assert_eq!("16KiB".parse(), Ok(Size(16384.0)));
        assert_eq!("10 %".parse(), Ok(Share(0.1)));
        assert_eq!("2.5us".parse(), Ok(Time(2.5 * 1e-6)));
        assert_eq!("1e9 B/s".parse(), Ok(Rate(1e9)));
        assert_eq!("1.5e+3MiB/s".parse(), Ok(Rate(1500.0 * MIB)));
        assert_eq!("25E-1 s".parse(), Ok(Time(2.5)));
        assert_eq!("2000 /s".parse(), Ok(PerSecond(2000.0)));
        assert_eq!("1.2e4/min".parse(), Ok(PerSecond(1.2e4 * (1.0 / 60.0))));
        assert_eq!(PerSecond(0.5).to_string(), "30 /min");
    }

    #[test]
    fn a_suffix_means_what_it_means_on_the_command_line() {
        for (unit, factor) in Size::UNITS {
            assert_eq!(bywash_quantity::size(&format!("1{unit}")), Ok(*factor as u64), "{unit}");
        }
        for (unit, factor) in Time::UNITS {
            let duration = bywash_quantity::duration(&format!("1{unit}"), bywash_quantity::TimeUnit::Second);
            assert!((duration.unwrap().as_secs_f64() - factor).abs() <= factor * 1e-12, "{unit}");
        }
    }

    #[test]
    fn a_wrong_unit_is_refused_with_those_that_fit() {
        for text in ["5", "5 GHz", "GB/s", "-1 B/s", "five B/s", "1e B/s", "e9 B/s", ""] {
            let refused = text.parse::<Rate>().unwrap_err().to_string();
            assert!(refused.contains("GiB/s") && refused.contains(&format!("'{text}'")), "{refused}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for rate in [1.0, 999.0, 1e6, 2.0 * GIB, 6.7 * MIB, 0.0] {
            let text = Rate(rate).to_string();
            let again: Rate = text.parse().unwrap();
            assert!((again.0 - rate).abs() <= rate * 1e-12, "{text}");
        }
        assert_eq!(Time(0.002).to_string(), "2 ms");
    }
}
