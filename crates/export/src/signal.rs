//! A signal from one thread to others: to stop, or to look at something that has changed.
//!
//! Invariant: no method but [`Signal::wait`] blocks. The descriptor never leaves this process.

use crate::error::Error;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Signal whose descriptor is readable from the time at which it is given until it is taken. Clones are the same
/// signal.
#[derive(Clone, Debug)]
pub struct Signal(Arc<OwnedFd>);

impl Signal {
    /// Makes a signal that is not given.
    ///
    /// # Errors
    /// [`Error::Io`] if no event counter can be made.
    pub fn new() -> Result<Signal, Error> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Signal(Arc::new(counter.map_err(|error| Error::io("make an event counter", error))?)))
    }

    /// Gives the signal.
    pub fn give(&self) {
        // The write fails only if the counter is full, and then it is readable already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Takes the signal, and returns true if it was given.
    pub fn take(&self) -> bool {
        rustix::io::read(&*self.0, &mut [0; 8]).is_ok()
    }

    /// Waits up to `limit`, and returns true as soon as the signal is given. Does not take it.
    pub fn wait(&self, limit: &Timespec) -> bool {
        poll(&mut [PollFd::new(&*self.0, PollFlags::IN)], Some(limit)).is_ok_and(|count| count > 0)
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_there_until_it_is_taken() {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let signal = Signal::new().unwrap();
        assert!(!signal.wait(&NOW) && !signal.take());
        signal.clone().give();
        signal.give();
        assert!(signal.wait(&NOW) && signal.wait(&NOW));
        assert!(signal.take());
        assert!(!signal.wait(&NOW) && !signal.take());
    }
}
