//! The result of a flow: what was moved, by which mover and at what cost.

use crate::datagram::Accounting;
use crate::error::Error;
use crate::hash::HashAlgorithm;
use crate::movers::Mover;
use crate::plan::Prefer;
use crate::timing::LiveStream;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// Counters that a mover updates while it moves data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes moved, without holes.
    pub(crate) bytes: u64,
    /// Bytes of holes in the source that are holes in the sink too.
    pub(crate) holes: u64,
    /// Number of sends with MSG_ZEROCOPY.
    pub(crate) zerocopy_sends: u64,
    /// Number of MSG_ZEROCOPY sends whose data the kernel copied nevertheless.
    pub(crate) zerocopy_copied: u64,
}

/// Result of a flow, complete or not.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Bytes moved from the source, holes included.
    pub bytes: u64,
    /// Duration of the flow, in seconds.
    pub seconds: f64,
    /// Processor time of the flow's threads and of its `exec:` programs, in seconds.
    pub cpu_seconds: f64,
    /// Pieces of the flow: one, plus one for each `exec:` program, plus one for the reverse direction between
    /// two sockets.
    pub pieces: Vec<Piece>,
    /// Results of the `hash:` stages, in the order of the stages.
    pub hashes: Vec<Hash>,
    /// Work of the `accel:` stages, in the order of the stages.
    pub accelerations: Vec<Acceleration>,
    /// Frames that were shown on displays, for each `display:`.
    pub presentations: Vec<Presentation>,
    /// Live streams, for each `live:`, `rtp:` and `alsa:`, from the source to the sink.
    pub live_streams: Vec<LiveStream>,
    /// Remarks for the user that have no member of their own.
    pub notes: Vec<String>,
    /// True if all data arrived and the flow succeeded.
    pub whole: bool,
    /// Path of the partial file that a failed flow kept; `None` if it kept none.
    pub partial: Option<PathBuf>,
}

/// Result of one piece of a flow: the data between two neighbouring ends or programs.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Piece {
    /// Text of the end that the data came from.
    pub source: String,
    /// Text of the end that the data went to.
    pub sink: String,
    /// Mover that moved the data at the end of the piece.
    pub mover: Mover,
    /// Block size, in bytes.
    pub block: usize,
    /// Bytes moved, without holes.
    pub bytes: u64,
    /// Bytes of holes in the source that are holes in the sink too.
    pub holes: u64,
    /// Number of times that the processor copied each byte.
    pub copies: u32,
    /// Number of sends with MSG_ZEROCOPY.
    pub zerocopy_sends: u64,
    /// Number of MSG_ZEROCOPY sends whose data the kernel copied nevertheless.
    pub zerocopy_copied: u64,
    /// Counters of each end that carries datagrams.
    pub datagrams: Vec<Accounting>,
    /// Shares of the movers that took turns, the winner first; empty if no movers took turns.
    pub shares: Vec<Share>,
    /// Movers that were tried and gave up, each with its reason.
    pub fallbacks: Vec<Fallback>,
}

/// Share of one mover in a piece whose movers took turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Share {
    /// The mover.
    pub mover: Mover,
    /// Bytes moved by this mover.
    pub bytes: u64,
    /// Cost of the mover's cheaper turn, in seconds for 10^9 bytes; `None` if its turns were too short to
    /// measure.
    pub seconds_per_gb: Option<f64>,
    /// Kind of cost that the movers were compared by.
    #[serde(rename = "of")]
    pub compared_by: Prefer,
    /// True if this mover won the comparison and moved the rest.
    pub won: bool,
}

/// A mover that the kernel refused for this flow, so that another one took over.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Fallback {
    /// Mover that gave up.
    pub mover: Mover,
    /// Reason why it gave up.
    pub why: String,
}

/// Hash of the data that passed a `hash:` stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Hash {
    /// Hash algorithm.
    pub algorithm: HashAlgorithm,
    /// Hash as lower-case hexadecimal digits.
    pub digits: String,
}

/// Work of an accelerator in a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Acceleration {
    /// Name of the device, as in `device=`.
    pub device: String,
    /// Text of the stage.
    pub stage: String,
    /// Bytes that the device got.
    pub input_bytes: u64,
    /// Bytes that the device gave.
    pub output_bytes: u64,
    /// Bytes that the processor copied between memory of the flow and memory of the device.
    pub copied_bytes: u64,
    /// Blocks that the device computed.
    pub blocks: u64,
    /// Greatest number of blocks that were in flight at a time.
    pub in_flight_max: u64,
    /// Time during which the device computed, in seconds.
    pub computing_seconds: f64,
    /// Time in which the flow filled buffers of the device, in seconds.
    pub reading_seconds: f64,
    /// Time in which the flow emptied buffers of the device, in seconds.
    pub writing_seconds: f64,
    /// Time that was saved because reading, computing and writing went on at the same time: their sum less the
    /// time from the first block's begin to the last one's end, in seconds.
    pub overlapped_seconds: f64,
    /// Activity that took longest.
    pub bound: Bottleneck,
}

/// Frames of a flow that were shown on a display.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Presentation {
    /// Kind of the display, such as `x11`; empty if no window was opened.
    pub display: String,
    /// Width of the window, in pixels.
    pub width: u32,
    /// Height of the window, in pixels.
    pub height: u32,
    /// Frames that were handed to the display.
    pub frames_shown: u64,
    /// Frames that were not shown, since they were too late or the display did not take them in time.
    pub frames_dropped: u64,
    /// Frames shown that were handed over more than half a period after they were due.
    pub frames_late: u64,
}

/// Activity that bounds a flow through an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Bottleneck {
    /// Filling the device's buffers from the source.
    Reading,
    /// The device.
    Computing,
    /// Emptying the device's buffers into the sink.
    Writing,
}

/// JSON record of a flow that has ended: the members of its [`Report`], plus a version and the error.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct JsonReport<'a> {
    /// Version of the record. It rises when a member is removed or changes its meaning, not when one is
    /// added.
    pub version: u32,
    /// Result of the flow, complete or not.
    #[serde(flatten)]
    pub report: &'a Report,
    /// Text of the error that ended the flow; `None` if it succeeded.
    pub error: Option<String>,
}

impl JsonReport<'_> {
    /// Builds the record from the result of [`crate::Running::wait`].
    pub fn new(outcome: &Result<Report, Failed>) -> JsonReport<'_> {
        let (report, error) = match outcome {
            Ok(report) => (report, None),
            Err(failed) => (&*failed.report, Some(failed.error.to_string())),
        };
        JsonReport { version: 1, report, error }
    }
}

impl Report {
    /// Returns the throughput, in bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }

    /// Returns the processor time for 10^9 bytes, in seconds; `None` if nothing was moved.
    pub fn cpu_seconds_per_gb(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.cpu_seconds / (self.bytes as f64 / 1e9))
    }
}

/// Error of a flow, with the report of what was done before it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// Reason of the failure.
    pub error: Error,
    /// Result up to the failure.
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
