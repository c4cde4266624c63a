//! The memory of a `mem:` device: chunks, each of them a memfd of its own, mapped at consecutive addresses.
//!
//! ```text
//!   addresses   │  chunk 0  │  chunk 1  │  chunk 2  │ 3 │     base + offset, whichever chunk that is
//!                     │           │           │       │
//!   memfds          file        file        file    file      what others can be given to map
//! ```
//!
//! A chunk is the unit of sharing: a process that has a chunk's memfd can map that chunk and nothing else,
//! and the MMU enforces whether it may write. A memfd that was passed on cannot be revoked, so
//! [`Chunks::replace`] puts another memfd in its place. The addresses stay the same, so the device's accesses
//! do not depend on chunks.
//!
//! All memory is allocated when the device is made: a machine with too little memory fails then, and not with
//! a fault later. Called by [`Memory`](crate::Memory), and by servers that let clients map parts of the
//! memory.

use crate::claims::Claims;
use crate::error::Error;
use crate::spare::{ChunkLayout, RetiredChunk, SpareChunk, check_available, file};
use bywash_link::{HUGE_PAGE, HugePages, Mapping, MemoryFile};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// Least size of a chunk, in bytes; only the last chunk can be smaller.
pub(crate) const CHUNK_MIN: u64 = HUGE_PAGE as u64;
/// Greatest size of a chunk, in bytes.
pub(crate) const CHUNK_MAX: u64 = 1 << 30;
/// Number of chunks that the default chunk size aims at, unless that would make chunks larger than
/// `CHUNK_MAX`.
const CHUNKS: u64 = 256;
/// Greatest number of chunks; each of them is an open file.
const CHUNKS_MAX: u64 = 1 << 14;

/// Fate of the contents of a chunk that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacedContents {
    /// The contents are copied into the new chunk.
    Copied,
    /// The new chunk is all zeros.
    Zeroed,
}

/// Memory of a device in chunks, each of which other processes can map.
///
/// A process that maps a chunk sees the device's accesses at once and byte by byte; blocks are atomic only
/// for accesses through the device. A chunk can be shared read-only. The memfds have a fixed size. A process
/// that was given a descriptor cannot reopen it through /proc/self/fd with more rights, unless it runs as the
/// user who made the device, or as root; these could trace the device's process as well.
///
/// A process that may write to a chunk can also free its pages (`FALLOC_FL_PUNCH_HOLE`). A freed page reads
/// as zeros, and the next access by any process allocates it anew.
#[derive(Debug)]
pub struct Chunks {
    mapping: Arc<Mapping>,
    /// Ranges that commands of several queues are accessing; `None` if there is one queue.
    claims: Option<Arc<Claims>>,
    files: Vec<MemoryFile>,
    bytes: usize,
    chunk_bytes: usize,
    pages: HugePages,
    /// For each chunk, the number of bytes on pages of 2 MiB.
    huge_bytes: Vec<usize>,
}

impl Chunks {
    /// Allocates `bytes` zeroed bytes in chunks of `chunk_bytes` bytes; `None` chooses a size by the size of
    /// the memory.
    pub(crate) fn new(bytes: u64, chunk_bytes: Option<u64>, pages: HugePages) -> Result<Chunks, Error> {
        let unfit = |reason| Err(Error::Unfit { what: format!("memory of {bytes} bytes"), reason });
        check_available(bytes, pages)?;
        let chunk_bytes = chunk_bytes.unwrap_or(usual_chunk(bytes));
        let count = match check_chunk(chunk_bytes).and_then(|()| count(bytes, chunk_bytes)) {
            Ok(count) => count,
            Err(reason) => return unfit(reason),
        };
        if pages == HugePages::Reserved && !bytes.is_multiple_of(HUGE_PAGE as u64) {
            return unfit(format!("on reserved pages, give a multiple of {HUGE_PAGE} bytes"));
        }
        // The cast is lossless: the machine has `bytes` bytes available, so they fit into the address space.
        let mapping = Mapping::empty(bytes as usize)?;
        let mut chunks = Chunks {
            mapping: Arc::new(mapping),
            claims: None,
            files: Vec::with_capacity(count),
            bytes: bytes as usize,
            chunk_bytes: chunk_bytes as usize,
            pages,
            huge_bytes: Vec::with_capacity(count),
        };
        for number in 0..count {
            let file = match file(chunks.shape(number)) {
                Err(Error::Memory(bywash_link::Error::Io { source, .. })) if is_many(&source) => {
                    let limit =
                        "raise the limit of open files (ulimit -n), or give larger chunks (chunk=SIZE)";
                    return unfit(format!("each of its {count} chunks is an open file: {source}; {limit}"));
                }
                file => file?,
            };
            chunks.mapping.put(number * chunks.chunk_bytes, &file)?;
            chunks.files.push(file);
            let huge_bytes = chunks.collapse(number);
            chunks.huge_bytes.push(huge_bytes);
        }
        Ok(chunks)
    }

