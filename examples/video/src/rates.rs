//! Rates: the one of each file, by a table, and the one that a client may ask for.
//!
//! A table is a text: in each line a pattern of names and a rate, such as `films/*.mp4  8Mbit`. The first line that
//! matches counts. In a pattern `*` stands for any text. Empty lines, and lines that begin with `#`, are ignored.

use std::path::Path;

/// Rates of files, in bytes per second.
#[derive(Clone, Debug)]
pub struct Rates {
    table: Vec<(String, u64)>,
    default: u64,
    /// Greatest rate that clients may ask for; `None` if they may not.
    client_max: Option<u64>,
}

impl Rates {
    /// Returns rates with a table from a file, if there is one.
    ///
    /// # Errors
    /// A message with the path and the line, if the table cannot be read or is wrong.
    pub fn new(table: Option<&Path>, default: u64, client_max: Option<u64>) -> Result<Rates, String> {
        let table = table.map_or(Ok(Vec::new()), |path| {
            let told = |error: String| format!("--rates {}: {error}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| told(error.to_string()))?;
            parse_table(&text).map_err(told)
        })?;
        Ok(Rates { table, default, client_max })
    }

    /// Returns the rate of a stream of the file `name`, in bytes per second. `query` is the one of the URL, of which
    /// `rate=` counts if clients may ask for a rate.
    ///
    /// # Errors
    /// A message for the client, if the rate that it asks for is no rate or too high.
    pub fn rate(&self, name: &str, query: Option<&str>) -> Result<u64, String> {
        let asked = query.and_then(|query| query.split('&').find_map(|part| part.strip_prefix("rate=")));
        if let (Some(most), Some(asked)) = (self.client_max, asked) {
            return match parse(asked)? {
                rate if rate <= most => Ok(rate),
                _ => Err(format!("rate={asked} is too high: the most is {}", told(most))),
            };
        }
        let found = self.table.iter().find(|(pattern, _)| matches(pattern, name));
        Ok(found.map_or(self.default, |(_, rate)| *rate))
    }
}

/// Parses a rate: bits per second with the unit bit, kbit, Mbit or Gbit, or bytes per second as a size; both may end in
/// `/s`. Returns bytes per second.
///
/// # Errors
/// A message that says what a rate is.
pub fn parse(text: &str) -> Result<u64, String> {
    let bytes = parse_any(text)?;
    if (RATE_MIN..=RATE_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("the rate {text} is not within {} and {}", told(RATE_MIN), told(RATE_MAX)))
}

/// Parses a rate, as [`parse`] does, that may be higher than that of a stream.
///
/// # Errors
/// A message that says what a rate is.
pub fn parse_any(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no rate; write it as 8Mbit, 2500kbit or 1M (bytes per second)");
    let rate = text.strip_suffix("/s").unwrap_or(text);
    let bits = BITS.iter().find_map(|(unit, bits)| Some((rate.strip_suffix(unit)?, *bits)));
    match bits {
        Some((number, bits)) => {
            let number: f64 = number.parse().map_err(|_| wrong())?;
            (number.is_finite() && number > 0.0).then(|| (number * bits / 8.0) as u64).ok_or_else(wrong)
        }
        None => bywash_quantity::rate(rate).map_err(|_| wrong()),
    }
}

/// Returns a rate in words.
pub fn told(bytes_per_second: u64) -> String {
    match bytes_per_second as f64 * 8.0 {
        bits if bits >= 1e9 => format!("{:.4} Gbit/s", bits / 1e9),
        bits if bits >= 1e6 => format!("{:.1} Mbit/s", bits / 1e6),
        bits => format!("{:.0} kbit/s", bits / 1e3),
    }
}

fn parse_table(text: &str) -> Result<Vec<(String, u64)>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let rows = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    rows.map(|(number, line)| {
        let (pattern, rate) = line
            .rsplit_once(char::is_whitespace)
            .ok_or_else(|| format!("line {number}: '{line}' is not a pattern and a rate"))?;
        let rate = parse(rate).map_err(|error| format!("line {number}: {error}"))?;
        Ok((pattern.trim().to_owned(), rate))
    })
    .collect()
}

/// Returns true if a name matches a pattern, in time proportional to the product of their lengths at most.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut is_open = false;
    let parts: Vec<_> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        is_open = true;
        if index + 1 == parts.len() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    is_open || rest.is_empty()
}

/// Units of bits, the longest names first.
const BITS: [(&str, f64); 4] = [("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
/// Least rate of a stream: 8 kbit/s.
const RATE_MIN: u64 = 1000;
/// Greatest rate of a stream: 8 Gbit/s.
const RATE_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        let cases = [
            ("8Mbit", 1_000_000),
            ("2.5Mbit/s", 312_500),
            ("800kbit", 100_000),
            ("1M", 1 << 20),
            ("64K/s", 64 << 10),
        ];
        for (text, rate) in cases {
            assert_eq!(parse(text), Ok(rate), "{text}");
        }
        for text in ["", "8", "Mbit", "-8Mbit", "infMbit", "nanMbit", "9Gbit", "fast", "1 Mbit x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_line_that_matches_counts() {
        let table =
            parse_table("# films\nfilms/trailer.mp4 4Mbit\nfilms/*.mp4\t8Mbit\n\n*.mkv 2Mbit\n").unwrap();
        let rates = Rates { table, default: 1000, client_max: None };
        let rate = |name: &str| rates.rate(name, Some("rate=1Mbit")).unwrap();
        assert_eq!(rate("films/trailer.mp4"), 500_000);
        assert_eq!(rate("films/a.mp4"), 1_000_000);
        assert_eq!(rate("a/b.mkv"), 250_000);
        assert_eq!(rate("films/a.mp4.txt"), 1000);
        assert_eq!(parse_table("a 8Mbit\nb").unwrap_err(), "line 2: 'b' is not a pattern and a rate");
        assert!(parse_table("a b c fast").unwrap_err().starts_with("line 1: 'fast' is no rate"));
    }

    #[test]
    fn patterns_have_stars() {
        for (pattern, name, is_so) in [
            ("*", "", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "ac", false),
            ("ab*ba", "aba", false),
            ("a", "ab", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, name), is_so, "{pattern} {name}");
        }
    }

    #[test]
    fn clients_ask_if_they_may() {
        let rates = Rates { table: Vec::new(), default: 1_000_000, client_max: Some(2_000_000) };
        assert_eq!(rates.rate("a", Some("x=1&rate=16Mbit")), Ok(2_000_000));
        assert_eq!(rates.rate("a", Some("x=1")), Ok(1_000_000));
        assert_eq!(
            rates.rate("a", Some("rate=17Mbit")).unwrap_err(),
            "rate=17Mbit is too high: the most is 16.0 Mbit/s"
        );
        assert!(rates.rate("a", Some("rate=")).is_err());
    }
}
