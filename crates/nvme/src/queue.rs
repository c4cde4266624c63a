//! Queues of commands and of completions (Base Specification 2.0, section 3.3 "NVM Queue Models"), and their doorbells.
//!
//! ```text
//!   submission queue:  head ≤ taken by the controller │ tail ≤ written by the driver; an entry is left empty
//!   completion queue:  an entry is new if its phase bit is the expected one, which flips each time round
//! ```
//!
//! Invariant: the driver never writes an entry that the controller has not taken. It has fewer commands in flight than a
//! queue has entries, and each entry that the controller has not taken is that of a command in flight; so the head of a
//! submission queue, which completions report, need not be known. The completion queue is read as far as its phase bit
//! allows. Where a controller
//! offers shadow doorbells, doorbells are words of memory, and the register is written only if the controller's event
//! index says so (section 5.8 "Doorbell Buffer Config command"). Called by the controller and the device.

use crate::command::Command;
use crate::completion::{Entry, IoEntry};
use crate::dma::{DmaMemory, after_phase, before_doorbell, between_shadow_and_event};
use crate::error::Error;
use crate::function::Function;
use std::sync::Arc;

/// Size of a submission queue entry, in bytes.
pub const COMMAND_BYTES: usize = 64;
/// Size of a completion queue entry, in bytes.
pub const COMPLETION_BYTES: usize = 16;

/// Tail of a submission queue, as an entry number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmissionRing {
    entries: u16,
    tail: u16,
}

impl SubmissionRing {
    /// Makes an empty ring of `entries` entries, at least two.
    pub fn new(entries: u16) -> SubmissionRing {
        assert!(entries >= 2);
        SubmissionRing { entries, tail: 0 }
    }

    /// Returns the entry for the next command and moves the tail behind it. The caller has fewer commands in flight than
    /// the ring has entries less one.
    #[inline]
    pub fn push(&mut self) -> u16 {
        let entry = self.tail;
        self.tail = if entry + 1 == self.entries { 0 } else { entry + 1 };
        entry
    }

    /// Returns the entry behind the last command.
    #[inline]
    pub fn tail(&self) -> u16 {
        self.tail
    }
}

/// Bit of double word 3 of a completion that tells new ones from those of the last time round (P).
const PHASE: u32 = 1 << 16;

/// Head and expected phase of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionRing {
    entries: u16,
    head: u16,
    /// Phase bit of new entries, where double word 3 has it.
    phase: u32,
}

impl CompletionRing {
    /// Makes an empty ring of `entries` entries, whose memory is zeroed: the first time round new entries have the
    /// phase bit 1.
    pub fn new(entries: u16) -> CompletionRing {
        assert!(entries >= 2);
        CompletionRing { entries, head: 0, phase: PHASE }
    }

    /// Returns the entry that the controller writes next.
    #[inline]
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Returns true if an entry with this double word 3, at the head, is new.
    #[inline]
    pub fn is_new(&self, last: u32) -> bool {
        (last ^ self.phase) & PHASE == 0
    }

