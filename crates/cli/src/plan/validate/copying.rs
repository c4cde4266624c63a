//! Copies a file into another one of the same size. Both are in the page cache and completely allocated.

use crate::plan::measure::KIB;
use crate::plan::measure::scratch::Scratch;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Size of a read and of a write, in bytes.
pub const BLOCK: usize = 128 * KIB;

/// Copies blocks in order for `time`, from the start again after the end. Returns blocks a second.
///
/// # Errors
/// The error of a read, a write, or fdatasync(2).
pub fn copy(source: &Scratch, target: &Scratch, time: Duration) -> io::Result<f64> {
    let mut buffer = vec![0; BLOCK];
    let (mut blocks, begin) = (0u64, Instant::now());
    while blocks == 0 || begin.elapsed() < time {
        let at = (blocks as usize * BLOCK % source.bytes()) as u64;
        source.file().read_exact_at(&mut buffer, at)?;
        target.file().write_all_at(&buffer, at)?;
        blocks += 1;
    }
    let rate = blocks as f64 / begin.elapsed().as_secs_f64();
    // Syncs, so that the device does not write while another run is measured.
    target.file().sync_data()?;
    Ok(rate)
}
