//! `bywash plan record`: runs a program with the recorder preloaded, and writes its calls as a trace.
//!
//! - [`cost`]: the cost of a recorded call on this machine, which is subtracted
//! - [`steps`]: the recorded calls as a trace, with the computing between them
//!
//! Invariant: the program runs as under `bywash run`, with signals passed on, and ends as it ended; whatever
//! ends it, the calls until then are a valid trace.

pub mod cost;
pub mod steps;

use crate::cli::plan::RecordArgs;
use crate::error::Failure;
use crate::run;
use crate::standard::Unfailing;
use bywash_session::recording::{CHUNK_CALLS, Recording, VARIABLE, ticks};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};
use steps::Steps;

/// Greatest number of calls of a recording.
pub const CALLS_MAX: u64 = 16 << 20;
/// Gap or call from which on the recorder looks at the thread's processor time.
const LONG: Duration = Duration::from_micros(50);
/// Time over which the time-stamp counter is compared with the clock.
const CLOCK_WATCH: Duration = Duration::from_millis(20);

/// Records a program, writes the trace, and returns the program's exit status.
///
/// # Errors
/// [`Failure::LibraryMissing`] or [`Failure::Recording`] if there is no recorder or no memory for it,
/// [`Failure::Measure`] if its cost cannot be measured, [`Failure::Write`] if the trace cannot be written, and
/// those of starting the program.
pub fn main(arguments: &RecordArgs) -> Result<i32, Failure> {
    let library = run::find_recorder()?;
    let cost = cost::measure(&library)?;
    let (recording, tick) = open()?;
    let end = run::with_library(&arguments.program, &library, (VARIABLE, path(&recording)))?;
    let steps = Steps::new(&recording.read(), tick, cost);
    fs::write(&arguments.out, steps.trace.write())
        .map_err(|source| Failure::Write { path: arguments.out.clone(), source })?;
    let _ = write!(Unfailing, "{}: {}", arguments.out.display(), in_words(&steps));
    Ok(run::end_as(end))
}

/// Makes a recording; returns it with the duration of a tick, in seconds.
///
/// # Errors
/// [`Failure::Recording`] if there is no memory for it.
pub fn open() -> Result<(Recording, f64), Failure> {
    let chunks = CALLS_MAX.div_ceil(CHUNK_CALLS as u64) as u32;
    let recording = Recording::create(chunks)
        .map_err(|error| Failure::Recording(io::Error::from_raw_os_error(error.0)))?;
    let tick = tick();
    let long = LONG.as_secs_f64() / tick;
    recording.set_clock((tick * 1e9 * 4_294_967_296.0) as u64, long as u64);
    Ok((recording, tick))
}

/// Returns the path by which processes open a recording.
pub fn path(recording: &Recording) -> OsString {
    OsString::from_vec(recording.path().into_bytes())
}

/// Returns the duration of a tick of the time-stamp counter, in seconds.
fn tick() -> f64 {
    let (begin, first) = (Instant::now(), ticks());
    std::thread::sleep(CLOCK_WATCH);
    let (elapsed, passed) = (begin.elapsed(), ticks().wrapping_sub(first));
    elapsed.as_secs_f64() / (passed as f64).max(1.0)
}

fn in_words(steps: &Steps) -> String {
    let Steps { trace, cost, lost, nested, .. } = steps;
    let threads = steps.threads();
    let seconds = trace.calls.last().map_or(0.0, |call| call.timing.map_or(call.at, |timing| timing.end));
    let mut text = format!(
        "{} calls of {} in {seconds:.3} s\n\
         the recorder took {:.0} ns a call, {:.2} ms in all ({:.1} %), which is subtracted from computing and calls\n",
        trace.calls.len(),
        if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") },
        cost.total() * 1e9,
        cost.total() * trace.calls.len() as f64 * 1e3,
        cost.total() * trace.calls.len() as f64 / seconds.max(1e-9) / f64::from(threads.max(1)) * 100.0,
    );
    if *lost > 0 {
        text += &format!("the recording was full: {lost} later calls are missing\n");
    }
    if *nested > 0 {
        text += &format!("{nested} calls of signal handlers are missing\n");
    }
    text
}
