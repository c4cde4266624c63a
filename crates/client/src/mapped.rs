//! The memory of a grant, mapped into this process: its chunks lie side by side in one address range. And the
//! page that tells which grants are revoked.
//!
//! ```text
//!     base                                                     base + bytes
//!     |  chunk 0    |  chunk 1    |  ...        | what is left |  nothing: whoever goes there is killed
//!       a descriptor  a descriptor                a descriptor
//! ```
//!
//! The processor checks every access against the rights that a chunk was mapped with. The bounds are checked
//! here, in the program's own interest. Other threads and processes write the same memory at any time, so no
//! reference points into it: bytes are copied in and out.
//!
//! *An access counts only if the grant is still valid after it* (see [`bywash_protocol::notices`]). To revoke
//! a grant, the server stores the grant's word, and only then copies the memory to its new location. Each
//! side does three steps:
//!
//! ```text
//!     a write here     store the bytes      | light fence | load the word
//!     the server       store the word       | heavy fence | load the bytes, to copy them
//! ```
//!
//! At least one of the two then sees what the other stored: if the client still loads the old word, the
//! server's copy contains the bytes. The server's fence reaches the processors of every process that has
//! registered for such fences ([`bywash_sync::prepare_shared_fences`]). The light fence here then only has to
//! keep the compiler from reordering. Where the kernel has no such fence, the light one is a full fence, the
//! most expensive kind; so a queue makes one for all that it does between two reaps. A read only needs its
//! bytes loaded before the word: a valid word then proves that the bytes were the volume's while the grant
//! was valid, before any other memory replaced them.
//!
//! Invariant: only files that cannot shrink are mapped, so no access to a chunk hits a file's end. Called by
//! `session`, which maps, and by `volume` and `queue`, which copy.

use bywash_link::{HUGE_PAGE, Mapping, MemoryFile, PAGE, ProcessGeneration};
use bywash_protocol::revocations;
use bywash_sync::{AtomicU64, Ordering, light_shared_fence, prepare_shared_fences, read_fence};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::os::fd::OwnedFd;
use std::ptr;

/// The memory of a grant, mapped at consecutive addresses.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// Start and size in bytes of the whole reserved address range, which contains the range at `base`.
    reserved: (*mut u8, usize),
    base: *mut u8,
    bytes: usize,
    /// Number of bytes from `base` on that chunks are mapped at.
    filled: usize,
    reads: bool,
    writes: bool,
    maker: ProcessGeneration,
}

