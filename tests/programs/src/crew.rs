//! Crash loops: several programs that run at the same time and are killed in the middle of their work.

use crate::program::{Finished, Running};
use std::time::{Duration, Instant};

/// Iterator over the rounds of a crash loop: a least number of them, and more until `BYWASH_TEST_SECONDS`
/// have passed.
pub struct CrashRounds {
    rounds: u32,
    done: u32,
    until: Instant,
}

impl CrashRounds {
    /// Makes a loop of at least `rounds` rounds.
    ///
    /// # Panics
    /// If BYWASH_TEST_SECONDS is not a whole number.
    pub fn at_least(rounds: u32) -> CrashRounds {
        let seconds = std::env::var("BYWASH_TEST_SECONDS").map_or(0, |text| {
            text.parse().unwrap_or_else(|_| panic!("BYWASH_TEST_SECONDS={text}: whole seconds are needed"))
        });
        CrashRounds { rounds, done: 0, until: Instant::now() + Duration::from_secs(seconds) }
    }
}

impl Iterator for CrashRounds {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        (self.done < self.rounds || Instant::now() < self.until).then(|| {
            self.done += 1;
            self.done
        })
    }
}

/// Lets all programs run for `ms` milliseconds, then kills those that still run.
///
/// # Panics
/// If one of them has failed before it was killed.
pub fn kill_after<'stage>(ms: u64, mut crew: Vec<Running<'stage>>) -> Vec<Finished<'stage>> {
    std::thread::sleep(Duration::from_millis(ms));
    crew.iter_mut().for_each(Running::kill);
    let ends: Vec<Finished> = crew.into_iter().map(Running::wait).collect();
    for end in &ends {
        let failed = end.status.code().is_some_and(|code| code != 0);
        assert!(!failed, "a member of the crew failed before it was killed: {}\n{}", end.status, end.stderr);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::CrashRounds;

    #[test]
    fn a_loop_has_its_rounds() {
        let rounds: Vec<u32> = CrashRounds::at_least(3).take(3).collect();
        assert_eq!(rounds, [1, 2, 3]);
    }
}
