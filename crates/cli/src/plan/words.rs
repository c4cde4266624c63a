//! Conversion of numbers to text.

use crate::error::Failure;
use serde::Serialize;
use std::io::{self, Write};

const MIB: f64 = 1048576.0;

/// Formats a throughput, given in bytes a second, in MiB/s.
pub fn rate(bytes: f64) -> String {
    format!("{:.1} MiB/s", bytes / MIB)
}

/// Formats a time, given in seconds. Response times of an overloaded server are infinite.
pub fn time(seconds: f64) -> String {
    match seconds {
        endless if endless.is_infinite() => "no limit".into(),
        long if long >= 1.0 => format!("{long:.2} s"),
        middle if middle >= 1e-3 => format!("{:.2} ms", middle * 1e3),
        short => format!("{:.2} us", short * 1e6),
    }
}

/// Formats the half width of a confidence interval as a percentage of the mean; empty for an infinite mean.
pub fn around(mean: f64, half_width: f64) -> String {
    if mean.is_infinite() {
        String::new()
    } else if half_width.is_finite() {
        format!("± {:.1} %", half_width / mean.max(f64::MIN_POSITIVE) * 100.0)
    } else {
        "± ?".into()
    }
}

/// Formats the bounds of a confidence interval of a time, given in seconds.
pub fn between([low, high]: [f64; 2]) -> String {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => format!("{} to {}", time(low), time(high)),
        (true, false) => format!("{} at least", time(low)),
        _ => String::new(),
    }
}

/// Formats a value as JSON, with a newline at the end.
pub fn json(value: &impl Serialize) -> String {
    // Numbers, names and lists of them always have a JSON form, so serialisation cannot fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Prints to standard output and returns exit status 0.
///
/// # Errors
/// [`Failure::Output`] if standard output cannot be written.
pub fn print(text: &str) -> Result<i32, Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)?;
    Ok(0)
}
