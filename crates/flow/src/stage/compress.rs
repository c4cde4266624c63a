//! `compress:zstd`: compresses the data.

use super::filter::Filter;
use super::zstd::CompressFilter;
use super::{Bound, FilterContext, FilterStage, Stage, StageKind, StageRole, StageType};
use crate::error::Error;
use bywash_options::{OptionRow, Row, Value, Words, number, option};
use std::fmt;

/// The stage, with its level, 1 to [`LEVEL_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compress {
    level: i32,
}

/// Default level of compression, that of zstd(1).
const LEVEL: i32 = 3;
const LEVEL_MAX: i32 = 19;

pub(super) static KIND: StageKind = StageKind {
    row: Row {
        name: "compress",
        address: "zstd",
        sentence: "compresses the data",
        options: &[OptionRow::new("level", Value::Number, "1 (fastest) to 19 (smallest)").or("3")],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Stage, Error> {
    if words.address()? != "zstd" {
        return Err(words.error("there is only zstd: write compress:zstd").into());
    }
    let level = words.value("level", number)?.unwrap_or(LEVEL);
    words.check_all_taken()?;
    match (1..=LEVEL_MAX).contains(&level) {
        true => Ok(Stage::new(Compress { level })),
        false => Err(words.error(format!("levels are 1 to {LEVEL_MAX}")).into()),
    }
}

impl StageType for Compress {
    fn role(&self) -> StageRole<'_> {
        StageRole::Filter(self)
    }
}

impl FilterStage for Compress {
    fn bound(&self) -> Option<Bound> {
        None
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn filter(&self, _: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error> {
        Ok(Box::new(CompressFilter::new(self.level)?))
    }
}

impl fmt::Display for Compress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("compress:zstd")?;
        option(out, "level", Some(self.level).filter(|level| *level != LEVEL))
    }
}
