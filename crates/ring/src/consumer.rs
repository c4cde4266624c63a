//! The end that takes entries out.

use crate::layout::{CLOSED, CONSUMER_INDEX, ENTRIES, LINE, turn_of, words_needed};
use crate::shared::Shared;
use bywash_sync::Ordering::{Acquire, Release};

/// Takes entries of `WORDS` words out of a ring. There is one of a ring.
#[derive(Debug)]
pub struct Consumer<const WORDS: usize> {
    memory: Shared,
    capacity: usize,
    /// Entries taken so far.
    taken: u64,
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// The consumer of a ring in memory that was zero.
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

    /// Whether the next entry is there. Asks for the rest of its lines meanwhile, so that it comes at once.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let start = self.place(self.taken);
        for line in (LINE..WORDS).step_by(LINE) {
            self.memory.prefetch(start + line);
        }
        self.memory.load(start) as u32 == turn_of(self.taken, self.capacity)
    }

    /// Whether so many entries are there, at most as many as the ring holds.
    #[inline]
    pub fn has(&self, entries: usize) -> bool {
        let Some(before_last) = entries.checked_sub(1) else { return true };
        // They come in order.
        let last = self.taken + before_last as u64;
        self.memory.load(self.place(last)) as u32 == turn_of(last, self.capacity)
    }

    /// As [`Consumer::has`], looking so many times.
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

    /// Entries taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The first word of the next entry, if it is there. The producer may write another one before it is taken.
    #[inline]
    pub fn first_word(&self) -> Option<u64> {
        let first = self.memory.load(self.place(self.taken));
        (first as u32 == turn_of(self.taken, self.capacity)).then_some(first)
    }

    /// Takes the next entry, if it is there: a copy that the producer cannot change any more.
    #[inline]
    pub fn pop(&mut self) -> Option<[u64; WORDS]> {
        let position = self.taken;
        let start = self.place(position);
        // SYNC: entry (acquire).
        let first = self.memory.word(start).load(Acquire);
        if first as u32 != turn_of(position, self.capacity) {
            return None;
        }
        let mut entry = [first; WORDS];
        for (index, word) in entry.iter_mut().enumerate().skip(1) {
            *word = self.memory.load(start + index);
        }
        self.taken = position + 1;
        // SYNC: entries-taken (release).
        self.memory.word(CONSUMER_INDEX).store(position + 1, Release);
        Some(entry)
    }

    /// As [`Consumer::pop`], looking so many times.
    #[inline]
    pub fn pop_within(&mut self, looks: u32) -> Option<[u64; WORDS]> {
        self.look(looks);
        self.pop()
    }

    /// Looks for an entry so many times, but for one.
    #[inline]
    pub fn look(&self, looks: u32) {
        for _ in 1..looks {
            if self.is_ready() {
                break;
            }
            bywash_sync::pause();
        }
    }

    /// Whether the producer has said that no more will come, for whoever does not hold the consumer. Entries that
    /// it put in before are still there.
    pub fn closing(&self) -> Closing {
        Closing(self.memory.clone())
    }
}

/// Whether the producer of a ring has closed it.
#[derive(Clone, Debug)]
pub struct Closing(Shared);

impl Closing {
    /// It has.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // SYNC: closed (acquire).
        self.0.word(CLOSED).load(Acquire) != 0
    }
}
