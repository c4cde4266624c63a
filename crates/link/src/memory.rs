//! Memory that two processes can map: anonymous files (memfd), sealed against resizing.
//!
//! Invariant: accessing a mapping of such a file never faults. Without `F_SEAL_SHRINK` a peer's ftruncate(2)
//! would cause a SIGBUS here, so a peer's file is mapped only after its seals and its size were checked.
//! Nothing ever appears in /dev/shm; the kernel frees the memory with the last process that has the file open
//! or mapped.

use crate::arena::Writers;
use crate::error::Error;
use crate::fork::ProcessGeneration;
use crate::ring::Shared;
use bywash_sync::{AtomicU64, Ordering::Relaxed, processor};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs,
    ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Size of a page, in bytes.
pub const PAGE: usize = 4096;
/// Size of a huge page, in bytes.
pub const HUGE_PAGE: usize = 2 << 20;
/// File system type that statfs(2) reports for a file of reserved huge pages.
const HUGETLBFS: i64 = 0x9584_58f6;
/// Greatest time that [`File::freeze`] waits for a forked child that has inherited a writable mapping.
const CHILD_LIMIT: Duration = Duration::from_millis(100);
/// Seals after which nobody can resize the file or change its seals.
const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Kind of huge pages (2 MiB) for an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Ordinary pages, all populated at once and collapsed into huge pages where the kernel can
    /// (MADV_COLLAPSE). Each huge page takes half a millisecond, or several on a busy machine, which pays for
    /// large amounts of data over a long time.
    Collapse,
    /// Pages that the administrator has reserved (/proc/sys/vm/nr_hugepages); an error if there are too few.
    Reserved,
    /// No huge pages. Pages are allocated at their first use.
    #[default]
    No,
}

/// An anonymous file (memfd) whose size this process knows.
#[derive(Debug)]
pub struct MemoryFile {
    descriptor: OwnedFd,
    bytes: usize,
}

impl MemoryFile {
    /// Creates a file of `bytes` zero bytes, which can still be sealed. [`Error::Io`] if memfd_create(2) or
    /// ftruncate(2) fails.
    pub fn create(name: &str, bytes: usize, huge: HugePages) -> Result<MemoryFile, Error> {
        let reserved = if huge == HugePages::Reserved { MemfdFlags::HUGETLB } else { MemfdFlags::empty() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | reserved;
        let made = memfd_create(name, flags).and_then(|descriptor| {
            ftruncate(&descriptor, bytes as u64)?;
            Ok(descriptor)
        });
        let descriptor = made.map_err(|error| Error::io(format!("make {bytes} bytes of memory"), error))?;
        Ok(MemoryFile { descriptor, bytes })
    }

    /// Takes over a file that a peer passed, if it has these seals and this size; else returns the violation.
    pub fn from_peer(descriptor: OwnedFd, bytes: usize, seals: SealFlags) -> Result<MemoryFile, String> {
        let has =
            fcntl_get_seals(&descriptor).map_err(|_| "passed a descriptor that is no memory".to_owned())?;
        if !has.contains(seals) {
            return Err("passed memory that is not sealed".into());
        }
        // A peer that may write to reserved huge pages can punch them out of the file. An access could then
        // find none free, which is a fault.
        let file = MemoryFile { descriptor, bytes };
        if file.is_huge() && !has.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE) {
            return Err("passed reserved huge pages that are not sealed against writing".into());
        }
        match fstat(&file.descriptor) {
            Ok(status) if status.st_size as u64 == bytes as u64 => Ok(file),
            _ => Err("passed memory of another size than it said".into()),
        }
    }

