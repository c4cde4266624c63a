//! Shared state of a running flow: two byte counters, a descriptor that cancels the flow, and a descriptor
//! that signals its end.
//!
//! Invariant: every wait in this crate happens here, and also polls the descriptor that [`Control::cancel`]
//! makes readable. So a cancelled flow ends promptly, whatever it waits for. Called by all code that moves
//! bytes.

use crate::error::Error;
use bywash_sync::{AtomicBool, AtomicU64, Ordering::Relaxed};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Value of `total` while the size is unknown.
const UNKNOWN: u64 = u64::MAX;
/// Longest time that a call which cannot be cancelled may wait.
pub(crate) const UNCANCELLABLE_WAIT_MAX: Duration = Duration::from_millis(100);
/// Greatest number of notices that are kept until a watcher takes them.
const NOTICES_MAX: usize = 64;

/// Counters, cancellation and end event of one flow.
#[derive(Debug)]
pub(crate) struct Control {
    moved: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
    wake: OwnedFd,
    end_fd: OwnedFd,
    /// Messages for watchers of the running flow, oldest first; at most [`NOTICES_MAX`].
    notices: Mutex<VecDeque<String>>,
}

impl Control {
    pub(crate) fn new() -> Result<Control, Error> {
        let descriptor = |what| {
            let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            made.map_err(|error| Error::io(what, error))
        };
        let wake = descriptor("make a descriptor that wakes a flow")?;
        let over = descriptor("make a descriptor that tells a flow's end")?;
        Ok(Control {
            moved: AtomicU64::new(0),
            total: AtomicU64::new(UNKNOWN),
            cancelled: AtomicBool::new(false),
            wake,
            end_fd: over,
            notices: Mutex::default(),
        })
    }

    /// Returns the number of bytes moved so far.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    /// Returns the number of bytes to move in all, if it is known.
    pub(crate) fn total(&self) -> Option<u64> {
        Some(self.total.load(Relaxed)).filter(|total| *total != UNKNOWN)
    }

    /// Adds `bytes` to the number of bytes moved.
    pub(crate) fn add_moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Relaxed);
    }

    /// Sets the number of bytes to move in all.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Relaxed);
    }

    /// Queues a notice for watchers. If the queue is full, the oldest notice is dropped.
    pub(crate) fn notify(&self, notice: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() >= NOTICES_MAX {
            notices.pop_front();
        }
        notices.push_back(notice);
    }

    /// Removes and returns the queued notices, oldest first.
    pub(crate) fn take_notices(&self) -> Vec<String> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Cancels the flow: all waits return [`Error::Cancelled`], and each mover stops after its current piece.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
        // The write fails only if the counter is full, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Returns the descriptor that is readable once the flow is cancelled.
    pub(crate) fn cancel_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Marks the flow as ended, which wakes all threads in [`Control::wait_for_end`].
    pub(crate) fn set_ended(&self) {
        // The write fails only if the counter is full, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.end_fd, &1u64.to_ne_bytes());
    }

    /// Returns the descriptor that is readable once the flow has ended.
    pub(crate) fn over(&self) -> BorrowedFd<'_> {
        self.end_fd.as_fd()
    }

    /// Waits until the flow has ended or `limit` has passed (`None`: without a timeout). Returns true if the
    /// flow has ended.
    ///
    /// # Errors
    /// [`Error::Io`] if poll(2) fails.
    pub(crate) fn wait_for_end(&self, limit: Option<Duration>) -> Result<bool, Error> {
        // A deadline beyond the range of the clock means no timeout.
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = until.and_then(left);
            match poll(&mut [PollFd::new(&self.end_fd, PollFlags::IN)], left.as_ref()) {
                Ok(0) if until.is_none_or(|until| Instant::now() < until) => {}
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io("wait for the end of a flow", error)),
            }
        }
    }

    /// Checks whether the flow was cancelled.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if it was.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.cancelled.load(Relaxed) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Waits until `descriptor` is ready for `events`, or until the time `until` (`None`: without a timeout).
    /// Returns true if the descriptor is ready.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the flow is cancelled, [`Error::Io`] if poll(2) fails.
    pub(crate) fn wait(
        &self,
        descriptor: BorrowedFd<'_>,
        events: PollFlags,
        until: Option<Instant>,
    ) -> Result<bool, Error> {
        self.poll(Some((descriptor, events)), until)
    }

    /// Sleeps until the time `until`.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the flow is cancelled, [`Error::Io`] if poll(2) fails.
    pub(crate) fn sleep_until(&self, until: Instant) -> Result<(), Error> {
        self.poll(None, Some(until)).map(drop)
    }

    fn poll(&self, one: Option<(BorrowedFd<'_>, PollFlags)>, until: Option<Instant>) -> Result<bool, Error> {
        loop {
            self.check()?;
            let wake = PollFd::new(&self.wake, PollFlags::IN);
            let left = until.and_then(left);
            let ready = match one {
                Some((descriptor, events)) => {
                    let mut both = [wake, PollFd::from_borrowed_fd(descriptor, events)];
                    poll(&mut both, left.as_ref()).map(|_| !both[1].revents().is_empty())
                }
                None => poll(&mut [wake], left.as_ref()).map(|_| false),
            };
            match ready {
                Ok(true) => return Ok(true),
                Ok(false) if until.is_some_and(|until| Instant::now() >= until) => return Ok(false),
                Ok(false) | Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io("wait", error)),
            }
        }
    }
}

/// Returns the time left until `until` as a timeout for poll(2); `None` (no timeout) if it exceeds the range
/// of a timespec.
fn left(until: Instant) -> Option<Timespec> {
    Timespec::try_from(until.saturating_duration_since(Instant::now())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn who_waits_is_woken_by_the_end_of_the_flow() {
        let control = Arc::new(Control::new().unwrap());
        let (never, _writer) = rustix::pipe::pipe().unwrap();
        let waiting = {
            let control = control.clone();
            thread::spawn(move || control.wait(never.as_fd(), PollFlags::IN, None))
        };
        thread::sleep(Duration::from_millis(20));
        control.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
        assert!(matches!(control.sleep_until(Instant::now()), Err(Error::Cancelled)));
    }

    #[test]
    fn a_wait_ends_when_it_is_time_or_something_is_there() {
        let control = Control::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let soon = Instant::now() + Duration::from_millis(10);
        assert!(!control.wait(reader.as_fd(), PollFlags::IN, Some(soon)).unwrap());
        assert!(Instant::now() >= soon);
        rustix::io::write(&writer, b"x").unwrap();
        assert!(control.wait(reader.as_fd(), PollFlags::IN, None).unwrap());
    }

    #[test]
    fn bytes_are_counted() {
        let control = Control::new().unwrap();
        assert_eq!((control.moved(), control.total()), (0, None));
        control.add_moved(3);
        control.set_total(10);
        assert_eq!((control.moved(), control.total()), (3, Some(10)));
    }

    #[test]
    fn the_end_is_waited_for() {
        let control = Arc::new(Control::new().unwrap());
        let soon = Instant::now() + Duration::from_millis(10);
        assert!(!control.wait_for_end(Some(Duration::from_millis(10))).unwrap());
        assert!(Instant::now() >= soon);
        let waiting = {
            let control = control.clone();
            thread::spawn(move || control.wait_for_end(Some(Duration::MAX)))
        };
        // Cancelling a flow does not end it.
        control.cancel();
        assert!(!control.wait_for_end(Some(Duration::ZERO)).unwrap());
        control.set_ended();
        assert!(waiting.join().unwrap().unwrap());
        assert!(control.wait_for_end(None).unwrap());
    }
}
