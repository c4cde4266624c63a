//! A thread that reaps a queue and passes each completion to a callback.
//!
//! Invariant: the thread calls back without holding the queue's lock, so that a callback can submit requests.

use super::{Completion, Queue};
use crate::error::Error;
use crate::session::lock;
use bywash_link::ProcessGeneration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};
use std::cell::Cell;
use std::mem::forget;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Greatest number of completions taken before the callback runs for them; meanwhile other threads may
/// submit.
const AT_A_TIME: usize = 64;
/// Greatest time that the thread sleeps before it checks again that the server is alive.
const SLEEP: Duration = Duration::from_millis(100);

/// A thread that calls back for each completed request of a queue, until it is stopped or dropped.
///
/// Any thread, even the callback, submits requests through [`QueueDispatcher::with`]. Dropping the dispatcher
/// waits for the callback that is running. Only when the callback itself drops it, the thread ends after the
/// callback has returned. In a forked child, which does not have the thread, dropping it does nothing.
#[derive(Debug)]
pub struct QueueDispatcher {
    shared: Arc<Shared>,
    /// The thread, until it was joined.
    thread: Option<JoinHandle<()>>,
    maker: ProcessGeneration,
}

thread_local! {
    /// Address of the [`Shared`] of the dispatcher that runs on this thread, null on all other threads.
    static OWN: Cell<*const ()> = const { Cell::new(null()) };
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    stop: AtomicBool,
    /// Event descriptor that is readable when the thread must look at the queue or at `stop`.
    wake: OwnedFd,
}

impl Queue {
    /// Starts a thread that calls `callback` for each completed request, and once with the error that ends
    /// the queue.
    ///
    /// # Errors
    /// [`Error::Io`] if the thread or its event descriptor cannot be made; the queue and its requests are
    /// then dropped.
    pub fn dispatch(
        self,
        callback: impl FnMut(Result<Completion, Error>) + Send + 'static,
    ) -> Result<QueueDispatcher, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("make a descriptor to wake a thread by", error))?;
        let shared = Arc::new(Shared { queue: Mutex::new(self), stop: AtomicBool::new(false), wake });
        let given = shared.clone();
        let thread = thread::Builder::new()
            .name("bywash-dispatch".into())
            .spawn(move || {
                OWN.set(Arc::as_ptr(&given).cast());
                given.run(callback);
            })
            .map_err(|error| Error::io("start a thread for callbacks", error))?;
        Ok(QueueDispatcher { shared, thread: Some(thread), maker: ProcessGeneration::current() })
    }
}

impl Shared {
    fn run(&self, mut callback: impl FnMut(Result<Completion, Error>)) {
        let mut taken = Vec::with_capacity(AT_A_TIME);
        // The queue closes its own descriptor when it connects again or opens a direct volume, maybe while this thread
        // sleeps, so it sleeps on a copy.
        let mut descriptor: Option<(u64, OwnedFd)> = None;
        while !self.stop.load(Relaxed) {
            let mut queue = lock(&self.queue);
            let reaped = queue.reap_each(AT_A_TIME, |completion| taken.push(completion));
            let is_there = match (&reaped, taken.is_empty()) {
                (Ok(_), true) => queue.arm(),
                _ => Ok(true),
            };
            if descriptor.as_ref().is_none_or(|(number, _)| *number != queue.descriptors) {
                let copy = queue.as_fd().try_clone_to_owned().ok();
                descriptor = copy.map(|copy| (queue.descriptors, copy));
            }
            drop(queue);
            taken.drain(..).for_each(|completion| callback(Ok(completion)));
            match reaped.and(is_there) {
                Ok(true) => {}
                Ok(false) => self.sleep(descriptor.as_ref().map(|(_, descriptor)| descriptor)),
                Err(error) => return callback(Err(error)),
            }
        }
    }

    fn sleep(&self, descriptor: Option<&OwnedFd>) {
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(SLEEP.subsec_nanos()) };
        let mut polled = vec![PollFd::new(&self.wake, PollFlags::IN)];
        polled.extend(descriptor.map(|descriptor| PollFd::new(descriptor, PollFlags::IN)));
        // The result of poll(2) does not matter: the thread looks at the queue in any case.
        let _ = poll(&mut polled, Some(&limit));
        let _ = read(&self.wake, &mut [0u8; 8]);
    }

    fn wake(&self) {
        // A write fails only if the counter is full, and then the descriptor is readable already.
        let _ = write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl QueueDispatcher {
    /// Calls `use_it` with the queue, to submit requests and to open and close volumes. The dispatcher's
    /// thread calls back for requests that complete at once. Meanwhile it reaps nothing.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut Queue) -> R) -> R {
        let mut queue = lock(&self.shared.queue);
        let before = queue.descriptors;
        let answer = use_it(&mut queue);
        let must_look = queue.ready.len() > 0 || queue.descriptors != before || queue.end.is_some();
        drop(queue);
        if must_look {
            self.shared.wake();
        }
        answer
    }

    /// Returns true if the calling thread is the one that runs this dispatcher's callback.
    pub fn is_own_callback(&self) -> bool {
        OWN.get() == Arc::as_ptr(&self.shared).cast()
    }

    /// Waits for the callback that is running, if any, and returns the queue. The callback is not called any
    /// more then.
    ///
    /// # Errors
    /// Returns the dispatcher if its own callback or a forked child calls this.
    ///
    /// # Panics
    /// Panics if the callback has panicked, with the same payload.
    pub fn stop(mut self) -> Result<Queue, QueueDispatcher> {
        if self.is_own_callback() || !self.maker.is_here() {
            return Err(self);
        }
        self.end();
        let shared = self.shared.clone();
        drop(self);
        let shared = Arc::into_inner(shared).expect("the thread had the only other one");
        Ok(shared.queue.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        let is_own_callback = self.is_own_callback();
        let Some(thread) = self.thread.take() else { return };
        if !self.maker.is_here() {
            forget(thread);
            return;
        }
        self.shared.stop.store(true, Relaxed);
        self.shared.wake();
        if !is_own_callback && let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for QueueDispatcher {
    fn drop(&mut self) {
        self.end();
    }
}
