//! Further names of the C library's functions that this library replaces: glibc exports many of them a second
//! time, with underscores or with 64. `tests/exports.rs` finds names that are missing here.

use core::ffi::{c_char, c_int, c_void};
use libc::{mode_t, off_t, pid_t, size_t, ssize_t};

macro_rules! aliases {
    ($($name:ident = $module:ident::$same:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $answer {
                // SAFETY: the same function under another name, with the same contract.
                unsafe { crate::$module::$same($($argument),*) }
            }
        )*
    };
}

aliases! {
    __open = descriptors::open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open64 = descriptors::open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __close = descriptors::close(fd: c_int) -> c_int;
    __dup2 = descriptors::dup2(from: c_int, to: c_int) -> c_int;
    __fcntl = descriptors::fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    __pipe = descriptors::pipe(pair: *mut c_int) -> c_int;
    __read = data::read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t;
    __write = data::write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t;
    __pread64 = data::pread(fd: c_int, to: *mut c_void, length: size_t, at: off_t) -> ssize_t;
    __pwrite64 = data::pwrite(fd: c_int, from: *const c_void, length: size_t, at: off_t) -> ssize_t;
    __lseek = contents::lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    llseek = contents::lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    __fork = processes::fork() -> pid_t;
    __clone = processes::clone(entry: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent: *mut c_void, tls: *mut c_void, child: *mut c_void) -> c_int;
    _IO_popen = processes::popen(command: *const c_char, kind: *const c_char) -> *mut libc::FILE;
    _IO_fopen = streams::fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    _IO_fdopen = streams::fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    _IO_fclose = streams::fclose(stream: *mut libc::FILE) -> c_int;
    __sigaction = signals::sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction)
        -> c_int;
    ssignal = signals::signal(signal: c_int, handler: usize) -> usize;
    __sigsuspend = masks::sigsuspend(set: *const libc::sigset_t) -> c_int;
    __sigtimedwait = masks::sigtimedwait(set: *const libc::sigset_t, info: *mut libc::siginfo_t,
        limit: *const libc::timespec) -> c_int;
}

/// `vfork` under its other name. A jump and not a call, because the child returns first, on the parent's
/// stack.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __vfork() {
    core::arch::naked_asm!("jmp {same}", same = sym crate::processes::vfork)
}
