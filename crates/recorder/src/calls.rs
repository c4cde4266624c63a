//! The exported functions: each calls the C library's own, and notes the call.
//!
//! `noted!` rows name the function, the kind of the call, and how descriptor, offset and result are found.
//! `forgets!` rows make or close descriptors and are not noted themselves.

use crate::descriptors::{forget, forget_range};
use crate::note;
use crate::real::Symbol;
use bywash_session::recording::Function;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{iovec, mode_t, msghdr, off_t, pid_t, size_t, ssize_t};

/// Offset of a call at the descriptor's position.
const HERE: u64 = u64::MAX;

macro_rules! name {
    ($name:ident) => {
        const {
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        }
    };
}

macro_rules! real {
    ($name:ident($($argument:ident: $kind:ty),*) -> $result:ty) => {{
        static REAL: Symbol = Symbol::new();
        // SAFETY: the C library's function of this name has this type; the program keeps its contract.
        unsafe {
            let function: unsafe extern "C" fn($($kind),*) -> $result =
                core::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> $result>(
                    REAL.address(name!($name)),
                );
            function($($argument),*)
        }
    }};
}

macro_rules! noted {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty,
        $function:ident, $fd:expr, $offset:expr, |$done:ident| $length:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                let begun = note::begin();
                let $done = real!($name($($argument: $kind),*) -> $result);
                note::end(begun, Function::$function, $fd, $offset, $length);
                $done
            }
        )*
    };
}

macro_rules! forgets {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty, |$done:ident| $forget:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                let $done = real!($name($($argument: $kind),*) -> $result);
                $forget;
                $done
            }
        )*
    };
}

/// Returns 0 for success and -1 for failure of a function that returns an error number.
fn succeeded(error: c_int) -> i64 {
    if error == 0 { 0 } else { -1 }
}

/// Returns the offset of a call with an offset, where -1 is the descriptor's position.
fn at(offset: off_t) -> u64 {
    if offset < 0 { HERE } else { offset as u64 }
}

