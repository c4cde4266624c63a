//! Files with timelines of jobs and stations, in a format that Perfetto and Chrome open.

use crate::error::Failure;
use bywash_sim::engine::Timeline;
use bywash_sim::program::ProgramTimeline;
use bywash_sim::trace_events;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub use bywash_sim::trace_events::SPANS_MAX;

/// Writes `timeline` to `path`.
///
/// # Errors
/// [`Failure::Write`] if the file cannot be written.
pub fn write(path: &Path, timeline: &Timeline) -> Result<(), Failure> {
    create(path, |out| trace_events::write(out, timeline))
}

/// Writes the timeline of a program to `path`.
///
/// # Errors
/// [`Failure::Write`] if the file cannot be written.
pub fn write_program(path: &Path, timeline: &ProgramTimeline) -> Result<(), Failure> {
    create(path, |out| trace_events::write_program(out, timeline))
}

/// Creates a file, and lets `fill` write it.
fn create(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
    let failed = |source| Failure::Write { path: path.into(), source };
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    fill(&mut out).and_then(|()| out.flush()).map_err(failed)
}
