//! The fastest runs of several, which are those that the rest of the machine delayed the least.
//!
//! Other programs, the host of a virtual machine, and work that an earlier run left behind only ever lengthen a
//! run. So runs are repeated until the fastest half of those that were requested agree, and the others do not
//! count (the K-best scheme of Bryant and O'Hallaron, "Computer Systems", chapter on measuring time). Where they
//! never agree, the machine is too busy.

use crate::error::Failure;

/// Greatest distance of the fastest runs from the fastest one, as a share of its time.
const DISTANCE_MAX: f64 = 0.1;
/// Number of runs after which they are given up if they do not agree, as a multiple of those requested.
const REPEAT_MAX: usize = 4;
/// Time of all runs, in seconds, until which short runs go on beyond that.
const SECONDS_MIN: f64 = 120.0;
/// Greatest number of runs however short they are, as a multiple of those requested.
const SHORT_MAX: usize = 100;

/// Number of runs requested, and what follows from it.
#[derive(Clone, Copy, Debug)]
pub struct Requested(pub u32);

impl Requested {
    /// Returns the indices of the runs that count, the fastest first.
    pub fn fastest(self, times: &[f64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by(|one, other| times[*one].total_cmp(&times[*other]));
        order.truncate(self.0 as usize / 2 + 1);
        order
    }

    /// Returns the times of the runs that count, the fastest first.
    pub fn counted(self, times: &[f64]) -> Vec<f64> {
        self.fastest(times).into_iter().map(|index| times[index]).collect()
    }

    /// Returns true if there are to be more runs after `done` of each kind, whose times so far are `kinds`.
    pub fn goes_on(self, done: usize, kinds: &[&[f64]]) -> bool {
        let requested = self.0 as usize;
        let agree = || kinds.iter().all(|times| self.distance(times) <= DISTANCE_MAX);
        let seconds: f64 = kinds.iter().copied().flatten().sum();
        let runs_max = requested * if seconds < SECONDS_MIN { SHORT_MAX } else { REPEAT_MAX };
        done < requested || (done < runs_max && !agree())
    }

    /// Refuses times whose fastest runs do not agree.
    ///
    /// # Errors
    /// [`Failure::Busy`] with `name`, which names the runs.
    pub fn refuse_disagreement(self, name: &str, times: &[f64]) -> Result<(), Failure> {
        let distance = self.distance(times);
        if distance <= DISTANCE_MAX {
            return Ok(());
        }
        let (counted, all, percent) = (self.fastest(times).len(), times.len(), distance * 100.0);
        Err(Failure::Busy(format!("the fastest {counted} of {all} runs of {name} differ by {percent:.0} %")))
    }

    /// Returns the distance of the slowest run that counts from the fastest, as a share of the latter's time.
    fn distance(self, times: &[f64]) -> f64 {
        let counted = self.counted(times);
        match (counted.first(), counted.last()) {
            (Some(fastest), Some(slowest)) => (slowest - fastest) / fastest.max(f64::MIN_POSITIVE),
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_on_until_the_fastest_half_agree_and_slow_ones_do_not_count() {
        let requested = Requested(3);
        assert!(requested.goes_on(2, &[&[1.0, 1.0]]), "fewer than requested");
        assert!(!requested.goes_on(3, &[&[1.0, 9.0, 1.05]]));
        assert_eq!(requested.counted(&[1.0, 9.0, 1.05]), [1.0, 1.05]);
        assert_eq!(requested.fastest(&[2.0, 9.0, 1.95]), [2, 0]);
        // Each kind has to agree, and the end comes after four times as many runs, or after two minutes.
        assert!(requested.goes_on(3, &[&[1.0, 9.0, 1.05], &[1.0, 2.0, 3.0]]));
        assert!(requested.goes_on(12, &[&[1.0, 2.0, 3.0]]));
        assert!(!requested.goes_on(12, &[&[40.0, 50.0, 60.0]]));
        assert!(!requested.goes_on(300, &[&[0.1, 0.2, 0.3]]));
        assert!(!requested.goes_on(3, &[&[1.0, 1.0, 1.0], &[]]), "a kind without runs does not disagree");
    }

    #[test]
    fn runs_that_never_agree_are_refused_with_their_difference() {
        let refused = Requested(3).refuse_disagreement("the program", &[1.0, 1.5, 1.3]);
        let Err(Failure::Busy(reason)) = refused else { panic!("{refused:?}") };
        assert_eq!(reason, "the fastest 2 of 3 runs of the program differ by 30 %");
        assert!(Requested(3).refuse_disagreement("the program", &[1.0, 1.5, 1.05]).is_ok());
    }
}
