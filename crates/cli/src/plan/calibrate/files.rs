//! Files: cost of calls and of bytes through the page cache, and performance of the device below.

use crate::plan::measure::readers::{Reading, read_anywhere};
use crate::plan::measure::rounds::{Effort, summary};
use crate::plan::measure::scratch::{Aligned, Anywhere, PAGE, Scratch};
use crate::plan::measure::{KIB, MIB, joined};
use bywash_bench::statistics::Summary;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Times of calls that move bytes between the page cache and a program, at random offsets of a file, in
/// seconds.
pub struct Cached {
    /// Reads of [`SMALL`] and of [`LARGE`] bytes.
    pub read: [Summary; 2],
    /// Overwrites of [`SMALL`] and of [`LARGE`] bytes.
    pub write: [Summary; 2],
}

/// Performance of the device.
pub struct Device {
    /// True if the device was read past the page cache. False if the file system does not support this, or
    /// has no device.
    pub is_direct: bool,
    /// Times of reads of a page by one thread, in seconds.
    pub latencies: Vec<f64>,
    /// Processor time of such a read, in seconds.
    pub processor: Summary,
    /// Such reads a second, by the number of threads.
    pub rates: Vec<(usize, Summary)>,
    /// Throughput of sequential reads of large blocks, in bytes a second.
    pub in_order: Summary,
    /// Processor time of reading [`FILE`] bytes through the page cache when it does not hold them, in
    /// seconds.
    pub cold: Summary,
}

/// Sizes of the small and of the large call, in bytes.
pub const SMALL: usize = PAGE;
pub const LARGE: usize = 128 * KIB;
/// Size of a file that a server sends, in bytes, in the paper and in the description that is written.
pub const FILE: usize = 16 * KIB;
/// Numbers of threads that read at a time.
const DEPTHS: [usize; 4] = [1, 4, 16, 32];
/// Number of threads that read sequentially, and size of their reads in bytes.
const STREAMS: usize = 4;
const BLOCK: usize = MIB;

impl Cached {
    /// Measures on a file that the page cache holds.
    ///
    /// # Errors
    /// The error of a read or write.
    pub fn measure(effort: &Effort, scratch: &Scratch) -> io::Result<Cached> {
        let mut buffer = vec![1; LARGE];
        let mut calls = |bytes: usize, is_write: bool| {
            let mut anywhere = Anywhere::new(bytes, scratch.bytes(), usize::from(is_write));
            let buffer = &mut buffer[..bytes];
            // Enough calls between two checks of the clock to make the check negligible.
            effort.each((LARGE / bytes).max(4), || match is_write {
                true => scratch.file().write_all_at(buffer, anywhere.next()),
                false => scratch.file().read_exact_at(buffer, anywhere.next()),
            })
        };
        let read = [calls(SMALL, false)?, calls(LARGE, false)?];
        Ok(Cached { read, write: [calls(SMALL, true)?, calls(LARGE, true)?] })
    }
}

impl Device {
    /// Measures on the device that the file is on. The page cache does not hold the file afterwards.
    ///
    /// # Errors
    /// The error of a system call on the file.
    pub fn measure(effort: &Effort, scratch: &Scratch) -> io::Result<Device> {
        scratch.file().sync_all()?;
        let cold = effort.rounds(|| {
            scratch.forget()?;
            Ok(read_anywhere(scratch, FILE, 1, effort.stretch)?.processor)
        })?;
        scratch.forget()?;
        let is_direct = scratch.direct(true)?;
        let (mut latencies, mut processor, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for threads in DEPTHS {
            let rate = effort.rounds(|| {
                let Reading { rate, processor: each, latencies: some } =
                    read_anywhere(scratch, PAGE, threads, effort.stretch)?;
                if threads == 1 {
                    latencies.extend(some);
                    processor.push(each);
                }
                Ok(rate)
            })?;
            rates.push((threads, rate));
        }
        let in_order = effort.rounds(|| in_order(scratch, effort.stretch))?;
        scratch.direct(false)?;
        Ok(Device { is_direct, latencies, processor: summary(&processor)?, rates, in_order, cold })
    }
}

/// Returns the throughput in bytes a second of several threads, each of which reads a part of the file
/// sequentially, over and over.
fn in_order(scratch: &Scratch, time: Duration) -> io::Result<f64> {
    let part = scratch.bytes() / STREAMS;
    let one = |start: usize| {
        let (mut buffer, mut bytes, begin) = (Aligned::new(BLOCK), 0, Instant::now());
        while bytes == 0 || begin.elapsed() < time {
            scratch.file().read_exact_at(&mut buffer, (start + bytes % part) as u64)?;
            bytes += BLOCK;
        }
        Ok(bytes as f64 / begin.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..STREAMS).map(|number| scope.spawn(move || one(number * part))).collect();
        readers.into_iter().map(|reader| joined(reader.join())).sum()
    })
}
