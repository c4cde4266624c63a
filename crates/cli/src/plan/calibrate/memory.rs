//! Memory: throughput of copies by size, throughput of all processors together, latency of a cache line.

use crate::plan::measure::rounds::{Effort, mapped};
use crate::plan::measure::scratch::Anywhere;
use crate::plan::measure::{KIB, joined, processors};
use bywash_bench::statistics::Summary;
use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::time::Instant;

/// Measured properties.
pub struct MemoryRates {
    /// Throughput of copies by one processor, in bytes a second, by the size of a copy in bytes.
    pub copies: Vec<(usize, Summary)>,
    /// Throughput of one processor that copies from memory into a range that its second-level cache holds, in
    /// bytes a second.
    pub inward: Summary,
    /// Throughput of all processors that copy at the same time, beyond the caches, in bytes a second.
    pub together: Summary,
    /// Latency of a line that no cache holds, in seconds, in random order.
    pub latency: Summary,
}

/// Sizes of copies that fit into the first-level cache, into the second, and into a third or memory, in
/// bytes.
const SIZES: [usize; 3] = [8 * KIB, 256 * KIB, 4096 * KIB];
/// Size of a copy into the second-level cache, in bytes.
const PIECE: usize = 16 * KIB;
/// Greatest number of copying threads: more do not add load to the bus.
const MOST_THREADS: usize = 16;
/// Size of a cache line, in bytes.
const LINE: usize = 64;

impl MemoryRates {
    /// Measures the properties.
    ///
    /// # Errors
    /// An error if a measuring thread panics.
    pub fn measure(effort: &Effort) -> io::Result<MemoryRates> {
        let half = effort.memory / 2;
        let (from, mut to) = (vec![1u8; half], vec![2u8; half]);
        let mut copies = Vec::new();
        for size in SIZES.into_iter().chain([half]) {
            let batch = (SIZES[1] / size).max(1);
            let seconds = effort.each(batch, || {
                black_box(&mut to[..size]).copy_from_slice(black_box(&from[..size]));
                Ok(())
            })?;
            copies.push((size, mapped(seconds, |time| size as f64 / time)));
        }
        let inward = effort.rounds(|| {
            let (begin, to) = (Instant::now(), &mut to[..PIECE]);
            from.chunks_exact(PIECE).for_each(|piece| black_box(&mut *to).copy_from_slice(black_box(piece)));
            Ok(half as f64 / begin.elapsed().as_secs_f64())
        })?;
        let together = effort.rounds(|| together(&from, &mut to))?;
        drop((from, to));
        Ok(MemoryRates { copies, inward, together, latency: latency(effort)? })
    }
}

/// Returns the throughput in bytes a second of all processors, each with a part of its own.
fn together(from: &[u8], to: &mut [u8]) -> io::Result<f64> {
    let threads = processors().min(MOST_THREADS);
    let part = from.len().div_ceil(threads);
    let barrier = Barrier::new(threads);
    let barrier = &barrier;
    let times = std::thread::scope(|scope| {
        let copiers: Vec<_> = from
            .chunks(part)
            .zip(to.chunks_mut(part))
            .map(|(from, to)| {
                scope.spawn(move || {
                    barrier.wait();
                    let begin = Instant::now();
                    black_box(to).copy_from_slice(black_box(from));
                    Ok((begin, Instant::now()))
                })
            })
            .collect();
        copiers.into_iter().map(|copier| joined(copier.join())).collect::<io::Result<Vec<_>>>()
    })?;
    let begin = times.iter().map(|time| time.0).min().unwrap_or_else(Instant::now);
    let end = times.iter().map(|time| time.1).max().unwrap_or(begin);
    Ok(from.len() as f64 / (end - begin).as_secs_f64().max(1e-9))
}

/// Measures the latency along a chain of lines in random order, each of which holds the index of the next
/// one.
fn latency(effort: &Effort) -> io::Result<Summary> {
    const STEPS: usize = 1000;
    let bytes = effort.memory / 4;
    let words = LINE / size_of::<u32>();
    let mut chain = vec![0u32; bytes / size_of::<u32>()];
    let mut order = Anywhere::new(LINE, bytes, 0);
    let first = order.next() as usize / size_of::<u32>();
    let mut at = first;
    for _ in 1..chain.len() / words {
        let next = order.next() as usize / size_of::<u32>();
        chain[at] = next as u32;
        at = next;
    }
    chain[at] = first as u32;
    let mut at = first;
    let seconds = effort.each(1, || {
        for _ in 0..STEPS {
            at = chain[at] as usize;
        }
        at = black_box(at);
        Ok(())
    })?;
    Ok(mapped(seconds, |time| time / STEPS as f64))
}
