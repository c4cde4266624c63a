//! Standard I/O on top of a descriptor. The C library reads, writes and closes the descriptor without calling
//! this library. So the kernel's position must be right, and the descriptor must have no entry in the table
//! when it is closed.

use crate::durability::changes::changing_at;
use crate::durability::{self, unseen};
use crate::{claims, real};
use bywash_file::table;
use core::ffi::{CStr, c_char, c_int, c_void};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    table::forget(fd);
    has_stream(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::fdopen(fd, mode) }
}

/// Clears the entry of the stream's descriptor, which the C library is about to close. The program may have
/// put another file under its number, by `dup2`.
///
/// # Safety
/// `stream` is null or an open stream.
unsafe fn closing(stream: *mut libc::FILE) {
    if !stream.is_null() && (table::knows_any() || durability::log().is_some()) {
        // SAFETY: the caller promises that the stream is still open.
        let fd = unsafe { libc::fileno(stream) };
        table::forget(fd);
        durability::forget(fd);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        closing(stream);
        real::fclose(stream)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        closing(stream);
        real::pclose(stream)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(folder: *mut libc::DIR) -> c_int {
    if !folder.is_null() && (table::knows_any() || durability::log().is_some()) {
        // SAFETY: the program passes a directory stream that is still open.
        let fd = unsafe { libc::dirfd(folder) };
        table::forget(fd);
        durability::forget(fd);
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::closedir(folder) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpfile() -> *mut libc::FILE {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { opened(real::tmpfile()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpfile64() -> *mut libc::FILE {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { tmpfile() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let folder = unsafe { real::opendir(path) };
    if !folder.is_null() && (table::knows_any() || durability::log().is_some()) {
        // SAFETY: `opendir` has just opened this directory stream.
        let fd = unsafe { libc::dirfd(folder) };
        table::made(fd);
        unseen::made(fd);
    }
    folder
}

/// Tells the table about the descriptor of a stream that the C library has opened, which may have truncated
/// the file.
///
/// # Safety
/// `stream` is null or an open stream.
unsafe fn opened(stream: *mut libc::FILE) -> *mut libc::FILE {
    if !stream.is_null() && (table::knows_any() || durability::log().is_some()) {
        // SAFETY: the caller promises that the stream is open.
        let fd = unsafe { libc::fileno(stream) };
        unseen::made(fd);
        has_stream(fd);
        table::made(fd);
        table::resized(fd, false);
    }
    stream
}

/// Refuses a stream to a file that another log claims; `mode` is that of fopen(3).
///
/// # Safety
/// `stream` is null or an open stream, `mode` null or a C string.
unsafe fn allowed(stream: *mut libc::FILE, mode: *const c_char) -> *mut libc::FILE {
    if stream.is_null() || mode.is_null() {
        return stream;
    }
    // SAFETY: the caller promises the mode and the stream.
    let (mode, fd) = unsafe { (CStr::from_ptr(mode).to_bytes(), libc::fileno(stream)) };
    let is_written = !mode.starts_with(b"r") || mode.contains(&b'+');
    let flags = if is_written { libc::O_RDWR } else { libc::O_RDONLY };
    if claims::allows(fd, flags) {
        return stream;
    }
    // SAFETY: the stream is open, and nobody has it yet.
    unsafe { real::fclose(stream) };
    let _: c_int = durability::failed(libc::EBUSY);
    core::ptr::null_mut()
}

/// Notes that a stream writes to a descriptor from now on.
fn has_stream(fd: c_int) {
    if let Some(log) = durability::log() {
        unseen::stream(log, fd);
    }
}

/// Opens a stream by `kernel`, which removes the contents of the file if the mode says so.
///
/// # Safety
/// Path and mode are null or C strings.
unsafe fn opening(
    path: *const c_char,
    mode: *const c_char,
    kernel: impl FnOnce() -> *mut libc::FILE,
) -> *mut libc::FILE {
    let mut stream = core::ptr::null_mut();
    // SAFETY: a mode is read if it is not null; the caller promises both strings.
    let truncates = durability::log().is_some() && !mode.is_null() && unsafe { *mode } as u8 == b'w';
    if !truncates || path.is_null() {
        return kernel();
    }
    // SAFETY: the caller promises the path.
    if !unsafe { claims::allow_truncation(libc::AT_FDCWD, path, 0) } {
        let _: c_int = durability::failed(libc::EBUSY);
        return core::ptr::null_mut();
    }
    let call = || {
        stream = kernel();
        0
    };
    // SAFETY: the caller promises the path.
    let _: c_int = unsafe { changing_at(libc::AT_FDCWD, path, 0, call) };
    stream
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { opened(allowed(opening(path, mode, || real::fopen(path, mode)), mode)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { fopen(path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut libc::FILE,
) -> *mut libc::FILE {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        closing(stream);
        let stream = opening(path, mode, || real::freopen(path, mode, stream));
        opened(if path.is_null() { stream } else { allowed(stream, mode) })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut libc::FILE,
) -> *mut libc::FILE {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { freopen(path, mode, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut libc::DIR {
    table::forget(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::fdopendir(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    table::forget(fd);
    has_stream(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
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
    has_stream(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::__vdprintf_chk(fd, flag, format, arguments) }
}

crate::passing_on! {
    /// `dprintf`, whose variable arguments only the C library can read.
    dprintf => forget_first;
    /// `__dprintf_chk`, whose variable arguments only the C library can read.
    __dprintf_chk => forget_first;
}

/// Clears the entry of the first argument, a descriptor that the C library is about to write to.
extern "C" fn forget_first(fd: usize) {
    table::forget(fd as c_int);
    has_stream(fd as c_int);
}
