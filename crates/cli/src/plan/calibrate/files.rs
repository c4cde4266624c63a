//! Files: through the page cache by the call and by the byte, and on the device under them.

use crate::plan::measure::readers::{Reading, read_anywhere};
use crate::plan::measure::rounds::{Effort, summary};
use crate::plan::measure::scratch::{Aligned, Anywhere, PAGE, Scratch};
use crate::plan::measure::{KIB, MIB, joined};
use bywash_bench::statistics::Summary;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Seconds of a call that moves bytes between the page cache and a program, anywhere in a file.
pub struct Cached {
    /// Reading [`SMALL`] and [`LARGE`] bytes.
    pub read: [Summary; 2],
    /// Writing as many where there was something before.
    pub write: [Summary; 2],
}

/// What the device does.
pub struct Device {
    /// Whether it was read past the page cache; the file system may know no such thing, or have no device.
    pub is_direct: bool,
    /// Seconds that each of many reads of a page took by one thread.
    pub latencies: Vec<f64>,
    /// Seconds of a processor for such a read.
    pub processor: Summary,
    /// Such reads a second, by the number of threads.
    pub rates: Vec<(usize, Summary)>,
    /// Bytes a second of large blocks in order.
    pub in_order: Summary,
    /// Seconds of a processor to read [`FILE`] bytes that the page cache does not hold into it and out of it.
    pub cold: Summary,
}

/// Bytes of the small and of the large call.
pub const SMALL: usize = PAGE;
pub const LARGE: usize = 128 * KIB;
/// Bytes of a file that a server sends, of the paper and of the description that is written.
pub const FILE: usize = 16 * KIB;
/// Threads that read at a time.
const DEPTHS: [usize; 4] = [1, 4, 16, 32];
/// Threads that read in order, and bytes of their reads.
const STREAMS: usize = 4;
const BLOCK: usize = MIB;

impl Cached {
    /// Measures on a file that the page cache holds.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn measure(effort: &Effort, scratch: &Scratch) -> io::Result<Cached> {
        let mut buffer = vec![1; LARGE];
        let mut calls = |bytes: usize, is_write: bool| {
            let mut anywhere = Anywhere::new(bytes, scratch.bytes(), usize::from(is_write));
            let buffer = &mut buffer[..bytes];
            // Enough calls between two looks at the clock that looking costs nothing.
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
    /// Measures on the device that the file is on; afterwards the page cache does not hold it.
    ///
    /// # Errors
    /// What the kernel says.
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

/// Bytes a second of some threads, each of which reads a part of the file in order, over and over.
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
