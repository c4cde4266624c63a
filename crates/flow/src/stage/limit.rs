//! `limit:SIZE`: ends the flow after this number of bytes.

use super::filter::{Demand, Emit, Filter};
use super::{Bound, FilterContext, FilterStage, Stage, StageKind, StageRole, StageType, amount};
use crate::control::Control;
use crate::error::Error;
use bywash_options::Row;
use std::fmt;

/// The stage, with the number of bytes after which the flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit(pub(super) u64);

pub(super) static KIND: StageKind = StageKind {
    row: Row {
        name: "limit",
        address: "SIZE",
        sentence: "ends the flow after this many bytes",
        options: &[],
    },
    parse: |words| amount(words).map(|bytes| Stage::new(Limit(bytes))),
};

impl StageType for Limit {
    fn role(&self) -> StageRole<'_> {
        StageRole::Filter(self)
    }
}

impl FilterStage for Limit {
    fn bound(&self) -> Option<Bound> {
        Some(Bound::Bytes(self.0))
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn filter(&self, _: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error> {
        Ok(Box::new(LimitFilter(self.0)))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "limit:{}", self.0)
    }
}

/// `limit:` behind another stage, which may change the number of bytes; the field is the number of bytes
/// left.
pub(super) struct LimitFilter(pub(super) u64);

impl Filter for LimitFilter {
    fn pass(&mut self, block: &[u8], _: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        let bytes = self.0.min(block.len() as u64);
        self.0 -= bytes;
        if bytes > 0 && next(&block[..bytes as usize])? == Demand::Enough {
            return Ok(Demand::Enough);
        }
        Ok(if self.0 == 0 { Demand::Enough } else { Demand::More })
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::tests::through;
    use super::*;

    #[test]
    fn a_limit_lets_pass_what_it_says() {
        let data: Vec<u8> = (0..100).collect();
        for piece in [1, 7, 100] {
            assert_eq!(through(vec![Box::new(LimitFilter(42))], &data, piece).unwrap(), data[..42]);
        }
    }
}