    /// Moves the head behind an entry that was read.
    #[inline]
    pub fn pop(&mut self) {
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase ^= PHASE;
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
    #[inline(always)]
    fn ring(&mut self, function: &F, value: u16) {
        if value == self.rung {
            return;
        }
        if self.shadow.is_some() && !self.ring_shadow(value) {
            return;
        }
        self.rung = value;
        before_doorbell();
        function.write32(self.register, value.into());
    }

    /// Rings the shadow doorbell. Returns true if the register has to be written as well.
    #[inline(never)]
    fn ring_shadow(&mut self, value: u16) -> bool {
        let Some((shadow, offset)) = &self.shadow else { return true };
        let before = std::mem::replace(&mut self.rung, value);
        before_doorbell();
        shadow.values.write32(*offset, value.into());
        between_shadow_and_event();
        let event = shadow.events.read32(*offset) as u16;
        self.is_always_written || passes(event, before, value)
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
    /// Number of entries of the submission queue.
    pub(crate) entries: u16,
    /// Number of entries of the completion queue, at least as many.
    pub(crate) completion_entries: u16,
    /// Number of completions that were taken and whose entries the controller has not got back.
    kept: u16,
    /// Greatest number of completions that are kept: a queue with as many as it has entries less one is full, and as many
    /// commands can be in flight as the submission queue has entries less one.
    kept_max: u16,
    submissions: SubmissionRing,
    pub(crate) completions: CompletionRing,
    commands: DmaMemory<F>,
    results: DmaMemory<F>,
    tail: Doorbell<F>,
    head: Doorbell<F>,
}

impl<F: Function> QueuePair<F> {
    /// Allocates the memory of a pair of queues with `entries` and `completion_entries` entries, and their doorbells at the
    /// offsets `doorbells` (tail, head).
    ///
    /// # Errors
    /// [`Error::Io`] if the memory cannot be allocated or mapped.
    pub(crate) fn new(
        function: &Arc<F>,
        number: u16,
        (entries, completion_entries): (u16, u16),
        doorbells: (usize, usize),
    ) -> Result<QueuePair<F>, Error> {
        let doorbell =
            |register| Doorbell { register, rung: 0, shadow: None, is_always_written: number == 0 };
        Ok(QueuePair {
            number,
            entries,
            completion_entries,
            kept: 0,
            kept_max: completion_entries - entries,
            submissions: SubmissionRing::new(entries),
            completions: CompletionRing::new(completion_entries),
            commands: DmaMemory::new(function, usize::from(entries) * COMMAND_BYTES)?,
            results: DmaMemory::new(function, usize::from(completion_entries) * COMPLETION_BYTES)?,
            tail: doorbell(doorbells.0),
            head: doorbell(doorbells.1),
        })
    }

    /// Empties both queues, as they are when the controller creates them. The controller must not use them meanwhile.
    pub(crate) fn clear(&mut self) {
        self.submissions = SubmissionRing::new(self.entries);
        self.completions = CompletionRing::new(self.completion_entries);
        self.results.zero(0, usize::from(self.completion_entries) * COMPLETION_BYTES);
        self.kept = 0;
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

    /// Writes a command. The controller is told with the next [`QueuePair::ring`]. The caller has fewer commands in flight
    /// than the queue has entries less one.
    #[inline]
    pub(crate) fn push(&mut self, command: &Command) {
        let entry = self.submissions.push();
        self.commands.write_command(usize::from(entry) * COMMAND_BYTES, &command.0);
    }

    /// Writes a command like [`QueuePair::push`], of which only the words 0, 3, 4, 5 and 6 are given. The others are zeros in
    /// the queue's memory: it had zeros at first, and all commands have zeros there.
    #[inline(always)]
    #[expect(unsafe_code, reason = "bounds were checked when the queue was made")]
    pub(crate) fn push_words(&mut self, words: [u64; 5]) {
        let entry = self.submissions.push();
        // SAFETY: the ring's entries are fewer than `entries`, for which `new` has allocated memory.
        unsafe { self.commands.write_words_unchecked(usize::from(entry) * COMMAND_BYTES, words) };
    }

    /// Tells the controller of all commands that were pushed.
    #[inline(always)]
    pub(crate) fn ring(&mut self, function: &F) {
        self.tail.ring(function, self.submissions.tail());
    }

    /// Takes the next completion. The controller gets the entries back with the next [`QueuePair::free`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let at = usize::from(self.completions.head()) * COMPLETION_BYTES;
        let last = self.results.read32(at + 12);
        if !self.completions.is_new(last) {
            return None;
        }
        after_phase();
        let value = self.results.read32(at);
        self.completions.pop();
        Some(Entry { value, ..IoEntry(last).entry() })
    }

    /// Takes the next completion like [`QueuePair::pop`], without its double word 0, which commands of the NVM command set do
    /// not use.
    #[inline(always)]
    pub(crate) fn pop_io(&mut self) -> Option<IoEntry> {
        let entry = self.peek(&self.completions)?;
        self.completions.pop();
        Some(entry)
    }

    /// Returns the completion at the head of `ring`, which is this queue's, as it was or with completions taken since.
    #[inline(always)]
    #[expect(unsafe_code, reason = "bounds were checked when the queue was made")]
    pub(crate) fn peek(&self, ring: &CompletionRing) -> Option<IoEntry> {
        debug_assert!(ring.entries == self.completion_entries);
        let at = usize::from(ring.head()) * COMPLETION_BYTES;
        // SAFETY: the ring's head is less than `completion_entries`, for which `new` has allocated memory.
        let last = unsafe { self.results.read32_unchecked(at + 12) };
        if !ring.is_new(last) {
            return None;
        }
        after_phase();
        Some(IoEntry(last))
    }

    /// Returns true if a completion can be taken.
    #[inline]
    pub(crate) fn has_completion(&self) -> bool {
        let at = usize::from(self.completions.head()) * COMPLETION_BYTES;
        self.completions.is_new(self.results.read32(at + 12))
    }

    /// Gives the entries of all completions that were taken back to the controller.
    #[inline(never)]
    pub(crate) fn free(&mut self, function: &F) {
        self.kept = 0;
        self.head.ring(function, self.completions.head());
    }

    /// Gives the entries of completions back to the controller like [`QueuePair::free`], of which `count` were taken, if the
    /// controller would not have room for the completions of all commands otherwise. A doorbell is thus not rung for every
    /// completion.
    #[inline(always)]
    pub(crate) fn free_in_time(&mut self, function: &F, count: u16) {
        self.kept += count;
        if self.kept > self.kept_max {
            self.free(function);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn rings_go_round() {
        let mut ring = SubmissionRing::new(4);
        assert_eq!([(); 5].map(|()| ring.push()), [0, 1, 2, 3, 0]);
        assert_eq!(ring.tail(), 1);
        let mut ring = SubmissionRing::new(u16::MAX);
        for number in 0..3 * u32::from(u16::MAX) {
            assert_eq!(u32::from(ring.push()), number % u32::from(u16::MAX));
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
            let mut written: Vec<Option<u32>> = vec![None; usize::from(entries)];
            let mut results: Vec<(Option<u32>, bool)> = vec![(None, false); usize::from(entries)];
            let (mut head, mut tail, mut phase) = (0u16, 0u16, true);
            let (mut waiting, mut next) = (VecDeque::new(), 0u32);
            for step in steps {
                match step {
                    // The driver's rule: fewer commands in flight than entries. The ring then never is full.
                    0 if waiting.len() < usize::from(entries) - 1 => {
                        // Never an entry that was not taken.
                        let entry = &mut written[usize::from(submissions.push())];
                        prop_assert!(entry.replace(next).is_none());
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
                        if completions.is_new(u32::from(bit) << 16) {
                            completions.pop();
                            prop_assert_eq!(command, waiting.pop_front());
                        } else {
                            prop_assert!(completions.head() == tail);
                        }
                    }
                }
            }
        }
    }
}
