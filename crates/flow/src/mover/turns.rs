//! Movers that take turns: runs the turns of a [`Trial`] and measures their costs.
//!
//! A mover starts where the one before it stopped: at the positions of both ends, or at the next byte of a
//! stream.
//!
//! The cost of a turn is the elapsed time, less the time for which the thread was ready but other programs
//! had the processor. On a busy machine that time is many times a turn, and would hit one mover by chance.
//! Flows with a rate, and flows from streams, are compared by processor time, since they spend elapsed time
//! waiting.

use super::trial::Trial;
use super::{Job, Stop, run as run_one};
use crate::end::{DescriptorSink, DescriptorSource};
use crate::error::Error;
use crate::plan::{Prefer, RankedMover};
use crate::report::{Fallback, Share};
use crate::sys;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Result of a trial.
pub(crate) struct RaceResult {
    /// True if all data was moved; false if the kernel refused every mover before the end.
    pub(crate) is_over: bool,
    /// Share of each mover, the winner first.
    pub(crate) shares: Vec<Share>,
    pub(crate) fallbacks: Vec<Fallback>,
}

/// Moves all data by `movers` in turns; the cheapest one continues.
///
/// # Errors
/// Those of a mover that fails; a mover that the kernel refuses is only noted in [`RaceResult::fallbacks`].
pub(crate) fn run(
    movers: &[&RankedMover],
    prefer: Prefer,
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<RaceResult, Error> {
    let names: Vec<_> = movers.iter().map(|choice| choice.mover).collect();
    let mut trial = Trial::new(&names, Some(bytes_left(job, from)).filter(|left| *left != u64::MAX));
    let mut fallbacks = Vec::new();
    let waits = job.rate_limiter.is_some() || from.position.is_none();
    let prefer = if waits { Prefer::Cpu } else { prefer };
    let clock = Clock::new(prefer);
    let outcome = loop {
        if bytes_left(job, from) == 0 {
            break Ok(true);
        }
        let Some(turn) = trial.next() else { break Ok(false) };
        let before = (from.position, job.counts.bytes, clock.seconds());
        job.turn = turn.bytes;
        if let Some(choice) = movers.iter().find(|choice| choice.mover == turn.mover) {
            job.block = choice.block;
        }
        let outcome = run_one(turn.mover, job, from, to);
        let is_cut_short = std::mem::replace(&mut job.turn, u64::MAX) > 0;
        match outcome {
            Ok(()) => trial.record_turn(job.counts.bytes - before.1, clock.seconds() - before.2),
            Err(Stop::Failed(error)) => break Err(error),
            Err(Stop::Refused(why)) => {
                fallbacks.push(Fallback { mover: turn.mover, why });
                trial.remove(turn.mover);
                continue;
            }
        }
        let has_ended = match from.position {
            None => is_cut_short,
            position => position == before.0,
        };
        if has_ended {
            break Ok(true);
        }
    };
    let shares = shares(&trial, prefer);
    outcome.map(|is_over| RaceResult { is_over, shares, fallbacks })
}

fn bytes_left(job: &Job<'_>, from: &DescriptorSource) -> u64 {
    from.left().unwrap_or(u64::MAX).min(job.left)
}

/// Clock for the chosen kind of cost, valid in the thread that created it.
struct Clock {
    prefer: Prefer,
    begin: Instant,
    /// The thread's `schedstat` file in /proc; `None` if the kernel has none.
    statistics: Option<File>,
}

impl Clock {
    fn new(prefer: Prefer) -> Clock {
        let statistics = File::open("/proc/thread-self/schedstat").ok();
        Clock { prefer, begin: Instant::now(), statistics }
    }

    /// Returns the current time in seconds, counted from an arbitrary start.
    fn seconds(&self) -> f64 {
        match self.prefer {
            Prefer::Time => (self.begin.elapsed().as_nanos() as f64 - self.ready_ns()) / 1e9,
            Prefer::Cpu => sys::thread_time().as_secs_f64(),
        }
    }

    /// Returns how long the thread was ready to run but not running, in nanoseconds: the second number of its
    /// `schedstat` (Documentation/scheduler/sched-stats.rst). Zero if the kernel has none.
    fn ready_ns(&self) -> f64 {
        let mut room = [0; 64];
        let Some(Ok(bytes)) = self.statistics.as_ref().map(|file| file.read_at(&mut room, 0)) else {
            return 0.0;
        };
        let text = std::str::from_utf8(&room[..bytes]).unwrap_or_default();
        text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0.0)
    }
}

fn shares(trial: &Trial, prefer: Prefer) -> Vec<Share> {
    let (candidates, winner) = trial.candidates();
    let mut shares: Vec<Share> = candidates
        .iter()
        .map(|candidate| Share {
            mover: candidate.mover,
            bytes: candidate.bytes,
            seconds_per_gb: candidate.cost.map(|cost| cost * 1e9),
            compared_by: prefer,
            won: Some(candidate.mover) == winner && trial.heats() > 0,
        })
        .collect();
    shares.sort_by_key(|share| !share.won);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    /// Pins the calling thread to the first processor that it may use.
    fn stay() {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|number| allowed.is_set(*number)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one).unwrap();
    }

    #[test]
    fn time_for_which_others_have_the_processor_is_not_counted() {
        let is_over = AtomicBool::new(false);
        let (counted, used, passed) = thread::scope(|scope| {
            scope.spawn(|| {
                stay();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let measured = scope.spawn(|| {
                stay();
                let (clock, begin, before) = (Clock::new(Prefer::Time), Instant::now(), sys::thread_time());
                let first = clock.seconds();
                while sys::thread_time() - before < Duration::from_millis(200) {}
                (clock.seconds() - first, (sys::thread_time() - before).as_secs_f64(), begin.elapsed())
            });
            let measured = measured.join();
            is_over.store(true, Ordering::Relaxed);
            measured.unwrap()
        });
        let passed = passed.as_secs_f64();
        assert!(passed > 1.5 * used, "the processor was not shared: {passed} s passed, {used} s were used");
        assert!(
            counted > 0.9 * used && counted < 1.1 * used + 0.01,
            "{counted} s of {used} s, {passed} s passed"
        );
    }

    #[test]
    fn time_that_is_waited_for_is_counted() {
        let clock = Clock::new(Prefer::Time);
        let before = clock.seconds();
        thread::sleep(Duration::from_millis(50));
        assert!(clock.seconds() - before > 0.049);
    }
}
