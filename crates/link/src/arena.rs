//! Arenas: memory that one party cuts blocks from, mapped once by both.

use crate::backing::{self, Backing};
use crate::error::Error;
use crate::memory::{File, HUGE_PAGE, HugePages, Mapping, PAGE};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr;

/// Most bytes of an arena.
pub const ARENA_BYTES_MAX: usize = 1 << 38;

/// Who may write memory that two have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Whoever made it, through the mapping that it has; nobody else, for ever.
    Owner,
    /// Both parties.
    Both,
}

/// Memory that blocks are cut from: this end's own, or a peer's.
#[derive(Debug)]
pub struct Arena {
    /// Where it is.
    pub file: File,
    /// None: it is only passed on.
    pub mapping: Option<Mapping>,
    /// Whether this end may write it.
    pub writable: bool,
    backing: Backing,
}

impl Arena {
    /// An arena of at least `bytes`, in whole pages, mapped for writing and sealed against resizing. Its memory is
    /// taken as it is used, but with [`HugePages::Collapse`], and for [`Writers::Both`] where the kernel could not tell
    /// the peer what was taken (no cachestat(2), before Linux 6.5).
    ///
    /// # Errors
    /// What the kernel says, or [`Error::Option`].
    pub fn create(bytes: usize, huge_pages: HugePages, writers: Writers) -> Result<Arena, Error> {
        if bytes > ARENA_BYTES_MAX {
            let allowed = format!("{ARENA_BYTES_MAX} bytes at most");
            return Err(Error::Option { option: "the arena", value: bytes.to_string(), allowed });
        }
        let ordinary = bytes < HUGE_PAGE && huge_pages != HugePages::Reserved;
        let bytes = bytes.next_multiple_of(if ordinary { PAGE } else { HUGE_PAGE });
        let file = File::create("bywash-arena", bytes, huge_pages)?;
        let mapping = file.map(true)?;
        if huge_pages == HugePages::Collapse && !ordinary {
            // The kernel makes none of what nobody has touched.
            file.populate()?;
            mapping.collapse();
        }
        let must_take = writers == Writers::Both && !backing::is_told(&file);
        if must_take {
            mapping.populate(0, bytes)?;
        }
        match writers {
            Writers::Both => file.offer()?,
            Writers::Owner => file.fix_writers()?,
        }
        let is_taken = must_take || huge_pages != HugePages::No && !ordinary;
        let backing = if is_taken { Backing::full(bytes) } else { Backing::new(bytes, true) };
        Ok(Arena { file, mapping: Some(mapping), writable: true, backing })
    }

    /// An arena of a peer's, or one that it passed on.
    pub fn adopt(file: File, mapping: Option<Mapping>, writable: bool) -> Arena {
        let backing = Backing::new(file.bytes(), file.keeps_memory());
        Arena { file, mapping, writable, backing }
    }

    /// An arena of a peer's that both write, of which this end touches only what [`Arena::is_backed`]: it would take
    /// the memory of every other page at its own expense, and that memory would stay as long as the peer likes.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel does not map it; inside, the reason why it is not what it should be.
    pub fn adopt_for_both(descriptor: OwnedFd, bytes: usize) -> Result<Result<Arena, String>, Error> {
        let (file, mapping) = match File::adopt_for_both(descriptor, bytes)? {
            Ok(adopted) => adopted,
            Err(what) => return Ok(Err(what)),
        };
        let backing = if backing::is_told(&file) {
            Backing::new(bytes, true)
        } else if file.is_whole()? {
            Backing::full(bytes)
        } else {
            return Ok(Err("passed an arena of which it has not taken all memory, and the kernel tells this process not \
                           which pages it has taken (cachestat(2), Linux 6.5; in a container, a seccomp profile that \
                           allows it)"
                .into()));
        };
        Ok(Ok(Arena { file, mapping: Some(mapping), writable: true, backing }))
    }

    /// Whether every page of a part of a peer's arena has memory, and keeps it.
    ///
    /// The test of a word for 64 pages; cachestat(2) for those of which that is not known yet.
    #[inline]
    pub fn is_backed(&self, offset: usize, length: usize) -> bool {
        self.backing.is_backed(&self.file, offset, length)
    }

    /// The longest part of which that is known.
    pub fn longest_backed(&self) -> Range<usize> {
        self.backing.longest_run(self.file.bytes())
    }

