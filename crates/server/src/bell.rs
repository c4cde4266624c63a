//! Bell: wakes another thread that sleeps on file descriptors, by a flag and an eventfd.

use bywash_sync::{AtomicBool, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Notification from threads that have sent a message to the one thread that receives it.
#[derive(Debug)]
pub(crate) struct Bell {
    /// True if a message may have been sent since the receiver last looked.
    rung: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> rustix::io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { rung: AtomicBool::new(false), event })
    }

    /// Clears the flag and returns true if the bell was rung since the last call. Cheap enough for a
    /// busy-waiting receiver.
    #[inline]
    pub(crate) fn take_rung(&self) -> bool {
        // SYNC: rung (acquire): everything that was sent before the ring is visible now.
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::Acquire)
    }

    /// Like [`Bell::take_rung`], but leaves the flag set.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        // SYNC: rung. The sender stores the flag before the descriptor becomes readable.
        self.rung.load(Ordering::Relaxed)
    }

    /// Empties the eventfd, so that the descriptor is no longer readable.
    pub(crate) fn drain(&self) {
        let mut count = [0; 8];
        // The read fails only if the eventfd is empty already.
        let _ = rustix::io::read(&self.event, &mut count);
    }

    pub(crate) fn ring(&self) {
        // SYNC: rung (release): the message was sent before the flag is set.
        self.rung.store(true, Ordering::Release);
        // The write fails only if the counter would overflow, after 2^64 rings without a read.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

/// The descriptor is readable after the bell was rung.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
