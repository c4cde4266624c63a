//! Repair of a file that the kernel failed to write back.
//!
//! After such a failure the kernel takes the pages for clean, and may drop them: the next fsync writes nothing and succeeds.
//! So every page with committed data is made dirty again. Programs write the file meanwhile, and nothing of theirs may be
//! undone: a page is made dirty by a fault that changes nothing. If the kernel has dropped it, what it has read again from
//! the disk differs from what was committed, and nobody has noted a write there. Then the committed bytes are put
//! back, by compare-exchange, which fails if a program was faster.
//!
//! The entry's lock is held, so no commit takes noted ranges meanwhile.

#![allow(unsafe_code)]

use crate::contents::failed;
use crate::error::Error;
use crate::log_file::{LogFile, Reader};
use bywash_log::layout::{FileNumber, Superblock};
use bywash_log::ranges::RangeSet;
use bywash_log::read;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// Committed bytes of a page.
struct Committed {
    bytes: [u8; PAGE],
    is_committed: [bool; PAGE],
}

/// Live records whose file is rewritten.
pub struct Records<'a> {
    /// File of the log of the log.
    pub log_file: &'a LogFile,
    /// Superblock with the log's tail.
    pub superblock: &'a Superblock,
    /// Number of the file.
    pub number: FileNumber,
    /// Greatest sequence number that is dead.
    pub dead: u64,
    /// Number of the last durable batch.
    pub last: u64,
}

/// Makes all pages of `file` with live records dirty, and puts committed bytes back that are lost. `noted` has the ranges that
/// programs have written, or are writing, since the last commit.
///
/// # Errors
/// Those of reading the log; [`Error::Io`] if the file cannot be mapped.
pub fn rewrite(file: &File, records: &Records<'_>, noted: &RangeSet) -> Result<(), Error> {
    let failed = || Error::io("write again a file of", records.log_file.path());
    let pages = committed(records)?;
    let size = file.metadata().map_err(failed())?.len();
    for (page, committed) in &pages {
        if page * (PAGE as u64) < size {
            repair(file, *page, committed, size, noted).map_err(failed())?;
        }
    }
    Ok(())
}

/// Returns the committed bytes by pages: those of the last record that has them.
fn committed(records: &Records<'_>) -> Result<BTreeMap<u64, Box<Committed>>, Error> {
    let mut pages = BTreeMap::<u64, Box<Committed>>::new();
    let Records { log_file, superblock, number, dead, last } = *records;
    if last < superblock.tail_batch {
        return Ok(pages);
    }
    let read = read::batches_up_to(&mut Reader::new(log_file), superblock, last, |record, mut bytes| {
        if record.file != number || record.sequence <= dead {
            return;
        }
        let mut offset = record.offset;
        while !bytes.is_empty() {
            let (page, at) = (offset / PAGE as u64, (offset % PAGE as u64) as usize);
            let (now, rest) = bytes.split_at(bytes.len().min(PAGE - at));
            let page = pages
                .entry(page)
                .or_insert_with(|| Box::new(Committed { bytes: [0; PAGE], is_committed: [false; PAGE] }));
            page.bytes[at..at + now.len()].copy_from_slice(now);
            page.is_committed[at..at + now.len()].fill(true);
            (bytes, offset) = (rest, offset + now.len() as u64);
        }
    });
    read.map_err(|error| failed(log_file, error))?;
    Ok(pages)
}

/// Makes a page dirty, and puts its committed bytes back where nothing else was written.
fn repair(file: &File, page: u64, committed: &Committed, size: u64, noted: &RangeSet) -> io::Result<()> {
    // Dirty from here on, with whatever is in it.
    let mapped = Mapped::new_dirty(file, page)?;
    for index in 0..WORDS {
        let place = index * 8..index * 8 + 8;
        if !committed.is_committed[place.clone()].contains(&true) {
            continue;
        }
        let seen = mapped.word(index).load(SeqCst);
        let mut wanted = seen.to_ne_bytes();
        for (at, byte) in place.clone().zip(&mut wanted) {
            if committed.is_committed[at] {
                *byte = committed.bytes[at];
            }
        }
        let wanted = u64::from_ne_bytes(wanted);
        let offset = page * PAGE as u64 + place.start as u64;
        // Noted before it is written, so a difference that a write has made is found here.
        if wanted != seen && offset + 8 <= size.next_multiple_of(8) && !is_noted(noted, offset, size) {
            // If a program was faster, its bytes stay.
            let _ = mapped.word(index).compare_exchange(seen, wanted, SeqCst, SeqCst);
        }
    }
    Ok(())
}

fn is_noted(noted: &RangeSet, offset: u64, size: u64) -> bool {
    noted
        .iter()
        .filter_map(|range| range.bytes(size))
        .any(|(start, length)| offset < start + length && start < offset + 8)
}

/// A page of a file, mapped shared.
struct Mapped(*mut u8);

impl Mapped {
    /// Maps a page and makes it dirty by a write fault. If the file system refuses that, it is an error and no signal.
    fn new_dirty(file: &File, page: u64) -> io::Result<Mapped> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let offset = (page * PAGE as u64) as libc::off_t;
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), PAGE, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = Mapped(at.cast());
        // SAFETY: the page was just mapped, and nothing is written to it.
        match unsafe { libc::madvise(at, PAGE, libc::MADV_POPULATE_WRITE) } {
            0 => Ok(mapped),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS, "a word of the page");
        // SAFETY: the word lies within the mapped page, aligned, and is reached by atomics only in this process; the kernel's
        // writers of the page cache are like other threads that use atomics.
        unsafe { AtomicU64::from_ptr(self.0.cast::<u64>().add(index)) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new`, and no reference to it outlives this value.
        unsafe { libc::munmap(self.0.cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_log::ranges::Range;
    use std::os::unix::fs::FileExt;

    fn committed(text: &[u8]) -> Committed {
        let mut page = Committed { bytes: [0; PAGE], is_committed: [false; PAGE] };
        page.bytes[..text.len()].copy_from_slice(text);
        page.is_committed[..text.len()].fill(true);
        page
    }

    fn repaired(before: &[u8], noted: Option<Range>) -> Vec<u8> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(before, 0).unwrap();
        let ranges = RangeSet::new();
        assert!(noted.is_none_or(|range| ranges.note(range)));
        repair(&file, 0, &committed(b"committed text"), before.len() as u64, &ranges).unwrap();
        let mut after = vec![0; before.len()];
        file.read_exact_at(&mut after, 0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), before.len() as u64);
        after
    }

    #[test]
    fn what_the_kernel_lost_comes_back() {
        assert_eq!(repaired(b"stale.... text and more", None), b"committed text and more");
        assert_eq!(repaired(b"committed text", None), b"committed text");
    }

    #[test]
    fn what_a_program_has_written_since_stays() {
        let range = Range::new(0, 9);
        assert_eq!(repaired(b"newer.... text and more", range), b"newer.... text and more");
    }

    #[test]
    fn nothing_is_written_behind_the_end() {
        assert_eq!(repaired(b"stale", None), b"commi");
    }
}
