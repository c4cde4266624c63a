//! Standard I/O on top of a descriptor: the C library reads and writes it from inside, past this library,
//! so the kernel's position must be right, and it closes it from inside, so nothing may be kept.

use crate::real;
use bywash_file::table;
use core::ffi::{c_char, c_int, c_void};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    table::forget(fd);
    // SAFETY: as the program promised for this function; the same throughout this file.
    unsafe { real::fdopen(fd, mode) }
}

/// The C library closes the stream's descriptor from inside. The program may have put another file under its
/// number, by `dup2`.
unsafe fn closing(stream: *mut libc::FILE) {
    if !stream.is_null() && table::knows_any() {
        // SAFETY: the program's stream, still open.
        table::forget(unsafe { libc::fileno(stream) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: as `fdopen`.
    unsafe {
        closing(stream);
        real::fclose(stream)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: as `fdopen`.
    unsafe {
        closing(stream);
        real::pclose(stream)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(folder: *mut libc::DIR) -> c_int {
    if !folder.is_null() && table::knows_any() {
        // SAFETY: the program's folder, still open.
        table::forget(unsafe { libc::dirfd(folder) });
    }
    // SAFETY: as `fdopen`.
    unsafe { real::closedir(folder) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpfile() -> *mut libc::FILE {
    // SAFETY: as `fdopen`.
    unsafe { opened(real::tmpfile()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpfile64() -> *mut libc::FILE {
    // SAFETY: as `fdopen`; the same function.
    unsafe { tmpfile() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    // SAFETY: as `fdopen`.
    let folder = unsafe { real::opendir(path) };
    if !folder.is_null() && table::knows_any() {
        // SAFETY: the folder was opened just now.
        table::made(unsafe { libc::dirfd(folder) });
    }
    folder
}

/// The C library has opened a file for a stream: it may have cut it, and its number may have been ours.
unsafe fn opened(stream: *mut libc::FILE) -> *mut libc::FILE {
    if !stream.is_null() && table::knows_any() {
        // SAFETY: the stream was made just now.
        let fd = unsafe { libc::fileno(stream) };
        table::made(fd);
        table::resized(fd, false);
    }
    stream
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: as `fdopen`.
    unsafe { opened(real::fopen(path, mode)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: as `fdopen`; the same function.
    unsafe { fopen(path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut libc::FILE,
) -> *mut libc::FILE {
    // SAFETY: as `fdopen`.
    unsafe {
        closing(stream);
        opened(real::freopen(path, mode, stream))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut libc::FILE,
) -> *mut libc::FILE {
    // SAFETY: as `fdopen`; the same function.
    unsafe { freopen(path, mode, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut libc::DIR {
    table::forget(fd);
    // SAFETY: as `fdopen`.
    unsafe { real::fdopendir(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    table::forget(fd);
    // SAFETY: as `fdopen`.
    unsafe { real::vdprintf(fd, format, arguments) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    table::forget(fd);
    // SAFETY: as `fdopen`.
    unsafe { real::__vdprintf_chk(fd, flag, format, arguments) }
}

crate::passing_on! {
    /// `dprintf`, whose arguments only the C library can read.
    dprintf => forget_first;
    /// `__dprintf_chk`, whose arguments only the C library can read.
    __dprintf_chk => forget_first;
}

/// The first argument is a descriptor that the C library is about to write to.
extern "C" fn forget_first(fd: usize) {
    table::forget(fd as c_int);
}
