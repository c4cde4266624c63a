//! The descriptor on which a user of the device sleeps: readable at an interrupt of the controller, or at a set time.
//!
//! ```text
//!   eventfd ◄── MSI-X vector   ┐
//!                              ├── epoll descriptor, which is readable if one of the two is
//!   timerfd ◄── alarm ─────────┘
//! ```

use crate::error::Error;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Descriptors of an interrupt and of an alarm.
#[derive(Debug)]
pub(super) struct Interrupts {
    interrupt: OwnedFd,
    timer: OwnedFd,
    both: OwnedFd,
}

impl Interrupts {
    /// Makes the descriptors.
    ///
    /// # Errors
    /// [`Error::Io`] if the process has too many descriptors.
    pub(super) fn new() -> Result<Interrupts, Error> {
        let failed = |error| Error::io("make descriptors for interrupts", error);
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK);
        let (timer, both) = (timer.map_err(failed)?, epoll::create(CreateFlags::CLOEXEC).map_err(failed)?);
        for descriptor in [&interrupt, &timer] {
            epoll::add(&both, descriptor, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        }
        Ok(Interrupts { interrupt, timer, both })
    }

    /// Returns the descriptor that an interrupt is to trigger.
    pub(super) fn interrupt(&self) -> BorrowedFd<'_> {
        self.interrupt.as_fd()
    }

    /// Makes the descriptor readable, as an interrupt would.
    pub(super) fn wake(&self) {
        // The counter of an eventfd never gets full by this.
        let _ = rustix::io::write(&self.interrupt, &1u64.to_ne_bytes());
    }

    /// Returns the descriptor that becomes readable.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    /// Forgets past interrupts and alarms, and sets the next alarm, `after` from now on.
    pub(super) fn arm(&self, after: Option<Duration>) {
        drain(&self.interrupt);
        // A time of zero would switch the timer off. Setting the timer forgets expirations.
        let after = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
        let value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let new = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Fails only for invalid times, which these are not.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &new);
    }
}

/// Reads an eventfd, so that it is not readable any more. Returns true if it was.
pub(super) fn drain(descriptor: &OwnedFd) -> bool {
    let mut count = [0; 8];
    // Fails with EAGAIN if nothing has been signalled.
    rustix::io::read(descriptor, &mut count).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(interrupts: &Interrupts, limit_ms: i64) -> bool {
        let descriptor = interrupts.descriptor();
        let limit = Timespec { tv_sec: 0, tv_nsec: limit_ms * 1_000_000 };
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).unwrap() == 1
    }

    #[test]
    fn interrupts_and_alarms_wake_until_they_are_forgotten() {
        let interrupts = Interrupts::new().unwrap();
        interrupts.arm(None);
        assert!(!is_readable(&interrupts, 0));
        rustix::io::write(interrupts.interrupt(), &1u64.to_ne_bytes()).unwrap();
        assert!(is_readable(&interrupts, 0));
        interrupts.arm(Some(Duration::from_millis(1)));
        assert!(is_readable(&interrupts, 900));
        interrupts.arm(Some(Duration::from_secs(100)));
        assert!(!is_readable(&interrupts, 2));
        interrupts.arm(Some(Duration::ZERO));
        assert!(is_readable(&interrupts, 900));
    }
}
