//! Numbers and contents made from a seed, and ways of waiting by name.

use bywash_link::Wait;

/// Generator of pseudo-random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Makes a generator with the seed in `BYWASH_STRESS_SEED`, or else one of the clock, and prints the
    /// seed.
    pub fn seeded(test: &str) -> Random {
        let given = std::env::var("BYWASH_STRESS_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or_else(|| {
            std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 ^ u64::from(std::process::id()) << 40
        });
        eprintln!("{test}: to run it again, BYWASH_STRESS_SEED={seed}");
        Random(seed)
    }

    /// Returns the next number, of any value.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Returns an element of `list`.
    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Returns a size from [`SIZE_MIN`] to less than [`SIZE_MIN`] plus `1 << bits`, in bytes; small ones as
    /// often as large ones.
    pub fn size(&mut self, bits: u64) -> usize {
        let magnitude = 1 << (4 + self.below(bits - 3));
        SIZE_MIN + self.below(magnitude) as usize
    }
}

/// Returns the number of rounds of a stress test: `BYWASH_STRESS_ROUNDS`, or else `default`.
pub fn rounds(default: u64) -> u64 {
    std::env::var("BYWASH_STRESS_ROUNDS").map_or(default, |rounds| rounds.parse().unwrap())
}

/// Smallest size of test contents, in bytes: their first two words, a seed and a length, determine all
/// others.
pub const SIZE_MIN: usize = 16;

/// Fills a container with contents made from `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    let length = bytes.len();
    for (number, word) in bytes.chunks_mut(8).enumerate() {
        word.copy_from_slice(&expected_word(number as u64, seed, length)[..word.len()]);
    }
}

/// Panics if a container does not have the contents that [`fill`] wrote.
pub fn check(bytes: &[u8]) {
    assert!(bytes.len() >= SIZE_MIN, "a container of {} bytes was never shipped", bytes.len());
    let seed = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    for (number, word) in bytes.chunks(8).enumerate() {
        let expected = expected_word(number as u64, seed, bytes.len());
        assert_eq!(word, &expected[..word.len()], "word {number} of a container of {} bytes", bytes.len());
    }
}

fn expected_word(number: u64, seed: u64, length: usize) -> [u8; 8] {
    let word = match number {
        0 => seed,
        1 => length as u64,
        _ => (seed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    word.to_le_bytes()
}

/// Names of the ways of waiting, as the roles of child processes use them.
pub const WAITS: [&str; 3] = ["adaptive", "sleep", "spin"];

/// Returns the way of waiting with a name of [`WAITS`].
pub fn wait_by_name(name: &str) -> Wait {
    match name {
        "adaptive" => Wait::Adaptive,
        "sleep" => Wait::Sleep,
        "spin" => Wait::Spin,
        other => panic!("no way of waiting: {other}"),
    }
}
