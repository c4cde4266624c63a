//! Threads that read blocks at random offsets of a file, through the page cache or past it.

use crate::plan::measure::joined;
use crate::plan::measure::scratch::{Aligned, Anywhere, PAGE, Scratch};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Size of a read, in bytes.
pub const BLOCK: usize = PAGE;
/// Number of reads between two checks of the clock.
const BATCH: usize = 16;

/// Reads for `time`. Returns reads a second, of all threads together.
///
/// # Errors
/// The first error of a read, or of a thread that panicked.
pub fn read(scratch: &Scratch, threads: usize, time: Duration) -> io::Result<f64> {
    let one = |number: usize| {
        // The offset differs from those of a calibration, so other blocks are read first.
        let mut anywhere = Anywhere::new(BLOCK, scratch.bytes(), 100 + number);
        let (mut buffer, mut reads, begin) = (Aligned::new(BLOCK), 0, Instant::now());
        while begin.elapsed() < time {
            for _ in 0..BATCH {
                scratch.file().read_exact_at(&mut buffer, anywhere.next())?;
            }
            reads += BATCH;
        }
        Ok(reads as f64 / begin.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|number| scope.spawn(move || one(number))).collect();
        readers.into_iter().map(|reader| joined(reader.join())).sum()
    })
}
