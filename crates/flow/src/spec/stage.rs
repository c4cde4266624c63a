//! What is done with data on its way.

use super::endpoint::Endpoint;
use super::words::{Words, number, option};
use crate::Error;
use crate::size;
use serde::Serialize;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

/// What is done with data on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// `hash:ALGORITHM`: a hash of what passes, told at the end; with `expect=HEX` the flow fails if it is another.
    Hash {
        /// Which.
        algorithm: HashAlgorithm,
        /// What it must be, in hexadecimal digits.
        expect: Option<String>,
    },
    /// `tee:ENDPOINT`: what passes goes there too.
    Tee(Endpoint),
    /// `limit:SIZE`: no more than so many bytes pass; then the flow is at its end.
    Limit(u64),
    /// `rate:SIZE`: no more than so many bytes a second pass.
    Rate(u64),
    /// `compress:zstd`.
    Compress {
        /// 1 (fast) to 19 (small).
        level: i32,
    },
    /// `decompress:`
    Decompress,
    /// `exec:COMMAND`: what passes goes through a program, as a line of the shell.
    Exec(String),
}

/// A hash that a flow can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HashAlgorithm {
    /// SHA-256, as sha256sum has it.
    Sha256,
    /// SHA-512, as sha512sum has it.
    Sha512,
    /// BLAKE3, as b3sum has it: several times as fast.
    Blake3,
}

const ALGORITHMS: [(&str, HashAlgorithm, usize); 3] = [
    ("sha256", HashAlgorithm::Sha256, 64),
    ("sha512", HashAlgorithm::Sha512, 128),
    ("blake3", HashAlgorithm::Blake3, 64),
];
/// Of zstd(1).
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
            // What follows is an endpoint, options and all.
            "tee" => rest.parse().map(Stage::Tee),
            "limit" => bytes(&words).map(Stage::Limit),
            "rate" => bytes(&words).map(Stage::Rate),
            "compress" => compress(&mut words),
            "decompress" if ["", "zstd"].contains(&rest) => Ok(Stage::Decompress),
            "decompress" => {
                Err(words.wrong("only zstd can be decompressed: write decompress: or decompress:zstd"))
            }
            // A command may have commas.
            "exec" if rest.trim().is_empty() => Err(words.wrong("a command is missing behind the colon")),
            "exec" => Ok(Stage::Exec(rest.to_owned())),
            _ => Err(words.wrong(format!("there is no stage of the kind '{kind}'; there are {STAGES}"))),
        }
    }
}

/// Reads a word of the command line, where the path of `tee:` need not be UTF-8.
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
    let algorithm: HashAlgorithm = words.address.parse().map_err(|error| words.wrong(error))?;
    let digits = ALGORITHMS.iter().find(|known| known.1 == algorithm).map_or(0, |known| known.2);
    let expect = words.value("expect", |text| {
        match text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => Ok(text.to_ascii_lowercase()),
            false => Err(format!("'{text}' is no such hash: give its {digits} hexadecimal digits")),
        }
    })?;
    words.nothing_more(&["expect"])?;
    Ok(Stage::Hash { algorithm, expect })
}

fn bytes(words: &Words<'_>) -> Result<u64, Error> {
    words.nothing_more(&[])?;
    match size::parse(&words.address) {
        Ok(0) => Err(words.wrong("nothing would pass: give at least 1")),
        Ok(bytes) => Ok(bytes),
        Err(reason) => Err(words.wrong(reason)),
    }
}

fn compress(words: &mut Words<'_>) -> Result<Stage, Error> {
    if words.address != "zstd" {
        return Err(words.wrong("there is only zstd: write compress:zstd"));
    }
    let level = words.value("level", number)?.unwrap_or(LEVEL);
    words.nothing_more(&["level"])?;
    match (1..=LEVEL_MAX).contains(&level) {
        true => Ok(Stage::Compress { level }),
        false => Err(words.wrong(format!("levels are 1 to {LEVEL_MAX}"))),
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
