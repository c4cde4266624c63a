//! One descriptor for a queue's channel and the hardware behind its direct volumes.
//!
//! ```text
//!   channel ────────────────────────────┐
//!   interrupt of each function ─────────┼── epoll descriptor, which is readable if one of them is
//!   timer, while hardware has requests ─┘
//! ```
//!
//! The timer lets a program that sleeps find out within [`LOOK`] that the grant was revoked or the server has died:
//! then hardware completes nothing any more. Called by `reap` and `volumes`.

use super::Queue;
use crate::direct::Direct;
use crate::error::Error;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Time after which a program that sleeps looks at the grants of hardware again.
const LOOK: Duration = Duration::from_millis(10);

/// Descriptors of a queue with hardware.
#[derive(Debug)]
pub(super) struct Joint {
    all: OwnedFd,
    timer: OwnedFd,
}

impl Joint {
    /// Joins the descriptor of a channel with those of hardware.
    fn new<'a>(
        channel: &bywash_channel::Client,
        hardware: impl Iterator<Item = &'a Direct>,
    ) -> Result<Joint, Error> {
        let failed = |error| Error::io("make descriptors for an event loop", error);
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK);
        let timer = timer.map_err(failed)?;
        let all = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let add = |descriptor: BorrowedFd<'_>| {
            epoll::add(&all, descriptor, EventData::new_u64(0), EventFlags::IN).map_err(failed)
        };
        add(channel.as_fd())?;
        add(timer.as_fd())?;
        hardware.filter_map(Direct::descriptor).try_for_each(add)?;
        Ok(Joint { all, timer })
    }

    /// Forgets a timer that has expired. It expires after [`LOOK`] if `is_set`, and otherwise never.
    fn set(&self, is_set: bool) {
        let nanoseconds = if is_set { i64::from(LOOK.subsec_nanos()) } else { 0 };
        let value = Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let new = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Fails only for invalid times, which these are not.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &new);
    }
}

impl AsFd for Joint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }
}

impl Queue {
    /// Makes the queue's descriptor anew, after its channel or the hardware behind its volumes has changed.
    ///
    /// # Errors
    /// [`Error::Io`] if the process has too many descriptors.
    pub(super) fn join_descriptors(&mut self) -> Result<(), Error> {
        self.descriptors += 1;
        self.joint = match self.hardware.iter().any(Option::is_some) {
            true => Some(Joint::new(&self.channel, self.hardware.iter().flatten())?),
            false => None,
        };
        Ok(())
    }

    /// Prepares all hardware for a sleep, also hardware that gets a request before it. Returns true if the program has to poll
    /// instead: a completion is there, or hardware has requests and no interrupts.
    pub(super) fn arm_hardware(&mut self) -> bool {
        let Some(joint) = &self.joint else { return self.direct_in_flight > 0 };
        joint.set(self.direct_in_flight > 0);
        // All are armed, whatever the first ones say.
        self.hardware.iter_mut().flatten().fold(false, |polls, direct| direct.arm() | polls)
    }

    /// Sleeps until the descriptor is readable, no longer than `limit`, nor long if hardware has requests.
    pub(super) fn sleep(&self, limit: Duration) {
        let limit = limit.min(LOOK);
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
        // A signal wakes the thread as well, and it looks again.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&limit));
    }
}
