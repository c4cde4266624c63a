//! Zstandard filters of the stages `compress:` and `decompress:`.

use super::filter::{Demand, Emit, Filter};
use crate::control::Control;
use crate::error::Error;
use zstd::stream::raw::{Decoder, Encoder, InBuffer, Operation, OutBuffer};

/// Size of the output buffer, in bytes.
const PIECE_BYTES: usize = 128 << 10;
/// Binary logarithm of the largest window accepted from a compressed stream: the default limit of zstd(1),
/// 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;
/// Binary logarithm of the window of streams compressed here (2 MiB), which limits the memory of a flow.
const WINDOW_LOG: u32 = 21;

/// Stage that compresses the data to one Zstandard stream.
pub(crate) struct CompressFilter {
    encoder: Encoder<'static>,
    room: Vec<u8>,
}

impl CompressFilter {
    pub(crate) fn new(level: i32) -> Result<CompressFilter, Error> {
        let failed = |error| Error::io("set up the compression", error);
        let mut encoder = Encoder::new(level).map_err(failed)?;
        encoder.set_parameter(zstd::zstd_safe::CParameter::WindowLog(WINDOW_LOG)).map_err(failed)?;
        // The checksum lets a decompressor detect damage.
        encoder.set_parameter(zstd::zstd_safe::CParameter::ChecksumFlag(true)).map_err(failed)?;
        Ok(CompressFilter { encoder, room: vec![0; PIECE_BYTES] })
    }
}

impl Filter for CompressFilter {
    fn pass(&mut self, block: &[u8], control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        let mut input = InBuffer::around(block);
        while input.pos < block.len() {
            control.check()?;
            let mut output = OutBuffer::around(&mut self.room[..]);
            self.encoder.run(&mut input, &mut output).map_err(|error| Error::io("compress", error))?;
            if output.pos() > 0 && next(output.as_slice())? == Demand::Enough {
                return Ok(Demand::Enough);
            }
        }
        Ok(Demand::More)
    }

    fn finish(&mut self, _: &Control, next: &mut Emit<'_>) -> Result<(), Error> {
        loop {
            let mut output = OutBuffer::around(&mut self.room[..]);
            let left =
                self.encoder.finish(&mut output, true).map_err(|error| Error::io("compress", error))?;
            if output.pos() > 0 {
                next(output.as_slice())?;
            }
            if left == 0 {
                return Ok(());
            }
        }
    }
}

/// Stage that decompresses one Zstandard stream, or several in a row.
pub(crate) struct DecompressFilter {
    decoder: Decoder<'static>,
    room: Vec<u8>,
    /// True in the middle of a stream.
    inside: bool,
    enough: bool,
}

impl DecompressFilter {
    pub(crate) fn new() -> Result<DecompressFilter, Error> {
        let failed = |error| Error::io("set up the decompression", error);
        let mut decoder = Decoder::new().map_err(failed)?;
        decoder.set_parameter(zstd::zstd_safe::DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(failed)?;
        Ok(DecompressFilter { decoder, room: vec![0; PIECE_BYTES], inside: false, enough: false })
    }
}

impl Filter for DecompressFilter {
    fn pass(&mut self, block: &[u8], control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        let mut input = InBuffer::around(block);
        loop {
            control.check()?;
            let mut output = OutBuffer::around(&mut self.room[..]);
            let hint = self.decoder.run(&mut input, &mut output).map_err(|error| {
                Error::Data(format!("what is to be decompressed is not zstd, or damaged: {error}"))
            })?;
            let (full, written) = (output.pos() == PIECE_BYTES, output.pos());
            if written > 0 && next(output.as_slice())? == Demand::Enough {
                self.enough = true;
                return Ok(Demand::Enough);
            }
            self.inside = hint != 0;
            if hint == 0 {
                // A further stream may follow, and needs a decoder in its initial state.
                self.decoder.reinit().map_err(|error| Error::io("set up the decompression", error))?;
            }
            // At the end of a stream the decoder has no output left, even if the output buffer is full.
            if input.pos == block.len() && (!full || hint == 0) {
                return Ok(Demand::More);
            }
        }
    }

    fn finish(&mut self, _: &Control, _: &mut Emit<'_>) -> Result<(), Error> {
        match self.inside && !self.enough {
            true => Err(Error::Data("what is to be decompressed ends in the middle".into())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::tests::through;
    use super::super::limit::LimitFilter;
    use super::*;
    use proptest::prelude::*;

    fn compressed(data: &[u8]) -> Vec<u8> {
        through(vec![Box::new(CompressFilter::new(3).unwrap())], data, 1000).unwrap()
    }

    /// Tests a stream whose last output fills the buffer exactly: the decoder must not start another stream
    /// then.
    #[test]
    fn a_stream_may_end_with_a_full_room() {
        for pieces in 1..4 {
            let data = vec![7; pieces * PIECE_BYTES];
            let stream = compressed(&data);
            for cut in 1..=stream.len() {
                let back = through(vec![Box::new(DecompressFilter::new().unwrap())], &stream, cut);
                assert!(back.unwrap() == data, "{pieces} pieces, in blocks of {cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(
            data in proptest::collection::vec(0u8..4, 0..100_000),
            piece in 1usize..100_000,
        ) {
            let packed = compressed(&data);
            let back = through(vec![Box::new(DecompressFilter::new().unwrap())], &packed, piece).unwrap();
            prop_assert_eq!(back, data);
        }
    }

    #[test]
    fn streams_one_behind_the_other() {
        let both = [compressed(b"one"), compressed(b"other")].concat();
        for piece in [1, both.len()] {
            let back = through(vec![Box::new(DecompressFilter::new().unwrap())], &both, piece).unwrap();
            assert_eq!(back, b"oneother");
        }
    }

    #[test]
    fn what_is_damaged_is_an_error() {
        let mut packed = compressed(&vec![9; 100_000]);
        let cut = through(vec![Box::new(DecompressFilter::new().unwrap())], &packed[..packed.len() - 1], 10);
        assert!(cut.unwrap_err().to_string().contains("ends in the middle"));
        let last = packed.len() - 1;
        packed[last] ^= 1;
        let damaged = through(vec![Box::new(DecompressFilter::new().unwrap())], &packed, 10);
        assert!(damaged.unwrap_err().to_string().contains("damaged"));
        assert!(through(vec![Box::new(DecompressFilter::new().unwrap())], b"no zstd", 3).is_err());
    }

    #[test]
    fn a_limit_behind_it_is_no_damage() {
        let packed = compressed(&vec![9; 1_000_000]);
        let stages: Vec<Box<dyn Filter>> =
            vec![Box::new(DecompressFilter::new().unwrap()), Box::new(LimitFilter(10))];
        assert_eq!(through(stages, &packed, 50).unwrap(), [9; 10]);
    }
}
