//! Choice between the log and the kernel for the syncs of a file, by the time that both take where the program runs.
//!
//! A log gains where the file system does more for a sync than one write and one flush. On an idle disk, or one that flushes
//! at once, the kernel may be as fast, and every record would be written for nothing. So a few syncs of each file are tried by
//! the other route now and then, and the faster route is kept. The longer a route proves faster, the rarer are the trials.
//!
//! ```text
//!   kept route: 64 syncs | other route: 16 syncs | compare | kept route: twice as many, or the other one: 64 | ...
//! ```
//!
//! The last 8 times of each route are compared. The first ones of a trial are left out: whoever works for the route (the keeper
//! of a log on a volume and its server, a disk) may have slept.
//!
//! Who counts is one word, and times are one word each: what two threads do at the same time may get lost, which makes a
//! decision later or one sample older, never a sync less durable.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Number of times of a route that are compared: its last ones.
const TIMES: usize = 8;
/// Number of syncs of a trial.
const TRIAL: u64 = 2 * TIMES as u64;
/// Number of syncs between two trials: least and greatest.
const PERIOD_MIN: u64 = 64;
const PERIOD_MAX: u64 = 1 << 16;
/// Greatest time of a route that makes it the chosen one, in percent of the time of the kept route. The log has to be clearly
/// faster, and the kernel only not slower: what is logged is written to its file later all the same, and that is not in the
/// times of commits.
const CHOSEN_PERCENT: [u64; 2] = [90, 105];
/// A trial ends early with the second time that is so many times as long as the kept route's.
const HOPELESS: u64 = 3;

/// Route in which a sync is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By an append to the log.
    Log = 0,
    /// By the kernel.
    Kernel = 1,
}

impl Route {
    fn other(self) -> Route {
        if self == Route::Log { Route::Kernel } else { Route::Log }
    }
}

/// Times of the last syncs of a file, and the route of the next one. All zero: the log.
#[repr(C)]
#[derive(Debug)]
pub struct Trial {
    /// [`Phase`] as a word.
    phase: AtomicU64,
    /// Times of the last syncs by each route, in nanoseconds; 0: there was none.
    times: [[AtomicU64; TIMES]; 2],
}

/// Part of the sequence of syncs.
#[derive(Clone, Copy, Debug)]
struct Phase {
    kept: Route,
    is_trial: bool,
    /// Syncs since the phase began.
    done: u64,
    /// Number of syncs of the kept route between two trials.
    period: u64,
}

impl Phase {
    fn of_word(word: u64) -> Phase {
        let kept = if word & 1 == 0 { Route::Log } else { Route::Kernel };
        let period = (word >> 32).max(PERIOD_MIN);
        Phase { kept, is_trial: word & 2 != 0, done: word >> 2 & ((1 << 30) - 1), period }
    }

    fn word(self) -> u64 {
        self.kept as u64 | u64::from(self.is_trial) << 1 | self.done << 2 | self.period << 32
    }

    fn route(self) -> Route {
        if self.is_trial { self.kept.other() } else { self.kept }
    }
}

impl Trial {
    /// Returns the route of the next sync.
    pub fn next_route(&self) -> Route {
        Phase::of_word(self.phase.load(Relaxed)).route()
    }

    /// Adds the time of a sync that was made by `route`, and decides on the next one.
    pub fn add(&self, route: Route, ns: u64) {
        let phase = Phase::of_word(self.phase.load(Relaxed));
        if phase.route() != route {
            // Another thread has decided meanwhile.
            return;
        }
        self.times[route as usize][phase.done as usize % TIMES].store(ns.max(1), Relaxed);
        let done = phase.done + 1;
        let next = if !phase.is_trial {
            let is_over = done >= phase.period;
            Phase { is_trial: is_over, done: if is_over { 0 } else { done }, ..phase }
        } else if done >= TRIAL {
            self.decided(phase)
        } else if done == 2 && self.is_hopeless(phase.kept) {
            Phase { is_trial: false, done: 0, period: (phase.period * 8).min(PERIOD_MAX), ..phase }
        } else {
            Phase { done, ..phase }
        };
        self.phase.store(next.word(), Relaxed);
    }

    /// Returns the phase behind a complete trial.
    fn decided(&self, phase: Phase) -> Phase {
        let (kept, other) = (self.median(phase.kept), self.median(phase.kept.other()));
        if other * 100 < kept * CHOSEN_PERCENT[phase.kept.other() as usize] {
            Phase { kept: phase.kept.other(), is_trial: false, done: 0, period: PERIOD_MIN }
        } else {
            Phase { is_trial: false, done: 0, period: (phase.period * 2).min(PERIOD_MAX), ..phase }
        }
    }

    /// Returns true if the first two times of a trial leave no hope for the route that is tried.
    fn is_hopeless(&self, kept: Route) -> bool {
        let limit = self.median(kept).saturating_mul(HOPELESS);
        self.times[kept.other() as usize][..2].iter().all(|ns| ns.load(Relaxed) > limit)
    }

