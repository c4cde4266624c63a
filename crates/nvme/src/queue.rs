//! Queues of commands and of completions (Base Specification 2.0, section 3.3 "NVM Queue Models"), and their doorbells.
//!
//! ```text
//!   submission queue:  head ≤ taken by the controller │ tail ≤ written by the driver; full if tail + 1 = head
//!   completion queue:  an entry is new if its phase bit is the expected one, which flips each time round
//! ```
//!
//! Invariant: the driver never has more commands in a submission queue than entries less one, and never writes an entry
//! that the controller has not taken. Neither ring is read beyond what its phase bit or head allow. Where a controller
//! offers shadow doorbells, doorbells are words of memory, and the register is written only if the controller's event
//! index says so (section 5.8 "Doorbell Buffer Config command"). Called by the controller and the device.

use crate::command::Command;
use crate::completion::{Entry, StatusField};
use crate::dma::{DmaMemory, after_phase, before_doorbell, between_shadow_and_event};
use crate::error::Error;
use crate::function::Function;
use std::sync::Arc;

/// Size of a submission queue entry, in bytes.
pub const COMMAND_BYTES: usize = 64;
/// Size of a completion queue entry, in bytes.
pub const COMPLETION_BYTES: usize = 16;

/// Tail and head of a submission queue, as entry numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmissionRing {
    entries: u16,
    tail: u16,
    head: u16,
}

impl SubmissionRing {
    /// Makes an empty ring of `entries` entries, at least two.
    pub fn new(entries: u16) -> SubmissionRing {
        assert!(entries >= 2);
        SubmissionRing { entries, tail: 0, head: 0 }
    }

    /// Returns the entry for the next command and moves the tail behind it. `None` if the ring is full.
    #[inline]
    pub fn push(&mut self) -> Option<u16> {
        let next = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
        if next == self.head {
            return None;
        }
        let entry = self.tail;
        self.tail = next;
        Some(entry)
    }

    /// Sets the head that a completion has reported. Returns false, and changes nothing, if the controller cannot have
    /// taken so many commands.
    #[inline]
    pub fn taken(&mut self, head: u16) -> bool {
        // A head is valid if it is not behind the tail: on the way round from the old head to the tail.
        let is_valid =
            head < self.entries && self.distance(self.head, head) <= self.distance(self.head, self.tail);
        if is_valid {
            self.head = head;
        }
        is_valid
    }

    #[inline]
    fn distance(&self, from: u16, to: u16) -> u16 {
        if to >= from { to - from } else { to + (self.entries - from) }
    }

    /// Returns the entry behind the last command.
    #[inline]
    pub fn tail(&self) -> u16 {
        self.tail
    }
}

/// Head and expected phase of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionRing {
    entries: u16,
    head: u16,
    phase: bool,
}

impl CompletionRing {
    /// Makes an empty ring of `entries` entries, whose memory is zeroed: the first time round new entries have the
    /// phase bit 1.
    pub fn new(entries: u16) -> CompletionRing {
        assert!(entries >= 2);
        CompletionRing { entries, head: 0, phase: true }
    }

    /// Returns the entry that the controller writes next.
    #[inline]
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Returns true if an entry with this phase bit, at the head, is new.
    #[inline]
    pub fn is_new(&self, phase: bool) -> bool {
        phase == self.phase
    }

    /// Moves the head behind an entry that was read.
    #[inline]
    pub fn pop(&mut self) {
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
    }
}

/// Two pages of memory that stand for the doorbell registers: the doorbells, and the values from which on the controller
/// wants to be told.
#[derive(Debug)]
pub(crate) struct ShadowDoorbells<F: Function> {
    pub(crate) values: DmaMemory<F>,
    pub(crate) events: DmaMemory<F>,
}

/// A doorbell: its register, and its words in the shadow pages if these are in use.
#[derive(Debug)]
struct Doorbell<F: Function> {
    register: usize,
    rung: u16,
    shadow: Option<(Arc<ShadowDoorbells<F>>, usize)>,
    /// True if the register is written in any case, as for the admin queues.
    is_always_written: bool,
}

