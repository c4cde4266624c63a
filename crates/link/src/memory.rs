//! Memory that two processes can map: anonymous files (memfd), sealed against resizing.
//!
//! A mapping of such a file never faults: without `F_SEAL_SHRINK` a peer's ftruncate(2) would be a SIGBUS
//! here. A foreign file is asked for its seals and its size before it is mapped. Nothing ever appears in
//! /dev/shm; the memory goes with the last process that has it.

use crate::arena::Writers;
use crate::error::Error;
use crate::fork::Maker;
use bywash_ring::Shared;
use bywash_sync::{AtomicU64, Ordering::Relaxed};
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

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;
/// What statfs(2) says of memory in reserved huge pages.
const HUGETLBFS: i64 = 0x9584_58f6;
/// Longest time that a child is waited for that has memory which is to be sealed.
const CHILD_LIMIT: Duration = Duration::from_millis(100);
/// No party can resize the file, nor undo that.
const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Pages of 2 MiB for an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Ordinary memory, all of it taken at once and made into huge pages where the kernel can (MADV_COLLAPSE). That
    /// takes half a millisecond each, and several on a busy machine, and pays for much that goes on for long.
    Collapse,
    /// Pages that were reserved for it (/proc/sys/vm/nr_hugepages); else an error.
    Reserved,
    /// None. Memory is taken as it is used.
    #[default]
    No,
}

/// An anonymous file of a fixed size.
#[derive(Debug)]
pub struct File {
    descriptor: OwnedFd,
    bytes: usize,
}

impl File {
    /// A new file of `bytes`, all zero, which can still be sealed.
    pub fn create(name: &str, bytes: usize, huge: HugePages) -> Result<File, Error> {
        let reserved = if huge == HugePages::Reserved { MemfdFlags::HUGETLB } else { MemfdFlags::empty() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | reserved;
        let made = memfd_create(name, flags).and_then(|descriptor| {
            ftruncate(&descriptor, bytes as u64)?;
            Ok(descriptor)
        });
        let descriptor = made.map_err(|error| Error::io(format!("make {bytes} bytes of memory"), error))?;
        Ok(File { descriptor, bytes })
    }

    /// A file that a peer passed on, if it is what it should be.
    pub fn adopt(descriptor: OwnedFd, bytes: usize, seals: SealFlags) -> Result<File, String> {
        let has =
            fcntl_get_seals(&descriptor).map_err(|_| "passed a descriptor that is no memory".to_owned())?;
        if !has.contains(seals) {
            return Err("passed memory that is not sealed".into());
        }
        // Huge pages that were reserved can be taken out of a file again by whoever may write it, and then be
        // missing: a fault.
        let file = File { descriptor, bytes };
        if file.is_huge() && !has.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE) {
            return Err("passed reserved huge pages that are not sealed against writing".into());
        }
        match fstat(&file.descriptor) {
            Ok(status) if status.st_size as u64 == bytes as u64 => Ok(file),
            _ => Err("passed memory of another size than it said".into()),
        }
    }

