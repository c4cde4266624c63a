//! The end that puts entries in.

use crate::Rubbish;
use crate::layout::{CLOSED, CONSUMER_INDEX, ENTRIES, first_word, turn_of, words_needed};
use crate::shared::Shared;
use bywash_sync::Ordering::{Acquire, Relaxed, Release};

/// Puts entries of `WORDS` words into a ring. There is one of a ring.
#[derive(Debug)]
pub struct Producer<const WORDS: usize> {
    memory: Shared,
    capacity: usize,
    /// Entries put in so far.
    pushed: u64,
    /// Entries taken out, as far as is known. It is looked up again only when the ring seems full, so that
    /// the line is not fetched for every entry.
    taken: u64,
}

impl<const WORDS: usize> Producer<WORDS> {
    /// The producer of a ring in memory that was zero.
    ///
    /// # Panics
    /// If the memory is too small for [`words_needed`].
    pub fn new(memory: Shared, capacity: usize) -> Producer<WORDS> {
        assert!(memory.len() >= words_needed::<WORDS>(capacity));
        Producer { memory, capacity, pushed: 0, taken: 0 }
    }

    /// How many entries there is room for, at least `wanted` of them if that is so.
    ///
    /// # Errors
    /// The consumer's index is impossible.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> Result<usize, Rubbish> {
        let known = self.capacity - (self.pushed - self.taken) as usize;
        if known >= wanted {
            return Ok(known);
        }
        // SYNC: entries-taken (acquire): what is written to their places comes after the consumer's reads.
        let found = self.memory.word(CONSUMER_INDEX).load(Acquire);
        if found < self.taken || found > self.pushed {
            return Err(Rubbish { known: self.taken, found, pushed: self.pushed });
        }
        self.taken = found;
        Ok(self.capacity - (self.pushed - self.taken) as usize)
    }

    /// Puts one entry in; false when the ring is full. The low half of the first word is not sent.
    ///
    /// # Errors
    /// The consumer's index is impossible.
    #[inline]
    pub fn push(&mut self, entry: &[u64; WORDS]) -> Result<bool, Rubbish> {
        if self.room(1)? == 0 {
            return Ok(false);
        }
        let start = ENTRIES + (self.pushed as usize & (self.capacity - 1)) * WORDS;
        // The last line first: whoever looks at the first one finds the others on their way.
        for index in (1..WORDS).rev() {
            self.memory.word(start + index).store(entry[index], Relaxed);
        }
        // SYNC: entry (release): its other words come before its turn.
        let turn = turn_of(self.pushed, self.capacity);
        self.memory.word(start).store(first_word(entry[0], turn), Release);
        self.pushed += 1;
        Ok(true)
    }

    /// Entries put in so far.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Says that no more will come.
    pub fn close(&self) {
        // SYNC: closed (release): every entry comes before it.
        self.memory.word(CLOSED).store(1, Release);
    }
}
