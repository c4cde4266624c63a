//! What became of a flow.

use crate::datagram::Accounting;
use crate::error::Error;
use crate::plan::{Mover, Prefer};
use crate::spec::HashAlgorithm;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// What a mover counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes that were moved, without holes.
    pub(crate) bytes: u64,
    /// Bytes of holes that stayed holes.
    pub(crate) holes: u64,
    /// Sends of which the kernel was asked not to copy them.
    pub(crate) zerocopy_sends: u64,
    /// Of those, the ones that it says it has copied all the same.
    pub(crate) zerocopy_copied: u64,
}

/// What became of a flow.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Bytes taken from the source, holes included.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Processor time of this flow's threads, and of the programs that it went through.
    pub cpu_seconds: f64,
    /// The pieces that the flow consisted of: one, and one more for each program and for a way back.
    pub pieces: Vec<Piece>,
    /// The hashes of what passed, in the order of their stages.
    pub hashes: Vec<Hash>,
    /// What else there is to know.
    pub notes: Vec<String>,
    /// Whether everything has arrived.
    pub whole: bool,
    /// Where what there is of a file that is not whole is kept.
    pub partial: Option<PathBuf>,
}

/// What was moved between two ends.
#[derive(Clone, Debug, Serialize)]
pub struct Piece {
    /// Where from.
    pub source: String,
    /// Where to.
    pub sink: String,
    /// How, in the end.
    pub mover: Mover,
    /// Bytes of a block.
    pub block: usize,
    /// Bytes that were moved, without holes.
    pub bytes: u64,
    /// Bytes of holes that stayed holes.
    pub holes: u64,
    /// How often the processor copied each byte.
    pub copies: u32,
    /// Sends of which the kernel was asked not to copy them.
    pub zerocopy_sends: u64,
    /// Of those, the ones that the kernel says it has copied all the same.
    pub zerocopy_copied: u64,
    /// What became of datagrams, at each end that is of them.
    pub datagrams: Vec<Accounting>,
    /// What each of the movers has moved that took turns, the one that went on first; empty: there was one from the
    /// beginning.
    pub shares: Vec<Share>,
    /// The movers that were tried before, and why they did not go on.
    pub fallbacks: Vec<Fallback>,
}

/// Share of a mover that took turns with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The mover.
    pub mover: Mover,
    /// Bytes that it has moved.
    pub bytes: u64,
    /// Its cost in its better turn, in seconds for 10^9 bytes; none: its turns were too short to tell.
    pub seconds_per_gb: Option<f64>,
    /// The cost that was compared.
    pub of: Prefer,
    /// Whether it cost least, or as little as any other, and went on.
    pub won: bool,
}

/// A mover that the kernel did not go along with.
#[derive(Clone, Debug, Serialize)]
pub struct Fallback {
    /// The mover.
    pub mover: Mover,
    /// Why not.
    pub why: String,
}

/// A hash of what passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hash {
    /// Which.
    pub algorithm: HashAlgorithm,
    /// In hexadecimal digits.
    pub digits: String,
}

/// What is told of a flow that has ended, to be written as JSON: the report's members, and beside them why it did not
/// come to its end.
#[derive(Clone, Debug, Serialize)]
pub struct Told<'a> {
    /// Rises when a member changes its meaning or goes; new ones may come.
    pub version: u32,
    /// What became of it.
    #[serde(flatten)]
    pub report: &'a Report,
    /// Why it did not come to its end.
    pub error: Option<String>,
}

impl Told<'_> {
    /// Of what [`crate::Running::wait`] has answered.
    pub fn of(outcome: &Result<Report, Failed>) -> Told<'_> {
        let (report, error) = match outcome {
            Ok(report) => (report, None),
            Err(failed) => (&*failed.report, Some(failed.error.to_string())),
        };
        Told { version: 1, report, error }
    }
}

impl Report {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }

    /// Processor time for 10^9 bytes; none if nothing was moved.
    pub fn cpu_seconds_per_gb(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.cpu_seconds / (self.bytes as f64 / 1e9))
    }
}

/// Why a flow did not come to its end, and how far it came.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: Error,
    /// How far.
    pub report: Box<Report>,
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(out)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed { error, report: Box::default() }
    }
}