    /// Maps a file that a peer passed on for both to write, and seals it against everybody else: pages that have memory
    /// keep it, since who cannot write to a file cannot punch holes into it either. A file can be adopted so once.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel does not map it; inside, the reason why it is not what it should be.
    pub fn adopt_for_both(
        descriptor: OwnedFd,
        bytes: usize,
    ) -> Result<Result<(File, Mapping), String>, Error> {
        let file = match File::adopt(descriptor, bytes, SEALS_FIXED) {
            Ok(file) => file,
            Err(what) => return Ok(Err(what)),
        };
        if file.keeps_memory() {
            return Ok(Err("passed memory that is sealed against writing, as it is once it was used".into()));
        }
        let mapping = file.map(true)?;
        // Behind the mapping, which the seal would not allow.
        match fcntl_add_seals(&file.descriptor, FIXED | SealFlags::FUTURE_WRITE) {
            Ok(()) => Ok(Ok((file, mapping))),
            Err(Errno::PERM) => {
                Ok(Err("passed memory that it does not let be sealed against writing".into()))
            }
            Err(error) => Err(Error::io("take the right to write to memory away", error)),
        }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes all of its memory now, and not as it is touched. Until it is, lseek(2) finds holes there.
    ///
    /// # Errors
    /// What the kernel says, where there is not so much.
    pub fn populate(&self) -> Result<(), Error> {
        fallocate(&self.descriptor, FallocateFlags::empty(), 0, self.bytes as u64)
            .map_err(|error| Error::io(format!("take {} bytes of memory", self.bytes), error))
    }

    /// Whether pages of it that have memory keep it: who cannot write cannot punch holes either.
    pub fn keeps_memory(&self) -> bool {
        let against_writing = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
        fcntl_get_seals(&self.descriptor).is_ok_and(|seals| seals.intersects(against_writing))
    }

    /// Whether it consists of huge pages that were reserved, which are no part of anybody's ordinary memory.
    pub(crate) fn is_huge(&self) -> bool {
        fstatfs(&self.descriptor).is_ok_and(|status| status.f_type == HUGETLBFS)
    }

    /// Whether to map and read it takes no memory, for a file that nobody can write to. A hole reads as zeros, and is
    /// filled by who touches it first.
    ///
    /// # Errors
    /// [`Error::Io`] where the kernel cannot tell.
    pub fn is_whole(&self) -> Result<bool, Error> {
        crate::backing::is_whole(self).map_err(|error| Error::io("ask which memory there is", error))
    }

    /// Copies a part out by pread(2), which takes no memory for holes.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel cannot read it.
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

    /// Changes the size, as long as that is not fixed.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Error> {
        ftruncate(&self.descriptor, bytes as u64).map_err(|error| Error::io("resize memory", error))?;
        self.bytes = bytes;
        Ok(())
    }

    /// To be passed on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Nobody can resize it any more.
    pub fn fix_size(&self) -> Result<(), Error> {
        self.seal(FIXED, "fix the size of memory")
    }

    /// Nobody can resize it, and a peer can still seal it against other writers; see [`File::adopt_for_both`].
    pub fn offer(&self) -> Result<(), Error> {
        self.seal(SealFlags::SHRINK | SealFlags::GROW, "fix the size of memory")
    }

    /// Nobody can resize it, and nobody can write to it but through mappings that there are already.
    pub fn fix_writers(&self) -> Result<(), Error> {
        self.seal(FIXED | SealFlags::FUTURE_WRITE, "take the right to write to memory away")
    }

    /// Nobody can resize it or write to it. Fails while anybody has it mapped for writing. That may be a child that
    /// another thread forked off before the mapping was kept from children, which is waited for until it has started
    /// its program.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn freeze(&self) -> Result<(), Error> {
        let end = Instant::now() + CHILD_LIMIT;
        loop {
            match fcntl_add_seals(&self.descriptor, FIXED | SealFlags::WRITE) {
                Err(Errno::BUSY) if Instant::now() < end => std::thread::sleep(CHILD_LIMIT / 100),
                sealed => return sealed.map_err(|error| Error::io("seal a container", error)),
            }
        }
    }

    fn seal(&self, seals: SealFlags, what: &str) -> Result<(), Error> {
        fcntl_add_seals(&self.descriptor, seals).map_err(|error| Error::io(what, error))
    }

    /// New memory of a fixed size for rings, mapped: so many words, all zero. Of what both write all memory is taken.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create_words(words: usize, writers: Writers) -> Result<(File, Shared), Error> {
        let file = File::create("bywash-control", words * 8, HugePages::No)?;
        let mapping = file.map(true)?;
        match writers {
            Writers::Both => {
                mapping.populate(0, mapping.bytes)?;
                file.offer()?;
            }
            Writers::Owner => file.fix_writers()?,
        }
        let shared = file.words(mapping);
        Ok((file, shared))
    }

    /// The words of a file that cannot be shrunk, in a mapping of all of it for writing.
    fn words(&self, mapping: Mapping) -> Shared {
        let mapping = Arc::new(mapping);
        let base: *const AtomicU64 = mapping.base().cast();
        // SAFETY: mapped for reading and writing, page-aligned, sealed against shrinking, and used through
        // `Shared` only; the mapping goes with the last of them.
        unsafe { Shared::new(base, self.bytes / 8, mapping) }
    }

    /// Words that a peer passed on, if they are what they should be and the peer has taken all of their memory, which they
    /// keep: whoever touches a page first pays for it. A file can be adopted so once.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel does not map them; inside, the reason why they are not what they should be.
    pub fn adopt_words(descriptor: OwnedFd, words: usize) -> Result<Result<Shared, String>, Error> {
        let (file, mapping) = match File::adopt_for_both(descriptor, words * 8)? {
            Ok(adopted) => adopted,
            Err(what) => return Ok(Err(what)),
        };
        match file.is_whole()? {
            true => Ok(Ok(file.words(mapping))),
            false => Ok(Err("passed rings of which it has not taken the memory".into())),
        }
    }

    /// Maps all of it.
    pub fn map(&self, writable: bool) -> Result<Mapping, Error> {
        Mapping::of(self.descriptor(), self.bytes, writable)
            .map_err(|error| Error::io(format!("map {} bytes of memory", self.bytes), error))
    }
}

