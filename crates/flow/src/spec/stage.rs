//! Stages: the text form and the value of an operation on data in a flow.

use super::endpoint::Endpoint;
use super::words::{Words, number, option};
use crate::Error;
use crate::size;
use serde::Serialize;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

/// An operation on the data of a flow between its source and its sink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// `hash:ALGORITHM`: computes a hash for the report; with `expect=HEX` the flow fails if the hash
    /// differs.
    Hash {
        /// Hash algorithm.
        algorithm: HashAlgorithm,
        /// Expected hash, in lower-case hexadecimal digits; `None` for any.
        expect: Option<String>,
    },
    /// `tee:ENDPOINT`: copies the data to another sink too.
    Tee(Endpoint),
    /// `limit:SIZE`: ends the flow after this number of bytes.
    Limit(u64),
    /// `rate:SIZE`: limits the flow to this number of bytes a second.
    Rate(u64),
    /// `compress:zstd`: compresses the data.
    Compress {
        /// Level of compression, 1 (fastest) to 19 (smallest).
        level: i32,
    },
    /// `decompress:`: decompresses Zstandard data.
    Decompress,
    /// `exec:COMMAND`: pipes the data through a program, which the shell runs.
    Exec(String),
}

/// Algorithm of a `hash:` stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HashAlgorithm {
    /// SHA-256, as sha256sum(1) computes it.
    Sha256,
    /// SHA-512, as sha512sum(1) computes it.
    Sha512,
    /// BLAKE3, as b3sum computes it; several times as fast as the others.
    Blake3,
}

const ALGORITHMS: [(&str, HashAlgorithm, usize); 3] = [
    ("sha256", HashAlgorithm::Sha256, 64),
    ("sha512", HashAlgorithm::Sha512, 128),
    ("blake3", HashAlgorithm::Blake3, 64),
];
/// Default level of compression, that of zstd(1).
const LEVEL: i32 = 3;
const LEVEL_MAX: i32 = 19;
const STAGES: &str =
    "hash:ALGORITHM, tee:ENDPOINT, limit:SIZE, rate:SIZE, compress:zstd, decompress:, exec:COMMAND";

impl FromStr for HashAlgorithm {
    type Err = Error;

    fn from_str(text: &str) -> Result<HashAlgorithm, Error> {
        ALGORITHMS.iter().find(|known| known.0 == text).map(|known| known.1).ok_or_else(|| {
            Error::Usage(format!("there is no hash '{text}'; there are sha256, sha512, blake3"))
        })
    }
}

impl fmt::Display for HashAlgorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(ALGORITHMS.iter().find(|known| known.1 == *self).map_or("?", |known| known.0))
    }
}

impl FromStr for Stage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Stage, Error> {
        let (kind, rest) = text
            .split_once(':')
            .ok_or_else(|| Error::Usage(format!("'{text}' is no stage; there are {STAGES}")))?;
        let mut words = Words::cut(text, rest);
        match kind {
            "hash" => hash(&mut words),
            // The rest of the text is an endpoint with options of its own.
            "tee" => rest.parse().map(Stage::Tee),
            "limit" => bytes(&words).map(Stage::Limit),
            "rate" => bytes(&words).map(Stage::Rate),
            "compress" => compress(&mut words),
            "decompress" if ["", "zstd"].contains(&rest) => Ok(Stage::Decompress),
            "decompress" => {
                Err(words.usage_error("only zstd can be decompressed: write decompress: or decompress:zstd"))
            }
            // The rest of the text is one command, commas included.
            "exec" if rest.trim().is_empty() => {
                Err(words.usage_error("a command is missing behind the colon"))
            }
            "exec" => Ok(Stage::Exec(rest.to_owned())),
            _ => {
                Err(words.usage_error(format!("there is no stage of the kind '{kind}'; there are {STAGES}")))
            }
        }
    }
}

/// Parses an argument of the command line; the path of `tee:` need not be UTF-8.
impl TryFrom<&OsStr> for Stage {
    type Error = Error;

