//! View of a ring's entries for a third party that is neither the producer nor the consumer.
//!
//! Entries are copied and may be taken at once, so a view is only good for counting what is in flight. The
//! memory is not trusted: an impossible index counts as the nearest possible one.

use crate::ring::layout::{CONSUMER_INDEX, ENTRIES, turn_of, words_needed};
use crate::ring::shared::Shared;
use bywash_sync::Ordering::Acquire;

/// Read access to a ring of entries of `WORDS` words.
#[derive(Clone, Debug)]
pub struct View<const WORDS: usize> {
    memory: Shared,
    capacity: usize,
}

impl<const WORDS: usize> View<WORDS> {
    /// Makes a view of the ring in this memory.
    ///
    /// # Panics
    /// If the memory is too small for [`words_needed`].
    pub fn new(memory: Shared, capacity: usize) -> View<WORDS> {
        assert!(memory.len() >= words_needed::<WORDS>(capacity));
        View { memory, capacity }
    }

    /// Returns copies of the complete entries from position `taken` on.
    pub fn completed(&self, taken: u64) -> Vec<[u64; WORDS]> {
        (taken..).take(self.capacity).map_while(|position| self.entry(position)).collect()
    }

    /// Returns copies of the entries that the consumer has not taken, given that `pushed` entries have been
    /// sent.
    pub fn pending(&self, pushed: u64) -> Vec<[u64; WORDS]> {
        let taken = self.memory.word(CONSUMER_INDEX).load(Acquire);
        let least = pushed.saturating_sub(self.capacity as u64);
        (taken.clamp(least, pushed)..pushed).map_while(|position| self.entry(position)).collect()
    }

    fn entry(&self, position: u64) -> Option<[u64; WORDS]> {
        let start = ENTRIES + (position as usize & (self.capacity - 1)) * WORDS;
        let first = self.memory.word(start).load(Acquire);
        if first as u32 != turn_of(position, self.capacity) {
            return None;
        }
        let mut entry = [first; WORDS];
        for (index, word) in entry.iter_mut().enumerate().skip(1) {
            *word = self.memory.load(start + index);
        }
        Some(entry)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ring::{Consumer, Producer};

    #[test]
    fn what_is_on_its_way_is_seen_and_stays() {
        let memory = Shared::in_this_process(words_needed::<2>(4));
        let view = View::<2>::new(memory.clone(), 4);
        let mut producer = Producer::<2>::new(memory.clone(), 4);
        let mut consumer = Consumer::<2>::new(memory.clone(), 4);
        for number in 1..=6u64 {
            assert!(producer.push(&[number << 32, number]).unwrap());
            if number <= 3 {
                assert_eq!(consumer.pop().map(|entry| entry[1]), Some(number));
            }
        }
        let seconds = |entries: Vec<[u64; 2]>| entries.iter().map(|entry| entry[1]).collect::<Vec<u64>>();
        assert_eq!(seconds(view.completed(3)), [4, 5, 6]);
        assert_eq!(seconds(view.pending(6)), [4, 5, 6]);
        assert_eq!(consumer.pop().map(|entry| entry[1]), Some(4));
        assert_eq!(seconds(view.pending(6)), [5, 6]);
        assert!(view.completed(6).is_empty());
        // An impossible index.
        memory.publish(CONSUMER_INDEX, 99);
        assert!(view.pending(6).is_empty());
        memory.publish(CONSUMER_INDEX, 0);
        assert_eq!(seconds(view.pending(6)), [3, 4, 5, 6]);
    }
}