impl<F: Function> Doorbell<F> {
    #[inline]
    fn ring(&mut self, function: &F, value: u16) {
        if value == self.rung {
            return;
        }
        let before = self.rung;
        self.rung = value;
        before_doorbell();
        if let Some((shadow, offset)) = &self.shadow {
            shadow.values.write32(*offset, value.into());
            between_shadow_and_event();
            let event = shadow.events.read32(*offset) as u16;
            if !self.is_always_written && !passes(event, before, value) {
                return;
            }
        }
        function.write32(self.register, value.into());
    }
}

/// Returns true if a doorbell that goes from `before` to `value` passes the event index `event`, modulo 2^16.
fn passes(event: u16, before: u16, value: u16) -> bool {
    value.wrapping_sub(event).wrapping_sub(1) < value.wrapping_sub(before)
}

/// Submission queue and completion queue of the same number.
#[derive(Debug)]
pub(crate) struct QueuePair<F: Function> {
    pub(crate) number: u16,
    pub(crate) entries: u16,
    submissions: SubmissionRing,
    completions: CompletionRing,
    commands: DmaMemory<F>,
    results: DmaMemory<F>,
    tail: Doorbell<F>,
    head: Doorbell<F>,
}

impl<F: Function> QueuePair<F> {
    /// Allocates the memory of a pair of queues with `entries` entries each, and their doorbells at the offsets
    /// `doorbells` (tail, head).
    ///
    /// # Errors
    /// [`Error::Io`] if the memory cannot be allocated or mapped.
    pub(crate) fn new(
        function: &Arc<F>,
        number: u16,
        entries: u16,
        doorbells: (usize, usize),
    ) -> Result<QueuePair<F>, Error> {
        let doorbell =
            |register| Doorbell { register, rung: 0, shadow: None, is_always_written: number == 0 };
        Ok(QueuePair {
            number,
            entries,
            submissions: SubmissionRing::new(entries),
            completions: CompletionRing::new(entries),
            commands: DmaMemory::new(function, usize::from(entries) * COMMAND_BYTES)?,
            results: DmaMemory::new(function, usize::from(entries) * COMPLETION_BYTES)?,
            tail: doorbell(doorbells.0),
            head: doorbell(doorbells.1),
        })
    }

    /// Empties both queues, as they are when the controller creates them. The controller must not use them meanwhile.
    pub(crate) fn clear(&mut self) {
        self.submissions = SubmissionRing::new(self.entries);
        self.completions = CompletionRing::new(self.entries);
        self.results.zero(0, usize::from(self.entries) * COMPLETION_BYTES);
        for doorbell in [&mut self.tail, &mut self.head] {
            doorbell.rung = 0;
            doorbell.shadow = None;
        }
    }

    /// Makes the doorbells words of memory; `stride` is the distance of two doorbells, in bytes.
    pub(crate) fn use_shadow(&mut self, shadow: &Arc<ShadowDoorbells<F>>, stride: usize) {
        let tail = 2 * usize::from(self.number) * stride;
        self.tail.shadow = Some((shadow.clone(), tail));
        self.head.shadow = Some((shadow.clone(), tail + stride));
    }

