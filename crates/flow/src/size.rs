//! Sizes and counts in the notation that people write and read.
//!
//! Invariant: [`parse`] returns the exact number that the text says; [`Bytes`] and [`Count`] print rounded or
//! grouped numbers, for people only. Called by the endpoints and stages of a flow, and by the command's flags
//! and tables.

use std::fmt;

/// Parses a number of bytes: decimal digits, optionally followed by B, K, M or G in either case (multiples of
/// 1024; `KiB` and `KB` mean the same as K).
///
/// # Errors
/// A message with the wrong text and the accepted notation, if the text is not a size or does not fit 64
/// bits.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(format!("'{text}' is not a size: {REMEDY}")),
    };
    if number.is_empty() {
        return Err(format!("'{text}' is not a size: {REMEDY}"));
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("'{text}' is more than 64 bits hold: {REMEDY}"))
}

const REMEDY: &str = "give bytes, or a whole number with K, M or G, as in 4096, 64K or 1M";

/// A number of bytes that displays as up to four digits and a unit.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return out.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // A value that would be rounded to 1024 is shown as 1 of the next unit.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = usize::from(value < 99.95 && value.fract() != 0.0);
        out.pad(&format!("{value:.digits$} {}", UNITS[unit]))
    }
}

/// A count that displays with commas between groups of three digits.
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (place, digit) in digits.char_indices() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        out.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("1M", 1 << 20),
            ("3g", 3 << 30),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_remedy() {
        for text in ["", "K", "-1", "1.5M", "64X", "64 K", "0x10", "99999999999999999999", "99999999999G"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(REMEDY), "{text}: {error}");
        }
    }

    #[test]
    fn bytes_are_printed_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (123_456, "121 KiB"),
            (1_048_575, "1.0 MiB"),
            (1 << 20, "1 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>8}", Bytes(3)), "     3 B");
    }

    #[test]
    fn counts_are_printed_with_thousands_apart() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(Count(count).to_string(), text);
        }
    }
}
