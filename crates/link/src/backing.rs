//! Record of the pages of an arena that are known to be backed.
//!
//! A page of shared memory that nobody has written is a hole. The process that touches a hole first has the
//! page allocated and charged to its own memory cgroup, even if it only reads. So a peer that ships holes
//! would charge the receiver, up to the receiver's death. Two rules keep each end's memory its own:
//!
//! - The shipper populates everything before it ships it ([`Backing::take`]), each page once.
//! - The receiver reads a mapping only where the pages are known to be backed ([`Backing::is_backed`]).
//!   Elsewhere it uses pread(2), which reads zeros from a hole and allocates nothing.
//!
//! An end that writes to a peer's arena ([`crate::Arena::adopt_for_both`]) makes the same check, and refuses
//! holes.
//!
//! Invariant: a marked page stays backed for ever. A seal against writing also forbids to punch holes
//! (shmem_fallocate in mm/shmem.c), and a swapped-out page is charged to its former owner when it is read
//! back. Without that seal no page of a peer's arena is ever marked.
//!
//! A marked range costs the test of one word for 64 pages. An unmarked word costs one cachestat(2), which
//! takes no lock that the peer could hold; lseek(2) with SEEK_HOLE would take the inode's lock, which the
//! peer can hold for as long as it likes. A peer cannot make many of these calls necessary: each looks at 64
//! pages at most, and marks at least one or ends the exchange.

use crate::error::Error;
use crate::memory::{Mapping, MemoryFile, PAGE};
use bywash_sync::{AtomicU64, Ordering::Relaxed};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Number of the system call cachestat(2), the same on every architecture.
pub(crate) const SYS_CACHESTAT: libc::c_long = 451;

/// One bit for each page of an arena.
#[derive(Debug)]
pub(crate) struct Backing {
    words: Box<[AtomicU64]>,
    /// True if backed pages stay backed.
    is_lasting: bool,
}

/// Argument of cachestat(2): a range of bytes.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

/// Result of cachestat(2): numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Returns the numbers of the pages that a range of bytes touches.
fn pages(offset: usize, length: usize) -> Range<usize> {
    offset / PAGE..(offset + length).div_ceil(PAGE)
}

/// Returns the bits of word `word` that belong to a range of pages.
fn mask(word: usize, pages: &Range<usize>) -> u64 {
    let first = pages.start.max(word * 64) - word * 64;
    let count = pages.end.min((word + 1) * 64) - word * 64 - first;
    (u64::MAX >> (64 - count)) << first
}

impl Backing {
    /// Makes a record of `bytes` bytes of which no page is known to be backed. `is_lasting`: backed pages
    /// stay backed.
    pub(crate) fn new(bytes: usize, is_lasting: bool) -> Backing {
        let words = bytes.div_ceil(PAGE).div_ceil(64);
        Backing { words: (0..words).map(|_| AtomicU64::new(0)).collect(), is_lasting }
    }

    /// Makes a record of `bytes` bytes that are all backed.
    pub(crate) fn full(bytes: usize) -> Backing {
        let backing = Backing::new(bytes, true);
        backing.mark(&pages(0, bytes));
        backing
    }

    /// Returns true if every page of a range is marked.
    #[inline]
    fn is_marked(&self, pages: &Range<usize>) -> bool {
        if pages.is_empty() {
            return true;
        }
        let (first, last) = (pages.start / 64, (pages.end - 1) / 64);
        if first == last {
            let mask = (u64::MAX >> (64 - (pages.end - pages.start))) << (pages.start % 64);
            return self.words[first].load(Relaxed) & mask == mask;
        }
        (pages.start / 64..pages.end.div_ceil(64)).all(|word| {
            let mask = mask(word, pages);
            self.words[word].load(Relaxed) & mask == mask
        })
    }

    fn mark(&self, pages: &Range<usize>) {
        for word in pages.start / 64..pages.end.div_ceil(64) {
            self.words[word].fetch_or(mask(word, pages), Relaxed);
        }
    }

    /// Populates the pages of a range of this end's own arena that are not marked yet, and marks them.
    ///
    /// # Errors
    /// [`Error::Io`] if there is not enough memory.
    #[inline]
    pub(crate) fn populate(&self, mapping: &Mapping, offset: usize, length: usize) -> Result<(), Error> {
        let pages = pages(offset, length);
        if self.is_marked(&pages) { Ok(()) } else { self.take_new(mapping, pages) }
    }

    #[cold]
    fn take_new(&self, mapping: &Mapping, pages: Range<usize>) -> Result<(), Error> {
        mapping.populate(pages.start * PAGE, pages.len() * PAGE)?;
        self.mark(&pages);
        Ok(())
    }

    /// Returns true if every page of a range of `file` is backed and stays so; false if that cannot be found
    /// out.
    #[inline]
    pub(crate) fn is_backed(&self, file: &MemoryFile, offset: usize, length: usize) -> bool {
        let pages = pages(offset, length);
        self.is_lasting && (self.is_marked(&pages) || self.is_backed_now(file, pages))
    }

