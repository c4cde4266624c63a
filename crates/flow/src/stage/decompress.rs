//! `decompress:`: decompresses Zstandard data.

use super::filter::Filter;
use super::zstd::DecompressFilter;
use super::{Bound, FilterContext, FilterStage, Stage, StageKind, StageRole, StageType};
use crate::error::Error;
use bywash_options::{Row, Words};
use std::fmt;

/// The stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decompress;

pub(super) static KIND: StageKind = StageKind {
    row: Row { name: "decompress", address: "", sentence: "decompresses Zstandard data", options: &[] },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Stage, Error> {
    words.check_all_taken()?;
    match words.address()? {
        "" | "zstd" => Ok(Stage::new(Decompress)),
        _ => Err(words.error("only zstd can be decompressed: write decompress: or decompress:zstd").into()),
    }
}

impl StageType for Decompress {
    fn role(&self) -> StageRole<'_> {
        StageRole::Filter(self)
    }
}

impl FilterStage for Decompress {
    fn bound(&self) -> Option<Bound> {
        None
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn filter(&self, _: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error> {
        Ok(Box::new(DecompressFilter::new()?))
    }
}

impl fmt::Display for Decompress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("decompress:")
    }
}
