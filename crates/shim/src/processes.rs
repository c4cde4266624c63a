//! Calls that make processes, and calls that are incompatible with a data path.
//!
//! Before a call that lets another process share an open file, every position is given back to the kernel
//! (`share_all`). A vfork child runs on its parent's memory: during that time the calling thread's word is
//! [`threads::BYPASS`], and every function of this library only passes calls on.

use crate::{descriptors, durability, exec, jumps, masks, real, start};
use bywash_file::{process, state, table, threads};
use core::ffi::{c_char, c_int, c_uint, c_void};
use durability::unseen;
use libc::{pid_t, rlimit};

/// Gives a forked child a data path of its own, if it does not have one yet.
///
/// # Safety
/// The caller is the only thread of the child that uses the library.
unsafe fn child() {
    if state::is_unnoticed_child() && !threads::bypassed() {
        // Opening the session makes file calls, which must not enter this function again.
        threads::set_word(threads::BYPASS);
        let record = start::claim_record();
        threads::set_word(0);
        // SAFETY: the caller promises that no other thread of the child uses the library.
        unsafe { process::reset_child(record) };
    }
}

/// Gives the process a data path of its own, if it is a child of a fork that the library did not see.
#[inline]
pub fn notice_child() {
    if state::is_unnoticed_child() {
        // SAFETY: this is the first file call of a forked child, in which all tables are empty. A child that
        // has several threads by then must not make its first file calls in two of them at once; nothing here
        // excludes that.
        unsafe { child() };
    }
}

/// Makes a fork. The child keeps the program's view of the signal mask, which is thread-local.
fn forked(fork: impl FnOnce() -> pid_t) -> pid_t {
    table::share_all();
    real::look_up_for_children();
    jumps::look_up_for_children();
    let pid = fork();
    if pid == 0 && !threads::bypassed() {
        durability::reset_child();
        // SAFETY: the child has just begun and has only this thread.
        unsafe { child() };
    }
    pid
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    forked(|| unsafe { real::fork() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    forked(|| unsafe { real::_Fork() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    terminal: *const c_void,
    size: *const c_void,
) -> pid_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    forked(|| unsafe { real::forkpty(master, name, terminal, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(keep_folder: c_int, keep_streams: c_int) -> c_int {
    table::share_all();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let result = unsafe { real::daemon(keep_folder, keep_streams) };
    durability::reset_child();
    durability::descriptors::forget_range(0, 2);
    notice_child();
    result
}

/// Makes a child that runs on the parent's stack and returns first. So the return address is kept in a
/// register, of which parent and child have separate values.
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

/// Restores the thread's word and mask in the parent, after the child has executed a program or ended.
extern "C" fn after_vfork(word: usize, result: isize) -> pid_t {
    threads::set_word(word);
    masks::hide();
    if result < 0 {
        // SAFETY: the location is the C library's `errno` of this thread, which is always valid.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result as pid_t
}

/// Stops sharing parts of the process with other threads; a separate table of descriptors ends the data
/// paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_FILES != 0 {
        descriptors::leave_table();
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
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
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let kernel = || unsafe { real::clone(entry, stack, flags, argument, parent, tls, child_id) };
    if flags & libc::CLONE_THREAD != 0 {
        const SHARED: c_int = libc::CLONE_FILES | libc::CLONE_SETTLS;
        if flags & SHARED != SHARED {
            // The new thread has descriptors of its own, or the thread-local storage of another thread.
            process::step_aside();
        }
        return kernel();
    }
    table::share_all();
    if flags & libc::CLONE_FILES != 0 || flags & libc::CLONE_VM != 0 && flags & libc::CLONE_VFORK == 0 {
        // Another process shares the descriptors or the memory for an unlimited time.
        unseen::begins_to_write_unseen();
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
    exec::before_shell();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    masks::shown(|| unsafe { real::system(command) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, kind: *const c_char) -> *mut libc::FILE {
    table::share_all();
    exec::before_shell();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    masks::shown(|| unsafe { real::popen(command, kind) })
}

unsafe extern "C" {
    /// First byte of this library, and the byte behind its last, as the linker defines them.
    static __ehdr_start: u8;
    static _end: u8;
}

/// Locks the program's memory. Locking would read mapped files completely, allocate the holes of files on
/// tmpfs, and charge all that to RLIMIT_MEMLOCK. So the library stops all data paths first, and unlocks its
/// remaining memory afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if threads::bypassed() {
        // SAFETY: the program keeps the contract of the C library's function that it called.
        return unsafe { real::mlockall(flags) };
    }
    let left = process::step_aside_and_shrink();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let result = unsafe { real::mlockall(flags) };
    if result == 0 {
        let library = &raw const __ehdr_start;
        let bytes = &raw const _end as usize - library as usize;
        for (at, bytes) in left.into_iter().chain([(library.cast_mut(), bytes)]) {
            if bytes > 0 {
                // SAFETY: munlock changes no contents; the ranges are this library's tables and segments.
                unsafe {
                    bywash_file::sys::call(libc::SYS_munlock as usize, [at as usize, bytes, 0, 0, 0, 0])
                };
            }
        }
        durability::unlock_memory();
    }
    result
}

/// Stops all data paths before the address space is limited, because mappings would count against the limit.
fn before_limit(resource: c_uint, limit: *const rlimit) {
    if resource == libc::RLIMIT_AS && !limit.is_null() {
        process::step_aside();
    }
}

fn after_limit(resource: c_uint, result: c_int) -> c_int {
    if resource == libc::RLIMIT_FSIZE {
        durability::limits_changed();
        start::note_file_size_limit();
    }
    result
}

/// Ends the process without the functions registered by atexit(3), so the usage is reported here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    start::end();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::_exit(status) };
    unreachable!("_exit came back");
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { _exit(status) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int {
    before_limit(resource, limit);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    after_limit(resource, unsafe { real::setrlimit(resource, limit) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
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
    // SAFETY: the program keeps the contract of the C library's function that it called.
    after_limit(resource, unsafe { real::prlimit(pid, resource, new, old) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { prlimit(pid, resource, new, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if option == libc::PR_SET_SECCOMP || option == libc::PR_SET_TSC {
        // A filter is made for the program's calls and may forbid the library's; the library also reads the
        // time-stamp counter.
        process::step_aside();
        if option == libc::PR_SET_SECCOMP {
            durability::stop();
        }
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::prctl(option, a, b, c, d) }
}

/// Sets up an io_uring of the program's own, which can open and close descriptors without this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
    process::step_aside();
    unseen::begins_to_write_unseen();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::io_uring_queue_init(entries, ring, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    process::step_aside();
    unseen::begins_to_write_unseen();
    // SAFETY: the program keeps the contract of the C library's function that it called.
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
    unseen::begins_to_write_unseen();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::io_uring_queue_init_mem(entries, ring, parameters, memory, size) }
}
