//! A grant's memory, mapped here: chunks side by side in one range of addresses; and the page that says which grants
//! were taken back.
//!
//! ```text
//!     base                                                     base + bytes
//!     |  chunk 0    |  chunk 1    |  ...        | what is left |  nothing: whoever goes there is killed
//!       a descriptor  a descriptor                a descriptor
//! ```
//!
//! The processor holds every access against the right that a chunk was mapped with; the bounds are held here, for the
//! program's own sake. Others write the same memory at any time, so that no reference leads into it: bytes are copied
//! in and out.
//!
//! *An access counts only if the grant is still valid behind it* (see [`bywash_protocol::notices`]). The server stores
//! the word that takes the grant back, and only then copies the memory to where it is from then on. So
//!
//! ```text
//!     a write here     store the bytes      | light fence | load the word
//!     the server       store the word       | heavy fence | load the bytes, to copy them
//! ```
//!
//! of which at least one sees what the other stored: if the word is still the old one, the copy has the bytes. The
//! server's fence reaches the processors of every process that has asked for it ([`bywash_sync::heavy_shared_fence`]), so
//! that a light one here keeps the compiler in order and nobody else. Where the kernel has no such fence the light one
//! is a full one, the dearest there is: so a queue has one for all that it does between two reaps. For a read it is
//! enough that the bytes were loaded before the word was: then they were those of a time at which the grant was valid,
//! and nobody had been shown other memory in its place.

use bywash_link::{File, HUGE_PAGE, Maker, Mapping, PAGE};
use bywash_protocol::notices;
use bywash_sync::{AtomicU64, Ordering, light_shared_fence, prepare_shared_fences, read_fence};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::os::fd::OwnedFd;
use std::ptr;

/// A grant's memory.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// All that was reserved, which is more.
    reserved: (*mut u8, usize),
    base: *mut u8,
    bytes: usize,
    /// Bytes from the beginning that have chunks behind them.
    filled: usize,
    reads: bool,
    writes: bool,
    maker: Maker,
}

