//! The plan of a flow.

use serde::Serialize;
use std::fmt;

/// A way to move bytes between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mover {
    /// Blocks are read into a buffer and written from it (read(2), write(2)).
    Buffer,
}

impl fmt::Display for Mover {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("buffer")
    }
}
