//! A program of several processes, and the states that a power cut may leave of its files.
//!
//! A word (8 bytes) holds the number of the operation that wrote it, or 0. After a cut it may hold what an operation wrote
//! unless a *durable* operation on the same word began after that one had ended. An operation is durable if it had ended
//! when a sync of its file began that was acknowledged before the cut. The kernel may write anything else to the disk at any
//! time, or not at all. Two operations that overlapped in time may have happened in either order.
//!
//! - [`program`]: the program, and its process that works with names
//! - `words`: its processes that work with words
//! - [`unseen`]: changes of a file that no note of a write tells
//! - [`pairs`]: pairs of operations on a file that the program walks
//! - [`history`]: its operations
//! - [`checker`]: the check

pub mod checker;
pub mod history;
pub mod pairs;
pub mod program;
pub mod unseen;
mod words;

/// Name of the history in the machine's memory.
pub const HISTORY: &str = "history";
/// Name of the program that changes a file unseen, in the machine's memory.
pub const UNSEEN: &str = "unseen";
/// Size of the file that is changed unseen, in bytes.
pub const UNSEEN_BYTES: u64 = 5 * 4096;
/// Size of a word, in bytes.
pub const WORD: u64 = 8;
/// Greatest size of a file of words, in bytes.
pub const LIMIT_BYTES: u64 = 128 << 10;

/// Returns what an operation appends.
pub fn append_bytes(operation: u64, length: u64) -> Vec<u8> {
    let mut random = crate::random::Random::new(operation);
    (0..length).map(|_| random.number() as u8 | 1).collect()
}

/// Returns the length of a version in bytes, which is different from those next to it.
pub fn version_length(version: u64) -> u64 {
    (64 + version % 1500 * 389 % 1500) * WORD
}

/// Returns the word that a version consists of.
pub fn version_word(version: u64) -> u64 {
    version + 1
}

/// Returns the contents of a version.
pub fn version_bytes(version: u64) -> Vec<u8> {
    let word = version_word(version).to_le_bytes();
    word.iter().copied().cycle().take(version_length(version) as usize).collect()
}