    /// Returns the address of the first byte; all others follow without gaps.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Returns what keeps the memory mapped.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Has chunks replaced only while no command of another queue accesses them.
    pub(crate) fn share(&mut self, claims: Arc<Claims>) {
        self.claims = Some(claims);
    }

    /// Returns the number of bytes on pages of 2 MiB.
    pub(crate) fn huge_bytes(&self) -> usize {
        self.huge_bytes.iter().sum()
    }

    /// Returns the size of a chunk, in bytes. The last chunk may be smaller.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes as u64
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> usize {
        self.bytes.div_ceil(self.chunk_bytes)
    }

    /// Returns the size of chunk `number`, in bytes.
    ///
    /// # Panics
    /// If `number` is not less than [`Chunks::count`].
    pub fn bytes(&self, number: usize) -> u64 {
        self.length(number) as u64
    }

    fn length(&self, number: usize) -> usize {
        assert!(number < self.count(), "there is no chunk {number}");
        self.chunk_bytes.min(self.bytes - number * self.chunk_bytes)
    }

    /// Opens chunk `number` as a file that can be mapped for reading, but never for writing.
    ///
    /// # Errors
    /// [`Error::Io`] if the memfd cannot be opened through /proc/self/fd, for example because /proc is not
    /// mounted.
    ///
    /// # Panics
    /// If `number` is not less than [`Chunks::count`].
    pub fn open_read_only(&self, number: usize) -> Result<OwnedFd, Error> {
        self.open(number, OFlags::RDONLY)
    }

    /// Opens chunk `number` as a file that can be mapped for reading and writing.
    ///
    /// # Errors
    /// Same as [`Chunks::open_read_only`].
    ///
    /// # Panics
    /// If `number` is not less than [`Chunks::count`].
    pub fn open_read_write(&self, number: usize) -> Result<OwnedFd, Error> {
        self.open(number, OFlags::RDWR)
    }

    /// Opens a chunk's memfd as a new open file description, so that its holder can change the state of no
    /// other one.
    fn open(&self, number: usize, access: OFlags) -> Result<OwnedFd, Error> {
        let path = format!("/proc/self/fd/{}", self.files[number].descriptor().as_raw_fd());
        open(&path, access | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Error::io(format!("open chunk {number} of memory once more ({path})"), error))
    }

    /// Replaces chunk `number` by newly allocated memory. Allocating it and freeing the old chunk takes half
    /// a millisecond per MiB, during which commands wait.
    ///
    /// # Errors
    /// Same as [`SpareChunk::new`] and [`Chunks::replace`]. The chunk is unchanged then.
    ///
    /// # Panics
    /// Same as [`Chunks::replace`].
    pub fn reallocate(&mut self, number: usize, keep: ReplacedContents) -> Result<(), Error> {
        let spare = SpareChunk::new(self.shape(number))?;
        self.replace(number, keep, spare).map(drop)
    }

    /// Returns the size and page size that spare memory for chunk `number` needs.
    ///
    /// # Panics
    /// If `number` is not less than [`Chunks::count`].
    pub fn shape(&self, number: usize) -> ChunkLayout {
        ChunkLayout { bytes: self.length(number), pages: self.pages }
    }

    /// Replaces chunk `number` by `spare`. Processes that have the old chunk mapped share nothing with the
    /// device afterwards. With [`ReplacedContents::Copied`], everything that they wrote before the call is
    /// kept; writes during the call may be lost. When the returned [`RetiredChunk`] is dropped, they see
    /// zeros.
    ///
    /// Commands wait while the contents are copied, 50 us per MiB; with [`ReplacedContents::Zeroed`] they
    /// hardly wait.
    ///
    /// # Errors
    /// [`Error::Memory`] if the spare memory cannot be mapped. The chunk is unchanged then.
    ///
    /// # Panics
    /// If `number` is not less than [`Chunks::count`], if `spare` was made for another shape, or if neither
    /// the spare memory nor the old chunk can be mapped.
    pub fn replace(
        &mut self,
        number: usize,
        keep: ReplacedContents,
        spare: SpareChunk,
    ) -> Result<RetiredChunk, Error> {
        let (shape, offset) = (self.shape(number), number * self.chunk_bytes);
        assert_eq!(spare.shape, shape, "the spare memory was made for another chunk");
        let SpareChunk { file, mapping, .. } = spare;
        let claims = self.claims.clone();
        let range = offset as u64..(offset + shape.bytes) as u64;
        let _claim = claims.as_ref().map(|claims| claims.claim(range, true));
        if keep == ReplacedContents::Copied {
            let from = self.base().wrapping_add(offset).cast_const();
            // SAFETY: both are mapped with `shape.bytes` bytes and do not overlap. Others may write to the
            // old chunk meanwhile, which only affects the copied bytes; nobody else has the new memory.
            unsafe { ptr::copy_nonoverlapping(from, mapping.base(), shape.bytes) };
        }
        if let Err(error) = self.mapping.put(offset, &file) {
            // mmap(2) with MAP_FIXED may have removed the old mapping before it failed.
            let back = self.mapping.put(offset, &self.files[number]);
            back.expect("memory that was mapped can be mapped again");
            return Err(error.into());
        }
        let old = std::mem::replace(&mut self.files[number], file);
        self.huge_bytes[number] = self.collapse(number);
        Ok(RetiredChunk(old))
    }

