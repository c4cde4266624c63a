//! Quantities as text for people: rounded, or grouped.

use core::fmt::{self, Write};

/// A number of bytes that displays as up to four digits and a unit.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return pad(out, format_args!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // A value that would be rounded to 1024 is shown as 1 of the next unit.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = usize::from(value < 99.95 && value != (value as u64) as f64);
        pad(out, format_args!("{value:.digits$} {}", UNITS[unit]))
    }
}

/// A count that displays with commas between groups of three digits.
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = Text::new();
        write!(digits, "{}", self.0)?;
        let mut text = Text::new();
        for (index, digit) in digits.get().char_indices() {
            if index > 0 && (digits.get().len() - index).is_multiple_of(3) {
                text.write_char(',')?;
            }
            text.write_char(digit)?;
        }
        out.pad(text.get())
    }
}

/// Writes a short text with the width and the alignment that the formatter asks for.
fn pad(out: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    let mut short = Text::new();
    short.write_fmt(text)?;
    out.pad(short.get())
}

/// Text of at most 32 bytes: no quantity here is longer.
struct Text {
    bytes: [u8; 32],
    length: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; 32], length: 0 }
    }

    fn get(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.bytes[self.length..].get_mut(..text.len()).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::ToString;

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
