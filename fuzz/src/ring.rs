//! A ring as drawn in crates/link/src/ring/layout.rs, accessed by hand. Used by the malicious peers of the fuzz
//! targets.

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_support::peers::Words;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Number of words before the first entry; the first of them is the consumer's index.
const HEAD: usize = 32;
const CONSUMER_BELL: usize = 8;
const PRODUCER_BELL: usize = 16;
const CLOSED: usize = 24;

/// Position at which a malicious peer writes an entry. Most are those that the tested side reads next, since
/// it does not see the others.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    /// The entry that the tested side reads next.
    Next,
    /// This number of entries after the next one, modulo the capacity.
    Ahead(u8),
    /// Any slot, with any turn.
    Slot(u8, u8),
}

impl<'a> Arbitrary<'a> for Where {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Where> {
        Ok(match input.arbitrary()? {
            0..200u8 => Where::Next,
            ahead @ 200..230 => Where::Ahead(ahead),
            _ => Where::Slot(input.arbitrary()?, input.arbitrary()?),
        })
    }
}

/// Position and size of a ring in the memory of a peer.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Index of the ring's first word.
    pub start: usize,
    /// Number of entries, a power of two.
    pub capacity: usize,
    /// Size of an entry, in words.
    pub entry_words: usize,
}

impl Ring {
    /// Returns the size of the ring, in words.
    pub const fn words(&self) -> usize {
        HEAD + self.capacity * self.entry_words
    }

    /// Returns the index of the first word of a slot; numbers beyond the capacity wrap around.
    pub fn slot(&self, slot: u64) -> usize {
        self.start + HEAD + slot as usize % self.capacity * self.entry_words
    }

    /// Returns the turn of the `position`th entry: the low half of its first word once it is written.
    fn turn(&self, position: u64) -> u64 {
        (position / self.capacity as u64 + 1) & 0xffff_ffff
    }

    /// Writes the `position`th entry as a producer does. Returns false if the consumer has not freed its
    /// slot.
    pub fn put(&self, memory: &Words, position: u64, entry: &[u64]) -> bool {
        let taken = memory.at(self.start).load(Acquire);
        if position.wrapping_sub(taken) >= self.capacity as u64 {
            return false;
        }
        let at = self.slot(position);
        (1..entry.len()).for_each(|number| memory.set(at + number, entry[number]));
        memory.at(at).store(entry[0] >> 32 << 32 | self.turn(position), Release);
        true
    }

    /// Takes the `position`th entry as a consumer does, if the producer has written it.
    pub fn take(&self, memory: &Words, position: u64) -> Option<Vec<u64>> {
        let at = self.slot(position);
        let first = memory.at(at).load(Acquire);
        if first & 0xffff_ffff != self.turn(position) {
            return None;
        }
        let entry = (0..self.entry_words).map(|number| memory.at(at + number).load(Acquire)).collect();
        memory.at(self.start).store(position + 1, Release);
        Some(entry)
    }

    /// Returns the first word and the turn of an entry at a malicious peer's position.
    pub fn place(&self, memory: &Words, place: Where) -> (usize, u64) {
        let next = memory.at(self.start).load(Acquire);
        match place {
            Where::Next => (self.slot(next), self.turn(next)),
            Where::Ahead(entries) => {
                let position = next.wrapping_add(u64::from(entries) % self.capacity as u64);
                (self.slot(position), self.turn(position))
            }
            Where::Slot(slot, turn) => (self.slot(u64::from(slot)), u64::from(turn)),
        }
    }

    /// Announces that the consumer or the producer sleeps, and how it is to be woken: by a futex, or through
    /// the socket.
    pub fn sleep(&self, memory: &Words, consumer: bool, futex: bool) {
        let bell = if consumer { CONSUMER_BELL } else { PRODUCER_BELL };
        memory.set(self.start + bell, if futex { 1 } else { 2 });
    }

    /// Closes the ring, as a producer that sends nothing more.
    pub fn close(&self, memory: &Words) {
        memory.at(self.start + CLOSED).store(1, Release);
    }
}
