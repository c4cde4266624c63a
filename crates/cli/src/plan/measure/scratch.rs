//! A file to measure on. It has no name if the file system supports that, and otherwise loses it at once.

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// Size of a page of devices and page caches, in bytes.
pub const PAGE: usize = 4096;

/// Size of a write that fills a file, in bytes.
const PIECE: usize = 128 * super::KIB;

/// A file that is full of data and durable on its device.
pub struct Scratch {
    file: File,
    bytes: usize,
}

impl Scratch {
    /// Makes a file of `bytes` bytes in `folder`, rounded down to whole pieces of [`PIECE`] bytes. The data
    /// differs from page to page and is on the device before this returns, so that no layer can avoid reading
    /// it. It is written in pieces as programs do: on some file systems the size of the writes decides the
    /// size of the folios in the page cache, and so the cost of later writes.
    ///
    /// # Errors
    /// The error of a system call, if the folder cannot be written or the disk is full.
    pub fn new(folder: &Path, bytes: usize) -> io::Result<Scratch> {
        let mut file = tempfile::tempfile_in(folder)?;
        let mut block = vec![0u8; PIECE];
        let mut state = SEED;
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&next(&mut state).to_le_bytes());
        }
        let mut page = 0u64;
        for _ in 0..bytes / block.len() {
            for start in block.chunks_exact_mut(PAGE) {
                start[..8].copy_from_slice(&page.to_le_bytes());
                page += 1;
            }
            file.write_all(&block)?;
        }
        file.sync_all()?;
        Ok(Scratch { file, bytes })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Switches to reads past the page cache (O_DIRECT), or back. Returns false if the file system does not
    /// support this.
    ///
    /// # Errors
    /// The error of fcntl(2), other than EINVAL.
    pub fn direct(&self, is_direct: bool) -> io::Result<bool> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, is_direct);
        match fcntl_setfl(&self.file, flags) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::INVAL) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Drops the file from the page cache, and disables read-ahead.
    ///
    /// # Errors
    /// The error of posix_fadvise(2).
    pub fn forget(&self) -> io::Result<()> {
        fadvise(&self.file, 0, None, Advice::Random)?;
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }
}

/// Page-aligned memory, which a device can read into.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Aligned {
    pub fn new(bytes: usize) -> Aligned {
        let memory = vec![1; bytes + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Aligned { memory, start, bytes }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// Offsets of blocks in a file, in pseudo-random order; each block occurs once before any repeats.
///
/// The numbers of the blocks are a linear congruential sequence of full period (Hull and Dobell): modulo a
/// power of two, with an odd increment and a multiplier that leaves 1 when divided by 4.
pub struct Anywhere {
    number: u64,
    increment: u64,
    block: u64,
    blocks: u64,
}

impl Anywhere {
    /// Makes a sequence over the blocks of `block` bytes in `bytes` bytes, rounded down to a power of two of
    /// them. Each `reader` gets an order of its own.
    pub fn new(block: usize, bytes: usize, reader: usize) -> Anywhere {
        let mut state = SEED ^ (reader as u64 + 1);
        let blocks = (bytes / block).max(1) as u64;
        let blocks = 1 << blocks.ilog2();
        let number = next(&mut state) % blocks;
        Anywhere { number, increment: next(&mut state) | 1, block: block as u64, blocks }
    }

    /// Returns the offset of the next block, in bytes.
    pub fn next(&mut self) -> u64 {
        self.number = self.number.wrapping_mul(MULTIPLIER).wrapping_add(self.increment) % self.blocks;
        self.number * self.block
    }
}

/// Multiplier of Knuth's MMIX generator.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the next number of Marsaglia's xorshift64.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_is_as_large_as_asked_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(folder.path(), 2 * super::super::MIB).unwrap();
        assert_eq!(scratch.file().metadata().unwrap().len(), 2 << 20);
        let (mut one, mut other) = ([0; PAGE], [0; PAGE]);
        scratch.file().read_exact_at(&mut one, 0).unwrap();
        scratch.file().read_exact_at(&mut other, 1 << 20).unwrap();
        assert!(one != other, "no two pages are equal");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_read_directly_is_what_was_written() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let scratch = Scratch::new(folder.path(), super::super::MIB).unwrap();
        let (mut cached, mut direct) = (Aligned::new(PAGE), Aligned::new(PAGE));
        scratch.file().read_exact_at(&mut cached, PAGE as u64).unwrap();
        scratch.direct(true).unwrap();
        scratch.file().read_exact_at(&mut direct, PAGE as u64).unwrap();
        assert_eq!(*cached, *direct);
        assert_eq!(direct.as_ptr().align_offset(PAGE), 0);
    }

    #[test]
    fn every_block_comes_once_and_readers_differ() {
        let order = |reader| {
            let mut anywhere = Anywhere::new(PAGE, 100 * PAGE, reader);
            (0..64).map(|_| anywhere.next()).collect::<Vec<u64>>()
        };
        for reader in 0..4 {
            let mut sorted = order(reader);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..64).map(|page| page * PAGE as u64).collect::<Vec<_>>());
        }
        assert!(order(0) != order(1));
    }
}
