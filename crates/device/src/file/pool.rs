//! Engine of threads: a fixed number of threads, each of which makes one system call at a time. Called by the
//! engine, where io_uring is not available, and for requests that io_uring does not have.
//!
//! Requests and results are two lists under locks. A user who wants to sleep sets `armed` under the lock of
//! the results; the thread that adds the next result then writes to the eventfd(2).

use super::holder::FileUser;
use super::job::IoRequest;
use crate::error::Error;
use bywash_sync::{AtomicUsize, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

#[derive(Debug)]
struct Jobs {
    waiting: VecDeque<(u16, IoRequest)>,
    ended: bool,
}

#[derive(Debug)]
struct Results {
    done: VecDeque<(u16, i32)>,
    /// True if the user sleeps or is about to, so that the next result has to be signalled.
    armed: bool,
}

#[derive(Debug)]
struct Shared {
    jobs: Mutex<Jobs>,
    more: Condvar,
    results: Mutex<Results>,
    /// Number of results, for finding out without the lock that there are none. A reader that misses a new
    /// result finds it next time.
    count: AtomicUsize,
    bell: OwnedFd,
}

/// Threads that carry requests out, and the lists that they share with the device.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Locks a list. No thread panics while it holds such a lock, and a poisoned list would be intact all the
/// same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Starts `threads` threads for up to `depth` requests at a time on `file`, which must stay open until
    /// the pool is dropped. The threads do everything with the rights of `holder`.
    pub(super) fn new(
        file: RawFd,
        threads: usize,
        depth: usize,
        holder: Option<&FileUser>,
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
                    let outcome = holder.map_or(Ok(()), |holder| holder.assume());
                    let is_ready = outcome.is_ok();
                    // Fails only if the maker of the pool no longer receives.
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

    /// Queues a request for a slot; no more than `depth` are in flight.
    pub(super) fn start(&mut self, slot: u16, job: IoRequest) {
        lock(&self.shared.jobs).waiting.push_back((slot, job));
        self.shared.more.notify_one();
    }

    /// Reaps a completion: the slot, and the number of bytes or a negative errno(3).
    pub(super) fn next(&mut self) -> Option<(u16, i32)> {
        if self.shared.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let result = lock(&self.shared.results).done.pop_front()?;
        self.shared.count.fetch_sub(1, Ordering::Relaxed);
        Some(result)
    }

    /// Prepares the descriptor for sleeping; see [`Device::arm`](crate::Device::arm).
    pub(super) fn arm(&mut self) -> bool {
        // Resets the eventfd; the read fails if nothing was written. If the pool is still armed, a thread may
        // write again before the lock is taken, which only wakes the user once too often.
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        let mut results = lock(&self.shared.results);
        results.armed = results.done.is_empty();
        !results.armed
    }

    /// Returns the descriptor that becomes readable when a request completes, if the pool is armed.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// Drops the requests that no thread has begun, and waits until the threads have ended.
    pub(super) fn end(&mut self) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.ended = true;
        jobs.waiting.clear();
        drop(jobs);
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            // The thread does not panic, so its result says nothing.
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
                // Cannot fail: the eventfd's counter has room for more signals than there are requests.
                let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
            }
        }
    }

    fn next_job(&self) -> Option<(u16, IoRequest)> {
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