    /// Moves a chunk onto huge pages and returns the number of bytes on them. All its pages are allocated,
    /// since the kernel does not collapse pages that were never touched.
    fn collapse(&self, number: usize) -> usize {
        match self.pages {
            HugePages::Collapse => self.mapping.collapse_part(number * self.chunk_bytes, self.length(number)),
            HugePages::Reserved => self.length(number),
            HugePages::No => 0,
        }
    }
}

/// Returns the default chunk size for memory of `bytes` bytes.
fn usual_chunk(bytes: u64) -> u64 {
    bytes.div_ceil(CHUNKS).clamp(CHUNK_MIN, CHUNK_MAX).next_power_of_two()
}

/// Returns the number of chunks, or why there would be too many.
fn count(bytes: u64, chunk_bytes: u64) -> Result<usize, String> {
    match bytes.div_ceil(chunk_bytes) {
        count @ ..=CHUNKS_MAX => Ok(count as usize),
        count => Err(format!("it would have {count} chunks, and can have {CHUNKS_MAX}; give larger ones")),
    }
}

/// Checks that a chunk may have `bytes` bytes.
///
/// # Errors
/// A message with the valid sizes, if `bytes` is not a power of two from 2 MiB to 1 GiB.
pub(crate) fn check_chunk(bytes: u64) -> Result<(), String> {
    match bytes.is_power_of_two() && (CHUNK_MIN..=CHUNK_MAX).contains(&bytes) {
        true => Ok(()),
        false => Err(format!("a chunk has 2M, 4M, 8M or so on up to 1G, and not {bytes} bytes")),
    }
}

fn is_many(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_as_large_as_it_takes_and_no_larger() {
        for (bytes, chunk) in [
            (512, 2 << 20),
            (512 << 20, 2 << 20),
            ((512 << 20) + 512, 4 << 20),
            (4 << 30, 16 << 20),
            (5 << 30, 32 << 20),
            (256 << 30, 1 << 30),
            (1 << 40, 1 << 30),
            (u64::MAX, 1 << 30),
        ] {
            assert_eq!(usual_chunk(bytes), chunk, "{bytes}");
        }
    }

    #[test]
    fn the_last_chunk_has_what_is_left() {
        let chunks = Chunks::new((4 << 20) + 1024, Some(2 << 20), HugePages::No).unwrap();
        assert_eq!((chunks.count(), chunks.chunk_bytes()), (3, 2 << 20));
        assert_eq!([0, 1, 2].map(|number| chunks.bytes(number)), [2 << 20, 2 << 20, 1024]);
        let whole = Chunks::new(4 << 20, Some(2 << 20), HugePages::No).unwrap();
        assert_eq!((whole.count(), whole.bytes(1)), (2, 2 << 20));
    }

    #[test]
    fn what_makes_no_chunks_is_refused() {
        for (bytes, chunk, pages, why) in [
            (4 << 20, 3 << 20, HugePages::Collapse, "2M, 4M, 8M"),
            (4 << 20, 1 << 20, HugePages::Collapse, "2M, 4M, 8M"),
            (4 << 20, 2 << 30, HugePages::Collapse, "2M, 4M, 8M"),
            (1 << 20, 2 << 20, HugePages::Reserved, "multiple of 2097152"),
        ] {
            let error = Chunks::new(bytes, Some(chunk), pages).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn chunks_are_counted() {
        assert_eq!(count(16384 << 21, 2 << 20), Ok(16384));
        assert!(count((16384 << 21) + 512, 2 << 20).unwrap_err().contains("can have 16384"));
    }

    #[test]
    fn the_memory_of_a_chunk_is_given_back() {
        let mut chunks = Chunks::new(4 << 20, Some(2 << 20), HugePages::No).unwrap();
        let old = chunks.files[0].descriptor().try_clone_to_owned().unwrap();
        let blocks = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_blocks * 512;
        assert_eq!(blocks(&old), 2 << 20);
        chunks.reallocate(0, ReplacedContents::Copied).unwrap();
        assert_eq!(blocks(&old), 0);
        // The pages of the new chunk are allocated already.
        assert_eq!(blocks(&chunks.open_read_only(0).unwrap()), 2 << 20);
    }
}
