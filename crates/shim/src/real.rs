//! The C library's own functions: the next definitions after this library's in the order of symbol look-up.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use libc::{iovec, mode_t, msghdr, off_t, pid_t, rlimit, sigset_t, size_t, ssize_t};

/// Address of a symbol, looked up on first use. Holds no name and so needs no relocation: processes pay
/// nothing for functions that they do not call.
pub struct Symbol(AtomicUsize);

impl Symbol {
    /// Creates a symbol that was not looked up yet.
    pub const fn new() -> Symbol {
        Symbol(AtomicUsize::new(0))
    }

    /// Returns the address of the next definition of `name` after this library's; callers pass the same name
    /// each time. Aborts the process with a message if no library defines the function, because the call has
    /// no target then.
    #[inline]
    pub fn address(&self, name: &'static CStr) -> usize {
        match self.0.load(Relaxed) {
            0 => self.look_up(name),
            address => address,
        }
    }

    #[cold]
    fn look_up(&self, name: &CStr) -> usize {
        // SAFETY: the name is a C string, and RTLD_NEXT is valid in a shared library.
        let address = unsafe { crate::lookups::look_up(libc::RTLD_NEXT, name) };
        if address == 0 {
            let text = b"bywash: no library of this program has the function ";
            let end = b"; run it without bywash\n";
            for part in [text, name.to_bytes(), end] {
                // SAFETY: the kernel reads the bytes of `part`, whose length is passed along.
                unsafe {
                    let arguments = [2, part.as_ptr() as usize, part.len(), 0, 0, 0];
                    bywash_file::sys::call(libc::SYS_write as usize, arguments);
                }
            }
            // SAFETY: `abort` ends the process; a call without a target cannot continue.
            unsafe { libc::abort() };
        }
        self.0.store(address, Relaxed);
        address
    }
}

/// Name of a function as a C string.
#[macro_export]
macro_rules! c_name {
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
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $answer:ty)?;)*) => {
        /// Addresses of the C library's functions, by name.
        #[allow(non_upper_case_globals)]
        mod symbols {
            $(pub static $name: super::Symbol = super::Symbol::new();)*
        }

        $(
            #[doc = concat!("The C library's `", stringify!($name), "`.")]
            #[inline]
            #[allow(non_snake_case)]
            pub unsafe fn $name($($argument: $kind),*) $(-> $answer)? {
                // SAFETY: the C library's function of this name has this type; the caller keeps its contract.
                unsafe {
                    let function: unsafe extern "C" fn($($kind),*) $(-> $answer)? =
                        core::mem::transmute(symbols::$name.address($crate::c_name!($name)));
                    function($($argument),*)
                }
            }
        )*
    };
}

macro_rules! look_up {
    ($($name:ident)*) => { $(symbols::$name.address($crate::c_name!($name));)* };
}

/// Looks up the functions that a forked child calls before it executes a program or ends. Otherwise each
/// child of a shell would look them up anew, on pages that it must copy or map first.
pub fn look_up_for_children() {
    look_up!(_exit close dup2 execve fcntl open pthread_sigmask sigaction);
}

/// Makes a system call by instruction; returns its result in the C library's way: -1 with `errno` set on
/// failure.
///
/// # Safety
/// Same as the system call itself.
#[inline]
pub unsafe fn direct(number: c_long, arguments: [usize; 6]) -> ssize_t {
    // SAFETY: the caller keeps the contract of the system call.
    let answer = unsafe { bywash_file::sys::call(number as usize, arguments) };
    if answer < 0 {
        // SAFETY: the location is the C library's `errno` of this thread, which is always valid.
        unsafe { *libc::__errno_location() = -answer as c_int };
        return -1;
    }
    answer
}

