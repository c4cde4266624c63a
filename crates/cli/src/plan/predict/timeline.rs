//! The time of a recorded program when its calls take other times: each thread computes and calls in its order,
//! and a wait ends when the call that ended it in the recording has been made.
//!
//! A thread that sleeps, or polls, until others have got somewhere makes no call by which they could be told. So
//! such a wait during which other threads made calls ends with the latest of them. Any other wait whose cause
//! is not recorded takes its recorded time, and so does time in which a thread was away
//! (preempted, or in a call that nobody sees). Threads do not compete for processors: where they did, it is in
//! the recorded times.

use crate::plan::record::steps::Steps;
use bywash_sim::trace::{CallKind, Trace};
use std::collections::HashMap;

/// Shortest time of a wait that was over before it began, in seconds.
const WAIT_MIN: f64 = 1e-6;

/// Recorded order of starts and ends of calls, prepared for several computations.
pub struct Timeline<'a> {
    steps: &'a Steps,
    releases: Vec<Option<usize>>,
    /// Index of a call, and whether the event is its end.
    events: Vec<(usize, bool)>,
    /// For the first call of each thread, the latest call of another thread before it.
    creators: HashMap<usize, usize>,
}

impl<'a> Timeline<'a> {
    /// Prepares the order of a recording.
    pub fn new(steps: &'a Steps) -> Timeline<'a> {
        let calls = &steps.trace.calls;
        let end = |index: usize| calls[index].timing.map_or(calls[index].at, |timing| timing.end);
        let mut events: Vec<(usize, bool)> =
            (0..calls.len()).flat_map(|index| [(index, false), (index, true)]).collect();
        let key = |event: &(usize, bool)| if event.1 { end(event.0) } else { calls[event.0].at };
        // Of a call's own events the start stays before the end: the sort is stable.
        events.sort_by(|one, other| key(one).total_cmp(&key(other)));
        let mut seen: HashMap<u32, ()> = HashMap::new();
        let mut creators = HashMap::new();
        for (index, call) in calls.iter().enumerate() {
            if seen.insert(call.process, ()).is_none()
                && let Some(creator) = index.checked_sub(1)
            {
                creators.insert(index, creator);
            }
        }
        let mut releases = steps.trace.releases();
        for (index, release) in releases.iter_mut().enumerate() {
            if release.is_none() && calls[index].kind == CallKind::Wait {
                *release = latest_of_others(&steps.trace, index);
            }
        }
        Timeline { steps, releases, events, creators }
    }

    /// Returns true if the call's end has a cause in the recording.
    pub fn has_cause(&self, index: usize) -> bool {
        self.releases[index].is_some()
    }

    /// Returns the time from the first call to the last end, in seconds, if call number `index`, which took
    /// `recorded` seconds, takes `time(index, recorded)`.
    pub fn seconds(&self, time: &dyn Fn(usize, f64) -> f64) -> f64 {
        let calls = &self.steps.trace.calls;
        let mut starts = vec![0.0; calls.len()];
        // End of each thread's last call.
        let mut now: HashMap<u32, f64> = HashMap::new();
        let mut last = 0.0f64;
        for (index, is_end) in &self.events {
            let call = &calls[*index];
            let Some(timing) = call.timing else { continue };
            let recorded = timing.end - call.at;
            if !is_end {
                starts[*index] = match (now.get(&call.process), self.creators.get(index)) {
                    (Some(before), _) => before + timing.computed + self.steps.away[*index],
                    (None, Some(creator)) => starts[*creator] + (call.at - calls[*creator].at),
                    (None, None) => 0.0,
                };
                // A call that is not over when the next event of its thread comes is its thread's present.
                now.insert(call.process, starts[*index]);
                continue;
            }
            let start = starts[*index];
            let end = match self.releases[*index] {
                Some(release) => (start + WAIT_MIN).max(starts[release] + (timing.end - calls[release].at)),
                None if call.kind == CallKind::Wait => start + recorded,
                None => start + time(*index, recorded).max(0.0),
            };
            now.insert(call.process, end);
            last = last.max(end);
        }
        last
    }
}

/// Greatest number of calls that are looked at for one wait.
const LOOK_MAX: usize = 256;

/// Returns the latest call of another thread that began during the wait of this index.
fn latest_of_others(trace: &Trace, index: usize) -> Option<usize> {
    let wait = &trace.calls[index];
    let end = wait.timing?.end;
    let before = trace.calls.partition_point(|call| call.at < end);
    let during = (0..before).rev().take(LOOK_MAX).take_while(|other| trace.calls[*other].at >= wait.at);
    during.into_iter().find(|other| trace.calls[*other].process != wait.process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(lines: &[&str]) -> Steps {
        let header = "time,process,call,file,offset,length,end,computed";
        let trace = Trace::read(&format!("{header}\n{}\n", lines.join("\n"))).unwrap();
        Steps { away: vec![0.0; trace.calls.len()], trace, ..Steps::default() }
    }

    #[test]
    fn a_thread_is_as_much_faster_as_its_calls() {
        let steps = steps(&["0,1,read,/a,0,1,1,0", "3,1,read,/a,0,1,4,2", "5,1,other,exit,0,0,5,1"]);
        let timeline = Timeline::new(&steps);
        assert_eq!(timeline.seconds(&|_, recorded| recorded), 5.0);
        assert_eq!(timeline.seconds(&|_, recorded| recorded / 2.0), 4.0);
    }

    #[test]
    fn who_sleeps_until_others_are_done_sleeps_less() {
        let steps = steps(&[
            "0,1,wait,sleep,0,0,1,0",
            "0,2,read,/a,0,1,0.9,0",
            "0.9,2,read,/a,0,1,1.9,0",
            "1,1,wait,sleep,0,0,2,0",
            "1.9,2,other,exit,0,0,1.9,0",
            "2,1,other,exit,0,0,2,0",
            "2,1,wait,sleep,0,0,3,0",
        ]);
        let timeline = Timeline::new(&steps);
        assert_eq!(timeline.seconds(&|_, recorded| recorded), 3.0);
        // Both reads take half a second less each; the sleep after all others have ended stays.
        let quick =
            |index: usize, recorded: f64| if matches!(index, 1 | 2) { recorded - 0.4 } else { recorded };
        assert!((timeline.seconds(&quick) - 2.2).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_on_the_longest_chain_does_not_count() {
        // Thread 2 sends after 2 s of reading; thread 1 reads for a second, and waits.
        let steps = steps(&[
            "0,1,read,/a,0,1,1,0",
            "1,1,wait,pipe:[1],0,1,3.5,0",
            "1,2,read,/a,0,1,3,0",
            "3,2,other,pipe:[1],0,1,3.1,0",
            "4.5,1,other,exit,0,0,4.5,1",
        ]);
        let timeline = Timeline::new(&steps);
        assert_eq!(timeline.seconds(&|_, recorded| recorded), 4.5);
        // Half the time of thread 1's read, and the second thread begins with it: 0.5 + 2 + 0.5 + 1.
        let early = |index: usize, recorded: f64| if index == 0 { 0.5 } else { recorded };
        assert!((timeline.seconds(&early) - 4.0).abs() < 1e-9);
        let quick = |index: usize, recorded: f64| if index == 2 { 1.0 } else { recorded };
        assert_eq!(timeline.seconds(&quick), 3.5);
    }
}