    #[cold]
    fn is_backed_now(&self, file: &MemoryFile, pages: Range<usize>) -> bool {
        (pages.start / 64..pages.end.div_ceil(64)).all(|word| {
            let part = pages.start.max(word * 64)..pages.end.min((word + 1) * 64);
            let is_backed = self.is_marked(&part)
                || pages_with_memory(file, &part)
                    .map_or_else(|_| file.is_huge(), |found| found == part.len());
            if is_backed {
                self.mark(&part);
            }
            is_backed
        })
    }

    /// Returns the longest run of marked pages, in bytes, within the first `bytes` bytes.
    pub(crate) fn longest_run(&self, bytes: usize) -> Range<usize> {
        let (mut longest, mut start) = (0..0, 0);
        for page in 0..bytes.div_ceil(PAGE) {
            if !self.is_marked(&(page..page + 1)) {
                start = page + 1;
            } else if page + 1 - start > longest.len() {
                longest = start..page + 1;
            }
        }
        longest.start * PAGE..bytes.min(longest.end * PAGE)
    }
}

/// Returns true if the kernel tells this process which pages are backed, that is, if cachestat(2) works.
pub(crate) fn is_told(file: &MemoryFile) -> bool {
    pages_with_memory(file, &(0..1)).is_ok()
}

/// Returns the number of pages of a range that are backed, including swapped-out ones.
fn pages_with_memory(file: &MemoryFile, pages: &Range<usize>) -> Result<usize, Errno> {
    let range = CachestatRange { offset: (pages.start * PAGE) as u64, length: (pages.len() * PAGE) as u64 };
    let mut found = Cachestat::default();
    // SAFETY: both structures are live and have the layout of cachestat(2), which reads the first and writes
    // the second.
    let answer = unsafe {
        libc::syscall(SYS_CACHESTAT, file.descriptor().as_raw_fd(), &raw const range, &raw mut found, 0)
    };
    match answer {
        0 => Ok((found.cached + found.evicted) as usize),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Returns true if all pages of a file are backed; for a file into which nobody can punch holes. Without
/// cachestat(2) (before Linux 6.5) lseek(2) looks for the first hole, and also counts a page as one that was
/// allocated but never touched.
///
/// # Errors
/// The error of lseek(2), if it is called.
pub(crate) fn is_whole(file: &MemoryFile) -> Result<bool, Errno> {
    let pages = pages(0, file.bytes());
    if file.is_huge() {
        return Ok(true);
    }
    match pages_with_memory(file, &pages) {
        Ok(found) => Ok(found == pages.len()),
        Err(_) => Ok(seek(file.descriptor(), SeekFrom::Hole(0))? >= file.bytes() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HugePages;

    #[test]
    fn ranges_are_marked_to_the_page() {
        let backing = Backing::new(200 * PAGE, true);
        for (first, count) in [(3, 1), (60, 10), (128, 64)] {
            let range = first..first + count;
            assert!(!backing.is_marked(&range));
            backing.mark(&range);
            assert!(backing.is_marked(&range));
            assert!(!backing.is_marked(&(first - 1..first + count)));
            assert!(!backing.is_marked(&(first..first + count + 1)));
        }
        assert!(backing.is_marked(&(7..7)));
        assert_eq!(pages(PAGE - 1, 2), 0..2);
    }

    #[test]
    fn holes_are_told_from_memory_that_was_taken_and_written() {
        let file = MemoryFile::create("test", 8 * PAGE, HugePages::No).unwrap();
        let mapping = file.map(true).unwrap();
        file.seal_writers().unwrap();
        let (own, theirs) = (Backing::new(file.bytes(), true), Backing::new(file.bytes(), true));
        assert!(!theirs.is_backed(&file, 0, 1));
        own.populate(&mapping, PAGE + 1, 2 * PAGE).unwrap();
        assert!(theirs.is_backed(&file, PAGE, 3 * PAGE));
        assert!(!theirs.is_backed(&file, PAGE - 1, PAGE) && !theirs.is_backed(&file, 3 * PAGE, PAGE + 1));
        // SAFETY: mapped for writing, and nobody else has the file.
        unsafe { mapping.base().write(1) };
        assert!(theirs.is_backed(&file, 0, 4 * PAGE));
        assert_eq!(theirs.longest_run(file.bytes()), 0..4 * PAGE);
        theirs.mark(&(5..8));
        assert_eq!(theirs.longest_run(file.bytes()), 0..4 * PAGE);
        assert_eq!(theirs.longest_run(8 * PAGE - 7), 0..4 * PAGE);
        // Pages that may be taken away again are never reported as backed.
        assert!(!Backing::new(file.bytes(), false).is_backed(&file, 0, 1));
        assert_eq!(is_whole(&file), Ok(false));
    }
}
