//! Layout of a ring's memory, in words of eight bytes.
//!
//! ```text
//!   0   consumer's index: entries taken so far         written by the consumer
//!   8   consumer's bell: it sleeps until there is an entry
//!   9   fences that the producer passes before it looks at the bell; 10: fences that the consumer wishes for
//!  16   producer's bell: it sleeps until there is room; 17 and 18 as 9 and 10, the other way around
//!  24   closed: the producer sends no more             written by the producer
//!  32   entry 0
//!  32 + WORDS   entry 1 ...
//!
//!   word 0 of an entry:   63       32 31      0
//!                        +-----------+---------+
//!                        |  payload  |  turn   |
//!                        +-----------+---------+
//! ```
//!
//! The first four items have a cache line each, since different sides write them. An entry is complete when
//! its *turn* is that of the lap in which it is expected: the number of times that the ring has been gone
//! around, plus one. So memory that is all zero is an empty ring.

/// Version of this layout.
pub const VERSION: u32 = 1;
/// Size of a cache line, in words.
pub const LINE: usize = 8;
pub(crate) const CONSUMER_INDEX: usize = 0;
/// Index of the word of the consumer's [`Bell`](crate::ring::Bell).
pub const CONSUMER_BELL: usize = LINE;
/// Index of the word of the producer's [`Bell`](crate::ring::Bell).
pub const PRODUCER_BELL: usize = 2 * LINE;
pub(crate) const CLOSED: usize = 3 * LINE;
pub(crate) const ENTRIES: usize = 4 * LINE;
/// Greatest number of entries of a ring.
pub const CAPACITY_MAX: usize = 1 << 20;

/// Returns the size of a ring of `capacity` entries of `WORDS` words, in words.
pub const fn words_needed<const WORDS: usize>(capacity: usize) -> usize {
    assert!(capacity.is_power_of_two() && capacity <= CAPACITY_MAX && WORDS > 0);
    ENTRIES + capacity * WORDS
}

/// Returns the number of the lap, which a written entry contains, for a position; positions count all entries
/// ever sent.
pub(crate) const fn turn_of(position: u64, capacity: usize) -> u32 {
    ((position >> capacity.trailing_zeros()) as u32).wrapping_add(1)
}

/// Builds the first word of an entry, which marks the entry as written: the payload bits of `word`, and the
/// number of the lap.
pub(crate) const fn first_word(word: u64, turn: u32) -> u64 {
    word >> 32 << 32 | turn as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::ring::{Consumer, Producer, Shared, words_needed};

    #[test]
    fn golden_words() {
        let memory = Shared::in_this_process(words_needed::<2>(2));
        let mut producer = Producer::<2>::new(memory.clone(), 2);
        let mut consumer = Consumer::<2>::new(memory.clone(), 2);
        producer.push(&[0xaaaa_0000_0000, 1]).unwrap();
        consumer.pop().unwrap();
        producer.push(&[0xbbbb_dead_beef, 2]).unwrap();
        producer.push(&[0xcccc_0000_0000, 3]).unwrap();
        producer.close();
        let words: Vec<u64> = (0..memory.len()).map(|index| memory.load(index)).collect();
        let mut expected = vec![0; 32];
        expected[0] = 1;
        expected[24] = 1;
        expected.extend([0xcccc_0000_0002, 3, 0xbbbb_0000_0001, 2]);
        assert_eq!(words, expected);
    }
}
