//! Mappings of files. Nobody notes what is written through a mapping. So the syncs of a file with a shared mapping that is
//! writable, or may become so (mprotect(2)), are the kernel's for good, and msync(2) finds no records to make dead.

use crate::durability::{self, unseen};
use crate::real;
use core::ffi::{c_int, c_void};
use libc::{off_t, size_t};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_shared = flags & libc::MAP_SHARED != 0 && flags & libc::MAP_ANONYMOUS == 0;
    if is_shared && let Some(log) = durability::log() {
        // SAFETY: the caller passes the arguments of mmap(2).
        if flags & libc::MAP_SYNC != 0 && unsafe { is_refused(length, flags, fd, offset) } {
            return libc::MAP_FAILED;
        }
        // Only a descriptor that can be written gives a mapping that can be.
        unseen::written_unseen(log, fd);
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::mmap(address, length, protection, flags, fd, offset) }
}

/// Returns true, with the error of mmap(2) in `errno`, if the file cannot be mapped with MAP_SYNC. Only persistent memory
/// can: MariaDB tries it with its log at every start, and goes on by calls, which the log can absorb.
///
/// # Safety
/// The arguments are those of mmap(2).
unsafe fn is_refused(length: size_t, flags: c_int, fd: c_int, offset: off_t) -> bool {
    let flags = flags & !(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: the kernel chooses the address, so no mapping is replaced, and nobody can access this one.
    unsafe {
        let attempt = real::mmap(core::ptr::null_mut(), length, libc::PROT_NONE, flags, fd, offset);
        if attempt == libc::MAP_FAILED {
            return *libc::__errno_location() == libc::EOPNOTSUPP;
        }
        libc::munmap(attempt, length);
    }
    false
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { mmap(address, length, protection, flags, fd, offset) }
}
