//! A flow in parts: programs cut it, and each part has two ends, stages and a plan.

use crate::error::Error;
use crate::facts::{End, Facts, Kind};
use crate::look;
use crate::plan::{self, Plan, Wishes};
use crate::spec::{Endpoint, Stage};

/// One end of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// What the user named.
    Named(&'a Endpoint),
    /// A program, through a pipe.
    Program(&'a str),
}

/// What lies between two ends without a program in between.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) source: Place<'a>,
    pub(crate) sink: Place<'a>,
    /// No more than so many bytes are taken from the source.
    pub(crate) limit: u64,
    /// No more than so many a second.
    pub(crate) rate: Option<u64>,
    /// What is done with them.
    pub(crate) stages: Vec<&'a Stage>,
}

/// Cuts a flow at its programs.
pub(crate) fn cut<'a>(source: &'a Endpoint, stages: &'a [Stage], sink: &'a Endpoint) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut begin = Place::Named(source);
    let mut between = Vec::new();
    for stage in stages {
        match stage {
            Stage::Exec(command) => {
                let program = Place::Program(command);
                parts.push(Part::new(begin, std::mem::take(&mut between), program));
                begin = program;
            }
            other => between.push(other),
        }
    }
    parts.push(Part::new(begin, between, Place::Named(sink)));
    parts
}

impl<'a> Part<'a> {
    /// Limits and rates at the beginning are no stages: every mover can keep to them.
    fn new(source: Place<'a>, mut stages: Vec<&'a Stage>, sink: Place<'a>) -> Part<'a> {
        let (mut limit, mut rate) = (u64::MAX, None::<u64>);
        while let Some(first) = stages.first() {
            match first {
                Stage::Limit(bytes) => limit = limit.min(*bytes),
                Stage::Rate(bytes) => rate = Some(rate.map_or(*bytes, |rate| rate.min(*bytes))),
                _ => break,
            }
            stages.remove(0);
        }
        Part { source, sink, limit, rate, stages }
    }

    /// Makes its plan.
    pub(crate) fn plan(&self, wishes: &Wishes) -> Result<Plan, Error> {
        plan::plan(&self.facts()?, wishes)
    }

    fn facts(&self) -> Result<Facts, Error> {
        Ok(Facts {
            source: match self.source {
                Place::Named(endpoint) => look::source(endpoint)?,
                Place::Program(command) => pipe(command),
            },
            sink: match self.sink {
                Place::Named(endpoint) => look::sink(endpoint)?,
                Place::Program(command) => pipe(command),
            },
            looked_at_by: self.stages.first().map(ToString::to_string),
            is_limited: self.limit != u64::MAX,
            machine: look::machine(),
        })
    }
}

fn pipe(command: &str) -> End {
    End::of(format!("exec:{command}"), Kind::Pipe)
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
        let parts = cut(&Endpoint::Zero, &stages, &Endpoint::Null);
        assert_eq!(parts.len(), 2);
        assert_eq!((parts[0].limit, parts[0].rate), (7, Some(5)));
        let between: Vec<String> = parts[0].stages.iter().map(ToString::to_string).collect();
        assert_eq!(between, ["hash:sha256", "limit:3"]);
        assert!(matches!(parts[1].source, Place::Program("cat")));
        assert_eq!((parts[1].limit, parts[1].rate, parts[1].stages.len()), (u64::MAX, Some(9), 0));
    }
}