    /// Maps a peer's file for both ends to write, and seals it against further writable mappings. Pages that
    /// are backed then stay so, since only a process that may write to a file can punch holes into it. A file
    /// can be adopted so only once.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses to map or to seal the file. The inner error is the peer's
    /// violation: the seals, the size or the kind of the file is wrong.
    pub fn adopt_for_both(
        descriptor: OwnedFd,
        bytes: usize,
    ) -> Result<Result<(MemoryFile, Mapping), String>, Error> {
        let file = match MemoryFile::from_peer(descriptor, bytes, SEALS_FIXED) {
            Ok(file) => file,
            Err(what) => return Ok(Err(what)),
        };
        if file.stays_backed() {
            return Ok(Err("passed memory that is sealed against writing, as it is once it was used".into()));
        }
        let mapping = file.map(true)?;
        // After the mapping, which the seal would forbid.
        match fcntl_add_seals(&file.descriptor, FIXED | SealFlags::FUTURE_WRITE) {
            Ok(()) => Ok(Ok((file, mapping))),
            Err(Errno::PERM) => {
                Ok(Err("passed memory that it does not let be sealed against writing".into()))
            }
            Err(error) => Err(Error::io("take the right to write to memory away", error)),
        }
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Allocates all pages now instead of at their first use. The pages count as a hole for lseek(2) until
    /// they are touched.
    ///
    /// # Errors
    /// [`Error::Io`] if fallocate(2) fails, for instance since there is not enough memory.
    pub fn populate(&self) -> Result<(), Error> {
        fallocate(&self.descriptor, FallocateFlags::empty(), 0, self.bytes as u64)
            .map_err(|error| Error::io(format!("take {} bytes of memory", self.bytes), error))
    }

    /// Returns true if backed pages stay backed: a seal against writing also forbids to punch holes.
    pub fn stays_backed(&self) -> bool {
        let against_writing = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
        fcntl_get_seals(&self.descriptor).is_ok_and(|seals| seals.intersects(against_writing))
    }

    /// Returns true if the file consists of reserved huge pages, which are not charged as ordinary memory.
    pub(crate) fn is_huge(&self) -> bool {
        fstatfs(&self.descriptor).is_ok_and(|status| status.f_type == HUGETLBFS)
    }

    /// Returns true if reading a mapping of the file charges this process for no page, for a file that nobody
    /// can write to. A hole reads as zeros, and its pages are charged to the process that touches them first.
    ///
    /// # Errors
    /// [`Error::Io`] if neither cachestat(2) nor lseek(2) works on the file.
    pub fn is_fully_backed(&self) -> Result<bool, Error> {
        crate::backing::is_whole(self).map_err(|error| Error::io("ask which memory there is", error))
    }

    /// Copies a range out by pread(2), which allocates no pages for holes.
    ///
    /// # Errors
    /// [`Error::Io`] if pread(2) fails or the range extends beyond the file.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < to.len() {
            match rustix::io::pread(&self.descriptor, &mut to[done..], (offset + done) as u64) {
                Ok(0) => return Err(Error::io("read a peer's memory", Errno::IO)),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io("read a peer's memory", error)),
            }
        }
        Ok(())
    }

    /// Changes the size; [`Error::Io`] if seals forbid it.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Error> {
        ftruncate(&self.descriptor, bytes as u64).map_err(|error| Error::io("resize memory", error))?;
        self.bytes = bytes;
        Ok(())
    }

    /// Returns the descriptor, to be passed to a peer.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Returns the descriptor itself, for another process.
    pub fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// Seals the file so that nobody can resize it or change its seals.
    pub fn seal_size(&self) -> Result<(), Error> {
        self.add_seals(FIXED, "fix the size of memory")
    }

    /// Seals the file so that nobody can resize it; the peer can still seal it against writing, see
    /// [`MemoryFile::adopt_for_both`].
    pub fn seal_size_for_peer(&self) -> Result<(), Error> {
        self.add_seals(SealFlags::SHRINK | SealFlags::GROW, "fix the size of memory")
    }

    /// Seals the file so that nobody can resize it, and nobody can write to it except through existing
    /// mappings.
    pub fn seal_writers(&self) -> Result<(), Error> {
        self.add_seals(FIXED | SealFlags::FUTURE_WRITE, "take the right to write to memory away")
    }

    /// Seals the file so that nobody can resize it or write to it. The kernel refuses while anybody has the
    /// file mapped for writing. This may be a child that another thread forked before the mapping was kept
    /// from children; so this function retries for up to 100 ms, until the child has called exec(2).
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses the seals.
    pub fn seal(&self) -> Result<(), Error> {
        let end = Instant::now() + CHILD_LIMIT;
        loop {
            match fcntl_add_seals(&self.descriptor, FIXED | SealFlags::WRITE) {
                Err(Errno::BUSY) if Instant::now() < end => std::thread::sleep(CHILD_LIMIT / 100),
                sealed => return sealed.map_err(|error| Error::io("seal a container", error)),
            }
        }
    }

    fn add_seals(&self, seals: SealFlags, what: &str) -> Result<(), Error> {
        fcntl_add_seals(&self.descriptor, seals).map_err(|error| Error::io(what, error))
    }

    /// Creates and maps memory for rings, of a fixed size: `words` words, all zero. For [`Writers::Both`] all
    /// pages are populated.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be created, mapped, populated or sealed.
    pub fn create_words(words: usize, writers: Writers) -> Result<(MemoryFile, Shared), Error> {
        let file = MemoryFile::create("bywash-control", words * 8, HugePages::No)?;
        let mapping = file.map(true)?;
        match writers {
            Writers::Both => {
                mapping.populate(0, mapping.bytes)?;
                file.seal_size_for_peer()?;
            }
            Writers::Owner => file.seal_writers()?,
        }
        let shared = file.words(mapping);
        Ok((file, shared))
    }

    /// Returns the words of a file that cannot shrink, given a writable mapping of the whole file.
    fn words(&self, mapping: Mapping) -> Shared {
        let mapping = Arc::new(mapping);
        let base: *const AtomicU64 = mapping.base().cast();
        // SAFETY: the file is mapped for reading and writing, page-aligned, and sealed against shrinking, so
        // accesses never fault. `Shared` makes only atomic accesses, and keeps the mapping.
        unsafe { Shared::new(base, self.bytes / 8, mapping) }
    }

    /// Maps a peer's memory for rings, if its size and seals are right and the peer has populated all of it.
    /// The pages then stay backed; pages that this process touched first would be charged to it. A file can
    /// be adopted so only once.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses to map or to seal the file. The inner error is the peer's
    /// violation.
    pub fn adopt_words(descriptor: OwnedFd, words: usize) -> Result<Result<Shared, String>, Error> {
        let (file, mapping) = match MemoryFile::adopt_for_both(descriptor, words * 8)? {
            Ok(adopted) => adopted,
            Err(what) => return Ok(Err(what)),
        };
        match file.is_fully_backed()? {
            true => Ok(Ok(file.words(mapping))),
            false => Ok(Err("passed rings of which it has not taken the memory".into())),
        }
    }

    /// Maps the whole file; [`Error::Io`] if mmap(2) fails.
    pub fn map(&self, writable: bool) -> Result<Mapping, Error> {
        Mapping::new(self.descriptor(), self.bytes, writable)
            .map_err(|error| Error::io(format!("map {} bytes of memory", self.bytes), error))
    }
}

