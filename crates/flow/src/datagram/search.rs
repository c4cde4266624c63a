//! Search for the highest rate without loss: the next rate to try, given the results so far.
//!
//! ```text
//!     grow      rate x 2 until a step fails twice or the sender cannot go faster
//!     narrow    between the last that passed and the one that failed, a few times by halves
//!     confirm   two longer steps; if one fails, 15 % less and again
//!     margin    80 % of what was confirmed
//! ```
//!
//! Invariant: the search is pure and takes at most [`STEPS_MAX`] steps. Called by [`super::probe`].

use std::time::Duration;

/// Greatest number of steps of a search; with the longest steps, it takes less than nine seconds.
pub(crate) const STEPS_MAX: usize = 48;
/// First rate, in payload bytes a second.
pub(crate) const RATE_FIRST: f64 = 4e6;
/// Lowest and highest rate of the search, in payload bytes a second.
const RATE_MIN: f64 = 1e5;
const RATE_MAX: f64 = 20e9;
const STEP_TIME: Duration = Duration::from_millis(30);
const CONFIRM_TIME: Duration = Duration::from_millis(150);
const NARROW_STEPS: u32 = 4;
const CONFIRM_STEPS: u32 = 2;
/// Fraction of a rate below which a sender counts as too slow for it.
const REACHED: f64 = 0.85;
const LESS: f64 = 0.85;
/// Fraction of the confirmed rate that is used. The rest is for events that a probe does not meet: other
/// load, a slower sink, a late wake-up.
const MARGIN: f64 = 0.8;

/// State of a search.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    phase: Phase,
    /// Highest rate that passed.
    good: f64,
    rate: f64,
    steps: usize,
    was_tried: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Grow,
    Narrow { bad: f64, left: u32 },
    Confirm { left: u32 },
    Over,
}

impl Search {
    pub(crate) fn new() -> Search {
        Search { phase: Phase::Grow, good: 0.0, rate: RATE_FIRST, steps: 0, was_tried: false }
    }

    /// Returns the rate to try next, and the duration of the step; `None` when the search is over.
    pub(crate) fn next(&self) -> Option<(f64, Duration)> {
        match self.phase {
            Phase::Over => None,
            _ if self.steps >= STEPS_MAX => None,
            Phase::Confirm { .. } => Some((self.rate, CONFIRM_TIME)),
            Phase::Grow | Phase::Narrow { .. } => Some((self.rate, STEP_TIME)),
        }
    }

    /// Returns the chosen rate, in payload bytes a second.
    pub(crate) fn chosen(&self) -> u64 {
        (self.good.max(RATE_MIN) * MARGIN) as u64
    }

    /// Records whether the step of [`Search::next`] passed, and the rate that the sender reached.
    pub(crate) fn note(&mut self, passed: bool, reached: f64) {
        self.steps += 1;
        match self.phase {
            Phase::Grow => self.note_growth(passed, reached),
            Phase::Narrow { bad, left } => {
                let bad = if passed { bad } else { self.rate };
                self.good = if passed { self.rate.min(reached) } else { self.good };
                match left {
                    0 | 1 => self.confirm(self.good),
                    _ => self.narrow(bad, left - 1),
                }
            }
            Phase::Confirm { left: 0 | 1 } if passed => {
                self.good = self.rate;
                self.phase = Phase::Over;
            }
            Phase::Confirm { left } if passed => self.phase = Phase::Confirm { left: left - 1 },
            Phase::Confirm { .. } => {
                self.good = (self.rate * LESS).max(RATE_MIN);
                self.confirm(self.good);
            }
            Phase::Over => {}
        }
    }

    fn note_growth(&mut self, passed: bool, reached: f64) {
        if passed {
            self.was_tried = false;
            self.good = self.rate.min(reached);
            match reached < REACHED * self.rate || self.rate >= RATE_MAX {
                true => self.confirm(self.good),
                false => self.rate *= 2.0,
            }
        } else if !self.was_tried {
            // A first failure may be caused by other load, so the rate is tried again.
            self.was_tried = true;
        } else if self.good > 0.0 {
            self.narrow(self.rate, NARROW_STEPS);
        } else if self.rate > RATE_MIN {
            self.rate = (self.rate / 4.0).max(RATE_MIN);
        } else {
            self.phase = Phase::Over;
        }
    }

    fn narrow(&mut self, bad: f64, left: u32) {
        self.rate = (self.good + bad) / 2.0;
        self.phase = Phase::Narrow { bad, left };
    }

    fn confirm(&mut self, rate: f64) {
        self.rate = rate;
        self.phase = Phase::Confirm { left: CONFIRM_STEPS };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Searches on a link that passes `capacity`, with a sender that reaches `speed`.
    fn find(capacity: f64, speed: f64) -> (u64, usize) {
        let (mut search, mut steps) = (Search::new(), 0);
        while let Some((rate, _)) = search.next() {
            let reached = rate.min(speed);
            search.note(reached <= capacity, reached);
            steps += 1;
        }
        (search.chosen(), steps)
    }

    #[test]
    fn a_link_that_passes_nothing_ends_the_search() {
        let (rate, steps) = find(0.0, 1e9);
        assert!(rate <= RATE_MIN as u64 && steps <= STEPS_MAX, "{rate} {steps}");
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_below_the_capacity_and_not_far(capacity in 2e5f64..1e10, speed in 1e6f64..1e10) {
            let (rate, steps) = find(capacity, speed);
            let most = capacity.min(speed);
            prop_assert!(steps <= STEPS_MAX);
            prop_assert!(rate as f64 <= most * MARGIN + 1.0, "{} of {}", rate, most);
            prop_assert!(rate as f64 >= most * 0.2, "{} of {}", rate, most);
        }

        /// Steps that pass or fail by chance also end the search.
        #[test]
        fn chance_ends(fates in prop::collection::vec(any::<bool>(), STEPS_MAX)) {
            let mut search = Search::new();
            let mut fates = fates.into_iter();
            while let Some((rate, time)) = search.next() {
                prop_assert!((RATE_MIN..=2.0 * RATE_MAX).contains(&rate) && time <= CONFIRM_TIME);
                search.note(fates.next().unwrap(), rate);
            }
        }
    }
}
