//! Arenas: shared memory that one end allocates blocks from and both ends map once.

use crate::backing::{self, Backing};
use crate::error::Error;
use crate::memory::{HUGE_PAGE, HugePages, Mapping, MemoryFile, PAGE};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr;

/// Greatest size of an arena, in bytes.
pub const ARENA_BYTES_MAX: usize = 1 << 38;

/// Ends that may write to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Only the end that created the memory, through its one mapping.
    Owner,
    /// Both ends.
    Both,
}

/// Memory that blocks are allocated from: this end's own, or a peer's.
#[derive(Debug)]
pub struct Arena {
    /// The memory file.
    pub file: MemoryFile,
    /// The mapping; `None` for an arena that this end only passes on.
    pub mapping: Option<Mapping>,
    /// True if this end may write to the arena.
    pub writable: bool,
    backing: Backing,
}

impl Arena {
    /// Creates an arena of at least `bytes` bytes, in whole pages, mapped for writing and sealed against
    /// resizing. Pages are allocated at their first use, with two exceptions: [`HugePages::Collapse`]
    /// populates all of them at once, and so does [`Writers::Both`] if the kernel cannot tell which pages are
    /// backed (no cachestat(2), before Linux 6.5).
    ///
    /// # Errors
    /// [`Error::Option`] if `bytes` is more than [`ARENA_BYTES_MAX`]; [`Error::Io`] if a system call fails.
    pub fn create(bytes: usize, huge_pages: HugePages, writers: Writers) -> Result<Arena, Error> {
        if bytes > ARENA_BYTES_MAX {
            let allowed = format!("{ARENA_BYTES_MAX} bytes at most");
            return Err(Error::Option { option: "the arena", value: bytes.to_string(), allowed });
        }
        let ordinary = bytes < HUGE_PAGE && huge_pages != HugePages::Reserved;
        let bytes = bytes.next_multiple_of(if ordinary { PAGE } else { HUGE_PAGE });
        let file = MemoryFile::create("bywash-arena", bytes, huge_pages)?;
        let mapping = file.map(true)?;
        if huge_pages == HugePages::Collapse && !ordinary {
            // The kernel does not collapse pages that nobody has touched.
            file.populate()?;
            mapping.collapse();
        }
        let must_take = writers == Writers::Both && !backing::is_told(&file);
        if must_take {
            mapping.populate(0, bytes)?;
        }
        match writers {
            Writers::Both => file.seal_size_for_peer()?,
            Writers::Owner => file.seal_writers()?,
        }
        let is_taken = must_take || huge_pages != HugePages::No && !ordinary;
        let backing = if is_taken { Backing::full(bytes) } else { Backing::new(bytes, true) };
        Ok(Arena { file, mapping: Some(mapping), writable: true, backing })
    }

    /// Takes over an arena of a peer, or one that a peer passed on.
    pub fn adopt(file: MemoryFile, mapping: Option<Mapping>, writable: bool) -> Arena {
        let backing = Backing::new(file.bytes(), file.stays_backed());
        Arena { file, mapping, writable, backing }
    }

    /// Maps a peer's arena that both ends write. This end may touch only ranges for which
    /// [`Arena::is_backed`] is true: other pages would be charged to this process, and stay allocated for as
    /// long as the peer likes.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses to map or to seal the file. The inner error is the peer's
    /// violation: the seals or the size are wrong, or pages are missing and the kernel cannot tell which.
    pub fn adopt_for_both(descriptor: OwnedFd, bytes: usize) -> Result<Result<Arena, String>, Error> {
        let (file, mapping) = match MemoryFile::adopt_for_both(descriptor, bytes)? {
            Ok(adopted) => adopted,
            Err(what) => return Ok(Err(what)),
        };
        let backing = if backing::is_told(&file) {
            Backing::new(bytes, true)
        } else if file.is_fully_backed()? {
            Backing::full(bytes)
        } else {
            return Ok(Err("passed an arena of which it has not taken all memory, and the kernel tells this process not \
                           which pages it has taken (cachestat(2), Linux 6.5; in a container, a seccomp profile that \
                           allows it)"
                .into()));
        };
        Ok(Ok(Arena { file, mapping: Some(mapping), writable: true, backing }))
    }

    /// Returns true if every page of a range is backed, and stays so.
    ///
    /// A known range costs the test of one word for 64 pages; a new one also a cachestat(2) for each such
    /// word.
    #[inline]
    pub fn is_backed(&self, offset: usize, length: usize) -> bool {
        self.backing.is_backed(&self.file, offset, length)
    }

    /// Returns the longest range that is known to be backed, in bytes.
    pub fn longest_backed(&self) -> Range<usize> {
        self.backing.longest_run(self.file.bytes())
    }

    /// Populates a range of this end's own arena, so that a peer that reads it is not charged for its pages.
    ///
    /// # Errors
    /// [`Error::Io`] if there is not enough memory.
    #[inline]
    pub fn populate(&self, offset: usize, length: usize) -> Result<(), Error> {
        self.mapping.as_ref().map_or(Ok(()), |mapping| self.backing.populate(mapping, offset, length))
    }

