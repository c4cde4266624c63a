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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Consumer;
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

    /// Also what Miri runs: two threads on one memory.
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

        /// Whatever the other side writes over the memory, each end answers and touches nothing else.
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
