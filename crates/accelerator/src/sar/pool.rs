//! Threads that share a list of jobs.

use crate::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the number of threads to use: all processors that this process may use, if 0 is asked for.
pub fn threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        asked => asked,
    }
}

/// Does the jobs on some threads, each with a state of its own, and returns when all are done, or one has failed, or `stop` was
/// set. A thread that is slow takes fewer jobs.
///
/// # Errors
/// The first error of a job.
pub fn run<Job: Send, State>(
    threads: usize,
    stop: &AtomicBool,
    jobs: Vec<Job>,
    state: impl Fn() -> Result<State, Error> + Sync,
    work: impl Fn(&mut State, Job) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let count = threads.min(jobs.len());
    let (jobs, failure) = (Mutex::new(jobs.into_iter()), Mutex::new(None));
    let worker = || {
        let result = state().and_then(|mut state| {
            while !stop.load(Ordering::Relaxed) && lock(&failure).is_none() {
                let Some(job) = lock(&jobs).next() else { break };
                work(&mut state, job)?;
            }
            Ok(())
        });
        if let Err(error) = result {
            lock(&failure).get_or_insert(error);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..count {
            scope.spawn(worker);
        }
        worker();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Locks a mutex, whose contents are valid whatever a thread that panicked did.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn each_job_is_done_once() {
        for threads in [1, 2, 5] {
            let sum = AtomicUsize::new(0);
            let add = |_: &mut (), job| {
                sum.fetch_add(job, Ordering::Relaxed);
                Ok(())
            };
            run(threads, &AtomicBool::new(false), (0..100).collect(), || Ok(()), add).unwrap();
            assert_eq!(sum.into_inner(), 4950);
        }
    }

    #[test]
    fn the_first_error_ends_the_work() {
        let done = AtomicUsize::new(0);
        let work = |_: &mut (), job: usize| {
            done.fetch_add(1, Ordering::Relaxed);
            if job == 3 { Err(Error::Parameter("job 3".into())) } else { Ok(()) }
        };
        let error = run(1, &AtomicBool::new(false), (0..100).collect(), || Ok(()), work).unwrap_err();
        assert_eq!((error.to_string().as_str(), done.into_inner()), ("job 3", 4));
    }

    #[test]
    fn no_job_begins_after_a_stop() {
        let work = |_: &mut (), _: usize| Err(Error::Parameter("began".into()));
        run(2, &AtomicBool::new(true), (0..100).collect(), || Ok(()), work).unwrap();
    }
}