noted! {
    fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t,
        Read, fd, HERE, |done| done as i64;
    fn __read_chk(fd: c_int, to: *mut c_void, length: size_t, room: size_t) -> ssize_t,
        Read, fd, HERE, |done| done as i64;
    fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t,
        Read, fd, HERE, |done| done as i64;
    fn pread(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t,
        ReadAt, fd, at(offset), |done| done as i64;
    fn pread64(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t,
        ReadAt, fd, at(offset), |done| done as i64;
    fn __pread_chk(fd: c_int, to: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t,
        ReadAt, fd, at(offset), |done| done as i64;
    fn __pread64_chk(fd: c_int, to: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t,
        ReadAt, fd, at(offset), |done| done as i64;
    fn preadv(fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        ReadAt, fd, at(offset), |done| done as i64;
    fn preadv64(fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        ReadAt, fd, at(offset), |done| done as i64;
    fn preadv2(fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
        ReadAt, fd, at(offset), |done| done as i64;
    fn preadv64v2(fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
        ReadAt, fd, at(offset), |done| done as i64;
    fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t,
        Write, fd, HERE, |done| done as i64;
    fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t,
        Write, fd, HERE, |done| done as i64;
    fn pwrite(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t,
        WriteAt, fd, at(offset), |done| done as i64;
    fn pwrite64(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t,
        WriteAt, fd, at(offset), |done| done as i64;
    fn pwritev(fd: c_int, from: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        WriteAt, fd, at(offset), |done| done as i64;
    fn pwritev64(fd: c_int, from: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        WriteAt, fd, at(offset), |done| done as i64;
    fn pwritev2(fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
        WriteAt, fd, at(offset), |done| done as i64;
    fn pwritev64v2(fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
        WriteAt, fd, at(offset), |done| done as i64;
    fn fsync(fd: c_int) -> c_int,
        Sync, fd, 0, |done| done as i64;
    fn fdatasync(fd: c_int) -> c_int,
        SyncData, fd, 0, |done| done as i64;
    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int,
        SyncRange, fd, at(offset), |done| done as i64;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t,
        Seek, fd, done as u64, |done| if done < 0 { -1 } else { 0 };
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t,
        Seek, fd, done as u64, |done| if done < 0 { -1 } else { 0 };
    fn recv(fd: c_int, to: *mut c_void, length: size_t, flags: c_int) -> ssize_t,
        Receive, fd, HERE, |done| done as i64;
    fn __recv_chk(fd: c_int, to: *mut c_void, length: size_t, room: size_t, flags: c_int) -> ssize_t,
        Receive, fd, HERE, |done| done as i64;
    fn recvfrom(fd: c_int, to: *mut c_void, length: size_t, flags: c_int, address: *mut c_void, size: *mut c_uint) -> ssize_t,
        Receive, fd, HERE, |done| done as i64;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t,
        Receive, fd, HERE, |done| done as i64;
    fn send(fd: c_int, from: *const c_void, length: size_t, flags: c_int) -> ssize_t,
        Send, fd, HERE, |done| done as i64;
    fn sendto(fd: c_int, from: *const c_void, length: size_t, flags: c_int, address: *const c_void, size: c_uint) -> ssize_t,
        Send, fd, HERE, |done| done as i64;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t,
        Send, fd, HERE, |done| done as i64;
    fn sendfile(to: c_int, fd: c_int, offset: *mut off_t, length: size_t) -> ssize_t,
        Transfer, fd, HERE, |done| done as i64;
    fn sendfile64(to: c_int, fd: c_int, offset: *mut off_t, length: size_t) -> ssize_t,
        Transfer, fd, HERE, |done| done as i64;
    fn copy_file_range(fd: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, length: size_t, flags: c_uint) -> ssize_t,
        Transfer, fd, HERE, |done| done as i64;
    fn splice(fd: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, length: size_t, flags: c_uint) -> ssize_t,
        Transfer, fd, HERE, |done| done as i64;
    fn poll(list: *mut c_void, count: libc::nfds_t, limit_ms: c_int) -> c_int,
        Poll, -1, 0, |done| done as i64;
    fn __poll_chk(list: *mut c_void, count: libc::nfds_t, limit_ms: c_int, room: size_t) -> c_int,
        Poll, -1, 0, |done| done as i64;
    fn ppoll(list: *mut c_void, count: libc::nfds_t, limit: *const c_void, set: *const c_void) -> c_int,
        Poll, -1, 0, |done| done as i64;
    fn select(count: c_int, readable: *mut c_void, writable: *mut c_void, exceptional: *mut c_void, limit: *mut c_void) -> c_int,
        Poll, -1, 0, |done| done as i64;
    fn pselect(count: c_int, readable: *mut c_void, writable: *mut c_void, exceptional: *mut c_void, limit: *const c_void, set: *const c_void) -> c_int,
        Poll, -1, 0, |done| done as i64;
    fn epoll_wait(epoll: c_int, events: *mut c_void, count: c_int, limit_ms: c_int) -> c_int,
        Poll, -1, 0, |done| done as i64;
    fn epoll_pwait(epoll: c_int, events: *mut c_void, count: c_int, limit_ms: c_int, set: *const c_void) -> c_int,
        Poll, -1, 0, |done| done as i64;
    fn connect(fd: c_int, address: *const c_void, length: c_uint) -> c_int,
        Poll, -1, 0, |done| done as i64;
    fn wait(status: *mut c_int) -> pid_t,
        WaitChild, -1, 0, |done| i64::from(done);
    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t,
        WaitChild, -1, 0, |done| i64::from(done);
    fn wait3(status: *mut c_int, options: c_int, usage: *mut c_void) -> pid_t,
        WaitChild, -1, 0, |done| i64::from(done);
    fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut c_void) -> pid_t,
        WaitChild, -1, 0, |done| i64::from(done);
    fn waitid(kind: c_uint, pid: c_uint, info: *mut c_void, options: c_int) -> c_int,
        WaitChild, -1, 0, |done| i64::from(done);
    fn pthread_cond_wait(variable: *mut c_void, mutex: *mut c_void) -> c_int,
        WaitThread, -1, 0, |done| succeeded(done);
    fn pthread_cond_timedwait(variable: *mut c_void, mutex: *mut c_void, limit: *const c_void) -> c_int,
        WaitThread, -1, 0, |done| succeeded(done);
    fn pthread_cond_clockwait(variable: *mut c_void, mutex: *mut c_void, clock: c_int, limit: *const c_void) -> c_int,
        WaitThread, -1, 0, |done| succeeded(done);
    fn pthread_join(thread: usize, result: *mut *mut c_void) -> c_int,
        WaitThread, -1, 0, |done| succeeded(done);
    fn sem_wait(semaphore: *mut c_void) -> c_int,
        WaitThread, -1, 0, |done| done as i64;
    fn sleep(seconds: c_uint) -> c_uint,
        Sleep, -1, 0, |done| 0;
    fn usleep(us: c_uint) -> c_int,
        Sleep, -1, 0, |done| done as i64;
    fn nanosleep(time: *const c_void, rest: *mut c_void) -> c_int,
        Sleep, -1, 0, |done| done as i64;
    fn clock_nanosleep(clock: c_int, flags: c_int, time: *const c_void, rest: *mut c_void) -> c_int,
        Sleep, -1, 0, |done| succeeded(done);
}

forgets! {
    fn dup(fd: c_int) -> c_int, |done| forget(done);
    fn dup2(from: c_int, to: c_int) -> c_int, |done| forget(to);
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int, |done| forget(to);
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, |done| if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { forget(done) };
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int, |done| if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { forget(done) };
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, |done| forget(done);
    fn pipe(pair: *mut c_int) -> c_int, |done| made(pair, done);
    fn pipe2(pair: *mut c_int, flags: c_int) -> c_int, |done| made(pair, done);
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int, |done| made(pair, done);
    fn epoll_create1(flags: c_int) -> c_int, |done| forget(done);
    fn eventfd(value: c_uint, flags: c_int) -> c_int, |done| forget(done);
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int, |done| forget(done);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, |done| forget_range(first, last);
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE, |done| made_by(done);
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE, |done| made_by(done);
    fn opendir(path: *const c_char) -> *mut libc::DIR, |done| if !done.is_null() { forget(unsafe_dirfd(done)) };
    fn mkstemp(template: *mut c_char) -> c_int, |done| forget(done);
    fn mkstemp64(template: *mut c_char) -> c_int, |done| forget(done);
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int, |done| forget(done);
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int, |done| forget(done);
}

/// Forgets both descriptors of a new pair.
fn made(pair: *mut c_int, result: c_int) {
    if result == 0 {
        // SAFETY: the call has succeeded, so it has written both.
        let [one, other] = unsafe { [*pair, *pair.add(1)] };
        forget(one);
        forget(other);
    }
}

/// Forgets the descriptor of a new stream.
fn made_by(stream: *mut libc::FILE) {
    if !stream.is_null() {
        // SAFETY: the C library has just made the stream.
        forget(unsafe { libc::fileno(stream) });
    }
}

/// Returns the descriptor of a folder's stream.
fn unsafe_dirfd(folder: *mut libc::DIR) -> c_int {
    // SAFETY: the C library has just made the stream.
    unsafe { libc::dirfd(folder) }
}

/// Notes an opening; `fd` is its result.
fn opened(begun: note::Begun, fd: c_int) -> c_int {
    forget(fd);
    note::end(begun, Function::Open, -1, 0, i64::from(fd));
    fd
}

macro_rules! opens {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                let begun = note::begin();
                opened(begun, real!($name($($argument: $kind),*) -> c_int))
            }
        )*
    };
}

opens! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t);
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn creat(path: *const c_char, mode: mode_t);
    fn creat64(path: *const c_char, mode: mode_t);
    fn __open_2(path: *const c_char, flags: c_int);
    fn __open64_2(path: *const c_char, flags: c_int);
    fn __openat_2(folder: c_int, path: *const c_char, flags: c_int);
    fn __openat64_2(folder: c_int, path: *const c_char, flags: c_int);
}

macro_rules! accepts {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                let begun = note::begin();
                let fd = real!($name($($argument: $kind),*) -> c_int);
                forget(fd);
                note::end(begun, Function::Poll, -1, 0, i64::from(fd));
                fd
            }
        )*
    };
}

accepts! {
    fn accept(fd: c_int, address: *mut c_void, length: *mut c_uint);
    fn accept4(fd: c_int, address: *mut c_void, length: *mut c_uint, flags: c_int);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let begun = note::begin();
    let result = real!(close(fd: c_int) -> c_int);
    // The entry is still known, so that the call is noted with its file; a file that no call used has none.
    if crate::descriptors::known(fd) != 0 {
        note::end(begun, Function::Close, fd, 0, i64::from(result));
        forget(fd);
    } else {
        note::end(begun, Function::Close, -1, 0, i64::from(result));
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: the program passes a stream of its own, which is open until the call below.
    let fd = if stream.is_null() { -1 } else { unsafe { libc::fileno(stream) } };
    forget(fd);
    real!(fclose(stream: *mut libc::FILE) -> c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(folder: *mut libc::DIR) -> c_int {
    if !folder.is_null() {
        forget(unsafe_dirfd(folder));
    }
    real!(closedir(folder: *mut libc::DIR) -> c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    let begun = note::begin();
    let child = real!(fork() -> pid_t);
    if child != 0 {
        note::end(begun, Function::Fork, -1, 0, i64::from(child));
    }
    child
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    note::end(note::begin(), Function::Execute, -1, 0, 0);
    real!(execve(
        path: *const c_char,
        arguments: *const *const c_char,
        environment: *const *const c_char
    ) -> c_int)
}

macro_rules! exits {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(status: c_int) -> ! {
                note::end(note::begin(), Function::Exit, -1, 0, 0);
                // SAFETY: ends the process, as the C library's function does.
                unsafe {
                    bywash_syscall::call(libc::SYS_exit_group as usize, [status as usize, 0, 0, 0, 0, 0]);
                    libc::abort()
                }
            }
        )*
    };
}

exits! { _exit _Exit }
