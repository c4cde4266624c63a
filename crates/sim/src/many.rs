//! Runs many simulations at once, on all cores. Results keep the order of the jobs and do not depend on the
//! number of cores. Replications, the papers' figures and the command use it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `run` on each of `jobs` and returns the results in the order of `jobs`. Uses one thread per core, or
/// only the calling thread where the system has no threads.
pub fn each<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    if cores < 2 {
        return jobs.iter().map(run).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            // `fetch_add` gives each number to one worker; the workers share nothing else, so a relaxed order
            // suffices.
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { return done };
            done.push((number, run(job)));
        }
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns the seed of replication `number` of a run with `seed`. The seed depends on these two numbers only,
/// so the place and order of execution do not matter.
pub fn seed_of(seed: u64, number: u64) -> u64 {
    // SplitMix64: neighbouring numbers get unrelated seeds.
    let mut mixed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_order() {
        let jobs: Vec<u64> = (0..1000).collect();
        assert_eq!(each(&jobs, |job| job * 2), (0..1000).map(|job| job * 2).collect::<Vec<_>>());
        assert!(each(&[] as &[u64], |job| *job).is_empty());
    }

    #[test]
    fn replications_have_seeds_of_their_own() {
        let mut seeds: Vec<u64> = (0..1000).flat_map(|one| [seed_of(1, one), seed_of(2, one)]).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 2000);
    }
}