/// Seals that a peer's file must have before it is mapped.
pub const SEALS_FIXED: SealFlags = SealFlags::SHRINK;
/// Seals of a sealed container.
pub const SEALS_FROZEN: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);

/// A mapping of a whole file, or of several files in one range of addresses.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    bytes: usize,
    /// True if the whole range is mapped for writing.
    is_writable: bool,
    /// The process that has the mapping, if the mapping is left out of forked children: a child may have
    /// other memory at these addresses.
    only_in: Option<ProcessGeneration>,
}

// SAFETY: the address range belongs to this value alone and is not bound to a thread. Callers who access its
// bytes through `base` answer for these accesses.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out the base address, advises the kernel, and has it replace pages; none of these
// needs exclusive access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file; at a multiple of 2 MiB if it has at least this size, so that huge pages are possible.
    fn new(file: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<Mapping, Errno> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let bytes = bytes.next_multiple_of(PAGE);
        if bytes < HUGE_PAGE {
            // SAFETY: a new mapping, at an address of the kernel's choice, replaces nothing.
            let base = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
            return Ok(Mapping { base: base.cast(), bytes, is_writable: writable, only_in: None });
        }
        let (start, base) = reserve(bytes)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the fixed range lies within the addresses that were just reserved, which nobody uses.
        let mapped = unsafe { mmap(base as *mut _, bytes, protection, flags, file, 0) };
        match mapped {
            Ok(_) => release_around(start, base, bytes),
            Err(_) => release(start, bytes + HUGE_PAGE),
        }
        Ok(Mapping { base: mapped?.cast(), bytes, is_writable: writable, only_in: None })
    }

    /// Reserves `bytes` bytes of addresses, from a multiple of 2 MiB on. Accessing them is a fault until
    /// [`Mapping::put`] maps files there.
    ///
    /// # Errors
    /// [`Error::Io`] if mmap(2) fails.
    pub fn empty(bytes: usize) -> Result<Mapping, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        let (start, base) = reserve(bytes)
            .map_err(|error| Error::io(format!("reserve {bytes} bytes of addresses"), error))?;
        release_around(start, base, bytes);
        Ok(Mapping { base: base as *mut u8, bytes, is_writable: false, only_in: None })
    }

    /// Maps all of `file` for reading and writing, `offset` bytes from the beginning of the range, and
    /// replaces the mapping there. An access meanwhile reaches either the old or the new bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if mmap(2) fails; the range may then be unmapped.
    ///
    /// # Panics
    /// If the file does not fit into the range, or `offset` is not a multiple of the page size.
    pub fn put(&self, offset: usize, file: &MemoryFile) -> Result<(), Error> {
        let bytes = file.bytes().next_multiple_of(PAGE);
        assert!(offset.is_multiple_of(PAGE) && offset <= self.bytes && bytes <= self.bytes - offset);
        let at = self.base.wrapping_add(offset);
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the fixed range lies within this mapping, as asserted; callers keep no Rust reference to
        // its bytes, but reach them by address alone.
        unsafe { mmap(at.cast(), bytes, rights, flags, file.descriptor(), 0) }
            .map(|_| ())
            .map_err(|error| Error::io(format!("map {bytes} bytes of memory"), error))
    }

    /// Maps `bytes` bytes of a device's memory for reading and writing, from `offset` bytes of its file on.
    ///
    /// # Errors
    /// [`Error::Io`] if mmap(2) fails, which it does for an offset that is no multiple of the page size.
    pub fn device(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<Mapping, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, replaces nothing.
        let base = unsafe { mmap(ptr::null_mut(), bytes, rights, MapFlags::SHARED, file, offset) }
            .map_err(|error| Error::io(format!("map {bytes} bytes of a device's memory"), error))?;
        Ok(Mapping { base: base.cast(), bytes, is_writable: true, only_in: None })
    }

    /// Returns the first address.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Leaves the mapping out of forked children; [`Error::Io`] if madvise(2) fails.
    pub fn keep_from_children(&mut self) -> Result<(), Error> {
        // SAFETY: the range is this value's own; a forked child does not use it, since `only_in` names this
        // process.
        match unsafe { libc::madvise(self.base.cast(), self.bytes, libc::MADV_DONTFORK) } {
            0 => {
                self.only_in = Some(ProcessGeneration::current());
                Ok(())
            }
            _ => Err(Error::io("keep memory from children", std::io::Error::last_os_error())),
        }
    }

    /// Allocates the pages of a range now, charged to this process, instead of at their first use.
    ///
    /// # Errors
    /// [`Error::Io`] if there is not enough memory.
    ///
    /// # Panics
    /// If the range lies outside of the mapping, or the mapping is not writable.
    pub fn populate(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        assert!(self.is_writable, "only a mapping for writing can be populated");
        assert!(offset.is_multiple_of(PAGE) && offset <= self.bytes && bytes <= self.bytes - offset);
        let start = self.base.wrapping_add(offset);
        // SAFETY: the range lies within this mapping, as asserted; populating does not change its bytes.
        if unsafe { libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error() {
            // Before Linux 5.14 the advice is unknown: so each page is touched by a write.
            error if error.raw_os_error() == Some(libc::EINVAL) => {
                for page in (0..bytes).step_by(PAGE) {
                    // SAFETY: within this mapping, which is writable as asserted; the atomic operation
                    // changes no byte and loses no concurrent write.
                    unsafe {
                        processor::AtomicU64::from_ptr(start.wrapping_add(page).cast()).fetch_or(0, Relaxed)
                    };
                }
                Ok(())
            }
            error => Err(Error::io(format!("take {bytes} bytes of memory"), error)),
        }
    }

    /// Makes huge pages of the whole range where the kernel can, and returns their total size in bytes. Pages
    /// that nobody has touched are not collapsed.
    pub fn collapse(&self) -> usize {
        self.collapse_part(0, self.bytes)
    }

    /// Like [`Mapping::collapse`], but only for the huge pages that lie entirely in `bytes` bytes from
    /// `offset` on.
    pub fn collapse_part(&self, offset: usize, bytes: usize) -> usize {
        let end = offset.saturating_add(bytes).min(self.bytes);
        (offset.div_ceil(HUGE_PAGE)..end / HUGE_PAGE)
            .filter(|number| {
                let page = self.base.wrapping_add(number * HUGE_PAGE);
                // SAFETY: within this mapping; the advice changes the size of the pages, not their bytes.
                unsafe { libc::madvise(page.cast(), HUGE_PAGE, libc::MADV_COLLAPSE) == 0 }
            })
            .count()
            * HUGE_PAGE
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.only_in.is_some_and(|maker| !maker.is_here()) {
            return;
        }
        // SAFETY: the range is this value's own, and everybody who accesses its bytes keeps this value alive.
        let unmapped = unsafe { munmap(self.base.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Reserves inaccessible addresses: `bytes` and a huge page more. Returns their start, and the first multiple
/// of 2 MiB.
fn reserve(bytes: usize) -> Result<(usize, usize), Errno> {
    let length = bytes.checked_add(HUGE_PAGE).ok_or(Errno::NOMEM)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new inaccessible mapping, at an address of the kernel's choice, replaces nothing.
    let reserved = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags)? };
    let start = reserved as usize;
    Ok((start, start.next_multiple_of(HUGE_PAGE)))
}

/// Unmaps the reserved addresses before and after the ones that are used.
fn release_around(start: usize, base: usize, bytes: usize) {
    release(start, base - start);
    release(base + bytes, start + HUGE_PAGE - base);
}

fn release(at: usize, length: usize) {
    if length > 0 {
        // SAFETY: the range is a part of a reservation that was just made, and nobody uses it.
        let unmapped = unsafe { munmap(at as *mut _, length) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_side_by_side_and_are_replaced() {
        let file = |byte: u8| {
            let file = MemoryFile::create("test", PAGE, HugePages::No).unwrap();
            // SAFETY: the temporary mapping lives until the end of the statement, and nobody else has it.
            unsafe { file.map(true).unwrap().base().write(byte) };
            file
        };
        let both = Mapping::empty(2 * PAGE).unwrap();
        assert_eq!(both.base() as usize % HUGE_PAGE, 0);
        both.put(0, &file(1)).unwrap();
        both.put(PAGE, &file(2)).unwrap();
        // SAFETY: both pages are mapped and readable, and nobody else has them.
        let read = |at| unsafe { both.base().wrapping_add(at).read_volatile() };
        assert_eq!((read(0), read(PAGE)), (1, 2));
        both.put(PAGE, &file(3)).unwrap();
        // SAFETY: both pages are still mapped after the replacement, and nobody else has them.
        let read = |at| unsafe { both.base().wrapping_add(at).read_volatile() };
        assert_eq!((read(0), read(PAGE)), (1, 3));
    }

    #[test]
    #[should_panic(expected = "offset")]
    fn nothing_is_put_outside() {
        let file = MemoryFile::create("test", 2 * PAGE, HugePages::No).unwrap();
        let _ = Mapping::empty(2 * PAGE).unwrap().put(PAGE, &file);
    }

    #[test]
    fn memory_of_a_fixed_size_stays_so() {
        let file = MemoryFile::create("test", PAGE, HugePages::No).unwrap();
        let mapping = file.map(true).unwrap();
        file.seal_writers().unwrap();
        assert_eq!(ftruncate(file.descriptor(), 0), Err(Errno::PERM));
        assert_eq!(ftruncate(file.descriptor(), 1 << 20), Err(Errno::PERM));
        assert!(file.map(true).is_err());
        // SAFETY: the mapping is live and writable, and nobody else has it.
        unsafe { mapping.base().write(7) };
        let other = file.map(false).unwrap();
        // SAFETY: the mapping is live and readable, and no thread writes to the file.
        assert_eq!(unsafe { other.base().read() }, 7);
    }

    #[test]
    fn a_child_leaves_alone_what_it_does_not_have() {
        let file = MemoryFile::create("test", PAGE, HugePages::No).unwrap();
        let mut mapping = file.map(true).unwrap();
        mapping.keep_from_children().unwrap();
        let base = mapping.base();
        // SAFETY: the child makes only system calls and drops one value, and exits without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // The child maps memory of its own at this address.
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: MAP_FIXED_NOREPLACE replaces nothing, should the child have a mapping there.
            let own = unsafe { libc::mmap(base.cast(), PAGE, rights, flags, -1, 0) };
            drop(mapping);
            // SAFETY: the child's own new mapping. If it failed or was unmapped, the child is killed and the
            // test fails.
            unsafe { own.cast::<u8>().write_volatile(1) };
            // SAFETY: _exit(2) ends the process and has no preconditions.
            unsafe { libc::_exit(if own == base.cast() { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just forked, and writes to a live integer.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn large_memory_is_aligned() {
        let file = MemoryFile::create("test", 3 * HUGE_PAGE, HugePages::Collapse).unwrap();
        let mapping = file.map(true).unwrap();
        assert_eq!(mapping.base() as usize % HUGE_PAGE, 0);
        assert!(mapping.collapse() <= 3 * HUGE_PAGE);
    }

    #[test]
    fn what_both_write_keeps_the_memory_that_it_has() {
        let pass = |file: &MemoryFile| file.descriptor().try_clone_to_owned().unwrap();
        let adopt = |file: &MemoryFile| MemoryFile::adopt_for_both(pass(file), file.bytes()).unwrap();
        let offered = || {
            let file = MemoryFile::create("test", 2 * PAGE, HugePages::No).unwrap();
            let mapping = file.map(true).unwrap();
            file.seal_size_for_peer().unwrap();
            (file, mapping)
        };
        let (file, own) = offered();
        own.populate(0, PAGE).unwrap();
        let (_, theirs) = adopt(&file).unwrap();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(file.descriptor(), hole, 0, PAGE as u64), Err(Errno::PERM));
        // SAFETY: the range is a live mapping, whose bytes no Rust reference refers to.
        assert_eq!(unsafe { libc::madvise(own.base().cast(), PAGE, libc::MADV_REMOVE) }, -1);
        assert_eq!(fstat(file.descriptor()).unwrap().st_blocks * 512, PAGE as i64);
        // Both ends can still write, to the page that was backed and to the one that was not.
        for (mapping, other, at) in [(&own, &theirs, 0), (&theirs, &own, PAGE)] {
            // SAFETY: a live writable mapping of at least `at + 1` bytes; nobody accesses the file meanwhile.
            unsafe { mapping.base().add(at).write_volatile(7) };
            // SAFETY: a live readable mapping of the same file, to which nobody writes meanwhile.
            assert_eq!(unsafe { other.base().add(at).read_volatile() }, 7);
        }
        assert!(adopt(&file).unwrap_err().contains("sealed against writing"), "it was adopted twice");
        let (file, _own) = offered();
        file.seal_size().unwrap();
        assert!(adopt(&file).unwrap_err().contains("let be sealed"));
    }

    #[test]
    fn rings_whose_memory_was_not_taken_are_not_adopted() {
        let pass = |file: &MemoryFile| file.descriptor().try_clone_to_owned().unwrap();
        let (file, _words) = MemoryFile::create_words(2 * PAGE / 8, Writers::Both).unwrap();
        assert!(MemoryFile::adopt_words(pass(&file), 2 * PAGE / 8).unwrap().is_ok());
        let file = MemoryFile::create("test", 2 * PAGE, HugePages::No).unwrap();
        fallocate(file.descriptor(), FallocateFlags::empty(), 0, PAGE as u64).unwrap();
        file.seal_size_for_peer().unwrap();
        let refused = MemoryFile::adopt_words(pass(&file), 2 * PAGE / 8).unwrap();
        assert!(refused.unwrap_err().contains("not taken"));
    }

    #[test]
    fn what_is_not_sealed_or_not_as_large_is_not_adopted() {
        let file = MemoryFile::create("test", PAGE, HugePages::No).unwrap();
        let pass = |file: &MemoryFile| file.descriptor().try_clone_to_owned().unwrap();
        assert!(MemoryFile::from_peer(pass(&file), PAGE, SEALS_FIXED).unwrap_err().contains("not sealed"));
        file.seal_size().unwrap();
        assert!(MemoryFile::from_peer(pass(&file), PAGE, SEALS_FIXED).is_ok());
        assert!(
            MemoryFile::from_peer(pass(&file), 2 * PAGE, SEALS_FIXED).unwrap_err().contains("another size")
        );
        assert!(MemoryFile::from_peer(pass(&file), PAGE, SEALS_FROZEN).unwrap_err().contains("not sealed"));
        let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        assert!(MemoryFile::from_peer(null, PAGE, SEALS_FIXED).unwrap_err().contains("no memory"));
    }
}