    /// Returns the controller's addresses of the submission queue and of the completion queue.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.commands.address(0), self.results.address(0))
    }

    /// Writes a command. The controller is told with the next [`QueuePair::ring`]. Returns false if the queue is full.
    #[inline]
    pub(crate) fn push(&mut self, command: &Command) -> bool {
        let Some(entry) = self.submissions.push() else { return false };
        self.commands.write_command(usize::from(entry) * COMMAND_BYTES, &command.0);
        true
    }

    /// Tells the controller of all commands that were pushed.
    #[inline]
    pub(crate) fn ring(&mut self, function: &F) {
        self.tail.ring(function, self.submissions.tail());
    }

    /// Takes the next completion. The controller gets the entries back with the next [`QueuePair::free`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let at = usize::from(self.completions.head()) * COMPLETION_BYTES;
        let last = self.results.read32(at + 12);
        if !self.completions.is_new(last >> 16 & 1 == 1) {
            return None;
        }
        after_phase();
        let (value, third) = (self.results.read32(at), self.results.read32(at + 8));
        self.completions.pop();
        let entry = Entry {
            value,
            submission_head: third as u16,
            submission_queue: (third >> 16) as u16,
            identifier: last as u16,
            status: StatusField((last >> 17) as u16),
        };
        self.submissions.taken(entry.submission_head);
        Some(entry)
    }

    /// Returns true if a completion can be taken.
    #[inline]
    pub(crate) fn has_completion(&self) -> bool {
        let at = usize::from(self.completions.head()) * COMPLETION_BYTES;
        self.completions.is_new(self.results.read32(at + 12) >> 16 & 1 == 1)
    }

    /// Gives the entries of all completions that were taken back to the controller.
    #[inline]
    pub(crate) fn free(&mut self, function: &F) {
        self.head.ring(function, self.completions.head());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_ring_takes_one_command_less_than_it_has_entries() {
        let mut ring = SubmissionRing::new(4);
        assert_eq!([ring.push(), ring.push(), ring.push(), ring.push()], [Some(0), Some(1), Some(2), None]);
        assert!(ring.taken(1));
        assert_eq!([ring.push(), ring.push()], [Some(3), None]);
        assert_eq!(ring.tail(), 0);
        assert!(ring.taken(0));
        assert_eq!(ring.push(), Some(0));
    }

    #[test]
    fn a_head_beyond_the_tail_is_not_believed() {
        let mut ring = SubmissionRing::new(8);
        ring.push();
        ring.push();
        for head in [3, 7, 8, u16::MAX] {
            assert!(!ring.taken(head), "{head}");
        }
        assert!(ring.taken(2));
        assert!(!ring.taken(1), "backwards");
    }

    #[test]
    fn the_largest_ring_goes_round() {
        let mut ring = SubmissionRing::new(u16::MAX);
        for number in 0..3 * u32::from(u16::MAX) {
            assert_eq!(ring.push().map(u32::from), Some(number % u32::from(u16::MAX)));
            assert!(ring.taken(ring.tail()));
        }
    }

    #[test]
    fn event_indices_are_passed_as_the_counter_goes_round() {
        assert!(passes(4, 4, 5));
        assert!(passes(4, 0, 5));
        assert!(!passes(5, 4, 5));
        assert!(!passes(9, 4, 5));
        assert!(passes(u16::MAX, u16::MAX, 0));
        assert!(!passes(1, u16::MAX, 1));
    }

    proptest! {
        /// Both rings side by side with a queue: each command is taken once and each completion seen once, in order,
        /// whichever number of them is in the rings.
        #[test]
        fn rings_behave_as_queues(entries in 2u16..40, steps in prop::collection::vec(0u8..3, 0..400)) {
            let mut submissions = SubmissionRing::new(entries);
            let mut completions = CompletionRing::new(entries);
            // The controller's side: slots with the written commands, phase bits, its own positions.
            let mut written = vec![None; usize::from(entries)];
            let mut results: Vec<(Option<u32>, bool)> = vec![(None, false); usize::from(entries)];
            let (mut head, mut tail, mut phase) = (0u16, 0u16, true);
            let (mut waiting, mut next) = (VecDeque::new(), 0u32);
            for step in steps {
                match step {
                    // The driver's rule: fewer commands in flight than entries. The ring then never is full.
                    0 if waiting.len() < usize::from(entries) - 1 => {
                        let entry = submissions.push();
                        prop_assert!(entry.is_some());
                        written[usize::from(entry.unwrap())] = Some(next);
                        waiting.push_back(next);
                        next += 1;
                    }
                    0 => {}
                    1 => {
                        if head != submissions.tail() {
                            let command = written[usize::from(head)].take();
                            prop_assert!(command.is_some());
                            head = (head + 1) % entries;
                            results[usize::from(tail)] = (command, phase);
                            tail = (tail + 1) % entries;
                            phase ^= tail == 0;
                        }
                    }
                    _ => {
                        let (command, bit) = results[usize::from(completions.head())];
                        if completions.is_new(bit) {
                            completions.pop();
                            prop_assert_eq!(command, waiting.pop_front());
                            // The controller reports its head as it is; later commands may have been taken, too.
                            prop_assert!(submissions.taken(head));
                        } else {
                            prop_assert!(completions.head() == tail);
                        }
                    }
                }
            }
        }
    }
}
