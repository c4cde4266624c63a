//! A ring as crates/ring/src/layout.rs draws it, spoken by hand.

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_peers::Words;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Words before the first entry; the first of them is the consumer's index.
const HEAD: usize = 32;
const CONSUMER_BELL: usize = 8;
const PRODUCER_BELL: usize = 16;
const CLOSED: usize = 24;

/// Where a liar puts an entry. Most lies go to where the victim looks next: the others are not seen.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    /// Where the victim looks next.
    Next,
    /// So many entries behind that.
    Ahead(u8),
    /// Anywhere, in any turn.
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

/// Where a ring is in the memory of a peer, and how large it is.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Its first word.
    pub start: usize,
    /// Entries, a power of two.
    pub capacity: usize,
    /// Words of an entry.
    pub entry_words: usize,
}

impl Ring {
    /// Words of all of it.
    pub const fn words(&self) -> usize {
        HEAD + self.capacity * self.entry_words
    }

    /// Where the entry of a slot begins; any number leads to some slot.
    pub fn slot(&self, slot: u64) -> usize {
        self.start + HEAD + slot as usize % self.capacity * self.entry_words
    }

    /// The low half of the first word of an entry that is there.
    fn turn(&self, position: u64) -> u64 {
        (position / self.capacity as u64 + 1) & 0xffff_ffff
    }

    /// Puts an entry where the consumer expects its `position`th; false if it has not taken enough for that.
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

    /// Takes the entry that the producer put in as its `position`th, if it did.
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

    /// Where a lie begins, and the turn that it claims.
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

    /// Says how the consumer, or else the producer, wants to be woken: by a futex, or through the socket.
    pub fn sleep(&self, memory: &Words, consumer: bool, futex: bool) {
        let bell = if consumer { CONSUMER_BELL } else { PRODUCER_BELL };
        memory.set(self.start + bell, if futex { 1 } else { 2 });
    }

    /// Says that no more comes.
    pub fn close(&self, memory: &Words) {
        memory.at(self.start + CLOSED).store(1, Release);
    }
}