    fn try_from(word: &OsStr) -> Result<Stage, Error> {
        match (word.to_str(), word.as_bytes().strip_prefix(b"tee:")) {
            (Some(text), _) => text.parse(),
            (None, Some(rest)) => OsStr::from_bytes(rest).try_into().map(Stage::Tee),
            (None, None) => {
                let lossy = word.to_string_lossy();
                Err(Error::Usage(format!(
                    "'{lossy}' is no stage: only the path of tee: may be other than UTF-8"
                )))
            }
        }
    }
}

fn hash(words: &mut Words<'_>) -> Result<Stage, Error> {
    let algorithm: HashAlgorithm = words.address.parse().map_err(|error| words.usage_error(error))?;
    let digits = ALGORITHMS.iter().find(|known| known.1 == algorithm).map_or(0, |known| known.2);
    let expect = words.value("expect", |text| {
        match text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => Ok(text.to_ascii_lowercase()),
            false => Err(format!("'{text}' is no such hash: give its {digits} hexadecimal digits")),
        }
    })?;
    words.check_all_taken(&["expect"])?;
    Ok(Stage::Hash { algorithm, expect })
}

fn bytes(words: &Words<'_>) -> Result<u64, Error> {
    words.check_all_taken(&[])?;
    match size::parse(&words.address) {
        Ok(0) => Err(words.usage_error("nothing would pass: give at least 1")),
        Ok(bytes) => Ok(bytes),
        Err(reason) => Err(words.usage_error(reason)),
    }
}

fn compress(words: &mut Words<'_>) -> Result<Stage, Error> {
    if words.address != "zstd" {
        return Err(words.usage_error("there is only zstd: write compress:zstd"));
    }
    let level = words.value("level", number)?.unwrap_or(LEVEL);
    words.check_all_taken(&["level"])?;
    match (1..=LEVEL_MAX).contains(&level) {
        true => Ok(Stage::Compress { level }),
        false => Err(words.usage_error(format!("levels are 1 to {LEVEL_MAX}"))),
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Hash { algorithm, expect } => {
                write!(out, "hash:{algorithm}")?;
                option(out, "expect", expect.as_ref())
            }
            Stage::Tee(endpoint) => write!(out, "tee:{endpoint}"),
            Stage::Limit(bytes) => write!(out, "limit:{bytes}"),
            Stage::Rate(bytes) => write!(out, "rate:{bytes}"),
            Stage::Compress { level } => {
                out.write_str("compress:zstd")?;
                option(out, "level", Some(*level).filter(|level| *level != LEVEL))
            }
            Stage::Decompress => out.write_str("decompress:"),
            Stage::Exec(command) => write!(out, "exec:{command}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_was() {
        let expect = format!("hash:sha256,expect={}", "0f".repeat(32));
        for text in [
            "hash:sha256",
            "hash:sha512",
            "hash:blake3",
            &expect,
            "tee:file:x,append",
            "limit:10",
            "rate:1048576",
            "compress:zstd",
            "compress:zstd,level=9",
            "decompress:",
            "exec:tr a,b c,d | cat",
        ] {
            assert_eq!(text.parse::<Stage>().unwrap_or_else(|error| panic!("{error}")).to_string(), text);
        }
        assert_eq!("rate:1M".parse::<Stage>().unwrap(), Stage::Rate(1 << 20));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("hash", "is no stage"),
            ("hsh:x", "no stage of the kind"),
            ("hash:md4", "no hash 'md4'"),
            ("hash:sha256,expect=00", "64 hexadecimal digits"),
            ("tee:", "is empty"),
            ("limit:0", "nothing would pass"),
            ("limit:x", "is not a size"),
            ("compress:gzip", "only zstd"),
            ("compress:zstd,level=30", "1 to 19"),
            ("decompress:gzip", "only zstd"),
            ("exec: ", "a command is missing"),
        ] {
            let error = text.parse::<Stage>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