    /// Takes the memory of a part of this end's own arena, so that a peer that reads it takes none.
    ///
    /// # Errors
    /// [`Error::Io`] if there is not so much memory.
    #[inline]
    pub fn take_memory(&self, offset: usize, length: usize) -> Result<(), Error> {
        self.mapping.as_ref().map_or(Ok(()), |mapping| self.backing.take(mapping, offset, length))
    }

    /// Copies a part of the arena out. Where it has no memory that reads zeros, and takes none.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if it is only passed on; [`Error::Io`] if the kernel cannot read it.
    ///
    /// # Panics
    /// If the part is not within the arena.
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        assert!(self.contains(offset, to.len()), "the part lies outside of the arena");
        let from = self.at(offset).ok_or(Error::NotMapped("this is a forward path, which maps nothing"))?;
        if !self.is_backed(offset, to.len()) {
            return self.file.read_at(offset, to);
        }
        // SAFETY: within the mapping, as was asserted, and `to` is the caller's own. A peer may write there meanwhile:
        // then the copy has some bytes of each, and stays so.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Whether there are `length` bytes from `offset` on.
    #[inline]
    pub fn contains(&self, offset: usize, length: usize) -> bool {
        offset <= self.file.bytes() && length <= self.file.bytes() - offset
    }

    /// Where a part of it is mapped, if it is.
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

    /// Bytes of memory that a file has taken.
    fn taken(file: &File) -> usize {
        fstat(file.descriptor()).unwrap().st_blocks as usize * 512
    }

    #[test]
    fn memory_that_nobody_uses_is_not_taken() {
        let arena = Arena::create(BYTES, HugePages::default(), Writers::Both).unwrap();
        assert_eq!((arena.file.bytes(), taken(&arena.file)), (BYTES, 0));
        // SAFETY: mapped for writing, and nobody else has it.
        unsafe { arena.at(HUGE_PAGE).unwrap().write(1) };
        assert!(taken(&arena.file) < BYTES);
    }

    #[test]
    fn who_asks_for_huge_pages_has_them_at_once_where_there_are_some() {
        for writers in [Writers::Both, Writers::Owner] {
            let arena = Arena::create(BYTES, HugePages::Collapse, writers).unwrap();
            assert_eq!(taken(&arena.file), BYTES);
            // What the kernel makes of memory that was written.
            let file = File::create("test", HUGE_PAGE, HugePages::No).unwrap();
            let mapping = file.map(true).unwrap();
            // SAFETY: mapped for writing, and nobody else has it.
            unsafe { mapping.base().write_bytes(1, HUGE_PAGE) };
            let possible = mapping.collapse() > 0;
            let at = arena.at(0).unwrap() as usize;
            assert_eq!(huge_kilobytes(at) == BYTES >> 10, possible);
        }
        // Too small for any.
        let small = Arena::create(HUGE_PAGE / 2, HugePages::Collapse, Writers::Both).unwrap();
        assert_eq!(taken(&small.file), 0);
    }

    /// Both ends of an arena that both write.
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
        own.take_memory(HUGE_PAGE + 1, 2 * PAGE).unwrap();
        assert!(theirs.is_backed(HUGE_PAGE + PAGE, PAGE) && theirs.is_backed(HUGE_PAGE, 3 * PAGE));
        assert!(!theirs.is_backed(0, BYTES));
        assert_eq!(theirs.longest_backed(), HUGE_PAGE..HUGE_PAGE + 3 * PAGE);
    }

    /// As on Linux before 6.5, or in a container whose seccomp profile refuses the call: all memory is taken and
    /// asked for when the arena is made.
    #[test]
    fn where_the_kernel_tells_nothing_all_memory_is_taken() {
        let sparse = File::create("test", BYTES, HugePages::No).unwrap();
        sparse.offer().unwrap();
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

    /// Has the kernel answer cachestat(2) with ENOSYS, for as long as this thread lives.
    fn refuse_cachestat() {
        let step = |code: u32, jt: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf: 0, k };
        let mut program = [
            // The number of the call, at the beginning of what is looked at.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, backing::SYS_CACHESTAT as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        ];
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel reads the program, which is live; both settings are of this thread alone.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) == 0
        };
        assert!(refused, "{}", std::io::Error::last_os_error());
    }

    /// Of the mapping that begins at `base`; see proc_pid_smaps(5).
    fn huge_kilobytes(base: usize) -> usize {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("{base:x}-")));
        let line = lines.find_map(|line| line.strip_prefix("ShmemPmdMapped:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }
}
