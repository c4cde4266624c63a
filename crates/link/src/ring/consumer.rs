//! The end of a ring that takes entries.

use crate::ring::layout::{CLOSED, CONSUMER_INDEX, ENTRIES, LINE, turn_of, words_needed};
use crate::ring::shared::Shared;
use bywash_sync::Ordering::{Acquire, Relaxed, Release};

/// Takes entries of `WORDS` words from a ring. A ring has only one consumer.
#[derive(Debug)]
pub struct Consumer<const WORDS: usize> {
    memory: Shared,
    capacity: usize,
    /// Number of entries taken so far.
    taken: u64,
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// Makes the consumer of a ring in zeroed memory.
    ///
    /// # Panics
    /// If the memory is too small for [`words_needed`].
    pub fn new(memory: Shared, capacity: usize) -> Consumer<WORDS> {
        assert!(memory.len() >= words_needed::<WORDS>(capacity));
        Consumer { memory, capacity, taken: 0 }
    }

    #[inline(always)]
    fn place(&self, position: u64) -> usize {
        ENTRIES + (position as usize & (self.capacity - 1)) * WORDS
    }

    /// Returns true if the next entry is complete. Prefetches the entry's other cache lines, so that they
    /// arrive meanwhile.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let start = self.place(self.taken);
        for line in (LINE..WORDS).step_by(LINE) {
            self.memory.prefetch(start + line);
        }
        self.memory.load(start) as u32 == turn_of(self.taken, self.capacity)
    }

    /// Returns true if `entries` entries are complete; at most as many as the ring has.
    #[inline]
    pub fn has(&self, entries: usize) -> bool {
        let Some(before_last) = entries.checked_sub(1) else { return true };
        // Entries are sent in order, so the last one suffices.
        let last = self.taken + before_last as u64;
        self.memory.load(self.place(last)) as u32 == turn_of(last, self.capacity)
    }

    /// Like [`Consumer::has`], but looks up to `looks` times.
    #[inline]
    pub fn has_within(&self, entries: usize, looks: u32) -> bool {
        for _ in 1..looks {
            if self.has(entries) {
                return true;
            }
            bywash_sync::pause();
        }
        self.has(entries)
    }

    /// Returns the number of entries taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the first word of the next entry, if that is complete. A malicious producer may change it
    /// before the entry is taken.
    #[inline]
    pub fn first_word(&self) -> Option<u64> {
        let first = self.memory.load(self.place(self.taken));
        (first as u32 == turn_of(self.taken, self.capacity)).then_some(first)
    }

    /// Takes the next entry if it is complete: a copy, which the producer cannot change any more.
    #[inline]
    pub fn pop(&mut self) -> Option<[u64; WORDS]> {
        let mut entry = [0; WORDS];
        self.pop_into(&mut entry).then_some(entry)
    }

    /// Takes the next entry if it is complete, and copies it into `entry`: a copy, which the producer cannot change any more.
    /// Returns false, and leaves `entry` as it is, if there is none.
    #[inline(always)]
    pub fn pop_into(&mut self, entry: &mut [u64; WORDS]) -> bool {
        let position = self.taken;
        let words = self.memory.entry::<WORDS>(self.place(position));
        // SYNC: entry (acquire): the other words are read after the turn.
        let first = words[0].load(Acquire);
        if first as u32 != turn_of(position, self.capacity) {
            return false;
        }
        entry[0] = first;
        for (word, shared) in entry.iter_mut().zip(words).skip(1) {
            *word = shared.load(Relaxed);
        }
        self.taken = position + 1;
        // SYNC: entries-taken (release): the entry is freed after it was copied.
        self.memory.word(CONSUMER_INDEX).store(position + 1, Release);
        true
    }

    /// Like [`Consumer::pop`], but looks up to `looks` times.
    #[inline]
    pub fn pop_within(&mut self, looks: u32) -> Option<[u64; WORDS]> {
        self.look(looks);
        self.pop()
    }

    /// Looks for an entry up to `looks - 1` times, so that the caller's own look is the last.
    #[inline]
    pub fn look(&self, looks: u32) {
        for _ in 1..looks {
            if self.is_ready() {
                break;
            }
            bywash_sync::pause();
        }
    }

    /// Returns the flag by which the producer closes the ring, for users who do not hold the consumer.
    /// Entries that were sent before can still be taken.
    pub fn closing(&self) -> ClosedFlag {
        ClosedFlag(self.memory.clone())
    }
}

/// Flag by which the producer closes a ring.
#[derive(Clone, Debug)]
pub struct ClosedFlag(Shared);

impl ClosedFlag {
    /// Returns true if the producer has closed the ring.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // SYNC: closed (acquire): entries sent before are visible once the flag is.
        self.0.word(CLOSED).load(Acquire) != 0
    }
}
