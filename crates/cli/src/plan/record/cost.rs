//! Cost of recording one call: a loop of small reads, with the recorder and without it, in turns.

use crate::error::Failure;
use crate::plan::measure::failed;
use crate::plan::record;
use crate::plan::repeat::{Repetition, Script, Side};
use bywash_bench::statistics::Summary;
use bywash_session::recording::{VARIABLE, ticks};
use std::io;
use std::path::Path;
use std::time::Instant;

/// Time that the recorder adds to a call and around it, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Part between the two readings of the counter, which counts as the call.
    pub inside: f64,
    /// Part before the first and behind the second, which counts as the program's computing.
    pub outside: f64,
}

impl Cost {
    /// Returns the cost of a call, in seconds.
    pub fn total(&self) -> f64 {
        self.inside + self.outside
    }
}

const CALLS: u32 = 50_000;
const ROUNDS: usize = 5;

/// Measures the cost of a recorded call.
///
/// # Errors
/// [`Failure::Measure`] if the loop cannot be run.
pub fn measure(library: &Path) -> Result<Cost, Failure> {
    cost(library).map_err(failed("the cost of recording a call"))
}

fn cost(library: &Path) -> io::Result<Cost> {
    let mut script = Script::new()?;
    script.stand_in(0, 4096, &std::env::temp_dir(), false)?;
    script.open_stand_in(0, 0)?;
    for _ in 0..CALLS {
        script.read_at(0, 0, 1)?;
    }
    let script = script.finish()?;
    let (mut plain, mut recorded) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(script.repeat(&Side::Kernel)?.each());
        let (recording, _) = record::open().map_err(|failure| io::Error::other(failure.to_string()))?;
        let side = Side::Preloaded(library, Some((VARIABLE, record::path(&recording))));
        recorded.push(script.repeat(&side)?.each());
        recording.discard();
    }
    let [plain, recorded] =
        [plain, recorded].map(|times| Summary::of(&times).map_or(0.0, |summary| summary.median));
    let inside = clock_reading();
    Ok(Cost { inside, outside: (recorded - plain - inside).max(0.0) })
}

impl Repetition {
    /// Returns the mean time of a read at an offset, in seconds.
    fn each(&self) -> f64 {
        let of = self.read_at;
        of.seconds / of.count.max(1) as f64
    }
}

/// Returns the time of reading the time-stamp counter, in seconds.
fn clock_reading() -> f64 {
    const READINGS: u32 = 100_000;
    let begin = Instant::now();
    let mut sum = 0u64;
    for _ in 0..READINGS {
        sum = sum.wrapping_add(ticks());
    }
    std::hint::black_box(sum);
    begin.elapsed().as_secs_f64() / f64::from(READINGS)
}
