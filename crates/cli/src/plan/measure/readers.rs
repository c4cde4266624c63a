//! Threads that read blocks at random offsets of a file.

use super::scratch::{Aligned, Anywhere, Scratch};
use super::{joined, processor_time};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Result of the readers.
#[derive(Default)]
pub struct Reading {
    /// Reads a second, of all threads together.
    pub rate: f64,
    /// Processor time of a read, in seconds, averaged over the threads.
    pub processor: f64,
    /// Time of each read of each thread, in seconds, unordered.
    pub latencies: Vec<f64>,
}

/// Lets `threads` threads read blocks of `block` bytes of `scratch` for `time`.
///
/// # Errors
/// The first error of a read, or of a thread that panicked.
pub fn read_anywhere(scratch: &Scratch, block: usize, threads: usize, time: Duration) -> io::Result<Reading> {
    let ended = AtomicBool::new(false);
    let ended = &ended;
    let parts = std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || one(scratch, block, number, ended))).collect();
        std::thread::sleep(time);
        ended.store(true, Relaxed);
        readers.into_iter().map(|reader| joined(reader.join())).collect::<io::Result<Vec<_>>>()
    })?;
    let mut whole = Reading::default();
    for part in &parts {
        whole.rate += part.rate;
        whole.processor += part.processor / parts.len() as f64;
    }
    whole.latencies = parts.into_iter().flat_map(|part| part.latencies).collect();
    Ok(whole)
}

/// Reads in one thread until `ended` is set or [`MOST`] reads are done.
fn one(scratch: &Scratch, block: usize, number: usize, ended: &AtomicBool) -> io::Result<Reading> {
    let mut buffer = Aligned::new(block);
    let mut anywhere = Anywhere::new(block, scratch.bytes(), number);
    let (start, used, mut latencies) = (Instant::now(), processor_time(), Vec::new());
    while latencies.len() < MOST && (latencies.is_empty() || !ended.load(Relaxed)) {
        let begin = Instant::now();
        scratch.file().read_exact_at(&mut buffer, anywhere.next())?;
        latencies.push(begin.elapsed().as_secs_f64());
    }
    let reads = latencies.len() as f64;
    Ok(Reading {
        rate: reads / start.elapsed().as_secs_f64(),
        processor: (processor_time() - used) / reads,
        latencies,
    })
}

/// Greatest number of reads of a thread.
const MOST: usize = 1 << 18;
