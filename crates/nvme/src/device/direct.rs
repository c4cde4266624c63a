//! Direct commands and transfers: the short way between a user and a pair of queues.
//!
//! A direct command reads or writes one piece of registered memory, overlaps no other command that changes its range, and needs
//! one command of the controller. It goes around slots that wait, bounce pieces and kept completions. It is 40 bytes of
//! stores into the submission queue, and 4 bytes of loads from the completion queue. The controller is told at once of a
//! command when nothing else is in flight, and of all others by one doorbell at the next reaping; it gets the entries of
//! completions back by one doorbell for about as many as the depth.
//!
//! A transfer is a direct command that was checked, and whose pages were looked up, when it was prepared. It has a slot to itself:
//!
//! ```text
//!     operation ─┐                                             ┌─ each time: offset aligned and within the device?
//!     memory ────┼─ once: checks, addresses of pages ─► slot ──┤             nothing changed meanwhile (the key)?
//!     region ────┘                                             └─ command, from what the slot has
//! ```
//!
//! Invariant: while [`Nvme::is_usual`] holds, no command waits, so that completions of direct commands free no others. While the
//! key of a slot is the device's, its transfer reads registered memory, and no command changes the device. `bywash bench nvme`
//! counts the instructions. Called by users, and by the device's implementation of [`Device`].

use super::free::FreeSlots;
use super::issue::Key;
use super::link::Link;
use super::order::Order;
use super::shape::Shape;
use super::slot::Slot;
use super::transfer::{Prepared, TransferId};
use super::{Nvme, POLLS, QueueFull, release_claim};
use crate::completion::IoEntry;
use crate::function::Function;
use crate::queue::QueuePair;
use bywash_device::{
    ClaimAttempt, Claims, Command, CommandError, Completion, Device, MemoryOwner, Operation, RegionId,
    Segment,
};
use std::sync::Arc;

impl<F: Function> Nvme<F> {
    /// Prepares a read or write of the memory `segment`, which lies in the registered region `region`, so that it can be
    /// submitted again and again in few instructions. The transfer takes one of as many slots as the depth until
    /// [`Nvme::release`]. Returns `None` if no slot is free, if the operation is neither, or if a single command of the
    /// controller cannot carry it out without a copy: the memory is outside of the region, not at a multiple of 4 bytes, not of whole
    /// blocks, or too long. The same as a [`Command`] then works, with more instructions.
    pub fn prepare(
        &mut self,
        operation: Operation,
        region: RegionId,
        segment: Segment,
    ) -> Option<TransferId> {
        let prepared = Prepared::new(operation, region, segment);
        prepared.shape(&self.limits, &self.regions)?;
        let number = self.free.take()?;
        self.slots[usize::from(number)].reserve(true);
        self.transfers[usize::from(number)] = Some(prepared);
        Some(TransferId(number))
    }

    /// Gives the slot of a transfer back. Returns false, and does nothing, if the transfer is in flight or unknown.
    pub fn release(&mut self, transfer: TransferId) -> bool {
        if !self.is_idle(transfer) {
            return false;
        }
        let index = usize::from(transfer.0);
        self.slots[index].reserve(false);
        self.transfers[index] = None;
        self.free.give(transfer.0);
        true
    }

    /// Returns true if a transfer is known and not in flight.
    fn is_idle(&self, transfer: TransferId) -> bool {
        self.slots.get(usize::from(transfer.0)).is_some_and(|slot| slot.is_reserved() && !slot.is_used())
    }

