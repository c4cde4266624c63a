//! `tee:ENDPOINT`: copies the data to another sink too.

use super::filter::{Demand, Emit, Filter};
use super::{Bound, FilterContext, FilterStage, Stage, StageKind, StageRole, StageType};
use crate::control::Control;
use crate::end::{OpenedStream, Role, Sink};
use crate::endpoint::{Endpoint, PendingEnd};
use crate::error::Error;
use bywash_options::Row;
use std::fmt;

/// The stage, with the other sink.
#[derive(Clone, Debug)]
struct Tee(Endpoint);

pub(super) static KIND: StageKind = StageKind {
    row: Row {
        name: "tee",
        address: "ENDPOINT",
        sentence: "copies the data to another sink too; commas belong to that endpoint",
        options: &[],
    },
    parse: |words| words.rest().try_into().map(|endpoint| Stage::new(Tee(endpoint))),
};

impl StageType for Tee {
    fn role(&self) -> StageRole<'_> {
        StageRole::Filter(self)
    }
}

impl FilterStage for Tee {
    fn bound(&self) -> Option<Bound> {
        None
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn filter(&self, context: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error> {
        let FilterContext { settings, via, control } = *context;
        let role = Role { sends: true, receives: false };
        let sink = match PendingEnd::new(&self.0, via, control)?.open_sink(role, settings)? {
            OpenedStream::OneWay(sink) => sink,
            OpenedStream::BothWays(stream) => stream.sink(&self.0.to_string(), settings),
        };
        Ok(Box::new(TeeFilter(sink)))
    }
}

impl fmt::Display for Tee {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "tee:{}", self.0)
    }
}

/// Stage that writes the data to another sink, which is committed together with the flow's own sink.
struct TeeFilter(Sink);

impl Filter for TeeFilter {
    fn pass(&mut self, block: &[u8], control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        self.0.output().put(block, control)?;
        next(block)
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.0)
    }
}
