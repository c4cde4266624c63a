//! The files that are streamed: more than a run reads, on a disk, and not in the page cache when a run begins.

use crate::RATE;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

/// Makes the files, whose bytes do not repeat within a block, and writes them to the disk.
pub fn make(folder: &Path) -> io::Result<()> {
    std::fs::create_dir(folder)?;
    let mut state = 88_172_645_463_325_252_u64;
    let mut block = Vec::with_capacity(1 << 20);
    while block.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend(state.to_le_bytes());
    }
    for file in 0..FILES {
        let mut made = File::create(folder.join(file.to_string()))?;
        for _ in 0..FILE_BYTES >> 20 {
            made.write_all(&block)?;
        }
        made.sync_all()?;
    }
    forget(folder)
}

/// Removes the files from the page cache.
pub fn forget(folder: &Path) -> io::Result<()> {
    for file in 0..FILES {
        fadvise(File::open(folder.join(file.to_string()))?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Returns the file of a client, and the part of it that it plays. Parts overlap only beyond 256 clients.
pub fn of_client(client: u32) -> (u32, Range<u64>) {
    let parts = (FILE_BYTES / PART_BYTES) as u32;
    let begin = u64::from(client / FILES % parts) * PART_BYTES;
    (client % FILES, begin..begin + PART_BYTES)
}

const FILES: u32 = 16;
const FILE_BYTES: u64 = 16 * PART_BYTES;
/// Length of the part that a client plays: 16 s.
const PART_BYTES: u64 = (16 * RATE).next_multiple_of(1 << 20);