// SAFETY: both pointers name address space that this value alone reserved, and that only its `drop` unmaps. A
// mapping belongs to the process and to no thread, so any thread may use this value or drop it.
unsafe impl Send for Mapped {}
// SAFETY: no method changes a field through `&self`; `add` takes `&mut self`. The mapped bytes are another
// matter: threads of this process, other processes and the server copy them in and out at the same time, and
// nothing orders the copies. Three invariants keep such copies harmless in practice. Only raw pointers reach
// the bytes (`copy_nonoverlapping`, `write_bytes`), so the compiler cannot assume that they stay the same.
// Each byte of a copy is the old one or the new one, and every value of a byte is valid. Each method copies a
// byte once and decides nothing by its value. By Rust's memory model two such copies of the same bytes, one
// of them a write, are still a data race, like all plain copies of memory that others write: this code relies
// on the compiled copies behaving as described. A caller that needs an order among accesses must provide it.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Reserves addresses for `bytes` bytes, at which nothing is mapped yet.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] if the size exceeds the address space; else the error of mmap(2).
    pub(crate) fn reserve(bytes: u64, reads: bool, writes: bool) -> Result<Mapped, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let room = bytes.checked_next_multiple_of(PAGE).and_then(|room| room.checked_add(HUGE_PAGE));
        let room = room.ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping without any access right, at an address that the kernel chooses, overlaps no
        // other one.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::empty(), flags)? };
        let start = start.cast::<u8>();
        let base = start.wrapping_add(start.align_offset(HUGE_PAGE));
        Ok(Mapped {
            reserved: (start, room),
            base,
            bytes,
            filled: 0,
            reads,
            writes,
            maker: ProcessGeneration::current(),
        })
    }

    /// Maps the next chunk behind those that [`Mapped::add`] has mapped before: the first `bytes` bytes of
    /// the file `chunk`. Only the last chunk's size may be no multiple of the page size.
    ///
    /// # Errors
    /// The outer error is that of fstat(2) or mmap(2). The inner one tells why the file is no valid chunk:
    /// too short, not sealed against shrinking, or no memory.
    ///
    /// # Panics
    /// If the chunk does not fit behind the earlier ones.
    pub(crate) fn add(&mut self, chunk: OwnedFd, bytes: usize) -> Result<Result<(), String>, Errno> {
        assert!(self.filled.is_multiple_of(PAGE) && bytes <= self.bytes - self.filled, "a chunk too many");
        // A file that is sealed against shrinking keeps at least the size that it has now, so no access hits
        // its end.
        let has = rustix::fs::fstat(&chunk)?.st_size as u64;
        if has < bytes as u64 {
            return Ok(Err(format!("passed a chunk of {has} bytes, which should have {bytes}")));
        }
        let file = match MemoryFile::from_peer(chunk, has as usize, bywash_link::SEALS_FIXED) {
            Ok(file) => file,
            Err(what) => return Ok(Err(what)),
        };
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, self.reads);
        protection.set(ProtFlags::WRITE, self.writes);
        let at = self.base.wrapping_add(self.filled);
        let (length, flags) = (bytes.next_multiple_of(PAGE), MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the pages lie in the reserved range, which this value owns, behind `filled`: nobody has
        // their address yet.
        unsafe { mmap(at.cast(), length, protection, flags, file.descriptor(), 0)? };
        self.filled += bytes;
        Ok(Ok(()))
    }

    /// Returns the number of bytes, from the first on, that chunks are mapped at.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the address of the first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns true in the process that mapped this memory. A forked child inherits the mapping but is not
    /// the client.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        self.maker.is_here()
    }

    /// Returns the address of the range of `length` bytes at `offset`.
    ///
    /// # Panics
    /// If the range extends beyond the mapped chunks.
    #[inline(always)]
    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let fits = offset <= self.filled as u64 && length <= self.filled - offset as usize;
        assert!(fits, "the range was held against the grant's size before");
        self.base.wrapping_add(offset as usize)
    }

    /// Copies `length` bytes at `offset` from this memory to `to`.
    ///
    /// # Safety
    /// `to` must be valid for writing `length` bytes, and must not overlap this memory.
    ///
    /// # Panics
    /// If the range extends beyond the mapped chunks, or this memory is not mapped for reading.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, offset: u64, to: *mut u8, length: usize) {
        assert!(self.reads, "the right was looked at before");
        let from = self.at(offset, length);
        // SAFETY: `at` keeps the range within chunks that `add` mapped for reading, from files that cannot
        // shrink; the caller guarantees `to`. Other threads or processes may write these bytes meanwhile (see
        // `Sync` above): the copy may then mix old and new bytes, and nobody changes the copy afterwards.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), to, length) };
    }

    /// Copies `length` bytes from `from` into this memory at `offset`.
    ///
    /// # Safety
    /// `from` must be valid for reading `length` bytes, and must not overlap this memory.
    ///
    /// # Panics
    /// If the range extends beyond the mapped chunks, or this memory is not mapped for writing.
    #[inline(always)]
    pub(crate) unsafe fn write_from(&self, offset: u64, from: *const u8, length: usize) {
        assert!(self.writes, "the right was looked at before");
        let to = self.at(offset, length);
        // SAFETY: `at` keeps the range within chunks that `add` mapped for writing, from files that cannot
        // shrink; the caller guarantees `from`. Other threads or processes may access these bytes meanwhile
        // (see `Sync` above).
        unsafe { ptr::copy_nonoverlapping(from, to, length) };
    }

    /// Copies a slice into this memory at `offset`, like [`Mapped::write_from`].
    ///
    /// # Panics
    /// Same as [`Mapped::write_from`].
    #[inline(always)]
    pub(crate) fn write(&self, offset: u64, from: &[u8]) {
        // SAFETY: a slice is valid for reading its length, and cannot overlap this memory, since no reference
        // points into it.
        unsafe { self.write_from(offset, from.as_ptr(), from.len()) };
    }

    /// Sets a range to zeros.
    ///
    /// # Panics
    /// Same as [`Mapped::write_from`].
    pub(crate) fn write_zeroes(&self, offset: u64, length: u64) {
        assert!(self.writes, "the right was looked at before");
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let to = self.at(offset, length);
        // SAFETY: `at` keeps the range within chunks mapped for writing, from files that cannot shrink, as in
        // `write_from`.
        unsafe { ptr::write_bytes(to, 0, length) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let (start, bytes) = self.reserved;
        // SAFETY: this value reserved the range and unmaps it once; every user of the memory keeps this value
        // alive. In a forked child this unmaps the child's own copy of the mapping.
        let unmapped = unsafe { munmap(start.cast(), bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The page in which the server tells which grants it has revoked, mapped for reading.
#[derive(Debug)]
pub(crate) struct RevocationPage {
    file: MemoryFile,
    page: Mapping,
    count: usize,
    /// True if the server's fences reach the threads of this process.
    has_fences: bool,
}

impl RevocationPage {
    /// Maps the page that the server passed, which has one word for each of `grants_max` places.
    ///
    /// # Errors
    /// The outer error is [`bywash_link::Error::Io`] if mmap(2) fails. The inner one tells why the file is no
    /// valid page.
    pub(crate) fn adopt(
        page: OwnedFd,
        grants_max: u32,
    ) -> Result<Result<RevocationPage, String>, bywash_link::Error> {
        match MemoryFile::from_peer(page, revocations::page_bytes(grants_max), bywash_link::SEALS_FIXED) {
            Ok(file) => {
                let (page, count) = (file.map(false)?, grants_max as usize);
                Ok(Ok(RevocationPage { file, page, count, has_fences: prepare_shared_fences() }))
            }
            Err(what) => Ok(Err(what)),
        }
    }

    /// Returns the page's file.
    pub(crate) fn file(&self) -> &MemoryFile {
        &self.file
    }

    /// Returns true if the page has a word for `grant`.
    pub(crate) fn has_place_for(&self, grant: u64) -> bool {
        revocations::index_of(grant) < self.count
    }

    /// Orders the bytes that were stored to a grant's memory before the load of its word by
    /// [`RevocationPage::is_valid`].
    #[inline(always)]
    pub(crate) fn fence_behind_writes(&self) {
        // SYNC: notices. The server makes the other fence, after its store of the word.
        light_shared_fence(self.has_fences);
    }

    /// Returns true if a grant is still valid. Accesses before this call count only if one of the two fences
    /// ([`RevocationPage::fence_behind_writes`], [`fence_behind_reads`]) was made between them and this call.
    ///
    /// # Panics
    /// If the page has no word for `grant`.
    #[inline(always)]
    pub(crate) fn is_valid(&self, grant: u64) -> bool {
        let place = revocations::index_of(grant);
        assert!(place < self.count, "its place was looked at when the grant was given");
        let word = self.page.base().cast::<AtomicU64>().wrapping_add(place);
        // SAFETY: the word is aligned and lies within the page, as was asserted; the page is mapped for
        // reading and sealed against shrinking. All processes access it by atomics alone, and an atomic load
        // of 8 bytes needs no right to write.
        let word = unsafe { (*word).load(Ordering::Acquire) };
        revocations::is_valid(grant, word)
    }
}

/// Orders the bytes that were loaded from a grant's memory before the load of its word by
/// [`RevocationPage::is_valid`].
#[inline(always)]
pub(crate) fn fence_behind_reads() {
    // SYNC: notices. The word is loaded after the bytes.
    read_fence();
}
