//! `rate:SIZE`: limits the flow to this number of bytes a second.

use super::filter::{Demand, Emit, Filter};
use super::{Bound, FilterContext, FilterStage, Stage, StageKind, StageRole, StageType, amount};
use crate::control::Control;
use crate::error::Error;
use crate::rate_limiter::RateLimiter;
use bywash_options::Row;
use std::fmt;

/// The stage, with its rate in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate(u64);

pub(super) static KIND: StageKind = StageKind {
    row: Row {
        name: "rate",
        address: "SIZE",
        sentence: "passes no more than this many bytes a second",
        options: &[],
    },
    parse: |words| amount(words).map(|bytes| Stage::new(Rate(bytes))),
};

impl StageType for Rate {
    fn role(&self) -> StageRole<'_> {
        StageRole::Filter(self)
    }
}

impl FilterStage for Rate {
    fn bound(&self) -> Option<Bound> {
        Some(Bound::BytesPerSecond(self.0))
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn filter(&self, _: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error> {
        Ok(Box::new(RateFilter(RateLimiter::new(Some(self.0)))))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "rate:{}", self.0)
    }
}

/// `rate:` behind another stage, which may change the number of bytes.
struct RateFilter(RateLimiter);

impl Filter for RateFilter {
    fn pass(&mut self, mut block: &[u8], control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        while !block.is_empty() {
            let bytes = self.0.take(block.len() as u64, control)? as usize;
            if next(&block[..bytes])? == Demand::Enough {
                return Ok(Demand::Enough);
            }
            block = &block[bytes..];
        }
        Ok(Demand::More)
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::tests::through;
    use super::*;

    #[test]
    fn a_rate_changes_nothing_but_the_time() {
        let data = vec![7; 10_000];
        let stage = RateFilter(RateLimiter::new(Some(1 << 20)));
        assert_eq!(through(vec![Box::new(stage)], &data, 10_000).unwrap(), data);
    }
}
