//! A flow split into parts at its programs (`exec:`) and devices (`accel:`); each part has two ends, stages and a plan.

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::facts::{End, Facts, Kind};
use crate::machine;
use crate::plan::{self, FlowOptions, Plan};
use crate::stage::{Bound, DeviceStage, FilterStage, Stage, StageRole};

/// One end of a part of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartEnd<'a> {
    /// Endpoint that the user named.
    Named(&'a Endpoint),
    /// Command of an `exec:` program that is connected by a pipe.
    Program(&'a str),
    /// Device whose memory is filled and emptied.
    Device(&'a dyn DeviceStage),
}

impl PartEnd<'_> {
    /// Returns the properties of the end; those of an endpoint come from `named`.
    fn inspect(self, named: impl Fn(&Endpoint) -> Result<End, Error>) -> Result<End, Error> {
        match self {
            PartEnd::Named(endpoint) => named(endpoint),
            PartEnd::Program(command) => Ok(End::new(format!("exec:{command}"), Kind::Pipe)),
            PartEnd::Device(device) => Ok(End::new(device.to_string(), Kind::Accelerator)),
        }
    }

    /// Returns true for an end within the flow.
    pub(crate) fn is_within(self) -> bool {
        !matches!(self, PartEnd::Named(_))
    }
}

/// Section of a flow between two neighbouring ends, without a program or device inside.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) source: PartEnd<'a>,
    pub(crate) sink: PartEnd<'a>,
    /// Greatest number of bytes taken from the source; `u64::MAX` for no limit.
    pub(crate) limit: u64,
    /// Greatest rate, in bytes a second; `None` for no limit.
    pub(crate) rate: Option<u64>,
    /// Stages that the data passes, without the limits and rates at the front.
    pub(crate) stages: Vec<&'a dyn FilterStage>,
}

/// Splits a flow at its programs and devices.
pub(crate) fn cut<'a>(source: &'a Endpoint, stages: &'a [Stage], sink: &'a Endpoint) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut begin = PartEnd::Named(source);
    let mut between = Vec::new();
    for stage in stages {
        let end = match stage.kind.role() {
            StageRole::Program(command) => PartEnd::Program(command),
            StageRole::Device(device) => PartEnd::Device(device),
            StageRole::Filter(filter) => {
                between.push(filter);
                continue;
            }
        };
        parts.push(Part::new(begin, std::mem::take(&mut between), end));
        begin = end;
    }
    parts.push(Part::new(begin, between, PartEnd::Named(sink)));
    parts
}

impl<'a> Part<'a> {
    /// Creates a part. Limits and rates in front of the other stages become fields, since every mover can
    /// keep them without a stage.
    fn new(source: PartEnd<'a>, mut stages: Vec<&'a dyn FilterStage>, sink: PartEnd<'a>) -> Part<'a> {
        let (mut limit, mut rate) = (u64::MAX, None::<u64>);
        while let Some(bound) = stages.first().and_then(|first| first.bound()) {
            match bound {
                Bound::Bytes(bytes) => limit = limit.min(bytes),
                Bound::BytesPerSecond(bytes) => rate = Some(rate.map_or(bytes, |rate| rate.min(bytes))),
            }
            stages.remove(0);
        }
        Part { source, sink, limit, rate, stages }
    }

    /// Inspects the two ends and makes the plan of this part.
    pub(crate) fn plan(&self, options: &FlowOptions) -> Result<Plan, Error> {
        plan::plan(&self.facts()?, options)
    }

    fn facts(&self) -> Result<Facts, Error> {
        Ok(Facts {
            source: self.source.inspect(|endpoint| endpoint.kind.inspect_source())?,
            sink: self.sink.inspect(|endpoint| endpoint.kind.inspect_sink())?,
            first_stage: self.stages.first().map(ToString::to_string),
            is_limited: self.limit != u64::MAX,
            drops_units: self.stages.iter().any(|stage| stage.drops_units()),
            machine: machine::inspect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_cut_and_limits_at_the_beginning_are_no_stages() {
        let stages: Vec<Stage> =
            ["limit:10", "rate:5", "limit:7", "hash:sha256", "limit:3", "exec:cat", "rate:9"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let (zero, null) = ("zero:".parse().unwrap(), "null:".parse().unwrap());
        let parts = cut(&zero, &stages, &null);
        assert_eq!(parts.len(), 2);
        assert_eq!((parts[0].limit, parts[0].rate), (7, Some(5)));
        let between: Vec<String> = parts[0].stages.iter().map(ToString::to_string).collect();
        assert_eq!(between, ["hash:sha256", "limit:3"]);
        assert!(matches!(parts[1].source, PartEnd::Program("cat")));
        assert_eq!((parts[1].limit, parts[1].rate, parts[1].stages.len()), (u64::MAX, Some(9), 0));
    }
}
