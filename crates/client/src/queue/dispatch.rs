//! Callbacks: a thread that reaps a queue and calls.

use super::{Completion, Queue};
use crate::error::Error;
use crate::session::lock;
use bywash_link::Maker;
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

/// Completions that are taken out before the callback is called for them, so that others may submit meanwhile.
const AT_A_TIME: usize = 64;
/// Longest sleep until it is looked again whether the server is there.
const SLEEP: Duration = Duration::from_millis(100);

/// A thread that calls back for each request of a queue, until it is stopped or dropped.
///
/// Requests are submitted through [`QueueDispatcher::with`], by any thread, the callback included. To drop it waits for the
/// callback that is running, if one is; but not from within the callback itself, whose thread ends when it returns. In a
/// forked child, which does not have the thread, nothing happens.
#[derive(Debug)]
pub struct QueueDispatcher {
    shared: Arc<Shared>,
    /// There until it was joined.
    thread: Option<JoinHandle<()>>,
    maker: Maker,
}

thread_local! {
    /// What the dispatcher has whose thread this is.
    static OWN: Cell<*const ()> = const { Cell::new(null()) };
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    stop: AtomicBool,
    /// Readable when the thread shall look.
    wake: OwnedFd,
}

impl Queue {
    /// Calls `callback` for each request that is done, in a thread of its own; and once with the error that ends the
    /// queue.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no thread; then the queue is gone, and its requests with it.
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
        Ok(QueueDispatcher { shared, thread: Some(thread), maker: Maker::this() })
    }
}

impl Shared {
    fn run(&self, mut callback: impl FnMut(Result<Completion, Error>)) {
        let mut taken = Vec::with_capacity(AT_A_TIME);
        // The queue's own descriptor goes when it connects again, maybe while this thread sleeps on it.
        let mut descriptor: Option<(u64, OwnedFd)> = None;
        while !self.stop.load(Relaxed) {
            let mut queue = lock(&self.queue);
            let reaped = queue.reap_each(AT_A_TIME, |completion| taken.push(completion));
            let is_there = match (&reaped, taken.is_empty()) {
                (Ok(_), true) => queue.arm(),
                _ => Ok(true),
            };
            if descriptor.as_ref().is_none_or(|(generation, _)| *generation != queue.reconnects()) {
                let copy = queue.as_fd().try_clone_to_owned().ok();
                descriptor = copy.map(|copy| (queue.reconnects(), copy));
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
        // Whatever it says, one looks again.
        let _ = poll(&mut polled, Some(&limit));
        let _ = read(&self.wake, &mut [0u8; 8]);
    }

    fn wake(&self) {
        // It is full when nobody has looked for 2^64 calls.
        let _ = write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl QueueDispatcher {
    /// Uses the queue: to submit, to open and to close volumes. What it completes at once is called back for by the thread.
    /// Meanwhile nothing is reaped.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut Queue) -> R) -> R {
        let mut queue = lock(&self.shared.queue);
        let before = queue.reconnects();
        let answer = use_it(&mut queue);
        let must_look = queue.ready.len() > 0 || queue.reconnects() != before || queue.end.is_some();
        drop(queue);
        if must_look {
            self.shared.wake();
        }
        answer
    }

    /// Whether this is called by the callback itself.
    pub fn is_own_callback(&self) -> bool {
        OWN.get() == Arc::as_ptr(&self.shared).cast()
    }

    /// Waits for the callback that is running, if one is, and gives the queue back: nothing is called after that.
    ///
    /// # Errors
    /// The dispatcher, if it is its own callback that calls this, or a forked child.
    ///
    /// # Panics
    /// As the callback did.
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