    /// Returns the median of the times of a route, in nanoseconds.
    fn median(&self, route: Route) -> u64 {
        let mut times = self.times[route as usize].each_ref().map(|ns| ns.load(Relaxed));
        times.sort_unstable();
        let unknown = times.iter().filter(|ns| **ns == 0).count();
        times[(unknown + (TIMES - unknown) / 2).min(TIMES - 1)]
    }

    /// Forgets all times: the entry is used for another file.
    pub fn clear(&self) {
        self.phase.store(0, Relaxed);
        self.times.iter().flatten().for_each(|ns| ns.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn trial() -> Trial {
        Trial {
            phase: AtomicU64::new(0),
            times: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))),
        }
    }

    /// Makes syncs whose times are `ns` of the route; returns the share of each route in percent.
    fn run(trial: &Trial, syncs: u64, mut ns: impl FnMut(Route, u64) -> u64) -> [u64; 2] {
        let mut counts = [0; 2];
        for number in 0..syncs {
            let route = trial.next_route();
            counts[route as usize] += 1;
            trial.add(route, ns(route, number));
        }
        counts.map(|count| count * 100 / syncs)
    }

    fn time_of(log_ns: u64, kernel_ns: u64) -> impl Fn(Route, u64) -> u64 {
        move |route, _| if route == Route::Log { log_ns } else { kernel_ns }
    }

    /// Route that makes nearly all of some syncs.
    fn kept(shares: [u64; 2]) -> Option<Route> {
        [Route::Log, Route::Kernel].into_iter().find(|route| shares[*route as usize] >= 98)
    }

    #[test]
    fn the_faster_way_is_kept() {
        assert_eq!(kept(run(&trial(), 10_000, time_of(50, 200))), Some(Route::Log));
        assert_eq!(kept(run(&trial(), 10_000, time_of(200, 50))), Some(Route::Kernel));
        // A log that is hardly faster does not pay for its checkpoints, and one that is tried anew has to be clearly faster.
        assert_eq!(kept(run(&trial(), 10_000, time_of(100, 103))), Some(Route::Kernel));
        assert_eq!(kept(run(&trial(), 10_000, time_of(93, 100))), Some(Route::Log));
        let trial = trial();
        run(&trial, 1000, time_of(100, 50));
        assert_eq!(kept(run(&trial, 10_000, time_of(93, 100))), Some(Route::Kernel));
    }

    #[test]
    fn a_route_that_has_slept_is_not_judged_by_its_first_syncs() {
        let (trial, mut in_a_row) = (trial(), 0);
        let shares = run(&trial, 10_000, |route, _| {
            in_a_row = if route == Route::Log { in_a_row + 1 } else { 0 };
            if route == Route::Kernel {
                60
            } else if in_a_row < 8 {
                100
            } else {
                20
            }
        });
        assert_eq!(kept(shares), Some(Route::Log));
    }

    #[test]
    fn a_way_that_becomes_faster_is_found() {
        let trial = trial();
        assert!(run(&trial, 1000, time_of(200, 100))[1] > 85);
        assert!(run(&trial, 20_000, time_of(50, 100))[0] > 85);
        assert!(run(&trial, 40_000, time_of(200, 100))[1] > 60);
    }

    #[test]
    fn trials_cost_little() {
        let costs = |kernel_ns: u64| {
            let trial = trial();
            let mut sum = 0;
            run(&trial, 5000, |route, _| {
                let ns = if route == Route::Log { 100 } else { kernel_ns };
                sum += ns;
                ns
            });
            sum as f64 / (5000.0 * 100.0)
        };
        assert!(costs(110) < 1.002 && costs(250) < 1.03, "{} {}", costs(110), costs(250));
        // A disk that takes a hundred times as long is tried by two syncs at a time.
        assert!(costs(10_000) < 1.15, "{}", costs(10_000));
    }

    #[test]
    fn noise_does_not_change_the_way() {
        let trial = trial();
        let shares = run(&trial, 10_000, |route, number| {
            let ns = if route == Route::Log { 80 } else { 100 };
            // One sync in five takes ten times as long.
            if number * 7919 % 5 == 0 { ns * 10 } else { ns }
        });
        assert_eq!(kept(shares), Some(Route::Log));
    }

    #[test]
    fn the_median_is_that_of_the_times_there_are() {
        let trial = trial();
        let medians: Vec<u64> = [5, 1, 9, 3, 7, 2, 8, 6]
            .into_iter()
            .enumerate()
            .map(|(number, ns)| {
                trial.times[0][number].store(ns, Relaxed);
                trial.median(Route::Log)
            })
            .collect();
        assert_eq!(medians, [5, 5, 5, 5, 5, 5, 5, 6]);
        trial.clear();
        assert_eq!(trial.next_route(), Route::Log);
    }
}
