//! Checksums of blocks and batches: XXH3 with 64 bits, which finds torn and altered bytes and keeps nobody from forging
//! them. Recovery therefore gives a log no rights beyond its owner's.

use xxhash_rust::xxh3::xxh3_64;

/// Returns the checksum of some bytes.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