    /// Submits a transfer at the byte `offset` of the device, same as a [`Command`] with this token and no owner. Its memory is kept mapped
    /// by the owner of its region. Returns false, and submits nothing, if the transfer is in flight or unknown, or if as many
    /// commands are in flight as the depth.
    #[inline(always)]
    pub fn submit_transfer(&mut self, transfer: TransferId, token: u64, offset: u64) -> bool {
        let Nvme { slots, limits, key, controller, order, .. } = self;
        let Some(slot) = slots.get_mut(usize::from(transfer.0)) else { return false };
        let Some(queue) = slot.issue.queue_of_idle(*key) else {
            return self.submit_other_transfer(transfer, token, offset);
        };
        if offset > slot.last || !limits.is_whole(offset) || !controller.begin(order.in_flight() > 0) {
            return self.submit_other_transfer(transfer, token, offset);
        }
        let words = slot.begin_reading(token, offset, limits);
        self.push(queue, words, false);
        true
    }

    /// Submits a transfer that writes, or one of whose submission something has changed.
    #[inline(never)]
    fn submit_other_transfer(&mut self, transfer: TransferId, token: u64, offset: u64) -> bool {
        let index = usize::from(transfer.0);
        let Some(prepared) = self.transfers[index].clone() else { return false };
        if self.slots[index].is_used() {
            return false;
        }
        if self.is_usual
            && self.controller.begin(self.order.in_flight() > 0)
            && let Some(shape) = prepared.shape(&self.limits, &self.regions)
        {
            let last = self.limits.bytes - shape.bytes;
            if offset <= last
                && self.limits.is_whole(offset)
                && self.has_no_conflict(&shape, offset)
                && self.claim_directly(transfer.0, &shape, offset)
            {
                self.issue_direct(transfer.0, (token, None), offset, &shape);
                let slot = &mut self.slots[index];
                slot.last = last;
                if shape.operation == Operation::Read {
                    slot.set_key(Key::open(self.regions.unregistered()));
                }
                return true;
            }
        }
        self.controller.begin(self.order.in_flight() > 0);
        let is_submitted = self.in_flight() < self.slots.len()
            && self.submit_checked(prepared.command(token, offset), Some(transfer.0)).is_ok();
        self.settle();
        is_submitted
    }

    /// Passes the completions of all commands that have completed to `done`, and returns their number, like
    /// [`Device::reap`], but compiled for the one `done`.
    #[inline(always)]
    pub fn reap_each(&mut self, mut done: impl FnMut(Completion)) -> usize {
        let mut count = 0;
        if self.can_reap_directly() {
            for index in 0..self.queues.len() {
                count += self.reap_queue(index, &mut done);
            }
        }
        self.polls = self.polls.wrapping_add(1);
        if count > 0 {
            self.controller.note_progress();
            if self.order.in_flight() == 0 {
                self.controller.rest();
            }
        }
        let is_usual = self.is_usual && self.controller.is_undisturbed(true);
        if count == 0 || !is_usual || self.polls.is_multiple_of(POLLS) {
            count += self.reap_rest(&mut done);
        }
        count
    }

    /// Returns true if completions can go the short way now.
    #[inline(always)]
    pub(super) fn can_reap_directly(&self) -> bool {
        self.is_usual && self.controller.is_undisturbed(self.order.in_flight() > 0)
    }

    /// Returns the shape of a command that can be carried out directly and now.
    #[inline(always)]
    pub(super) fn shape(&self, command: &Command<'_>) -> Option<Shape> {
        let ([segment], Some(region)) = (command.segments(), command.registered_region()) else {
            return None;
        };
        if !self.is_usual {
            return None;
        }
        let (operation, offset) = (command.operation(), command.offset());
        let shape = Shape::find(operation, offset, segment, region, (&self.limits, &self.regions))?;
        (self.controller.begin(self.order.in_flight() > 0) && self.has_no_conflict(&shape, offset))
            .then_some(shape)
    }