real! {
    fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t;
    fn pread(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t;
    fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t;
    fn preadv(fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv2(fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t;
    fn pwrite(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t;
    fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t;
    fn pwritev(fd: c_int, from: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev2(fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn __read_chk(fd: c_int, to: *mut c_void, length: size_t, room: size_t) -> ssize_t;
    fn __pread_chk(fd: c_int, to: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t;

    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int);
    fn dup(fd: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int,
        limit: *mut libc::timespec) -> c_int;
    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int;

    fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn fclose(stream: *mut libc::FILE) -> c_int;
    fn pclose(stream: *mut libc::FILE) -> c_int;
    fn closedir(folder: *mut libc::DIR) -> c_int;
    fn tmpfile() -> *mut libc::FILE;
    fn opendir(path: *const c_char) -> *mut libc::DIR;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fn accept(fd: c_int, address: *mut c_void, length: *mut c_uint) -> c_int;
    fn accept4(fd: c_int, address: *mut c_void, length: *mut c_uint, flags: c_int) -> c_int;
    fn pipe(pair: *mut c_int) -> c_int;
    fn pipe2(pair: *mut c_int, flags: c_int) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn eventfd(value: c_uint, flags: c_int) -> c_int;
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    fn signalfd(fd: c_int, set: *const c_void, flags: c_int) -> c_int;
    fn inotify_init() -> c_int;
    fn inotify_init1(flags: c_int) -> c_int;
    fn mkstemp(template: *mut c_char) -> c_int;
    fn mkstemp64(template: *mut c_char) -> c_int;
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int;
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int;
    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn posix_openpt(flags: c_int) -> c_int;
    fn pthread_cancel(thread: usize) -> c_int;
    fn truncate(path: *const c_char, length: off_t) -> c_int;

    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn ftruncate(fd: c_int, length: off_t) -> c_int;
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int;
    fn posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int;
    fn posix_fadvise(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int;
    fn syncfs(fd: c_int) -> c_int;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t;
    fn copy_file_range(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t,
        length: size_t, flags: c_uint) -> ssize_t;
    fn splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t,
        length: size_t, flags: c_uint) -> ssize_t;
    fn sync();
    fn rename(from: *const c_char, to: *const c_char) -> c_int;
    fn renameat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int;
    fn renameat2(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint) -> c_int;
    fn link(from: *const c_char, to: *const c_char) -> c_int;
    fn linkat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_int) -> c_int;
    fn unlink(path: *const c_char) -> c_int;
    fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn remove(path: *const c_char) -> c_int;
    fn chmod(path: *const c_char, mode: mode_t) -> c_int;
    fn lchmod(path: *const c_char, mode: mode_t) -> c_int;
    fn fchmod(fd: c_int, mode: mode_t) -> c_int;
    fn fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int;
    fn chown(path: *const c_char, user: c_uint, group: c_uint) -> c_int;
    fn lchown(path: *const c_char, user: c_uint, group: c_uint) -> c_int;
    fn fchown(fd: c_int, user: c_uint, group: c_uint) -> c_int;
    fn fchownat(at: c_int, path: *const c_char, user: c_uint, group: c_uint, flags: c_int) -> c_int;
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int;
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int;
    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int;
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int;
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    fn mmap(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int,
        offset: off_t) -> *mut c_void;
    fn aio_write(request: *mut libc::aiocb) -> c_int;
    fn lio_listio(mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut c_void) -> c_int;
    fn aio_fsync(operation: c_int, request: *mut libc::aiocb) -> c_int;
    fn io_setup(count: c_int, context: *mut c_void) -> c_int;
    fn io_queue_init(count: c_int, context: *mut c_void) -> c_int;
    fn lockf(fd: c_int, command: c_int, length: off_t) -> c_int;

    fn fork() -> pid_t;
    fn _Fork() -> pid_t;
    fn forkpty(master: *mut c_int, name: *mut c_char, terminal: *const c_void, size: *const c_void) -> pid_t;
    fn daemon(keep_folder: c_int, keep_streams: c_int) -> c_int;
    fn clone(entry: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent: *mut c_void, tls: *mut c_void, child: *mut c_void) -> c_int;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, kind: *const c_char) -> *mut libc::FILE;
    fn execve(path: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execveat(at: c_int, path: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char, flags: c_int) -> c_int;
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
    fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int;
    fn prlimit(pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int;
    fn mlockall(flags: c_int) -> c_int;
    fn _exit(status: c_int);
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void,
        memory: *mut c_void, size: size_t) -> c_int;

    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn __sysv_signal(signal: c_int, handler: usize) -> usize;
    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
    fn sigsuspend(set: *const sigset_t) -> c_int;
    fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int;
    fn sigwaitinfo(set: *const sigset_t, info: *mut libc::siginfo_t) -> c_int;
    fn sigtimedwait(set: *const sigset_t, info: *mut libc::siginfo_t, limit: *const libc::timespec) -> c_int;
    fn ppoll(list: *mut c_void, count: libc::nfds_t, limit: *const libc::timespec, set: *const sigset_t) -> c_int;
    fn __ppoll_chk(list: *mut c_void, count: libc::nfds_t, limit: *const libc::timespec, set: *const sigset_t,
        room: size_t) -> c_int;
    fn pselect(count: c_int, readable: *mut c_void, writable: *mut c_void, exceptional: *mut c_void,
        limit: *const libc::timespec, set: *const sigset_t) -> c_int;
    fn epoll_pwait(fd: c_int, events: *mut c_void, count: c_int, limit_ms: c_int, set: *const sigset_t) -> c_int;
    fn epoll_pwait2(fd: c_int, events: *mut c_void, count: c_int, limit: *const libc::timespec,
        set: *const sigset_t) -> c_int;
    fn pthread_create(thread: *mut c_void, attributes: *const c_void,
        entry: extern "C" fn(*mut c_void) -> *mut c_void, argument: *mut c_void) -> c_int;
    fn thrd_create(thread: *mut c_void, entry: *mut c_void, argument: *mut c_void) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;

    fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut libc::FILE) -> *mut libc::FILE;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    fn fdopendir(fd: c_int) -> *mut libc::DIR;
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
}
