//! System calls of the data path, made by instruction, so that they neither pass through the preloaded
//! symbols again nor change the program's `errno`.
//!
//! Functions that return an `isize` return the kernel's value: zero or more, or a negated error number.

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
    pub const NANOSLEEP: usize = 35;
    pub const MADVISE: usize = 28;
    pub const FCNTL: usize = 72;
    pub const SIGALTSTACK: usize = 131;
    pub const FSTATFS: usize = 138;
    pub const READLINKAT: usize = 267;
    pub const CACHESTAT: usize = 451;
}

/// Part of `fstat`'s result that the data path uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Device and inode number, in this order.
    pub identity: (u64, u64),
    /// File type and permissions (st_mode).
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
}

impl Status {
    /// Returns true if the file is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Calls fstat(2).
///
/// # Errors
/// The negated error number, if fstat(2) fails.
pub fn status(fd: i32) -> Result<Status, isize> {
    // struct stat of x86-64, 144 bytes: st_dev, st_ino, st_nlink, st_mode/st_uid, st_gid/pad, st_rdev,
    // st_size, st_blksize, st_blocks, and times.
    let mut words = [0u64; 18];
    // SAFETY: the kernel writes a struct stat of 144 bytes, which is the size of the buffer.
    let answer = unsafe { call(nr::FSTAT, [fd as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if answer < 0 {
        return Err(answer);
    }
    Ok(Status { identity: (words[0], words[1]), mode: words[3] as u32, size: words[6] })
}

/// Returns the file system's type (f_type) from fstatfs(2).
///
/// # Errors
/// The negated error number, if fstatfs(2) fails.
pub fn filesystem(fd: i32) -> Result<u64, isize> {
    let mut words = [0u64; 15];
    // SAFETY: the kernel writes a struct statfs of 120 bytes, which is the size of the buffer.
    let answer = unsafe { call(nr::FSTATFS, [fd as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if answer < 0 { Err(answer) } else { Ok(words[0]) }
}

/// Returns the status flags and access mode of a descriptor (fcntl(2), F_GETFL), or a negated error number.
pub fn status_flags(fd: i32) -> isize {
    const F_GETFL: usize = 3;
    // SAFETY: the call has integer arguments only and touches no memory of the process.
    unsafe { call(nr::FCNTL, [fd as usize, F_GETFL, 0, 0, 0, 0]) }
}

/// Calls lseek(2); returns the new position in bytes, or a negated error number.
pub fn seek(fd: i32, offset: i64, whence: usize) -> isize {
    // SAFETY: the call has integer arguments only and touches no memory of the process.
    unsafe { call(nr::LSEEK, [fd as usize, offset as usize, whence, 0, 0, 0]) }
}

/// Maps `length` bytes of a file from `offset` on. The mapping is shared if it is to be written, else
/// private; a private mapping shows the page cache just the same. Shared mappings slow down writers: before
/// the kernel writes a page to the device it visits every page of the folio in every shared mapping, which
/// may be thousands.
///
/// # Errors
/// The negated error number, if mmap(2) fails.
pub fn map_file(fd: i32, offset: u64, length: usize, writable: bool) -> Result<*mut u8, isize> {
    const PROT_READ: usize = 1;
    const PROT_WRITE: usize = 2;
    const MAP_SHARED: usize = 1;
    const MAP_PRIVATE: usize = 2;
    let (protection, kind) =
        if writable { (PROT_READ | PROT_WRITE, MAP_SHARED) } else { (PROT_READ, MAP_PRIVATE) };
    // SAFETY: mmap makes a new mapping at an address that the kernel chooses, so it replaces none.
    let answer = unsafe { call(nr::MMAP, [0, length, protection, kind, fd as usize, offset as usize]) };
    if answer < 0 { Err(answer) } else { Ok(answer as *mut u8) }
}

/// Maps private zeroed memory, whose pages are allocated when they are first touched; `None` if mmap(2)
/// fails.
pub fn map_memory(length: usize) -> Option<*mut u8> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
    // SAFETY: mmap makes a new mapping at an address that the kernel chooses, so it replaces none.
    let answer = unsafe {
        call(nr::MMAP, [0, length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0])
    };
    (answer > 0).then_some(answer as *mut u8)
}

/// Reserves `length` bytes of address space that cannot be accessed yet and does not count as the process's
/// data; `None` if mmap(2) fails.
pub fn reserve(length: usize) -> Option<*mut u8> {
    const PROT_NONE: usize = 0;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
    // SAFETY: mmap makes a new mapping at an address that the kernel chooses, so it replaces none.
    let answer =
        unsafe { call(nr::MMAP, [0, length, PROT_NONE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0]) };
    (answer > 0).then_some(answer as *mut u8)
}

/// Makes the first `length` bytes of memory from [`reserve`] readable and writable; returns false if a limit
/// forbids it.
pub fn make_usable(at: *mut u8, length: usize) -> bool {
    const PROT_READ_WRITE: usize = 3;
    // SAFETY: all callers pass memory that this crate reserved, and more access rights lose no data there.
    unsafe { call(nr::MPROTECT, [at as usize, length, PROT_READ_WRITE, 0, 0, 0]) == 0 }
}

/// Unmaps memory with munmap(2).
///
/// # Safety
/// The mapping belongs to the caller, and no thread uses it any more.
pub unsafe fn unmap(at: *mut u8, length: usize) {
    // SAFETY: the caller promises that the mapping is its own and that no thread uses it any more.
    unsafe { call(nr::MUNMAP, [at as usize, length, 0, 0, 0, 0]) };
}

/// Advice of madvise(2) that loses no data of files.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Advice {
    /// MADV_RANDOM: a page fault reads only its own page from the device.
    Random = 1,
    /// MADV_DONTNEED: drops the page-table entries of a file mapping, and zeroes private anonymous memory.
    DontNeed = 4,
    /// MADV_DONTFORK: a forked child does not get the mapping.
    DontFork = 10,
    /// MADV_WIPEONFORK: a forked child finds zeroes (private anonymous memory).
    WipeOnFork = 18,
}

/// Calls madvise(2) on memory that this crate mapped; returns true if it succeeds.
pub fn advise(at: *mut u8, length: usize, advice: Advice) -> bool {
    // SAFETY: all callers pass mappings of this crate, and no advice of the enum loses data of a file.
    unsafe { call(nr::MADVISE, [at as usize, length, advice as usize, 0, 0, 0]) == 0 }
}

/// Returns the number of pages of a range of a file that are in the page cache (cachestat(2), Linux 6.5);
/// `None` if the call fails.
pub fn cached_pages(fd: i32, offset: u64, length: u64) -> Option<u64> {
    let range = [offset, length];
    let mut counts = [0u64; 5];
    // SAFETY: struct cachestat_range has two words and struct cachestat five, as have the arrays.
    let answer = unsafe {
        call(nr::CACHESTAT, [fd as usize, range.as_ptr() as usize, counts.as_mut_ptr() as usize, 0, 0, 0])
    };
    (answer == 0).then_some(counts[0])
}

/// Writes the path that a descriptor was opened under into `to`; returns its length in bytes, 0 if it cannot
/// be read. A longer path is cut to the length of `to`.
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
    // SAFETY: `name` ends in a zero byte, and the length of `to` is passed along with it.
    let answer = unsafe {
        call(nr::READLINKAT, [AT_FDCWD, name.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0])
    };
    usize::try_from(answer).unwrap_or(0)
}

/// Yields the processor (sched_yield(2)).
pub fn yield_now() {
    // SAFETY: the call has no arguments and touches no memory of the process.
    unsafe { call(nr::SCHED_YIELD, [0; 6]) };
}

/// Sleeps for less than a second (nanosleep(2)), or until a signal arrives.
pub fn sleep(nanoseconds: u32) {
    let time = [0i64, i64::from(nanoseconds)];
    // SAFETY: the kernel reads a timespec, two words, and a null pointer asks for no remainder.
    unsafe { call(nr::NANOSLEEP, [(&raw const time) as usize, 0, 0, 0, 0, 0]) };
}

/// Set of signals in the kernel's form: bit n-1 for signal n.
pub type SignalSet = u64;

/// Returns the signals that are blocked and pending for the calling thread or its process.
pub fn pending_signals() -> SignalSet {
    let mut set: SignalSet = 0;
    // SAFETY: the kernel writes eight bytes, the size that is passed and the size of the set.
    unsafe { call(nr::RT_SIGPENDING, [(&raw mut set) as usize, 8, 0, 0, 0, 0]) };
    set
}

/// Returns the addresses of the calling thread's alternate signal stack; empty if it has none.
pub fn alternate_stack() -> core::ops::Range<usize> {
    const SS_DISABLE: usize = 2;
    // stack_t consists of the pointer, the flags and the size.
    let mut words = [0usize; 3];
    // SAFETY: the kernel writes a stack_t of 24 bytes, which is the size of the array.
    let answer = unsafe { call(nr::SIGALTSTACK, [0, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if answer != 0 || words[1] & SS_DISABLE != 0 { 0..0 } else { words[0]..words[0] + words[2] }
}

/// Change of a signal mask.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum MaskChange {
    /// Adds the signals to the blocked ones.
    Block = 0,
    /// Removes the signals from the blocked ones.
    Unblock = 1,
    /// Blocks these signals and no others.
    Replace = 2,
}

/// Changes the calling thread's signal mask and returns the previous mask.
pub fn change_mask(how: MaskChange, set: SignalSet) -> SignalSet {
    let mut old: SignalSet = 0;
    // SAFETY: both sets have eight bytes, the size that is passed.
    unsafe {
        call(nr::RT_SIGPROCMASK, [how as usize, (&raw const set) as usize, (&raw mut old) as usize, 8, 0, 0])
    };
    old
}
