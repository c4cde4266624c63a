//! `hash:ALGORITHM`: computes a hash of the data that passes.

use super::filter::{Demand, Emit, Filter};
use super::{Bound, FilterContext, FilterStage, Stage, StageKind, StageRole, StageType};
use crate::control::Control;
use crate::error::Error;
use crate::hash::HashAlgorithm;
use crate::report::Hash;
use bywash_options::{OptionRow, Row, Value, Words, option};
use sha2::Digest;
use std::fmt;

/// The stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HashData {
    pub(super) algorithm: HashAlgorithm,
    /// Expected hash, in lower-case hexadecimal digits; `None` for any.
    pub(super) expect: Option<String>,
}

pub(super) static KIND: StageKind = StageKind {
    row: Row {
        name: "hash",
        address: "ALGORITHM",
        sentence: "computes a hash of the data: sha256, sha512 or blake3",
        options: &[OptionRow::new("expect", Value::Text("HEX"), "the flow fails if the hash is another")],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Stage, Error> {
    let algorithm: HashAlgorithm = words.address()?.parse().map_err(|error| words.error(error))?;
    let expect = words.value("expect", |text| digits(algorithm, text))?;
    words.check_all_taken()?;
    Ok(Stage::new(HashData { algorithm, expect }))
}

/// Checks that `text` has as many hexadecimal digits as a hash of `algorithm`, and returns them in lower case.
pub(super) fn digits(algorithm: HashAlgorithm, text: &str) -> Result<String, String> {
    match text.len() == algorithm.digits() && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!("'{text}' is no such hash: give its {} hexadecimal digits", algorithm.digits())),
    }
}

impl StageType for HashData {
    fn role(&self) -> StageRole<'_> {
        StageRole::Filter(self)
    }
}

impl FilterStage for HashData {
    fn bound(&self) -> Option<Bound> {
        None
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn filter(&self, _: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error> {
        Ok(Box::new(HashFilter::new(self.algorithm, self.expect.clone())))
    }
}

impl fmt::Display for HashData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "hash:{}", self.algorithm)?;
        option(out, "expect", self.expect.as_ref())
    }
}

enum State {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Blake3(Box<blake3::Hasher>),
}

/// Stage that computes a hash, and compares it with an expected one.
struct HashFilter {
    algorithm: HashAlgorithm,
    state: State,
    expect: Option<String>,
    done: Option<String>,
}

impl HashFilter {
    fn new(algorithm: HashAlgorithm, expect: Option<String>) -> HashFilter {
        let state = match algorithm {
            HashAlgorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            HashAlgorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
            HashAlgorithm::Blake3 => State::Blake3(Box::default()),
        };
        HashFilter { algorithm, state, expect, done: None }
    }

    fn digits(&self) -> String {
        fn hex(bytes: &[u8]) -> String {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        }
        match &self.state {
            State::Sha256(state) => hex(&state.clone().finalize()),
            State::Sha512(state) => hex(&state.clone().finalize()),
            State::Blake3(state) => hex(state.finalize().as_bytes()),
        }
    }
}

impl Filter for HashFilter {
    fn pass(&mut self, block: &[u8], _: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        match &mut self.state {
            State::Sha256(state) => state.update(block),
            State::Sha512(state) => state.update(block),
            State::Blake3(state) => drop(state.update(block)),
        }
        next(block)
    }

    fn finish(&mut self, _: &Control, _: &mut Emit<'_>) -> Result<(), Error> {
        let digits = self.digits();
        if let Some(expect) = self.expect.as_ref().filter(|expect| **expect != digits) {
            let algorithm = self.algorithm;
            return Err(Error::Data(format!(
                "the {algorithm} of what passed is {digits}, and {expect} was expected"
            )));
        }
        self.done = Some(digits);
        Ok(())
    }

    fn hash(&self) -> Option<Hash> {
        self.done.clone().map(|digits| Hash { algorithm: self.algorithm, digits })
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::tests::{Collected, through};
    use super::super::filter::{Chain, Filter};
    use super::*;

    #[test]
    fn known_hashes() {
        for (algorithm, digits) in [
            (HashAlgorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (HashAlgorithm::Blake3, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
            (
                HashAlgorithm::Sha512,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
        ] {
            let control = Control::new().unwrap();
            let mut chain = Chain(vec![Box::new(HashFilter::new(algorithm, None)) as Box<dyn Filter>]);
            chain.pass(b"ab", &control, &mut Collected::default()).unwrap();
            chain.pass(b"c", &control, &mut Collected::default()).unwrap();
            chain.finish(&control, &mut Collected::default()).unwrap();
            assert_eq!(chain.0[0].hash().unwrap().digits, digits);
        }
    }

    #[test]
    fn another_hash_than_expected_is_an_error() {
        let stage = HashFilter::new(HashAlgorithm::Sha256, Some("00".repeat(32)));
        let error = through(vec![Box::new(stage)], b"abc", 3).unwrap_err().to_string();
        assert!(error.contains("ba7816bf") && error.contains("was expected"), "{error}");
    }
}
