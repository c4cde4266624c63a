//! Messages of the bench on standard error. It may be closed or full: a bench goes on, and cleans up, all the same.

use std::fmt::Display;
use std::io::{self, Write};

/// Tells a line.
pub(crate) fn say(line: impl Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
