//! `hash:`: computes a hash of the data that passes.

use super::{Demand, Emit, Filter};
use crate::control::Control;
use crate::error::Error;
use crate::report::Hash;
use crate::spec::HashAlgorithm;
use sha2::Digest;

enum State {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Blake3(Box<blake3::Hasher>),
}

/// Stage that computes a hash, and compares it with an expected one.
pub(crate) struct HashStage {
    algorithm: HashAlgorithm,
    state: State,
    expect: Option<String>,
    done: Option<String>,
}

impl HashStage {
    pub(crate) fn new(algorithm: HashAlgorithm, expect: Option<String>) -> HashStage {
        let state = match algorithm {
            HashAlgorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            HashAlgorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
            HashAlgorithm::Blake3 => State::Blake3(Box::default()),
        };
        HashStage { algorithm, state, expect, done: None }
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

impl Filter for HashStage {
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
    use super::super::tests::{Kept, through};
    use super::super::{Chain, Filter};
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
            let mut chain = Chain(vec![Box::new(HashStage::new(algorithm, None)) as Box<dyn Filter>]);
            chain.pass(b"ab", &control, &mut Kept::default()).unwrap();
            chain.pass(b"c", &control, &mut Kept::default()).unwrap();
            chain.finish(&control, &mut Kept::default()).unwrap();
            assert_eq!(chain.0[0].hash().unwrap().digits, digits);
        }
    }

    #[test]
    fn another_hash_than_expected_is_an_error() {
        let stage = HashStage::new(HashAlgorithm::Sha256, Some("00".repeat(32)));
        let error = through(vec![Box::new(stage)], b"abc", 3).unwrap_err().to_string();
        assert!(error.contains("ba7816bf") && error.contains("was expected"), "{error}");
    }
}