/// The seals that memory must have before it is mapped.
pub const SEALS_FIXED: SealFlags = SealFlags::SHRINK;
/// The seals of a sealed container.
pub const SEALS_FROZEN: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);

/// A mapping of a whole file.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    bytes: usize,
    /// The one process that has it, if it is left out of forked children: what is there in a child is not ours.
    only_in: Option<Maker>,
}

// SAFETY: an address range that belongs to this value alone; what may be done with its bytes is up to those
// who use it.
unsafe impl Send for Mapping {}
// SAFETY: as above; the value gives out nothing but the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// At a multiple of 2 MiB, if it is large enough for that to matter.
    fn of(file: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<Mapping, Errno> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let bytes = bytes.next_multiple_of(PAGE);
        if bytes < HUGE_PAGE {
            // SAFETY: a new mapping, at an address of the kernel's choice.
            let base = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
            return Ok(Mapping { base: base.cast(), bytes, only_in: None });
        }
        let (start, base) = reserve(bytes)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: within the range that was just reserved and is used by nobody.
        let mapped = unsafe { mmap(base as *mut _, bytes, protection, flags, file, 0) };
        match mapped {
            Ok(_) => release_around(start, base, bytes),
            Err(_) => release(start, bytes + HUGE_PAGE),
        }
        Ok(Mapping { base: mapped?.cast(), bytes, only_in: None })
    }

    /// Addresses for so many bytes, from a multiple of 2 MiB on, with nothing there: to touch them is a fault. Files
    /// come there by [`Mapping::put`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn empty(bytes: usize) -> Result<Mapping, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        let (start, base) = reserve(bytes)
            .map_err(|error| Error::io(format!("reserve {bytes} bytes of addresses"), error))?;
        release_around(start, base, bytes);
        Ok(Mapping { base: base as *mut u8, bytes, only_in: None })
    }

    /// Maps all of `file` for reading and writing `offset` bytes from the beginning, in the place of what is mapped
    /// there. Bytes are only ever reached at one or the other.
    ///
    /// # Errors
    /// What the kernel says; then nothing may be mapped there any more.
    ///
    /// # Panics
    /// If that is not within the mapping, or the offset is not of whole pages.
    pub fn put(&mut self, offset: usize, file: &File) -> Result<(), Error> {
        let bytes = file.bytes().next_multiple_of(PAGE);
        assert!(offset.is_multiple_of(PAGE) && offset <= self.bytes && bytes <= self.bytes - offset);
        let at = self.base.wrapping_add(offset);
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: within this mapping, whose bytes are reached by address alone, by those who keep it.
        unsafe { mmap(at.cast(), bytes, rights, flags, file.descriptor(), 0) }
            .map(|_| ())
            .map_err(|error| Error::io(format!("map {bytes} bytes of memory"), error))
    }

    /// Where it begins.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Leaves it out of forked children.
    pub fn keep_from_children(&mut self) -> Result<(), Error> {
        // SAFETY: the mapping is ours; in a child its owner is not there.
        match unsafe { libc::madvise(self.base.cast(), self.bytes, libc::MADV_DONTFORK) } {
            0 => {
                self.only_in = Some(Maker::this());
                Ok(())
            }
            _ => Err(Error::io("keep memory from children", std::io::Error::last_os_error())),
        }
    }

    /// Takes the memory of a part now, and not as it is touched: of whole pages, at this process's expense.
    ///
    /// # Errors
    /// [`Error::Io`] if there is not so much memory.
    pub fn populate(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        assert!(offset.is_multiple_of(PAGE) && offset <= self.bytes && bytes <= self.bytes - offset);
        let start = self.base.wrapping_add(offset);
        // SAFETY: within this mapping; what the bytes are stays as it is.
        if unsafe { libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error() {
            // Before Linux 5.14: as whoever writes there would.
            error if error.raw_os_error() == Some(libc::EINVAL) => {
                for page in (0..bytes).step_by(PAGE) {
                    // SAFETY: within this mapping, which is writable, and atomic, so that nothing is lost.
                    unsafe { AtomicU64::from_ptr(start.wrapping_add(page).cast()).fetch_or(0, Relaxed) };
                }
                Ok(())
            }
            error => Err(Error::io(format!("take {bytes} bytes of memory"), error)),
        }
    }

    /// Makes huge pages of it where the kernel can; answers of how many bytes. It makes none of memory that nobody has
    /// touched yet.
    pub fn collapse(&self) -> usize {
        self.collapse_part(0, self.bytes)
    }

    /// As [`Mapping::collapse`], of the whole huge pages among `bytes` bytes from `offset` on.
    pub fn collapse_part(&self, offset: usize, bytes: usize) -> usize {
        let end = offset.saturating_add(bytes).min(self.bytes);
        (offset.div_ceil(HUGE_PAGE)..end / HUGE_PAGE)
            .filter(|number| {
                let page = self.base.wrapping_add(number * HUGE_PAGE);
                // SAFETY: the advice changes how the bytes are kept, not what they are.
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
        // SAFETY: whoever uses the bytes keeps this value.
        let unmapped = unsafe { munmap(self.base.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Addresses for so many bytes and a huge page more that nobody can touch: where they begin, and the first of them that
/// is a multiple of 2 MiB.
fn reserve(bytes: usize) -> Result<(usize, usize), Errno> {
    let length = bytes.checked_add(HUGE_PAGE).ok_or(Errno::NOMEM)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping that nobody can touch, at an address of the kernel's choice.
    let reserved = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags)? };
    let start = reserved as usize;
    Ok((start, start.next_multiple_of(HUGE_PAGE)))
}

/// Gives back what was reserved before and behind what is used.
fn release_around(start: usize, base: usize, bytes: usize) {
    release(start, base - start);
    release(base + bytes, start + HUGE_PAGE - base);
}

fn release(at: usize, length: usize) {
    if length > 0 {
        // SAFETY: of a range that was just reserved, and nobody uses it.
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
            let file = File::create("test", PAGE, HugePages::No).unwrap();
            // SAFETY: the mapping is there, and nobody else has it.
            unsafe { file.map(true).unwrap().base().write(byte) };
            file
        };
        let mut both = Mapping::empty(2 * PAGE).unwrap();
        assert_eq!(both.base() as usize % HUGE_PAGE, 0);
        both.put(0, &file(1)).unwrap();
        both.put(PAGE, &file(2)).unwrap();
        // SAFETY: both pages were mapped, and nobody else has them.
        let read = |at| unsafe { both.base().wrapping_add(at).read_volatile() };
        assert_eq!((read(0), read(PAGE)), (1, 2));
        both.put(PAGE, &file(3)).unwrap();
        // SAFETY: as above.
        let read = |at| unsafe { both.base().wrapping_add(at).read_volatile() };
        assert_eq!((read(0), read(PAGE)), (1, 3));
    }

    #[test]
    #[should_panic(expected = "offset")]
    fn nothing_is_put_outside() {
        let file = File::create("test", 2 * PAGE, HugePages::No).unwrap();
        let _ = Mapping::empty(2 * PAGE).unwrap().put(PAGE, &file);
    }

    #[test]
    fn memory_of_a_fixed_size_stays_so() {
        let file = File::create("test", PAGE, HugePages::No).unwrap();
        let mapping = file.map(true).unwrap();
        file.fix_writers().unwrap();
        assert_eq!(ftruncate(file.descriptor(), 0), Err(Errno::PERM));
        assert_eq!(ftruncate(file.descriptor(), 1 << 20), Err(Errno::PERM));
        assert!(file.map(true).is_err());
        // SAFETY: the mapping is there, and nobody else has it.
        unsafe { mapping.base().write(7) };
        let other = file.map(false).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { other.base().read() }, 7);
    }

    #[test]
    fn a_child_leaves_alone_what_it_does_not_have() {
        let file = File::create("test", PAGE, HugePages::No).unwrap();
        let mut mapping = file.map(true).unwrap();
        mapping.keep_from_children().unwrap();
        let base = mapping.base();
        // SAFETY: the child makes system calls only, and leaves without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // The child uses the place for something of its own.
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: nothing is there in the child.
            let own = unsafe { libc::mmap(base.cast(), PAGE, rights, flags, -1, 0) };
            drop(mapping);
            // SAFETY: what was just mapped, if it was and still is; else this child is killed, and the test fails.
            unsafe { own.cast::<u8>().write_volatile(1) };
            // SAFETY: the end of the process.
            unsafe { libc::_exit(if own == base.cast() { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child that was just made.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn large_memory_is_aligned() {
        let file = File::create("test", 3 * HUGE_PAGE, HugePages::Collapse).unwrap();
        let mapping = file.map(true).unwrap();
        assert_eq!(mapping.base() as usize % HUGE_PAGE, 0);
        assert!(mapping.collapse() <= 3 * HUGE_PAGE);
    }

    #[test]
    fn what_both_write_keeps_the_memory_that_it_has() {
        let pass = |file: &File| file.descriptor().try_clone_to_owned().unwrap();
        let adopt = |file: &File| File::adopt_for_both(pass(file), file.bytes()).unwrap();
        let offered = || {
            let file = File::create("test", 2 * PAGE, HugePages::No).unwrap();
            let mapping = file.map(true).unwrap();
            file.offer().unwrap();
            (file, mapping)
        };
        let (file, own) = offered();
        own.populate(0, PAGE).unwrap();
        let (_, theirs) = adopt(&file).unwrap();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(file.descriptor(), hole, 0, PAGE as u64), Err(Errno::PERM));
        // SAFETY: advice on the pages of a live mapping, whose bytes nobody relies on.
        assert_eq!(unsafe { libc::madvise(own.base().cast(), PAGE, libc::MADV_REMOVE) }, -1);
        assert_eq!(fstat(file.descriptor()).unwrap().st_blocks * 512, PAGE as i64);
        // Both still write, in what there was and in what there was not.
        for (mapping, other, at) in [(&own, &theirs, 0), (&theirs, &own, PAGE)] {
            // SAFETY: both are mapped, of one file that nobody else has.
            unsafe { mapping.base().add(at).write_volatile(7) };
            // SAFETY: as above.
            assert_eq!(unsafe { other.base().add(at).read_volatile() }, 7);
        }
        assert!(adopt(&file).unwrap_err().contains("sealed against writing"), "it was adopted twice");
        let (file, _own) = offered();
        file.fix_size().unwrap();
        assert!(adopt(&file).unwrap_err().contains("let be sealed"));
    }

    #[test]
    fn rings_whose_memory_was_not_taken_are_not_adopted() {
        let pass = |file: &File| file.descriptor().try_clone_to_owned().unwrap();
        let (file, _words) = File::create_words(2 * PAGE / 8, Writers::Both).unwrap();
        assert!(File::adopt_words(pass(&file), 2 * PAGE / 8).unwrap().is_ok());
        let file = File::create("test", 2 * PAGE, HugePages::No).unwrap();
        fallocate(file.descriptor(), FallocateFlags::empty(), 0, PAGE as u64).unwrap();
        file.offer().unwrap();
        let refused = File::adopt_words(pass(&file), 2 * PAGE / 8).unwrap();
        assert!(refused.unwrap_err().contains("not taken"));
    }

    #[test]
    fn what_is_not_sealed_or_not_as_large_is_not_adopted() {
        let file = File::create("test", PAGE, HugePages::No).unwrap();
        let pass = |file: &File| file.descriptor().try_clone_to_owned().unwrap();
        assert!(File::adopt(pass(&file), PAGE, SEALS_FIXED).unwrap_err().contains("not sealed"));
        file.fix_size().unwrap();
        assert!(File::adopt(pass(&file), PAGE, SEALS_FIXED).is_ok());
        assert!(File::adopt(pass(&file), 2 * PAGE, SEALS_FIXED).unwrap_err().contains("another size"));
        assert!(File::adopt(pass(&file), PAGE, SEALS_FROZEN).unwrap_err().contains("not sealed"));
        let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        assert!(File::adopt(null, PAGE, SEALS_FIXED).unwrap_err().contains("no memory"));
    }
}
