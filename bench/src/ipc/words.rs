//! Work of both sides with a message, whatever the transport: the sender writes every word, the receiver sums every word.
//!
//! So a transport that moves no bytes gains nothing by leaving them alone. The loops are compiled for AVX2 as well, which is
//! taken where the processor has it: else they, and not the transports, would be measured.

use std::mem::MaybeUninit;

/// Writes every word; returns their sum. A rest at the end that is no whole word becomes zero.
#[inline]
pub fn fill(bytes: &mut [u8], seed: u64) -> u64 {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    write(words, seed, u64::to_ne_bytes);
    rest.fill(0);
    sum_of(words.len() as u64, seed)
}

/// As [`fill`], for words that have no value yet.
#[allow(dead_code, reason = "bench/iceoryx2 has this file too, and loans memory so")]
pub fn fill_uninit(words: &mut [MaybeUninit<u64>], seed: u64) -> u64 {
    write(words, seed, MaybeUninit::new);
    sum_of(words.len() as u64, seed)
}

#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    add(bytes.as_chunks::<8>().0, |word| u64::from_ne_bytes(*word))
}

/// As [`sum`].
#[allow(dead_code, reason = "bench/iceoryx2 has this file too, and words")]
pub fn sum_words(words: &[u64]) -> u64 {
    add(words, |word| *word)
}

/// The sum of so many words that count up from `seed`.
pub fn sum_of(words: u64, seed: u64) -> u64 {
    // Below 2^32 words the product does not overflow.
    words.wrapping_mul(seed).wrapping_add(words * words.saturating_sub(1) / 2)
}

#[inline]
fn write<W>(words: &mut [W], seed: u64, make: impl Fn(u64) -> W) {
    fast(|| words.iter_mut().enumerate().for_each(|(at, word)| *word = make(seed.wrapping_add(at as u64))));
}

#[inline]
fn add<W>(words: &[W], value: impl Fn(&W) -> u64) -> u64 {
    fast(|| words.iter().fold(0u64, |sum, word| sum.wrapping_add(value(word))))
}

/// Runs a loop that is inlined into [`with_avx2`] where the processor has AVX2.
#[inline(always)]
#[expect(unsafe_code, reason = "the processor was asked")]
fn fast<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { with_avx2(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_counts() {
        for bytes in [0, 7, 8, 64, 1000, 4096, 4099] {
            let mut message = vec![0xff; bytes];
            let written = fill(&mut message, 12345);
            assert_eq!([sum(&message), sum_of(bytes as u64 / 8, 12345)], [written; 2]);
            if bytes >= 8 {
                message[bytes / 8 * 8 - 1] ^= 1;
                assert_ne!(written, sum(&message));
            }
        }
    }
}
