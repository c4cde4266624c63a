//! Processes that begin, and what a process may decide that a data path cannot live with.
//!
//! Before anything that lets another process share an open file, every position goes back to the kernel
//! (`share_all`). A vfork child runs on its parent's memory: while it does, the calling thread's word is
//! [`threads::BYPASS`], and every function of this library only passes calls on.

use crate::{descriptors, jumps, masks, real, start};
use bywash_file::{process, table, threads};
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{pid_t, rlimit};

/// In a forked child: begin anew.
unsafe fn child() {
    if process::is_unnoticed_child() && !threads::bypassed() {
        // What opens the session must not notice the child once more.
        threads::set_word(threads::BYPASS);
        let record = start::claim_record();
        threads::set_word(0);
        // SAFETY: a forked child has one thread.
        unsafe { process::reset_child(record) };
    }
}

/// Begins anew if this turns out to be a child of a fork that nobody told us of.
#[inline]
pub fn notice_child() {
    if process::is_unnoticed_child() {
        // SAFETY: the first file call of a forked child; if it has made threads by then, none has used a
        // table, for all are empty.
        unsafe { child() };
    }
}

/// Makes a fork. The child keeps the signal mask that the parent believes in, which is thread-local.
fn forked(fork: impl FnOnce() -> pid_t) -> pid_t {
    table::share_all();
    real::look_up_for_children();
    jumps::look_up_for_children();
    let pid = fork();
    if pid == 0 && !threads::bypassed() {
        // SAFETY: the child has just begun.
        unsafe { child() };
    }
    pid
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: as the program promised for this function; the same throughout this file.
    forked(|| unsafe { real::fork() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    // SAFETY: as `fork`.
    forked(|| unsafe { real::_Fork() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    terminal: *const c_void,
    size: *const c_void,
) -> pid_t {
    // SAFETY: as `fork`.
    forked(|| unsafe { real::forkpty(master, name, terminal, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(keep_folder: c_int, keep_streams: c_int) -> c_int {
    table::share_all();
    // SAFETY: as `fork`.
    let result = unsafe { real::daemon(keep_folder, keep_streams) };
    notice_child();
    result
}

/// The child returns first, on the parent's stack; so the return address waits in a register, which each
/// of the two has for itself.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() -> pid_t {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "mov rsi, rax",
        "pop rdi",
        "mov eax, 58",
        "syscall",
        "push rdi",
        "test rax, rax",
        "jz 2f",
        "mov rdi, rsi",
        "mov rsi, rax",
        "sub rsp, 8",
        "call {after}",
        "add rsp, 8",
        "2:",
        "ret",
        before = sym before_vfork,
        after = sym after_vfork,
    )
}

extern "C" fn before_vfork() -> usize {
    table::share_all();
    masks::show();
    let word = threads::word();
    threads::set_word(threads::BYPASS);
    word
}

/// In the parent, after the child has gone its way.
extern "C" fn after_vfork(word: usize, result: isize) -> pid_t {
    threads::set_word(word);
    masks::hide();
    if result < 0 {
        // SAFETY: the C library's own errno of this thread.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result as pid_t
}

/// A thread leaves what it shares with others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_FILES != 0 {
        descriptors::leave_table();
    }
    // SAFETY: as `fork`.
    unsafe { real::unshare(flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    entry: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child_id: *mut c_void,
) -> c_int {
    // SAFETY: as `fork`.
    let kernel = || unsafe { real::clone(entry, stack, flags, argument, parent, tls, child_id) };
    if flags & libc::CLONE_THREAD != 0 {
        const SHARED: c_int = libc::CLONE_FILES | libc::CLONE_SETTLS;
        if flags & SHARED != SHARED {
            // A thread with descriptors of its own, or on the thread-local storage of another.
            process::step_aside();
        }
        return kernel();
    }
    table::share_all();
    if flags & libc::CLONE_FILES != 0 || flags & libc::CLONE_VM != 0 && flags & libc::CLONE_VFORK == 0 {
        // Another process on our descriptors or our memory, for as long as it likes.
        process::step_aside();
        return kernel();
    }
    if flags & libc::CLONE_VM == 0 {
        return kernel();
    }
    masks::shown(|| {
        let word = threads::word();
        threads::set_word(threads::BYPASS);
        let result = kernel();
        threads::set_word(word);
        result
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    table::share_all();
    // SAFETY: as `fork`.
    masks::shown(|| unsafe { real::system(command) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, kind: *const c_char) -> *mut libc::FILE {
    table::share_all();
    // SAFETY: as `fork`.
    masks::shown(|| unsafe { real::popen(command, kind) })
}

unsafe extern "C" {
    /// Addresses of this library's first byte and of the byte behind its last, set by the linker.
    static __ehdr_start: u8;
    static _end: u8;
}

/// The program locks its memory. Mappings of files would be read whole, holes of files on tmpfs be filled, and
/// all of it count against RLIMIT_MEMLOCK; so the library steps aside, and unlocks what is left of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if threads::bypassed() {
        // SAFETY: as `fork`.
        return unsafe { real::mlockall(flags) };
    }
    let left = process::step_aside_and_shrink();
    // SAFETY: as `fork`.
    let result = unsafe { real::mlockall(flags) };
    if result == 0 {
        let library = &raw const __ehdr_start;
        let bytes = &raw const _end as usize - library as usize;
        for (at, bytes) in left.into_iter().chain([(library.cast_mut(), bytes)]) {
            if bytes > 0 {
                // SAFETY: unlocks memory of this library's; contents stay.
                unsafe {
                    bywash_file::sys::call(libc::SYS_munlock as usize, [at as usize, bytes, 0, 0, 0, 0])
                };
            }
        }
    }
    result
}

/// A limit on the address space would count our mappings against the program.
fn before_limit(resource: c_uint, limit: *const rlimit) {
    if resource == libc::RLIMIT_AS && !limit.is_null() {
        process::step_aside();
    }
}

fn after_limit(resource: c_uint, result: c_int) -> c_int {
    if resource == libc::RLIMIT_FSIZE {
        start::note_file_size_limit();
    }
    result
}

/// Ends the process past the C library's list of what to do at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    start::end();
    // SAFETY: as `fork`.
    unsafe { real::_exit(status) };
    unreachable!("_exit came back");
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function.
    unsafe { _exit(status) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int {
    before_limit(resource, limit);
    // SAFETY: as `fork`.
    after_limit(resource, unsafe { real::setrlimit(resource, limit) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: the same function.
    unsafe { setrlimit(resource, limit) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    before_limit(resource, new);
    // SAFETY: as `fork`.
    after_limit(resource, unsafe { real::prlimit(pid, resource, new, old) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the same function.
    unsafe { prlimit(pid, resource, new, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if option == libc::PR_SET_SECCOMP || option == libc::PR_SET_TSC {
        // A filter allows the program's calls, not the library's, which also reads the time-stamp counter.
        process::step_aside();
    }
    // SAFETY: as `fork`.
    unsafe { real::prctl(option, a, b, c, d) }
}

/// A ring of the program's own can close and open descriptors past this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
    process::step_aside();
    // SAFETY: as `fork`.
    unsafe { real::io_uring_queue_init(entries, ring, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    process::step_aside();
    // SAFETY: as `fork`.
    unsafe { real::io_uring_queue_init_params(entries, ring, parameters) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init_mem(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
    memory: *mut c_void,
    size: libc::size_t,
) -> c_int {
    process::step_aside();
    // SAFETY: as `fork`.
    unsafe { real::io_uring_queue_init_mem(entries, ring, parameters, memory, size) }
}
