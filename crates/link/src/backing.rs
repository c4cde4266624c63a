//! Record of the pages of an arena that have memory.
//!
//! A page of shared memory that nobody has written is a hole. Who touches it first has the page allocated, at the
//! expense of its own memory cgroup, even if it only reads. So a peer that ships holes would have the receiver pay,
//! up to the receiver's death. Two rules keep each end's memory its own:
//!
//! - Who ships takes the memory of what it ships before ([`Backing::take`]), once a page.
//! - Who receives reads a mapping only where the pages are known to have memory ([`Backing::is_backed`]), and uses
//!   pread(2) elsewhere, which reads zeros from a hole and allocates nothing.
//!
//! Who writes to a peer's arena ([`crate::Arena::adopt_for_both`]) asks as well, and refuses what has no memory.
//!
//! Invariant: a page that is marked keeps its memory for ever. A seal against writing also forbids to punch holes
//! (shmem_fallocate in mm/shmem.c), and pages that were swapped out come back at the expense of who had them. Without
//! that seal no page of a peer's arena is ever marked.
//!
//! A marked range costs the test of a word for 64 pages. An unmarked word costs one cachestat(2), which takes no lock
//! that the peer could hold; lseek(2) with SEEK_HOLE would take that of the inode, for as long as the peer likes. A
//! peer cannot make that dear: each call looks at 64 pages at most, and marks one at least or ends the exchange.

use crate::error::Error;
use crate::memory::{File, Mapping, PAGE};
use bywash_sync::{AtomicU64, Ordering::Relaxed};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Number of cachestat(2), the same on every architecture.
pub(crate) const SYS_CACHESTAT: libc::c_long = 451;

/// One bit for each page of an arena.
#[derive(Debug)]
pub(crate) struct Backing {
    words: Box<[AtomicU64]>,
    /// Pages that have memory keep it.
    is_lasting: bool,
}

/// Range of bytes that cachestat(2) is asked about.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

/// Answer of cachestat(2), in pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The pages that a range of bytes touches.
fn pages(offset: usize, length: usize) -> Range<usize> {
    offset / PAGE..(offset + length).div_ceil(PAGE)
}

/// The bits of one word that belong to a range of pages.
fn mask(word: usize, pages: &Range<usize>) -> u64 {
    let first = pages.start.max(word * 64) - word * 64;
    let count = pages.end.min((word + 1) * 64) - word * 64 - first;
    (u64::MAX >> (64 - count)) << first
}

impl Backing {
    /// A record of `bytes` bytes of which nothing is known yet. `is_lasting`: nobody can take pages away again.
    pub(crate) fn new(bytes: usize, is_lasting: bool) -> Backing {
        let words = bytes.div_ceil(PAGE).div_ceil(64);
        Backing { words: (0..words).map(|_| AtomicU64::new(0)).collect(), is_lasting }
    }

    /// A record of `bytes` bytes that all have memory.
    pub(crate) fn full(bytes: usize) -> Backing {
        let backing = Backing::new(bytes, true);
        backing.mark(&pages(0, bytes));
        backing
    }

    /// Whether every page of a range is marked.
    #[inline]
    fn is_marked(&self, pages: &Range<usize>) -> bool {
        if pages.is_empty() {
            return true;
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

    /// Takes memory for the pages of a range of this end's own arena, where it has not been taken yet.
    ///
    /// # Errors
    /// [`Error::Io`] if there is not so much memory.
    #[inline]
    pub(crate) fn take(&self, mapping: &Mapping, offset: usize, length: usize) -> Result<(), Error> {
        let pages = pages(offset, length);
        if self.is_marked(&pages) { Ok(()) } else { self.take_new(mapping, pages) }
    }

    #[cold]
    fn take_new(&self, mapping: &Mapping, pages: Range<usize>) -> Result<(), Error> {
        mapping.populate(pages.start * PAGE, pages.len() * PAGE)?;
        self.mark(&pages);
        Ok(())
    }

    /// Whether every page of a range of `file` has memory, and keeps it. False where that cannot be found out.
    #[inline]
    pub(crate) fn is_backed(&self, file: &File, offset: usize, length: usize) -> bool {
        let pages = pages(offset, length);
        self.is_lasting && (self.is_marked(&pages) || self.is_backed_now(file, pages))
    }

    #[cold]
    fn is_backed_now(&self, file: &File, pages: Range<usize>) -> bool {
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

    /// The longest run of marked bytes among the first `bytes`.
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

/// Whether the kernel tells this process which pages have memory, page by page.
pub(crate) fn is_told(file: &File) -> bool {
    pages_with_memory(file, &(0..1)).is_ok()
}

/// Number of pages of a range that have memory, be it swapped out.
fn pages_with_memory(file: &File, pages: &Range<usize>) -> Result<usize, Errno> {
    let range = CachestatRange { offset: (pages.start * PAGE) as u64, length: (pages.len() * PAGE) as u64 };
    let mut found = Cachestat::default();
    // SAFETY: both structures are live and of the layout that cachestat(2) has; it reads the one and writes the other.
    let answer = unsafe {
        libc::syscall(SYS_CACHESTAT, file.descriptor().as_raw_fd(), &raw const range, &raw mut found, 0)
    };
    match answer {
        0 => Ok((found.cached + found.evicted) as usize),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Whether all of a file has memory, for one that nobody can punch holes into. Where there is no cachestat(2) (before
/// Linux 6.5) the kernel is asked for the first hole, which it also takes a page for that was allocated and never
/// touched.
///
/// # Errors
/// The error of lseek(2), where that is asked.
pub(crate) fn is_whole(file: &File) -> Result<bool, Errno> {
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
        let file = File::create("test", 8 * PAGE, HugePages::No).unwrap();
        let mapping = file.map(true).unwrap();
        file.fix_writers().unwrap();
        let (own, theirs) = (Backing::new(file.bytes(), true), Backing::new(file.bytes(), true));
        assert!(!theirs.is_backed(&file, 0, 1));
        own.take(&mapping, PAGE + 1, 2 * PAGE).unwrap();
        assert!(theirs.is_backed(&file, PAGE, 3 * PAGE));
        assert!(!theirs.is_backed(&file, PAGE - 1, PAGE) && !theirs.is_backed(&file, 3 * PAGE, PAGE + 1));
        // SAFETY: mapped for writing, and nobody else has it.
        unsafe { mapping.base().write(1) };
        assert!(theirs.is_backed(&file, 0, 4 * PAGE));
        assert_eq!(theirs.longest_run(file.bytes()), 0..4 * PAGE);
        theirs.mark(&(5..8));
        assert_eq!(theirs.longest_run(file.bytes()), 0..4 * PAGE);
        assert_eq!(theirs.longest_run(8 * PAGE - 7), 0..4 * PAGE);
        // Of what can lose its memory again nothing is believed.
        assert!(!Backing::new(file.bytes(), false).is_backed(&file, 0, 1));
        assert_eq!(is_whole(&file), Ok(false));
    }
}
