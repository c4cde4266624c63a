//! A file is copied into another one that is as large: both are in the page cache, and every byte is there before.

use crate::plan::measure::KIB;
use crate::plan::measure::scratch::Scratch;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Bytes of a call.
pub const BLOCK: usize = 128 * KIB;

/// Copies in order for `time`, from the start again when all is copied; answers blocks a second.
///
/// # Errors
/// What the kernel says.
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
    // Or the device has it to do while another run is measured.
    target.file().sync_data()?;
    Ok(rate)
}
