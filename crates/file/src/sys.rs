//! System calls as the data path makes them: directly, so that they neither pass through the preloaded
//! symbols again nor touch the program's `errno`.
//!
//! Every function answers what the kernel answered: zero or more, or a negated error number.

pub use bywash_syscall::call;

/// x86-64 system call numbers (arch/x86/entry/syscalls/syscall_64.tbl).
pub mod nr {
    #![allow(missing_docs)]
    pub const FSTAT: usize = 5;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGPENDING: usize = 127;
    pub const SCHED_YIELD: usize = 24;
    pub const MADVISE: usize = 28;
    pub const FCNTL: usize = 72;
    pub const SIGALTSTACK: usize = 131;
    pub const FSTATFS: usize = 138;
    pub const READLINKAT: usize = 267;
    pub const CACHESTAT: usize = 451;
}

/// What `fstat` tells, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Device and inode number.
    pub identity: (u64, u64),
    /// Type and permissions.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
}

impl Status {
    /// Whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// fstat(2).
pub fn status(fd: i32) -> Result<Status, isize> {
    // struct stat of x86-64: st_dev, st_ino, st_nlink, st_mode/st_uid, st_gid/pad, st_rdev, st_size,
    // st_blksize, st_blocks, and times; 144 bytes.
    let mut words = [0u64; 18];
    // SAFETY: the buffer has the size of the kernel's struct stat.
    let answer = unsafe { call(nr::FSTAT, [fd as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if answer < 0 {
        return Err(answer);
    }
    Ok(Status { identity: (words[0], words[1]), mode: words[3] as u32, size: words[6] })
}

/// f_type and f_flags of fstatfs(2).
pub fn filesystem(fd: i32) -> Result<u64, isize> {
    let mut words = [0u64; 15];
    // SAFETY: struct statfs of x86-64 has 120 bytes.
    let answer = unsafe { call(nr::FSTATFS, [fd as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if answer < 0 { Err(answer) } else { Ok(words[0]) }
}

/// F_GETFL of fcntl(2).
pub fn status_flags(fd: i32) -> isize {
    const F_GETFL: usize = 3;
    // SAFETY: integers only.
    unsafe { call(nr::FCNTL, [fd as usize, F_GETFL, 0, 0, 0, 0]) }
}

/// lseek(2).
pub fn seek(fd: i32, offset: i64, whence: usize) -> isize {
    // SAFETY: integers only.
    unsafe { call(nr::LSEEK, [fd as usize, offset as usize, whence, 0, 0, 0]) }
}

/// Maps `length` bytes of a file from `offset` on: shared if the mapping is to be written, else private, which
/// shows the page cache just the same. Before the kernel writes a page to the device it looks through every
/// page of the folio in every shared mapping, which may be thousands; private ones cost a writer nothing.
pub fn map_file(fd: i32, offset: u64, length: usize, writable: bool) -> Result<*mut u8, isize> {
    const PROT_READ: usize = 1;
    const PROT_WRITE: usize = 2;
    const MAP_SHARED: usize = 1;
    const MAP_PRIVATE: usize = 2;
    let (protection, kind) =
        if writable { (PROT_READ | PROT_WRITE, MAP_SHARED) } else { (PROT_READ, MAP_PRIVATE) };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let answer = unsafe { call(nr::MMAP, [0, length, protection, kind, fd as usize, offset as usize]) };
    if answer < 0 { Err(answer) } else { Ok(answer as *mut u8) }
}

/// Private zeroed memory that takes room only where it is touched.
pub fn map_memory(length: usize) -> Option<*mut u8> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let answer = unsafe {
        call(nr::MMAP, [0, length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0])
    };
    (answer > 0).then_some(answer as *mut u8)
}

/// Address space for `length` bytes that cannot be used yet, and counts as nobody's data.
pub fn reserve(length: usize) -> Option<*mut u8> {
    const PROT_NONE: usize = 0;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let answer =
        unsafe { call(nr::MMAP, [0, length, PROT_NONE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0]) };
    (answer > 0).then_some(answer as *mut u8)
}

/// Makes the first `length` bytes of what [`reserve`] gave readable and writable; false when a limit forbids
/// it.
pub fn make_usable(at: *mut u8, length: usize) -> bool {
    const PROT_READ_WRITE: usize = 3;
    // SAFETY: all callers pass reserved memory of this crate, to which nothing is lost by more rights.
    unsafe { call(nr::MPROTECT, [at as usize, length, PROT_READ_WRITE, 0, 0, 0]) == 0 }
}

/// munmap(2).
///
/// # Safety
/// Nobody uses the memory any more.
pub unsafe fn unmap(at: *mut u8, length: usize) {
    // SAFETY: promised by the caller.
    unsafe { call(nr::MUNMAP, [at as usize, length, 0, 0, 0, 0]) };
}

/// Advice of madvise(2) that leaves contents alone or that we want for our own memory.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Advice {
    /// MADV_RANDOM: a fault reads its own page only.
    Random = 1,
    /// MADV_DONTNEED: forget the page-table entries of a file mapping.
    DontNeed = 4,
    /// MADV_DONTFORK: not there in a child.
    DontFork = 10,
    /// MADV_WIPEONFORK: zeroes in a child (private anonymous memory).
    WipeOnFork = 18,
}

/// madvise(2) on memory that we mapped.
pub fn advise(at: *mut u8, length: usize, advice: Advice) -> bool {
    // SAFETY: all callers pass mappings of this crate, and none of the advices loses data of a file.
    unsafe { call(nr::MADVISE, [at as usize, length, advice as usize, 0, 0, 0]) == 0 }
}

/// Pages of a range of a file that are in the page cache: cachestat(2), Linux 6.5.
pub fn cached_pages(fd: i32, offset: u64, length: u64) -> Option<u64> {
    let range = [offset, length];
    let mut counts = [0u64; 5];
    // SAFETY: struct cachestat_range and struct cachestat have these sizes.
    let answer = unsafe {
        call(nr::CACHESTAT, [fd as usize, range.as_ptr() as usize, counts.as_mut_ptr() as usize, 0, 0, 0])
    };
    (answer == 0).then_some(counts[0])
}

/// The path that a descriptor was opened under; answers its length, 0 when it cannot be told.
pub fn path_of(fd: i32, to: &mut [u8]) -> usize {
    let mut name = [0u8; 32];
    let prefix = b"/proc/self/fd/";
    name[..prefix.len()].copy_from_slice(prefix);
    let mut digits = [0u8; 10];
    let mut count = 0;
    let mut rest = fd as u32;
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        count += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    for index in 0..count {
        name[prefix.len() + index] = digits[count - 1 - index];
    }
    const AT_FDCWD: usize = -100isize as usize;
    // SAFETY: `name` ends in a zero byte, `to` has the length that is passed.
    let answer = unsafe {
        call(nr::READLINKAT, [AT_FDCWD, name.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0])
    };
    usize::try_from(answer).unwrap_or(0)
}

/// Gives the processor away for a moment.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { call(nr::SCHED_YIELD, [0; 6]) };
}

/// A set of signals as the kernel sees it: bit n-1 for signal n.
pub type SignalSet = u64;

/// Signals that wait for the calling thread or the process because they are blocked.
pub fn pending_signals() -> SignalSet {
    let mut set: SignalSet = 0;
    // SAFETY: the set has the eight bytes that are passed as its size.
    unsafe { call(nr::RT_SIGPENDING, [(&raw mut set) as usize, 8, 0, 0, 0, 0]) };
    set
}

/// Addresses of the calling thread's alternate signal stack; empty when it has none.
pub fn alternate_stack() -> core::ops::Range<usize> {
    const SS_DISABLE: usize = 2;
    // stack_t: pointer, flags, size.
    let mut words = [0usize; 3];
    // SAFETY: stack_t of x86-64 has 24 bytes.
    let answer = unsafe { call(nr::SIGALTSTACK, [0, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if answer != 0 || words[1] & SS_DISABLE != 0 { 0..0 } else { words[0]..words[0] + words[2] }
}

/// What to do with a set of signals.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum MaskChange {
    /// Block them too.
    Block = 0,
    /// Let them through.
    Unblock = 1,
    /// Block these and no others.
    Replace = 2,
}

/// Changes the calling thread's signal mask; answers the old one.
pub fn change_mask(how: MaskChange, set: SignalSet) -> SignalSet {
    let mut old: SignalSet = 0;
    // SAFETY: both sets have the eight bytes that are passed as their size.
    unsafe {
        call(nr::RT_SIGPROCMASK, [how as usize, (&raw const set) as usize, (&raw mut old) as usize, 8, 0, 0])
    };
    old
}
