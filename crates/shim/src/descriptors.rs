//! Calls that make, duplicate, pass on and close descriptors.

use crate::durability::changes::changing_at;
use crate::durability::{self, changes, failed, locks, unseen};
use crate::processes::notice_child;
use crate::{claims, real, signals};
use bywash_file::copy::guarded_copy;
use bywash_file::{process, state, table};
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::{mode_t, msghdr, ssize_t};

fn opened(fd: c_int, flags: c_int) -> c_int {
    if fd >= 0 {
        if !claims::allows(fd, flags) {
            return claims::refuse(fd);
        }
        notice_child();
        table::opened(fd);
        unseen::made(fd);
        if flags & libc::O_TRUNC != 0 {
            table::resized(fd, false);
        }
    }
    fd
}

/// Opens a file by `kernel`, which removes its contents if the flags say so.
///
/// # Safety
/// If the path is readable, it is a C string.
#[inline]
unsafe fn opening(at: c_int, path: *const c_char, flags: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if flags & libc::O_TRUNC == 0 {
        return kernel();
    }
    // SAFETY: the caller promises the path.
    if !unsafe { claims::allow_truncation(at, path, flags) } {
        return failed(libc::EBUSY);
    }
    let no_follow = if flags & libc::O_NOFOLLOW != 0 { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
    // SAFETY: the caller promises the path.
    unsafe { changing_at(at, path, no_follow, kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called. If the program
    // passed no `mode`, the register holds any value, which the C library does not use.
    opened(unsafe { opening(libc::AT_FDCWD, path, flags, || real::open(path, flags, mode)) }, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { open(path, flags | libc::O_LARGEFILE, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    opened(unsafe { opening(at, path, flags, || real::openat(at, path, flags, mode)) }, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { openat(at, path, flags | libc::O_LARGEFILE, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let created = unsafe { opening(libc::AT_FDCWD, path, libc::O_TRUNC, || real::creat(path, mode)) };
    opened(created, libc::O_WRONLY | libc::O_TRUNC)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { creat(path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    opened(unsafe { opening(libc::AT_FDCWD, path, flags, || real::__open_2(path, flags)) }, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { __open_2(path, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    opened(unsafe { opening(at, path, flags, || real::__openat_2(at, path, flags)) }, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { __openat_2(at, path, flags) }
}

/// Makes the system call openat2, for which the C library has no function.
///
/// # Safety
/// Same as openat2(2).
pub unsafe fn openat2(at: c_int, path: *const c_char, how: *const u64, size: usize) -> c_long {
    let kernel = || {
        let arguments = [at as usize, path as usize, how as usize, size, 0, 0];
        // SAFETY: the program keeps the contract of the system call.
        unsafe { real::direct(libc::SYS_openat2, arguments) as c_int }
    };
    // SAFETY: the flags, the first member of the structure, were copied whole.
    let flags = durability::log()
        .and_then(|_| durability::copied::<u64, 1>(how, 1))
        .map_or(0, |[flags]| unsafe { flags.assume_init() } as c_int);
    // SAFETY: the program keeps the contract of the system call.
    let fd = unsafe { opening(at, path, flags, kernel) };
    if fd >= 0 && !claims::allows(fd, bywash_file::sys::status_flags(fd) as c_int) {
        return claims::refuse(fd).into();
    }
    table::made(fd);
    unseen::made(fd);
    fd.into()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    opened(unsafe { real::memfd_create(name, flags) }, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if durability::is_own_descriptor(fd) {
        return failed(libc::EBADF);
    }
    table::forget(fd);
    durability::forget(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_UNSHARE as c_int != 0 {
        leave_table();
    }
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        table::forget_range(first, last);
        durability::forget_range(first, last);
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::close_range(first, last, flags) }
}

/// Stops the data paths, because the calling thread gets a table of descriptors of its own. The library has
/// one table for the process, which would be right only for the other threads.
pub fn leave_table() {
    unsafe extern "C" {
        /// The C library's flag that the process has one thread only.
        safe static __libc_single_threaded: AtomicBool;
    }
    if !__libc_single_threaded.load(Relaxed) {
        process::step_aside();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    table::forget_range(first.max(0) as c_uint, c_uint::MAX);
    durability::forget_range(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::closefrom(first) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    table::share(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let new = unsafe { real::dup(fd) };
    if new >= 0 {
        table::duplicated(fd, new);
        unseen::duplicated(new);
    }
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { replace(from, to, || real::dup2(from, to)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { replace(from, to, || real::dup3(from, to, flags)) }
}

/// Closes `to` and makes it lead to the open file of `from`, by `kernel`.
unsafe fn replace(from: c_int, to: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if from == to {
        return kernel();
    }
    table::share(from);
    table::forget(to);
    if to >= 0 {
        durability::forget_range(to as c_uint, to as c_uint);
    }
    let new = kernel();
    if new >= 0 {
        table::duplicated(from, new);
        unseen::duplicated(new);
    }
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    const F_OFD_GETLK: c_int = 36;
    const F_OFD_SETLKW: c_int = 38;
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let kernel = || unsafe { real::fcntl(fd, command, argument) };
    match command {
        libc::F_GETLK..=libc::F_SETLKW | F_OFD_GETLK..=F_OFD_SETLKW => {
            if matches!(command, libc::F_SETLK | libc::F_SETLKW) {
                locks::note(fd);
            }
            // The range of a lock may be relative to the position.
            if table::position(fd).is_some() {
                table::give(fd);
            }
            kernel()
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            table::share(fd);
            let new = kernel();
            if new >= 0 {
                table::duplicated(fd, new);
                unseen::duplicated(new);
            }
            new
        }
        libc::F_SETFL if durability::log().is_some() => {
            if argument as c_int & (libc::O_APPEND | libc::O_DIRECT) != 0 {
                table::disable(fd);
            }
            let result = kernel();
            durability::descriptors::flags_changed(fd);
            result
        }
        libc::F_SETFL if argument as c_int & (libc::O_APPEND | libc::O_DIRECT) != 0 => {
            table::disable(fd);
            kernel()
        }
        // Seals against writing and leases are incompatible with a mapping.
        libc::F_ADD_SEALS | libc::F_SETLEASE => {
            table::disable(fd);
            kernel()
        }
        _ => kernel(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { fcntl(fd, command, argument) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let kernel = || unsafe { real::ioctl(fd, request, argument) };
    let kernel = || if keeps_contents(request) { kernel() } else { changes::changing(fd, kernel) };
    if !table::is_served(fd) {
        return kernel();
    }
    // FIONREAD depends on the position, and FICLONE and similar requests exchange contents.
    let result = table::with_kernel_position(fd, kernel);
    if request != libc::FIONREAD {
        table::resized(fd, true);
    }
    result
}

/// Returns true if a request of ioctl(2) leaves the contents of a file as they are: those of terminals and descriptors, and
/// those that only look at the file. FICLONE and its kin do not.
fn keeps_contents(request: libc::c_ulong) -> bool {
    const GETS: [libc::c_ulong; 3] = [libc::FS_IOC_GETFLAGS, libc::FS_IOC_GETVERSION, FS_IOC_FIEMAP];
    const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
    const TERMINALS: libc::c_ulong = 0x54;
    request >> 8 == TERMINALS || GETS.contains(&request)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if state::is_ready() && table::knows_any() && may_carry_descriptors(message) {
        table::share_all();
    }
    if durability::log().is_some() && has_control_data(message) {
        unseen::passes_descriptors();
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::sendmsg(fd, message, flags) }
}

fn may_carry_descriptors(message: *const msghdr) -> bool {
    if !signals::ready() {
        return true;
    }
    // SAFETY: a message header consists of integers and pointers, for which all zeroes are valid.
    let mut header: msghdr = unsafe { core::mem::zeroed() };
    let bytes = size_of::<msghdr>();
    // SAFETY: the target is a local variable of this size; a bad message faults, which is caught, and the
    // kernel then reports it.
    let copied = unsafe { guarded_copy((&raw mut header).cast(), message.cast(), bytes) };
    copied.is_ok() && header.msg_controllen != 0
}

/// Returns true if a message has control data, which may be descriptors, or cannot be read.
fn has_control_data(message: *const msghdr) -> bool {
    // SAFETY: the header was copied whole, and consists of numbers and pointers.
    durability::copied::<msghdr, 1>(message, 1)
        .is_none_or(|[header]| unsafe { header.assume_init() }.msg_controllen != 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let result = unsafe { real::recvmsg(fd, message, flags) };
    if result >= 0 && (table::knows_any() || durability::log().is_some()) {
        // SAFETY: the kernel has just filled in the message, so the message and its control data are
        // readable.
        unsafe { note_received(&*message) };
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut libc::timespec,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let received = unsafe { real::recvmmsg(fd, messages, count, flags, limit) };
    if received > 0 && (table::knows_any() || durability::log().is_some()) {
        for place in 0..received as usize {
            // SAFETY: the kernel has just filled in this number of messages, which are therefore readable.
            unsafe { note_received(&(*messages.add(place)).msg_hdr) };
        }
    }
    received
}

/// Clears the entries of descriptors that arrived with a message, because entries under their numbers belong
/// to earlier descriptors.
///
/// # Safety
/// The kernel has filled in the message and its control data.
unsafe fn note_received(message: &msghdr) {
    // SAFETY: the kernel wrote the control data with the lengths that these macros follow.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(message);
        while !part.is_null() {
            if (*part).cmsg_level == libc::SOL_SOCKET && (*part).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(part).cast::<c_int>();
                let bytes = (*part).cmsg_len - libc::CMSG_LEN(0) as usize;
                for place in 0..bytes / size_of::<c_int>() {
                    let fd = data.add(place).read_unaligned();
                    table::made(fd);
                    unseen::made(fd);
                }
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if state::is_ready() {
        table::share_all();
    }
    let headers = (0..count as usize).map(|place| messages.wrapping_add(place).cast::<msghdr>());
    if durability::log().is_some() && headers.into_iter().any(|header| has_control_data(header)) {
        unseen::passes_descriptors();
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::sendmmsg(fd, messages, count, flags) }
}

/// Copies a descriptor of another process, or of this one, with which its position is shared from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int {
    table::share_all();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let new = unsafe { real::pidfd_getfd(process, fd, flags) };
    table::made(new);
    unseen::made(new);
    new
}

macro_rules! makes {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            /// Makes a descriptor that can have no data path.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                // SAFETY: the program keeps the contract of the C library's function that it called.
                let fd = unsafe { real::$name($($argument),*) };
                table::made(fd);
                unseen::made(fd);
                fd
            }
        )*
    };
}

makes! {
    socket(domain: c_int, kind: c_int, protocol: c_int);
    accept(fd: c_int, address: *mut c_void, length: *mut c_uint);
    accept4(fd: c_int, address: *mut c_void, length: *mut c_uint, flags: c_int);
    epoll_create(size: c_int);
    epoll_create1(flags: c_int);
    eventfd(value: c_uint, flags: c_int);
    timerfd_create(clock: c_int, flags: c_int);
    signalfd(fd: c_int, set: *const c_void, flags: c_int);
    inotify_init();
    inotify_init1(flags: c_int);
    mkstemp(template: *mut c_char);
    mkstemp64(template: *mut c_char);
    mkostemp(template: *mut c_char, flags: c_int);
    mkostemp64(template: *mut c_char, flags: c_int);
    shm_open(name: *const c_char, flags: c_int, mode: mode_t);
    posix_openpt(flags: c_int);
}

/// Tells the table about two new descriptors, if the call succeeded.
///
/// # Safety
/// `pair` holds two descriptors if `result` is 0.
pub unsafe fn made_pair(pair: *const c_int, result: c_int) -> c_int {
    if result == 0 {
        for place in 0..2 {
            // SAFETY: the call succeeded, so the kernel has written both descriptors.
            table::made(unsafe { *pair.add(place) });
        }
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe(pair: *mut c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { made_pair(pair, real::pipe(pair)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(pair: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { made_pair(pair, real::pipe2(pair, flags)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { made_pair(pair, real::socketpair(domain, kind, protocol, pair)) }
}
