//! Ends that are nobody: bytes that are made, and nowhere.

use super::{Input, Output};
use crate::control::Control;
use crate::error::Error;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Zeros without end.
pub(crate) struct Zeros(Vec<u8>);

impl Zeros {
    pub(crate) fn new() -> Zeros {
        Zeros(Vec::new())
    }
}

impl Input for Zeros {
    fn next<'a>(&'a mut self, room: &'a mut [u8], _: &Control) -> Result<&'a [u8], Error> {
        self.0.resize(room.len().max(self.0.len()), 0);
        Ok(&self.0[..room.len()])
    }
}

/// Random bytes without end.
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    /// The bytes that belong to `seed`, or ones that nobody can foretell.
    pub(crate) fn new(seed: Option<u64>) -> Result<Random, Error> {
        if let Some(seed) = seed {
            return Ok(Random(ChaCha8Rng::seed_from_u64(seed)));
        }
        let mut seed = [0; 32];
        // As many bytes as this come at once (getrandom(2)).
        rustix::rand::getrandom(&mut seed[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::io("get random bytes from the kernel", error))?;
        Ok(Random(ChaCha8Rng::from_seed(seed)))
    }
}

impl Input for Random {
    fn next<'a>(&'a mut self, room: &'a mut [u8], _: &Control) -> Result<&'a [u8], Error> {
        self.0.fill_bytes(room);
        Ok(room)
    }
}

/// Takes everything, and keeps nothing; has nothing to give.
pub(crate) struct Nowhere;

impl Input for Nowhere {
    fn next<'a>(&'a mut self, _: &'a mut [u8], _: &Control) -> Result<&'a [u8], Error> {
        Ok(&[])
    }
}

impl Output for Nowhere {
    fn put(&mut self, _: &[u8], _: &Control) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self, _: &Control) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_bytes_however_they_are_cut() {
        let control = Control::new().unwrap();
        let (mut whole, mut pieces) = (vec![0; 4096], vec![0; 4096]);
        Random::new(Some(7)).unwrap().next(&mut whole, &control).unwrap();
        let mut cut = Random::new(Some(7)).unwrap();
        for piece in pieces.chunks_mut(512) {
            cut.next(piece, &control).unwrap();
        }
        assert_eq!(whole, pieces);
        Random::new(None).unwrap().next(&mut pieces, &control).unwrap();
        assert_ne!(whole, pieces);
    }

    #[test]
    fn zeros_fill_whatever_there_is() {
        let control = Control::new().unwrap();
        let mut zeros = Zeros::new();
        assert_eq!(zeros.next(&mut [1; 5], &control).unwrap(), [0; 5]);
        assert_eq!(zeros.next(&mut [1; 3], &control).unwrap(), [0; 3]);
    }
}