    /// Copies a range out of the arena. Holes read as zeros, and stay holes.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if the arena is not mapped; [`Error::Io`] if pread(2) fails.
    ///
    /// # Panics
    /// If the range is not within the arena.
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        assert!(self.contains(offset, to.len()), "the part lies outside of the arena");
        let from = self.at(offset).ok_or(Error::NotMapped("this is a forward path, which maps nothing"))?;
        if !self.is_backed(offset, to.len()) {
            return self.file.read_at(offset, to);
        }
        // SAFETY: the source lies within the mapping, as asserted, and is backed; `to` is the caller's own
        // memory. A peer may write meanwhile: then the private copy is a mixture of old and new bytes.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Returns true if `length` bytes from `offset` on lie within the arena.
    #[inline]
    pub fn contains(&self, offset: usize, length: usize) -> bool {
        offset <= self.file.bytes() && length <= self.file.bytes() - offset
    }

    /// Returns the address of the byte at `offset`, or `None` if the arena is not mapped. The offset is not
    /// checked.
    #[inline]
    pub fn at(&self, offset: usize) -> Option<*mut u8> {
        self.mapping.as_ref().map(|mapping| mapping.base().wrapping_add(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;

    const BYTES: usize = 2 * HUGE_PAGE;

    /// Returns the number of bytes of a file that are backed by pages.
    fn taken(file: &MemoryFile) -> usize {
        fstat(file.descriptor()).unwrap().st_blocks as usize * 512
    }

    #[test]
    fn memory_that_nobody_uses_is_not_taken() {
        let arena = Arena::create(BYTES, HugePages::default(), Writers::Both).unwrap();
        assert_eq!((arena.file.bytes(), taken(&arena.file)), (BYTES, 0));
        // SAFETY: mapped for writing, and nobody else has the arena.
        unsafe { arena.at(HUGE_PAGE).unwrap().write(1) };
        assert!(taken(&arena.file) < BYTES);
    }

    #[test]
    fn who_asks_for_huge_pages_has_them_at_once_where_there_are_some() {
        for writers in [Writers::Both, Writers::Owner] {
            let arena = Arena::create(BYTES, HugePages::Collapse, writers).unwrap();
            assert_eq!(taken(&arena.file), BYTES);
            // Finds out whether the kernel can make a huge page of memory that was written.
            let file = MemoryFile::create("test", HUGE_PAGE, HugePages::No).unwrap();
            let mapping = file.map(true).unwrap();
            // SAFETY: mapped for writing, and nobody else has the file.
            unsafe { mapping.base().write_bytes(1, HUGE_PAGE) };
            let possible = mapping.collapse() > 0;
            let at = arena.at(0).unwrap() as usize;
            assert_eq!(huge_kilobytes(at) == BYTES >> 10, possible);
        }
        // An arena that is smaller than a huge page is not populated.
        let small = Arena::create(HUGE_PAGE / 2, HugePages::Collapse, Writers::Both).unwrap();
        assert_eq!(taken(&small.file), 0);
    }

    /// Makes both ends of an arena that both write.
    fn both() -> (Arena, Arena) {
        let own = Arena::create(BYTES, HugePages::No, Writers::Both).unwrap();
        let passed = own.file.descriptor().try_clone_to_owned().unwrap();
        let theirs = Arena::adopt_for_both(passed, BYTES).unwrap().unwrap();
        (own, theirs)
    }

    #[test]
    fn who_adopts_an_arena_knows_what_was_taken() {
        let (own, theirs) = both();
        assert!(!theirs.is_backed(0, 1) && theirs.longest_backed().is_empty());
        own.populate(HUGE_PAGE + 1, 2 * PAGE).unwrap();
        assert!(theirs.is_backed(HUGE_PAGE + PAGE, PAGE) && theirs.is_backed(HUGE_PAGE, 3 * PAGE));
        assert!(!theirs.is_backed(0, BYTES));
        assert_eq!(theirs.longest_backed(), HUGE_PAGE..HUGE_PAGE + 3 * PAGE);
    }

    /// Like on Linux before 6.5, or in a container whose seccomp profile refuses cachestat(2): the whole
    /// arena is populated and checked when it is made.
    #[test]
    fn where_the_kernel_tells_nothing_all_memory_is_taken() {
        let sparse = MemoryFile::create("test", BYTES, HugePages::No).unwrap();
        sparse.seal_size_for_peer().unwrap();
        let tried = std::thread::spawn(move || {
            refuse_cachestat();
            assert!(!backing::is_told(&sparse));
            let passed = sparse.descriptor().try_clone_to_owned().unwrap();
            let refused = Arena::adopt_for_both(passed, BYTES).unwrap().unwrap_err();
            assert!(refused.contains("cachestat"), "{refused}");
            let (own, theirs) = both();
            assert_eq!(taken(&own.file), BYTES);
            assert!(theirs.is_backed(0, BYTES));
        });
        tried.join().unwrap();
    }

    /// Makes the kernel refuse cachestat(2) with ENOSYS, for as long as this thread lives.
    fn refuse_cachestat() {
        let step = |code: u32, jt: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf: 0, k };
        let mut program = [
            // Loads the number of the system call, the first field of the filter's input.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, backing::SYS_CACHESTAT as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        ];
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel reads the program, which is live; both settings concern this thread alone.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) == 0
        };
        assert!(refused, "{}", std::io::Error::last_os_error());
    }

    /// Reads how much of the mapping at `base` consists of huge pages, in KiB; see proc_pid_smaps(5).
    fn huge_kilobytes(base: usize) -> usize {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("{base:x}-")));
        let line = lines.find_map(|line| line.strip_prefix("ShmemPmdMapped:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }
}