    /// Submits a command of a shape, which can be carried out directly and now.
    #[inline(always)]
    pub(super) fn submit_direct<'a>(
        &mut self,
        command: Command<'a>,
        shape: &Shape,
    ) -> Result<(), QueueFull<'a>> {
        let offset = command.offset();
        let Some(number) = self.free.take() else { return self.submit_any(command) };
        if !self.claim_directly(number, shape, offset) {
            self.free.give(number);
            return self.submit_any(command);
        }
        let Completion { token, owner, .. } = command.done(Ok(()));
        self.issue_direct(number, (token, owner), offset, shape);
        Ok(())
    }

    /// Returns true if no command in flight overlaps a range, or neither changes it.
    #[inline(always)]
    fn has_no_conflict(&self, shape: &Shape, offset: u64) -> bool {
        let changes = shape.operation != Operation::Read;
        self.order.is_free(changes)
            || self.order.in_flight() == 0
            || !self.order.has_conflict(
                &self.slots[..self.free.ever_used()],
                offset..offset + shape.bytes,
                changes,
            )
    }

    /// Claims the range of a direct command for the slot `number`, if it changes the device and others share the controller.
    /// Returns false if another device has it.
    #[inline(always)]
    fn claim_directly(&mut self, number: u16, shape: &Shape, offset: u64) -> bool {
        let Some(claims) = &self.claims else { return true };
        if shape.operation == Operation::Read {
            return true;
        }
        let is_claimed = claims.try_claim(&(offset..offset + shape.bytes), false, ClaimAttempt::First);
        self.slots[usize::from(number)].has_claim = is_claimed;
        is_claimed
    }

    /// Submits a direct command with the slot `number`.
    #[inline(always)]
    fn issue_direct(
        &mut self,
        number: u16,
        (token, owner): (u64, Option<MemoryOwner>),
        offset: u64,
        shape: &Shape,
    ) {
        let Nvme { slots, limits, lists, key, .. } = self;
        let changes = shape.operation != Operation::Read;
        if changes {
            *key = Key::CLOSED;
        }
        let slot = &mut slots[usize::from(number)];
        slot.set_shape(number, *shape, lists);
        if let Some(owner) = owner {
            slot.set_owner(owner);
        }
        let words = slot.begin_direct(token, offset, changes, limits);
        let queue = slot.queue();
        self.push(queue, words, changes);
    }

    /// Writes the words of a direct command, which changes the device or not, into a pair of queues. The controller is told at
    /// once if nothing else is in flight.
    #[inline(always)]
    fn push(&mut self, queue: usize, words: [u64; 5], changes: bool) {
        let Nvme { function, queues, order, stats, .. } = self;
        let queue = &mut queues[queue];
        // There is room: a queue has more entries than slots.
        queue.push_words(words);
        stats.commands += 1;
        if order.in_flight() == 0 {
            queue.ring(function);
        }
        order.enter(changes);
    }

    /// Tells the controller of the commands of a pair of queues that were submitted, and takes its completions, at most one
    /// round of them, so that a controller that writes completions without end does not keep the thread. Passes those of
    /// direct commands that have succeeded to `done`, and returns their number; keeps all others, after which the device is
    /// not [usual](Nvme::is_usual).
    #[inline(always)]
    fn reap_queue(&mut self, index: usize, done: &mut impl FnMut(Completion)) -> usize {
        let Nvme { function, queues, slots, order, free, claims, .. } = self;
        let queue = &mut queues[index];
        queue.ring(function);
        // Fits: a pair of queues has a number of 16 bits.
        let (number, most) = (index as u16, queue.completion_entries);
        let (mut count, mut has_written, mut other) = (0, false, None);
        let mut ring = queue.completions;
        while count < most {
            let Some(entry) = queue.peek(&ring) else { break };
            ring.pop();
            let slot = match slots.get_mut(usize::from(entry.identifier())) {
                Some(slot) if entry.is_success() => slot,
                _ => {
                    other = Some(entry);
                    break;
                }
            };
            if slot.issue.is_reading_of(number) {
                order.leave(false);
                done(Completion { token: slot.complete_reading(), owner: None, result: Ok(()) });
            } else if slot.issue.is_read_of(number) {
                order.leave(false);
                free.give(entry.identifier());
                done(slot.complete_direct());
            } else if slot.issue.is_direct_of(number) {
                let (completion, changes) = complete_direct(slot, entry, order, free, claims);
                has_written |= changes;
                done(completion);
            } else {
                other = Some(entry);
                break;
            }
            count += 1;
        }
        queue.completions = ring;
        match other {
            None if count > 0 => queue.free_in_time(function, count),
            None => {}
            Some(entry) => self.reap_others(index, entry.entry(), count),
        }
        if has_written || other.is_some() {
            self.settle();
        }
        count.into()
    }

    /// Takes the completion of one command, and returns its token and result; `None` if none has completed. Takes fewer
    /// instructions for a single completion than [`Nvme::reap_each`]. The owner of the command's memory is dropped.
    #[inline(always)]
    pub fn reap_one(&mut self) -> Option<(u64, Result<(), CommandError>)> {
        let Nvme { function, queues, slots, order, free, polls, is_usual, controller, .. } = self;
        *polls = polls.wrapping_add(1);
        if *is_usual
            && controller.is_undisturbed(order.in_flight() > 0)
            && !polls.is_multiple_of(POLLS)
            && let [queue] = &mut queues[..]
        {
            queue.ring(function);
            if let Some(entry) = queue.peek(&queue.completions)
                && entry.is_success()
                && let Some(slot) = slots.get_mut(usize::from(entry.identifier()))
            {
                if slot.issue.is_reading_of(0) {
                    take_read(queue, function, order, controller);
                    return Some((slot.complete_reading(), Ok(())));
                }
                if slot.issue.is_read_of(0) {
                    take_read(queue, function, order, controller);
                    free.give(entry.identifier());
                    return Some((slot.complete_direct().token, Ok(())));
                }
            }
        }
        self.reap_one_other()
    }

    /// Takes the completion of one command, of any kind.
    #[inline(never)]
    fn reap_one_other(&mut self) -> Option<(u64, Result<(), CommandError>)> {
        if self.can_reap_directly() {
            for index in 0..self.queues.len() {
                let Nvme { function, queues, slots, order, free, claims, .. } = self;
                let queue = &mut queues[index];
                queue.ring(function);
                let Some(entry) = queue.pop_io() else { continue };
                match slots.get_mut(usize::from(entry.identifier())) {
                    Some(slot) if entry.is_success() && slot.issue.is_direct_of(index as u16) => {
                        queue.free_in_time(function, 1);
                        let (done, changes) = complete_direct(slot, entry, order, free, claims);
                        self.controller.note_progress();
                        if changes || self.order.in_flight() == 0 {
                            self.settle();
                        }
                        return Some((done.token, done.result));
                    }
                    _ => self.reap_others(index, entry.entry(), 0),
                }
            }
        }
        if self.finished.is_empty() {
            self.controller.begin(self.order.in_flight() > 0);
            self.advance();
        }
        let done = self.finished.pop_front();
        self.settle();
        done.map(|done| (done.token, done.result))
    }
}

/// Takes the completion of a direct read from a queue, for which it is the next one.
#[inline(always)]
fn take_read<F: Function>(
    queue: &mut QueuePair<F>,
    function: &F,
    order: &mut Order,
    controller: &mut Link<F>,
) {
    queue.completions.pop();
    queue.free_in_time(function, 1);
    order.leave(false);
    controller.note_progress();
    if order.in_flight() == 0 {
        controller.rest();
    }
}

/// Completes a direct command, and gives its slot back. Returns the completion, and true if the command has changed the device.
#[inline(always)]
fn complete_direct(
    slot: &mut Slot,
    entry: IoEntry,
    order: &mut Order,
    free: &mut FreeSlots,
    claims: &Option<Arc<Claims>>,
) -> (Completion, bool) {
    let changes = slot.is_write();
    order.leave(changes);
    if let Some(claims) = claims {
        release_claim(slot, claims);
    }
    if !slot.is_reserved() {
        free.give(entry.identifier());
    }
    (slot.complete_direct(), changes)
}
