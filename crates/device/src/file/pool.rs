//! Jobs by threads: a bounded number of them, each of which makes one system call at a time.
//!
//! For where there is no io_uring, and for what io_uring does not have. Two lists under locks, jobs and results; who wants
//! to sleep leaves word in the list of results, under its lock, so that the thread that puts the next one there rings
//! the bell (eventfd(2)).

use super::holder::Holder;
use super::job::Job;
use crate::error::Error;
use bywash_sync::{AtomicUsize, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

#[derive(Debug)]
struct Jobs {
    waiting: VecDeque<(u16, Job)>,
    ended: bool,
}

#[derive(Debug)]
struct Results {
    done: VecDeque<(u16, i32)>,
    /// Somebody sleeps, or is about to.
    armed: bool,
}

#[derive(Debug)]
struct Shared {
    jobs: Mutex<Jobs>,
    more: Condvar,
    results: Mutex<Results>,
    /// How many results there are, so that one need not take the lock to find none. A look that comes too early finds
    /// them next time.
    count: AtomicUsize,
    bell: OwnedFd,
}

/// Threads that carry jobs out.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Nothing panics while it has one of these locks; if it did, the lists would be whole all the same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// So many threads for jobs on `file`, which stays open until the pool is dropped; `depth` jobs at most at a time. All
    /// that the threads ever do is by the rights of `holder`.
    pub(super) fn new(
        file: RawFd,
        threads: usize,
        depth: usize,
        holder: Option<&Holder>,
    ) -> Result<Pool, Error> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("make a descriptor to wait for", error))?;
        let shared = Arc::new(Shared {
            jobs: Mutex::new(Jobs { waiting: VecDeque::with_capacity(depth), ended: false }),
            more: Condvar::new(),
            results: Mutex::new(Results { done: VecDeque::with_capacity(depth), armed: false }),
            count: AtomicUsize::new(0),
            bell,
        });
        let mut pool = Pool { shared, threads: Vec::with_capacity(threads) };
        let (began, begun) = mpsc::channel();
        for number in 0..threads {
            let (shared, holder, began) = (pool.shared.clone(), holder.cloned(), began.clone());
            let thread = std::thread::Builder::new()
                .name(format!("device-{number}"))
                .spawn(move || {
                    let outcome = holder.map_or(Ok(()), |holder| holder.take_over_thread());
                    let is_ready = outcome.is_ok();
                    // Whoever makes the pool waits for it.
                    let _ = began.send(outcome);
                    drop(began);
                    if is_ready {
                        shared.work(file);
                    }
                })
                .map_err(|error| Error::io("start a thread for a device", error))?;
            pool.threads.push(thread);
        }
        drop(began);
        begun.iter().collect::<Result<(), Error>>()?;
        Ok(pool)
    }

    /// Begins a job; at most as many as the pool is deep are under way.
    pub(super) fn start(&mut self, slot: u16, job: Job) {
        lock(&self.shared.jobs).waiting.push_back((slot, job));
        self.shared.more.notify_one();
    }

    /// A job that is done, and what became of it.
    pub(super) fn next(&mut self) -> Option<(u16, i32)> {
        if self.shared.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let result = lock(&self.shared.results).done.pop_front()?;
        self.shared.count.fetch_sub(1, Ordering::Relaxed);
        Some(result)
    }

    /// See [`Device::arm`](crate::Device::arm).
    pub(super) fn arm(&mut self) -> bool {
        // Nothing rings before it is armed again below; there is nothing to be taken away if nothing rang.
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        let mut results = lock(&self.shared.results);
        results.armed = results.done.is_empty();
        !results.armed
    }

    /// What is readable when something is done, if it was armed.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// What is waiting is not begun any more; what has begun is waited for.
    pub(super) fn end(&mut self) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.ended = true;
        jobs.waiting.clear();
        drop(jobs);
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn work(&self, file: RawFd) {
        while let Some((slot, job)) = self.next_job() {
            let result = job.carry_out(file);
            let mut results = lock(&self.results);
            results.done.push_back((slot, result));
            self.count.fetch_add(1, Ordering::Relaxed);
            let is_awaited = std::mem::take(&mut results.armed);
            drop(results);
            if is_awaited {
                // The counter has room for more rings than there are jobs.
                let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
            }
        }
    }

    fn next_job(&self) -> Option<(u16, Job)> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.ended {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
