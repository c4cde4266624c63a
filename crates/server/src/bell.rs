//! How one thread wakes another that sleeps on descriptors.

use bywash_sync::{AtomicBool, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Rung by those who have sent something, heard by the one who takes it.
#[derive(Debug)]
pub(crate) struct Bell {
    /// There may be something.
    rung: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> rustix::io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { rung: AtomicBool::new(false), event })
    }

    /// Whether it was rung since this was asked last: cheap, for who looks all the time.
    #[inline]
    pub(crate) fn was_rung(&self) -> bool {
        // SYNC: rung (acquire): what was sent before is there.
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::Acquire)
    }

    /// As [`Bell::was_rung`], which is still to be asked.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        // SYNC: rung. Whoever rings stores this before the descriptor becomes readable.
        self.rung.load(Ordering::Relaxed)
    }

    /// Takes away what made the descriptor readable.
    pub(crate) fn quiet(&self) {
        let mut count = [0; 8];
        // Nothing to be read is quiet already.
        let _ = rustix::io::read(&self.event, &mut count);
    }

    pub(crate) fn ring(&self) {
        // SYNC: rung (release): what was sent was sent before.
        self.rung.store(true, Ordering::Release);
        // It is full only if it was rung 2^64 times.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

/// Readable when it was rung.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
