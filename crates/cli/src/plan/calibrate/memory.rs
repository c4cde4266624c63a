//! Memory: what a copy comes to by its size, what all processors copy together, how long one waits for a line.

use crate::plan::measure::rounds::{Effort, mapped};
use crate::plan::measure::scratch::Anywhere;
use crate::plan::measure::{KIB, joined, processors};
use bywash_bench::statistics::Summary;
use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::time::Instant;

/// What was found.
pub struct Memory {
    /// Bytes a second that one processor copies, by the bytes of a copy.
    pub copies: Vec<(usize, Summary)>,
    /// Bytes a second that one copies out of memory into what its second cache holds.
    pub inward: Summary,
    /// Bytes a second that all copy at a time, where no cache holds what they copy.
    pub together: Summary,
    /// Seconds until a line that no cache holds is there, of lines in no order.
    pub latency: Summary,
}

/// Copies that lie in the first cache, in the second, in a third or in memory.
const SIZES: [usize; 3] = [8 * KIB, 256 * KIB, 4096 * KIB];
/// What is copied at a time into the second cache.
const PIECE: usize = 16 * KIB;
/// More threads than these fill no bus more.
const MOST_THREADS: usize = 16;
/// What a processor asks memory for.
const LINE: usize = 64;

impl Memory {
    /// Measures it.
    ///
    /// # Errors
    /// That a thread cannot be started.
    pub fn measure(effort: &Effort) -> io::Result<Memory> {
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
        Ok(Memory { copies, inward, together, latency: latency(effort)? })
    }
}

/// Bytes a second of all processors, each with a part of its own.
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

/// Follows a chain of lines that lie anywhere: each says where the next one is.
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
