//! The end that takes entries out.

use crate::layout::{CLOSED, CONSUMER_INDEX, ENTRIES, LINE, turn_of, words_needed};
use crate::shared::Shared;
use bywash_sync::AtomicU64;
use bywash_sync::Ordering::{Acquire, Relaxed, Release};

/// Takes entries of `WORDS` words out of a ring. There is one of a ring.
#[derive(Debug)]
pub struct Consumer<const WORDS: usize> {
    memory: Shared,
    capacity: usize,
    /// Entries taken so far; atomic only so that [`Consumer::is_ready`] can be asked while another thread
    /// takes.
    taken: AtomicU64,
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// The consumer of a ring in memory that was zero.
    ///
    /// # Panics
    /// If the memory is too small for [`words_needed`].
    pub fn new(memory: Shared, capacity: usize) -> Consumer<WORDS> {
        assert!(memory.len() >= words_needed::<WORDS>(capacity));
        Consumer { memory, capacity, taken: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn place(&self, position: u64) -> usize {
        ENTRIES + (position as usize & (self.capacity - 1)) * WORDS
    }

    /// Whether the next entry is there. Asks for the rest of its lines meanwhile, so that it comes at once.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let position = self.taken.load(Relaxed);
        let start = self.place(position);
        for line in (LINE..WORDS).step_by(LINE) {
            self.memory.prefetch(start + line);
        }
        self.memory.load(start) as u32 == turn_of(position, self.capacity)
    }

    /// Takes the next entry, if it is there: a copy that the producer cannot change any more.
    #[inline]
    pub fn pop(&mut self) -> Option<[u64; WORDS]> {
        let position = self.taken.load(Relaxed);
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
        self.taken.store(position + 1, Relaxed);
        // SYNC: entries-taken (release).
        self.memory.word(CONSUMER_INDEX).store(position + 1, Release);
        Some(entry)
    }

    /// Whether the producer has said that no more will come. Entries that it put in before are still there.
    pub fn is_closed(&self) -> bool {
        // SYNC: closed (acquire).
        self.memory.word(CLOSED).load(Acquire) != 0
    }
}
