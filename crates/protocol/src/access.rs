//! Kinds of access, of devices, grants and requests alike.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of access: that a device offers, that a client asks for, that a request needs, or that a grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Access {
    /// Reading.
    Read = 1,
    /// Writing, discarding, writing zeroes. No operation with this access reveals contents, not even a
    /// comparison.
    Write = 2,
    /// Reading and writing, as for compare-and-write.
    ReadWrite = 3,
}

impl Access {
    /// Returns true if `self` includes everything that `wanted` includes.
    #[inline]
    pub fn covers(self, wanted: Access) -> bool {
        self as u8 & wanted as u8 == wanted as u8
    }

    /// Returns true if the access includes reading.
    pub fn allows_read(self) -> bool {
        self.covers(Access::Read)
    }

    /// Returns true if the access includes writing.
    pub fn allows_write(self) -> bool {
        self.covers(Access::Write)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "read-write",
        })
    }
}
