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
        // Only a descriptor that can be written gives a mapping that can be.
        unseen::written_unseen(log, fd);
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::mmap(address, length, protection, flags, fd, offset) }
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
