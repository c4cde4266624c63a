//! `random:`: an endless source of random bytes.

use super::zero::source_only;
use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::block_io::Input;
use crate::control::Control;
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_options::{OptionRow, Row, Value, number, option};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt;

/// The source of random bytes, the same ones for the same seed.
#[derive(Clone, Copy, Debug)]
struct Random {
    /// Seed of the generator; `None` for a new random one each time.
    seed: Option<u64>,
}

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row {
        name: "random",
        address: "",
        sentence: "an endless source of random bytes",
        options: &[OptionRow::new("seed", Value::Number, "the same bytes for the same number")],
    },
    parse: |words| {
        let seed = words.value("seed", number)?;
        words.check_all_taken()?;
        words.no_address()?;
        Ok(Endpoint::new(Random { seed }))
    },
};

impl EndpointType for Random {
    fn inspect_source(&self) -> Result<End, Error> {
        Ok(End::new(self.to_string(), Kind::Generated))
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        self.inspect_source()
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, _: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        Ok(OpenedStream::OneWay(Source::Other(Box::new(Generator::new(self.seed)?))))
    }

    fn open_sink(&self, _: &OpenContext<'_>, _: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        Err(source_only(self))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(source_only(self))
    }
}

impl fmt::Display for Random {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("random:")?;
        option(out, "seed", self.seed)
    }
}

/// Source of endless random bytes.
struct Generator(ChaCha8Rng);

impl Generator {
    /// Creates a generator from `seed`, or from random bytes of the kernel if there is none.
    ///
    /// # Errors
    /// [`Error::Io`] if getrandom(2) fails.
    fn new(seed: Option<u64>) -> Result<Generator, Error> {
        if let Some(seed) = seed {
            return Ok(Generator(ChaCha8Rng::seed_from_u64(seed)));
        }
        let mut seed = [0; 32];
        // A request of up to 256 bytes is never cut short (getrandom(2)).
        rustix::rand::getrandom(&mut seed[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::io("get random bytes from the kernel", error))?;
        Ok(Generator(ChaCha8Rng::from_seed(seed)))
    }
}

impl Input for Generator {
    fn next<'a>(&'a mut self, room: &'a mut [u8], _: &Control) -> Result<&'a [u8], Error> {
        self.0.fill_bytes(room);
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_bytes_however_they_are_cut() {
        let control = Control::new().unwrap();
        let (mut whole, mut pieces) = (vec![0; 4096], vec![0; 4096]);
        Generator::new(Some(7)).unwrap().next(&mut whole, &control).unwrap();
        let mut cut = Generator::new(Some(7)).unwrap();
        for piece in pieces.chunks_mut(512) {
            cut.next(piece, &control).unwrap();
        }
        assert_eq!(whole, pieces);
        Generator::new(None).unwrap().next(&mut pieces, &control).unwrap();
        assert_ne!(whole, pieces);
    }
}
