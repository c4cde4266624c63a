//! Processes that begin, programs that are replaced, and what a process may decide that a data path cannot
//! live with.
//!
//! Before anything that lets another process share an open file, every position goes back to the kernel
//! (`share_all`). A vfork child runs on its parent's memory: while it does, the calling thread's word is
//! [`threads::BYPASS`], and every function of this library only passes calls on.

use crate::{contents, data, descriptors, real, signals, start};
use bywash_file::{process, table, threads};
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use libc::{pid_t, rlimit};

/// In a forked child: begin anew.
unsafe fn child() {
    if process::is_unnoticed_child() && !threads::bypassed() {
        // SAFETY: a forked child has one thread.
        unsafe { process::reset_child(start::claim_record()) };
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

/// Makes a fork; a child goes on with the signal mask that the parent believes in.
fn forked(fork: impl FnOnce() -> pid_t) -> pid_t {
    table::share_all();
    let blocked = threads::known().map_or(0, |thread| thread.blocked.get());
    let pid = fork();
    if pid == 0 && !threads::bypassed() {
        // SAFETY: the child has just begun.
        unsafe { child() };
        if blocked != 0
            && let Some(thread) = threads::current()
        {
            thread.blocked.set(blocked);
        }
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
    let word = threads::word();
    threads::set_word(threads::BYPASS);
    word
}

/// In the parent, after the child has gone its way.
extern "C" fn after_vfork(word: usize, result: isize) -> pid_t {
    threads::set_word(word);
    if result < 0 {
        // SAFETY: the C library's own errno of this thread.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result as pid_t
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
    let word = threads::word();
    threads::set_word(threads::BYPASS);
    let result = kernel();
    threads::set_word(word);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    table::share_all();
    // SAFETY: as `fork`.
    unsafe { real::posix_spawn(pid, path, actions, attributes, arguments, environment) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    table::share_all();
    // SAFETY: as `fork`.
    unsafe { real::posix_spawnp(pid, file, actions, attributes, arguments, environment) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    table::share_all();
    // SAFETY: as `fork`.
    unsafe { real::system(command) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, kind: *const c_char) -> *mut libc::FILE {
    table::share_all();
    // SAFETY: as `fork`.
    unsafe { real::popen(command, kind) }
}

/// Before the program is replaced: what it leaves behind must be as the kernel would have it.
fn before_exec() {
    table::share_all();
    table::report_usage();
    signals::before_exec();
}

extern "C" fn before_exec_list(_path: usize) {
    before_exec();
}

crate::passing_on! {
    /// `execl`, whose arguments only the C library can read.
    execl => before_exec_list;
    /// `execlp`, whose arguments only the C library can read.
    execlp => before_exec_list;
    /// `execle`, whose arguments only the C library can read.
    execle => before_exec_list;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    before_exec();
    // SAFETY: as `fork`.
    unsafe { real::execve(path, arguments, environment) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    before_exec();
    // SAFETY: as `fork`.
    unsafe { real::execv(path, arguments) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    before_exec();
    // SAFETY: as `fork`.
    unsafe { real::execvp(file, arguments) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    before_exec();
    // SAFETY: as `fork`.
    unsafe { real::execvpe(file, arguments, environment) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(
    fd: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    before_exec();
    // SAFETY: as `fork`.
    unsafe { real::fexecve(fd, arguments, environment) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    at: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    flags: c_int,
) -> c_int {
    before_exec();
    // SAFETY: as `fork`.
    unsafe { real::execveat(at, path, arguments, environment, flags) }
}

/// Calls that a program makes by number mean the same as by name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let fd = a as c_int;
    // SAFETY: as `fork`; the arguments are those of the call of this number.
    unsafe {
        match number {
            libc::SYS_read => data::read(fd, b as *mut c_void, c) as c_long,
            libc::SYS_write => data::write(fd, b as *const c_void, c) as c_long,
            libc::SYS_pread64 => data::pread(fd, b as *mut c_void, c, d as i64) as c_long,
            libc::SYS_pwrite64 => data::pwrite(fd, b as *const c_void, c, d as i64) as c_long,
            libc::SYS_lseek => contents::lseek(fd, b as i64, c as c_int),
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            libc::SYS_dup2 => descriptors::dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c).into(),
            libc::SYS_ftruncate => contents::ftruncate(fd, b as i64).into(),
            libc::SYS_prctl => prctl(a as c_int, b, c, d, e).into(),
            libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask if signals::concerns(number, a, b) => {
                // The program goes below the C library for its fault signals.
                process::step_aside();
                signals::withdraw();
                real::syscall(number, a, b, c, d, e, f)
            }
            _ => {
                match number {
                    libc::SYS_fork
                    | libc::SYS_execve
                    | libc::SYS_execveat
                    | libc::SYS_readv
                    | libc::SYS_writev
                    | libc::SYS_preadv
                    | libc::SYS_pwritev
                    | libc::SYS_sendfile
                    | libc::SYS_splice
                    | libc::SYS_copy_file_range
                    | libc::SYS_sendmsg
                    | libc::SYS_pidfd_getfd => {
                        table::share_all();
                    }
                    libc::SYS_clone if a & (libc::CLONE_FILES | libc::CLONE_VM) as usize == 0 => {
                        table::share_all();
                    }
                    // For clone3 too: who knows what it shares.
                    libc::SYS_clone | libc::SYS_clone3 | libc::SYS_io_uring_setup | libc::SYS_seccomp => {
                        process::step_aside()
                    }
                    _ => {}
                }
                let result = real::syscall(number, a, b, c, d, e, f);
                if matches!(number, libc::SYS_fork | libc::SYS_clone | libc::SYS_clone3) && result == 0 {
                    notice_child();
                }
                result
            }
        }
    }
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
    if option == libc::PR_SET_SECCOMP {
        // What the filter allows is for the program's calls, not for ours.
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
