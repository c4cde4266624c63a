//! The end of a ring that sends entries.

use crate::ring::InvalidIndex;
use crate::ring::layout::{CLOSED, CONSUMER_INDEX, ENTRIES, first_word, turn_of, words_needed};
use crate::ring::shared::Shared;
use bywash_sync::Ordering::{Acquire, Relaxed, Release};

/// Sends entries of `WORDS` words through a ring. A ring has only one producer.
#[derive(Debug)]
pub struct Producer<const WORDS: usize> {
    memory: Shared,
    capacity: usize,
    /// Number of entries sent so far.
    pushed: u64,
    /// Number of entries that the consumer had taken when its index was last read. The index is read again
    /// only when the ring seems full, so that its cache line is not fetched for every entry.
    taken: u64,
}

impl<const WORDS: usize> Producer<WORDS> {
    /// Makes the producer of a ring in zeroed memory.
    ///
    /// # Panics
    /// If the memory is too small for [`words_needed`].
    pub fn new(memory: Shared, capacity: usize) -> Producer<WORDS> {
        assert!(memory.len() >= words_needed::<WORDS>(capacity));
        Producer { memory, capacity, pushed: 0, taken: 0 }
    }

    /// Returns the number of free entries. The consumer's index is read again only if fewer than `wanted` are
    /// known to be free.
    ///
    /// # Errors
    /// [`InvalidIndex`] if the consumer's index is impossible.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> Result<usize, InvalidIndex> {
        let known = self.capacity - (self.pushed - self.taken) as usize;
        if known >= wanted {
            return Ok(known);
        }
        // SYNC: entries-taken (acquire): writes to freed entries are ordered after the consumer's reads.
        let found = self.memory.word(CONSUMER_INDEX).load(Acquire);
        if found < self.taken || found > self.pushed {
            return Err(InvalidIndex { known: self.taken, found, pushed: self.pushed });
        }
        self.taken = found;
        Ok(self.capacity - (self.pushed - self.taken) as usize)
    }

    /// Sends an entry; false if the ring is full. The turn replaces the low half of the first word.
    ///
    /// # Errors
    /// [`InvalidIndex`] if the consumer's index is impossible.
    #[inline]
    pub fn push(&mut self, entry: &[u64; WORDS]) -> Result<bool, InvalidIndex> {
        if self.room(1)? == 0 {
            return Ok(false);
        }
        let start = ENTRIES + (self.pushed as usize & (self.capacity - 1)) * WORDS;
        let words = self.memory.entry::<WORDS>(start);
        // The last cache line is written first: when the consumer finds the first one, the others are already
        // on their way.
        for index in (1..WORDS).rev() {
            words[index].store(entry[index], Relaxed);
        }
        // SYNC: entry (release): the other words of the entry are ordered before its turn.
        let turn = turn_of(self.pushed, self.capacity);
        words[0].store(first_word(entry[0], turn), Release);
        self.pushed += 1;
        Ok(true)
    }

    /// Returns the number of entries sent so far.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Closes the ring: no more entries will be sent.
    pub fn close(&self) {
        // SYNC: closed (release): every entry is ordered before the flag.
        self.memory.word(CLOSED).store(1, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ring::Consumer;
    use proptest::prelude::*;
    use std::thread;

    fn ring(capacity: usize) -> (Shared, Producer<3>, Consumer<3>) {
        let memory = Shared::in_this_process(words_needed::<3>(capacity));
        (memory.clone(), Producer::new(memory.clone(), capacity), Consumer::new(memory, capacity))
    }

    #[test]
    fn a_full_ring_takes_nothing_until_something_is_taken() {
        let (_, mut producer, mut consumer) = ring(2);
        assert_eq!(producer.push(&[0; 3]), Ok(true));
        assert_eq!(producer.push(&[1 << 32, 1, 1]), Ok(true));
        assert_eq!(producer.push(&[0; 3]), Ok(false));
        assert!(consumer.pop().is_some());
        assert_eq!(producer.room(2), Ok(1));
        assert_eq!(producer.push(&[0; 3]), Ok(true));
        assert_eq!(consumer.pop().map(|entry| entry[1]), Some(1));
    }

    /// Runs under Miri too: two threads on one memory.
    #[test]
    fn entries_arrive_whole_and_in_order() {
        const ENTRIES: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let (_, mut producer, mut consumer) = ring(8);
        let sender = thread::spawn(move || {
            for number in 0..ENTRIES {
                while !producer.push(&[number << 32, number, !number]).unwrap() {
                    thread::yield_now();
                }
            }
            producer.close();
        });
        let closing = consumer.closing();
        let mut expected = 0;
        loop {
            let closed = closing.is_closed();
            match consumer.pop() {
                Some(entry) => {
                    assert_eq!((entry[0] >> 32, entry[1], entry[2]), (expected, expected, !expected));
                    expected += 1;
                }
                None if closed => break,
                None => thread::yield_now(),
            }
        }
        assert_eq!(expected, ENTRIES);
        sender.join().unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the other side writes into the memory, each end returns and touches nothing else.
        #[test]
        #[cfg_attr(miri, ignore = "proptest takes minutes for a case there")]
        fn rubbish_is_survived(writes in proptest::collection::vec((0usize..64, any::<u64>()), 1..200)) {
            let (memory, mut producer, mut consumer) = ring(4);
            for (at, value) in writes {
                memory.word(at % memory.len()).store(value, Relaxed);
                let _ = producer.push(&[value; 3]);
                let _ = producer.room(4);
                let _ = consumer.pop();
                let _ = consumer.is_ready();
            }
        }
    }
}
