//! What is done with data on its way, block by block.
//!
//! Invariant: a stage gives everything that it is given to the next one, in order, but for what it is there to change.
//! Called by the mover `buffer`.

mod exec;
mod hash;
mod tee;
mod zstd;

use crate::control::Control;
use crate::end::{Output, Sink};
use crate::error::Error;
use crate::pace::Pace;
use crate::report::Hash;

pub(crate) use exec::Program;
pub(crate) use hash::Hashing;
pub(crate) use tee::Teeing;
pub(crate) use zstd::{Compressing, Decompressing};

/// Whether more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Yes.
    OnMore,
    /// No: what comes would be thrown away.
    Enough,
}

/// Where a stage puts what comes out of it.
pub(crate) type Next<'a> = dyn FnMut(&[u8]) -> Result<Passed, Error> + 'a;

/// One stage.
pub(crate) trait Filter: Send {
    /// Takes a block, and gives to `next` what comes of it.
    fn pass(&mut self, block: &[u8], control: &Control, next: &mut Next<'_>) -> Result<Passed, Error>;

    /// No more comes: gives to `next` what is left.
    fn finish(&mut self, _: &Control, _: &mut Next<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// A hash, if it has made one.
    fn hash(&self) -> Option<Hash> {
        None
    }

    /// Another sink that it feeds.
    fn sink(&mut self) -> Option<&mut Sink> {
        None
    }
}

/// Stages one behind the other.
#[derive(Default)]
pub(crate) struct Chain(pub(crate) Vec<Box<dyn Filter>>);

impl Chain {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends a block through all stages into `sink`.
    pub(crate) fn pass(
        &mut self,
        block: &[u8],
        control: &Control,
        sink: &mut dyn Output,
    ) -> Result<Passed, Error> {
        pass(&mut self.0, block, control, sink)
    }

    /// No more comes: sends what the stages still have, first to last.
    pub(crate) fn finish(&mut self, control: &Control, sink: &mut dyn Output) -> Result<(), Error> {
        for number in 0..self.0.len() {
            let (done, rest) = self.0.split_at_mut(number + 1);
            done[number].finish(control, &mut |block| pass(rest, block, control, sink))?;
        }
        Ok(())
    }
}

fn pass(
    stages: &mut [Box<dyn Filter>],
    block: &[u8],
    control: &Control,
    sink: &mut dyn Output,
) -> Result<Passed, Error> {
    match stages.split_first_mut() {
        None => sink.put(block, control).map(|()| Passed::OnMore),
        Some((first, rest)) => first.pass(block, control, &mut |block| pass(rest, block, control, sink)),
    }
}

/// `limit:` behind a stage that changes how much there is.
pub(crate) struct Limiting(pub(crate) u64);

impl Filter for Limiting {
    fn pass(&mut self, block: &[u8], _: &Control, next: &mut Next<'_>) -> Result<Passed, Error> {
        let bytes = self.0.min(block.len() as u64);
        self.0 -= bytes;
        if bytes > 0 && next(&block[..bytes as usize])? == Passed::Enough {
            return Ok(Passed::Enough);
        }
        Ok(if self.0 == 0 { Passed::Enough } else { Passed::OnMore })
    }
}

/// `rate:` behind such a stage.
pub(crate) struct Pacing(pub(crate) Pace);

impl Filter for Pacing {
    fn pass(&mut self, mut block: &[u8], control: &Control, next: &mut Next<'_>) -> Result<Passed, Error> {
        while !block.is_empty() {
            let bytes = self.0.take(block.len() as u64, control)? as usize;
            if next(&block[..bytes])? == Passed::Enough {
                return Ok(Passed::Enough);
            }
            block = &block[bytes..];
        }
        Ok(Passed::OnMore)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Takes everything, and keeps it.
    #[derive(Default)]
    pub(crate) struct Kept(pub(crate) Vec<u8>);

    impl Output for Kept {
        fn put(&mut self, block: &[u8], _: &Control) -> Result<(), Error> {
            self.0.extend_from_slice(block);
            Ok(())
        }

        fn finish(&mut self, _: &Control) -> Result<(), Error> {
            Ok(())
        }
    }

    /// Sends `data` through `stages` in pieces; answers what comes out.
    pub(crate) fn through(stages: Vec<Box<dyn Filter>>, data: &[u8], piece: usize) -> Result<Vec<u8>, Error> {
        let control = Control::new()?;
        let (mut chain, mut kept) = (Chain(stages), Kept::default());
        for block in data.chunks(piece) {
            if chain.pass(block, &control, &mut kept)? == Passed::Enough {
                break;
            }
        }
        chain.finish(&control, &mut kept)?;
        Ok(kept.0)
    }

    #[test]
    fn a_limit_lets_pass_what_it_says() {
        let data: Vec<u8> = (0..100).collect();
        for piece in [1, 7, 100] {
            assert_eq!(through(vec![Box::new(Limiting(42))], &data, piece).unwrap(), data[..42]);
        }
    }

    #[test]
    fn a_rate_changes_nothing_but_the_time() {
        let data = vec![7; 10_000];
        let stage = Pacing(Pace::new(Some(1 << 20)));
        assert_eq!(through(vec![Box::new(stage)], &data, 10_000).unwrap(), data);
    }
}
