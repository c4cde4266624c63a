//! Hash algorithms, as the user names them.

use crate::error::Error;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Algorithm of a `hash:` stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HashAlgorithm {
    /// SHA-256, as sha256sum(1) computes it.
    Sha256,
    /// SHA-512, as sha512sum(1) computes it.
    Sha512,
    /// BLAKE3, as b3sum computes it; several times as fast as the others.
    Blake3,
}

impl HashAlgorithm {
    /// All algorithms, in the order in which messages list them.
    pub const ALL: [HashAlgorithm; 3] = [HashAlgorithm::Sha256, HashAlgorithm::Sha512, HashAlgorithm::Blake3];

    /// Returns the number of hexadecimal digits of a hash.
    pub fn digits(self) -> usize {
        match self {
            HashAlgorithm::Sha256 | HashAlgorithm::Blake3 => 64,
            HashAlgorithm::Sha512 => 128,
        }
    }
}

impl FromStr for HashAlgorithm {
    type Err = Error;

    fn from_str(text: &str) -> Result<HashAlgorithm, Error> {
        HashAlgorithm::ALL.into_iter().find(|known| known.to_string() == text).ok_or_else(|| {
            let names = HashAlgorithm::ALL.map(|known| known.to_string()).join(", ");
            Error::Usage(format!("there is no hash '{text}'; there are {names}"))
        })
    }
}

impl fmt::Display for HashAlgorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            HashAlgorithm::Sha256 => "sha256",
            HashAlgorithm::Sha512 => "sha512",
            HashAlgorithm::Blake3 => "blake3",
        })
    }
}
