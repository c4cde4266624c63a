//! Stages at work: filters, which process the data of a flow block by block.
//!
//! Invariant: a filter passes everything on, in order, except for the change that is its purpose. Called by
//! the mover `buffer`.

use crate::block_io::Output;
use crate::control::Control;
use crate::end::Sink;
use crate::error::Error;
use crate::report::Hash;
use crate::timing::LiveStream;

/// Answer of a stage or sink to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// More data can be used.
    More,
    /// Further data would be discarded, so the caller may stop.
    Enough,
}

/// Callback that takes the output of a stage.
pub(crate) type Emit<'a> = dyn FnMut(&[u8]) -> Result<Demand, Error> + 'a;

/// A stage at work.
pub(crate) trait Filter: Send {
    /// Processes a block and calls `next` with the output.
    ///
    /// # Errors
    /// Those of `next`; [`Error::Data`] if the block is invalid for this stage; [`Error::Cancelled`] if the
    /// flow is cancelled; [`Error::Io`] if a sink or library of the stage fails.
    fn pass(&mut self, block: &[u8], control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error>;

    /// Ends the data and calls `next` with the remaining output.
    ///
    /// # Errors
    /// Those of `next`; [`Error::Data`] if the data as a whole is invalid; [`Error::Io`] if a library of the
    /// stage fails.
    fn finish(&mut self, _: &Control, _: &mut Emit<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the hash of the data, if the stage computes one and the data has ended.
    fn hash(&self) -> Option<Hash> {
        None
    }

    /// Returns the account of a live stream, if the stage passes one on.
    fn live(&self) -> Option<LiveStream> {
        None
    }

    /// Returns the sink that the stage writes to, if it has one.
    fn sink(&mut self) -> Option<&mut Sink> {
        None
    }
}

/// Stages in the order in which the data passes them.
#[derive(Default)]
pub(crate) struct Chain(pub(crate) Vec<Box<dyn Filter>>);

impl Chain {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends a block through all stages into `sink`.
    ///
    /// # Errors
    /// Those of [`Filter::pass`] and [`Output::put`].
    pub(crate) fn pass(
        &mut self,
        block: &[u8],
        control: &Control,
        sink: &mut dyn Output,
    ) -> Result<Demand, Error> {
        pass(&mut self.0, block, control, sink)
    }

    /// Ends the data: each stage, first to last, sends its remaining output on.
    ///
    /// # Errors
    /// Those of [`Filter::finish`] and [`Output::put`].
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
) -> Result<Demand, Error> {
    match stages.split_first_mut() {
        None => sink.put(block, control).map(|()| Demand::More),
        Some((first, rest)) => first.pass(block, control, &mut |block| pass(rest, block, control, sink)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Output that keeps everything in memory.
    #[derive(Default)]
    pub(crate) struct Collected(pub(crate) Vec<u8>);

    impl Output for Collected {
        fn put(&mut self, block: &[u8], _: &Control) -> Result<(), Error> {
            self.0.extend_from_slice(block);
            Ok(())
        }

        fn finish(&mut self, _: &Control) -> Result<(), Error> {
            Ok(())
        }
    }

    /// Sends `data` through `stages` in blocks of `piece` bytes, and returns the output.
    pub(crate) fn through(stages: Vec<Box<dyn Filter>>, data: &[u8], piece: usize) -> Result<Vec<u8>, Error> {
        let control = Control::new()?;
        let (mut chain, mut kept) = (Chain(stages), Collected::default());
        for block in data.chunks(piece) {
            if chain.pass(block, &control, &mut kept)? == Demand::Enough {
                break;
            }
        }
        chain.finish(&control, &mut kept)?;
        Ok(kept.0)
    }
}
