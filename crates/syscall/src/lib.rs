//! System calls made by instruction, without the C library.
//!
//! The preloaded library stands before the C library's functions and must neither go through them again nor change the
//! program's `errno`; the command's launcher has no C library at all. Both make their calls here.
//!
//! ```
//! use bywash_syscall::{CWD, Descriptor, Error, flags};
//!
//! let null = Descriptor::open(CWD, c"/dev/null", flags::RDONLY)?;
//! assert_eq!(null.read_at(&mut [0; 8], 0)?, 0);
//! assert_eq!(Descriptor::open(CWD, c"/no/such/file", flags::RDONLY).unwrap_err(), Error::NO_ENTRY);
//! # Ok::<(), Error>(())
//! ```
//!
//! Nothing here allocates, takes a lock or uses thread-local memory, so every function may be called in a signal handler
//! and in a child of vfork. Numbers are those of x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).

#![no_std]

mod descriptor;

pub use descriptor::{CWD, Descriptor, flags, is_file, may_execute, read_link};

use core::arch::asm;

/// An error number of the kernel's, positive (errno(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub i32);

impl Error {
    /// ENOENT: there is no such file.
    pub const NO_ENTRY: Error = Error(2);
    /// EACCES: permissions forbid it.
    pub const ACCESS: Error = Error(13);
    /// ENODEV: a device in the path is gone.
    pub const NO_DEVICE: Error = Error(19);
    /// ENOTDIR: something on the path is no folder.
    pub const NOT_A_FOLDER: Error = Error(20);
    /// ETIMEDOUT: a remote file system does not answer.
    pub const TIMED_OUT: Error = Error(110);
    /// ESTALE: a remote file system has lost the file.
    pub const STALE: Error = Error(116);
}

/// Makes a system call with up to six arguments and answers what the kernel answered: zero or more, or a negated error
/// number.
///
/// # Safety
/// The promises of the call itself: pointers among the arguments must be what the kernel expects of them.
#[inline]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the caller answers for the arguments; rcx and r11 are clobbered as declared, and memory is
    // taken to be read and written.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _, options(nostack),
        );
    }
    answer
}

/// The kernel's answer as a result.
///
/// # Errors
/// The error number of a negative answer.
pub fn result(answer: isize) -> Result<usize, Error> {
    // Error numbers are below 4096.
    usize::try_from(answer).map_err(|_| Error(-answer as i32))
}
