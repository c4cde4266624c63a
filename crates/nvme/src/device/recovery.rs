//! Late commands, resets and lost controllers, as the device deals with them.
//!
//! Invariant: a command that was in flight when a reset began is repeated, or fails, once; none is carried out twice at the same
//! time, since the controller has stopped before. Called by the device, now and then while nothing is wrong.

use super::{CHECK, Nvme, REPEATS_MAX};
use crate::controller::{AbortSent, ResetStep};
use crate::event::{Event, ResetReason};
use crate::function::Function;
use bywash_device::CommandError;
use std::time::Duration;

impl<F: Function> Nvme<F> {
    /// Goes on with a reset, submits the commands of runnable slots, and tells the controller.
    pub(super) fn kick(&mut self) {
        if !self.controller.is_ready() {
            self.recover();
        }
        self.run();
        if self.controller.is_ready() {
            self.ring();
        }
    }

    /// Goes on with a reset, and repeats commands when those that were in flight are certainly not any more.
    #[cold]
    pub(super) fn recover(&mut self) {
        if let Some(ResetStep::Stopped) = self.controller.advance(&mut self.queues) {
            self.repeat_all();
        }
        self.fail_if_lost();
    }

    /// Has the commands that were in flight submitted again.
    fn repeat_all(&mut self) {
        for number in 0..self.slots.len() as u16 {
            let slot = &mut self.slots[usize::from(number)];
            if slot.is_issued() {
                slot.clear_issued();
                self.repeat(number, CommandError::Io(libc::ETIMEDOUT));
            }
        }
    }

    /// Has a slot's command submitted again, or fails it if that has happened too often.
    pub(super) fn repeat(&mut self, number: u16, failure: CommandError) {
        let slot = &mut self.slots[usize::from(number)];
        if slot.count_repeat() > REPEATS_MAX {
            return self.finish(number, Err(failure));
        }
        self.stats.repeated += 1;
        self.runnable.push(number);
    }

    /// Fails all commands if the controller is lost. They are in flight no longer: the controller is cut off from memory.
    pub(super) fn fail_if_lost(&mut self) {
        let Some(errno) = self.controller.failure() else { return };
        if self.order.in_flight() == 0 {
            return;
        }
        for number in 0..self.slots.len() as u16 {
            if self.slots[usize::from(number)].is_used() {
                self.finish(number, Err(CommandError::Io(errno)));
            }
        }
        self.runnable.clear();
        self.blocked.clear();
        self.bounce.numbers.forget_waiting();
    }

    /// Looks at the clock, the controller's status and late commands, if it is time to.
    #[cold]
    pub(super) fn check(&mut self) {
        let now = self.function.now();
        if now < self.next_check || !self.controller.is_ready() {
            return;
        }
        self.next_check = now + CHECK;
        if self.function.release_requested() {
            self.controller.note(Event::ReleaseRequested);
        }
        self.controller.check(now);
        if self.controller.is_ready() {
            self.check_deadlines(now);
        }
        self.fail_if_lost();
    }

    fn check_deadlines(&mut self, now: Duration) {
        for (number, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.is_issued()) {
            match slot.deadline {
                None => slot.deadline = Some(now + self.options.timeout),
                Some(deadline) if now < deadline => {}
                Some(_) if slot.is_aborted() => return self.controller.reset(ResetReason::Timeout),
                Some(_) => {
                    let queue = self.queues[slot.queue()].number;
                    match self.controller.abort(queue, number as u16, self.options.abort_timeout) {
                        AbortSent::Yes => {
                            slot.set_aborted();
                            slot.deadline = Some(now + self.options.abort_timeout);
                            self.stats.aborts += 1;
                        }
                        // Tried again at the next check.
                        AbortSent::Busy => {}
                    }
                }
            }
        }
    }

    /// Returns the time at which something has to be looked at, even without an interrupt.
    pub(super) fn alarm(&self) -> Option<Duration> {
        let now = self.function.now();
        if !self.controller.is_ready() {
            return self.controller.failure().is_none().then(|| now + Duration::from_millis(5));
        }
        let issued = self.slots.iter().filter(|slot| slot.is_issued());
        issued.map(|slot| slot.deadline.unwrap_or(now + self.options.timeout)).min()
    }
}
