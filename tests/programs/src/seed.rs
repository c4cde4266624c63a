//! Reproducible random numbers: a failing test prints its seed.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014).
#[derive(Clone, Debug)]
pub struct Seed(Cell<u64>);

impl Seed {
    /// Takes the seed from `BYWASH_TEST_SEED`, or makes a new one from the time.
    ///
    /// # Panics
    /// If the variable is not a whole number.
    pub fn from_environment() -> Seed {
        let Ok(text) = std::env::var("BYWASH_TEST_SEED") else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos());
            return Seed(Cell::new(now as u64 % 1_000_000_007));
        };
        let number = text.parse();
        Seed(Cell::new(
            number.unwrap_or_else(|_| panic!("BYWASH_TEST_SEED={text}: a whole number is needed")),
        ))
    }

    /// Returns the current state, from which the same numbers can be drawn again.
    pub fn value(&self) -> u64 {
        self.0.get()
    }

    /// Returns the next number.
    pub fn number(&self) -> u64 {
        let mut mixed = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(mixed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the next number below `limit`.
    pub fn below(&self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Returns `length` bytes, half of which are repeated text, so that they compress a little.
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 16);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.number().to_le_bytes());
            bytes.extend_from_slice(b"repeated");
        }
        bytes.truncate(length);
        bytes
    }

    /// Returns a text of `lines` lines, each of less than `width` lower-case letters and spaces.
    pub fn text(&self, lines: usize, width: u64) -> String {
        let mut text = String::new();
        for _ in 0..lines {
            for _ in 0..self.below(width) {
                text.push(b"etaoin shrdlu cmfwyp vbgkjqxz"[self.below(29) as usize] as char);
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Seed;
    use std::cell::Cell;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (one, two) = (Seed(Cell::new(7)), Seed(Cell::new(7)));
        assert_eq!(one.bytes(1001), two.bytes(1001));
        assert_eq!(one.text(3, 40), two.text(3, 40));
        assert_eq!(one.number(), two.number());
    }

    #[test]
    fn the_first_number_of_the_published_sequence() {
        assert_eq!(Seed(Cell::new(1_234_567)).number(), 6_457_827_717_110_365_317);
    }
}