// SAFETY: an address range that belongs to this value alone, into which no reference leads.
unsafe impl Send for Mapped {}
// SAFETY: as above; several threads that copy in and out at a time are what the memory is for: who wants an order
// among them makes one.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Addresses for so many bytes, with nothing behind them yet.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn reserve(bytes: u64, reads: bool, writes: bool) -> Result<Mapped, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let room = bytes.checked_next_multiple_of(PAGE).and_then(|room| room.checked_add(HUGE_PAGE));
        let room = room.ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping that nobody can touch, at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::empty(), flags)? };
        let start = start.cast::<u8>();
        let base = start.wrapping_add(start.align_offset(HUGE_PAGE));
        Ok(Mapped { reserved: (start, room), base, bytes, filled: 0, reads, writes, maker: Maker::this() })
    }

    /// Puts the next chunk in its place: `bytes` from the beginning of a file, whole pages but for the last. The outer
    /// error is the kernel's; the inner one says what is wrong with the file.
    ///
    /// # Errors
    /// As said.
    pub(crate) fn add(&mut self, chunk: OwnedFd, bytes: usize) -> Result<Result<(), String>, Errno> {
        assert!(self.filled.is_multiple_of(PAGE) && bytes <= self.bytes - self.filled, "a chunk too many");
        // What cannot shrink and is as large now stays so: no access to it can fault.
        let has = rustix::fs::fstat(&chunk)?.st_size as u64;
        if has < bytes as u64 {
            return Ok(Err(format!("passed a chunk of {has} bytes, which should have {bytes}")));
        }
        let file = match File::adopt(chunk, has as usize, bywash_link::SEALS_FIXED) {
            Ok(file) => file,
            Err(what) => return Ok(Err(what)),
        };
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, self.reads);
        protection.set(ProtFlags::WRITE, self.writes);
        let at = self.base.wrapping_add(self.filled);
        let (length, flags) = (bytes.next_multiple_of(PAGE), MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: within the range that was reserved for it, of which nobody knows yet.
        unsafe { mmap(at.cast(), length, protection, flags, file.descriptor(), 0)? };
        self.filled += bytes;
        Ok(Ok(()))
    }

    /// Bytes that have chunks behind them.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Where the first byte is.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Whether this process made it: a child that was forked off has the memory and is not the client.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        self.maker.is_here()
    }

    /// Where a range of it is.
    ///
    /// # Panics
    /// If that goes beyond what is there.
    #[inline(always)]
    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let fits = offset <= self.filled as u64 && length <= self.filled - offset as usize;
        assert!(fits, "the range was held against the grant's size before");
        self.base.wrapping_add(offset as usize)
    }

    /// Copies out.
    ///
    /// # Safety
    /// `to` has room for as many bytes, and none of it is in this memory.
    ///
    /// # Panics
    /// If the range goes beyond what is there, or this memory may not be read.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, offset: u64, to: *mut u8, length: usize) {
        assert!(self.reads, "the right was looked at before");
        let from = self.at(offset, length);
        // SAFETY: mapped for reading and never shorter, as `add` has seen to; the caller's promise for the rest. Others
        // may write it meanwhile: then the copy has some bytes of each, and stays so.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), to, length) };
    }

    /// Copies in.
    ///
    /// # Safety
    /// There are as many bytes at `from`, and none of them is in this memory.
    ///
    /// # Panics
    /// If the range goes beyond what is there, or this memory may not be written.
    #[inline(always)]
    pub(crate) unsafe fn write_from(&self, offset: u64, from: *const u8, length: usize) {
        assert!(self.writes, "the right was looked at before");
        let to = self.at(offset, length);
        // SAFETY: mapped for writing and never shorter, as `add` has seen to; the caller's promise for the rest.
        unsafe { ptr::copy_nonoverlapping(from, to, length) };
    }

    /// As [`Mapped::write_from`], of a slice.
    ///
    /// # Panics
    /// As there.
    #[inline(always)]
    pub(crate) fn write(&self, offset: u64, from: &[u8]) {
        // SAFETY: no slice can be in this memory, since no reference leads there.
        unsafe { self.write_from(offset, from.as_ptr(), from.len()) };
    }

    /// Makes zeros of a range.
    ///
    /// # Panics
    /// As [`Mapped::write_from`].
    pub(crate) fn write_zeroes(&self, offset: u64, length: u64) {
        assert!(self.writes, "the right was looked at before");
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let to = self.at(offset, length);
        // SAFETY: as in `write_from`.
        unsafe { ptr::write_bytes(to, 0, length) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let (start, bytes) = self.reserved;
        // SAFETY: the range is this value's, and whoever uses it keeps this value. In a forked child it is the child's
        // own copy of the range that goes.
        let unmapped = unsafe { munmap(start.cast(), bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The page that says which grants were taken back.
#[derive(Debug)]
pub(crate) struct Notices {
    page: Mapping,
    count: usize,
    /// Whether the server's fences reach this process.
    has_fences: bool,
}

impl Notices {
    /// Maps what the server passed.
    ///
    /// # Errors
    /// Inside, what is wrong with it; outside, what the kernel says.
    pub(crate) fn adopt(
        page: OwnedFd,
        grants_max: u32,
    ) -> Result<Result<Notices, String>, bywash_link::Error> {
        match File::adopt(page, notices::bytes(grants_max), bywash_link::SEALS_FIXED) {
            Ok(file) => {
                let (page, count) = (file.map(false)?, grants_max as usize);
                Ok(Ok(Notices { page, count, has_fences: prepare_shared_fences() }))
            }
            Err(what) => Ok(Err(what)),
        }
    }

    /// Whether a grant can have a word here.
    pub(crate) fn has_place_for(&self, grant: u64) -> bool {
        notices::place_of(grant) < self.count
    }

    /// Between bytes that were stored to a grant's memory and the look whether it is still valid.
    #[inline(always)]
    pub(crate) fn fence_behind_writes(&self) {
        // SYNC: notices. The other fence is the server's, behind its store of the word.
        light_shared_fence(self.has_fences);
    }

    /// Whether a grant is still valid. What was done before counts as done only if one of the fences came in between.
    ///
    /// # Panics
    /// If there is no word for it.
    #[inline(always)]
    pub(crate) fn is_valid(&self, grant: u64) -> bool {
        let place = notices::place_of(grant);
        assert!(place < self.count, "its place was looked at when the grant was given");
        let word = self.page.base().cast::<AtomicU64>().wrapping_add(place);
        // SAFETY: within the page, which is mapped for reading, aligned, sealed against shrinking and used by atomics
        // alone; a load of so many bytes needs no right to write.
        let word = unsafe { (*word).load(Ordering::Acquire) };
        notices::is_valid(grant, word)
    }
}

/// Between bytes that were loaded from a grant's memory and the look whether it is still valid.
#[inline(always)]
pub(crate) fn fence_behind_reads() {
    // SYNC: notices. The word is loaded behind the bytes.
    read_fence();
}
