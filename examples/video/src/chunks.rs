//! Lengths of chunks, and the number of containers of a stream.

use crate::schedule::PREFILL;
use std::ops::Range;
use std::time::Duration;

/// Returns the length of a stream's chunks, in bytes, and the number of its containers: as many bytes as are played in
/// `period`, but enough for a disk, and no more than there are.
pub fn chunks(range: &Range<u64>, rate: u64, period: Duration) -> (u64, usize) {
    let block = BLOCK as u64;
    let wanted = (rate as f64 * period.as_secs_f64()) as u64;
    let all = range.end - range.start / block * block;
    let bytes = wanted.clamp(CHUNK_MIN, CHUNK_MAX).min(all).next_multiple_of(block);
    (bytes, if bytes >= all { 1 } else { PREFILL as usize })
}

/// Alignment of direct reads, in bytes: a multiple of the blocks of all common disks.
pub const BLOCK: usize = 4096;
/// Least length of a chunk, in bytes, unless the range is shorter.
pub const CHUNK_MIN: u64 = 256 << 10;
/// Greatest length of a chunk, in bytes.
pub const CHUNK_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fit_rate_and_range() {
        let half = Duration::from_millis(500);
        assert_eq!(chunks(&(0..1 << 30), 1_000_000, half), (503_808, 2));
        assert_eq!(chunks(&(0..1 << 30), 100_000, half), (256 << 10, 2));
        assert_eq!(chunks(&(0..1 << 30), 1_000_000_000, half), (16 << 20, 2));
        assert_eq!(chunks(&(0..100), 1_000_000, half), (4096, 1));
        assert_eq!(chunks(&(4000..5000), 1_000_000, half), (8192, 1));
        assert_eq!(chunks(&(0..(256 << 10) + 1), 100_000, half), (256 << 10, 2));
    }
}
