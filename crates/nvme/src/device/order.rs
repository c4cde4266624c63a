//! Order of overlapping commands: they are carried out in the order of their submission.
//!
//! Invariant: if two ranges overlap and at least one command changes its range, the one that was submitted first has completed
//! before the other is issued. The ranges are those of the slots. As long as all commands read, none is looked at: a read
//! costs a look at a counter. A write looks at every slot that was ever used, which are as many as commands were ever in
//! flight at a time ([`FreeSlots`](super::free::FreeSlots)): the caller passes these. Called by the device.

use super::slot::Slot;
use std::ops::Range;

/// Numbers of commands that change the device, and of those that wait for others.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Number of commands in flight, those that wait included.
    in_flight: usize,
    /// Number of commands in flight that change the device, those that wait included.
    changing: usize,
    /// Number of commands that wait.
    waiting: usize,
}

impl Order {
    /// Returns true if no command in flight can be in the way of another one, whose operation changes the device or not.
    #[inline]
    pub(super) fn is_free(&self, changes: bool) -> bool {
        !changes && self.changing == 0
    }

    /// Returns true if some command in flight overlaps a range, and one of the two changes it.
    #[inline(never)]
    pub(super) fn has_conflict(&self, slots: &[Slot], range: Range<u64>, changes: bool) -> bool {
        slots.iter().any(|slot| slot.conflicts(&range, changes))
    }

    /// Returns the number of commands in flight that overlap a range, where one of the two changes it. An empty range overlaps
    /// nothing.
    pub(super) fn conflicts(&self, slots: &[Slot], range: Range<u64>, changes: bool) -> u16 {
        if range.is_empty() || self.is_free(changes) {
            return 0;
        }
        // Fits, since slots have numbers of 16 bits.
        slots.iter().filter(|slot| slot.conflicts(&range, changes)).count() as u16
    }

    /// Returns the number of commands in flight.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns true if no command in flight changes the device.
    #[inline]
    pub(super) fn is_unchanging(&self) -> bool {
        self.changing == 0
    }

    /// Notes a command, which changes the device or not.
    #[inline(always)]
    pub(super) fn enter(&mut self, changes: bool) {
        self.in_flight += 1;
        self.changing += usize::from(changes);
    }

    /// Notes that the command that entered last waits.
    pub(super) fn wait(&mut self) {
        self.waiting += 1;
    }

    /// Notes that a command that waited has failed.
    pub(super) fn wait_no_longer(&mut self) {
        self.waiting -= 1;
    }

    /// Returns true if some command waits.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Notes that a command has completed.
    #[inline(always)]
    pub(super) fn leave(&mut self, changes: bool) {
        self.in_flight -= 1;
        self.changing -= usize::from(changes);
    }

    /// Tells the commands that wait for one with a range, which has completed and whose slot is unused, that it has; calls
    /// `freed` for each whose last blocker it was.
    ///
    /// All of them were submitted later: a command that is carried out has no earlier one in its way that waits.
    pub(super) fn free_others(
        &mut self,
        slots: &mut [Slot],
        range: &Range<u64>,
        changes: bool,
        mut freed: impl FnMut(u16),
    ) {
        if range.is_empty() {
            return;
        }
        for (number, slot) in slots.iter_mut().enumerate() {
            if slot.blockers > 0 && slot.conflicts(range, changes) {
                slot.blockers -= 1;
                if slot.blockers == 0 {
                    self.waiting -= 1;
                    // Fits, since slots have numbers of 16 bits.
                    freed(number as u16);
                }
            }
        }
    }
}
