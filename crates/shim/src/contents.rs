//! Position, size and durability of a file, and transfers between files.

use crate::durability::changes::{changing, changing_at, filling, want_kernel};
use crate::durability::syncs::{self, SyncKind};
use crate::durability::{locks, synchronous, unseen};
use crate::{data, real};
use bywash_file::table;
use bywash_session::Counter;
use core::ffi::{c_char, c_int, c_uint};
use libc::{off_t, size_t, ssize_t};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    let kernel = |offset, whence| {
        let _position = synchronous::position(fd);
        // SAFETY: the program keeps the contract of the C library's function that it called.
        unsafe { real::lseek(fd, offset, whence) }
    };
    match table::seek(fd, offset, whence) {
        Ok(position) => position,
        Err(false) => {
            if table::is_served(fd) {
                bywash_file::threads::count(Counter::KernelSeeks, 1);
            }
            table::with_kernel_position(fd, || kernel(offset, whence))
        }
        Err(true) => {
            bywash_file::threads::count(Counter::KernelSeeks, 1);
            // A relative move starts at the user-level position, of which the kernel does not know.
            let (offset, whence) = match (whence, table::position(fd)) {
                (libc::SEEK_CUR, Some(at)) => match (at as off_t).checked_add(offset) {
                    Some(sum) => (sum, libc::SEEK_SET),
                    None => (offset, libc::SEEK_CUR),
                },
                _ => (offset, whence),
            };
            let position = kernel(offset, whence);
            if position >= 0 {
                table::sought(fd, position);
            }
            position
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { lseek(fd, offset, whence) }
}

/// Tells the table about a changed size, after the kernel's call succeeded.
fn resized(fd: c_int, result: c_int) -> c_int {
    if result == 0 {
        table::resized(fd, false);
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(fd: c_int, length: off_t) -> c_int {
    let _alone = table::before_kernel_write(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    resized(fd, changing(fd, || unsafe { real::ftruncate(fd, length) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, length: off_t) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { ftruncate(fd, length) }
}

/// Like `ftruncate`, but the file has a path instead of a descriptor and may be open under any descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate(path: *const c_char, length: off_t) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let result = unsafe { changing_at(libc::AT_FDCWD, path, 0, || real::truncate(path, length)) };
    if result == 0 && table::in_use() {
        table::sizes_changed();
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate64(path: *const c_char, length: off_t) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { truncate(path, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    let _alone = table::before_kernel_write(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let kernel = || unsafe { real::fallocate(fd, mode, offset, length) };
    let result =
        if mode & !libc::FALLOC_FL_KEEP_SIZE == 0 { filling_room(fd, kernel) } else { changing(fd, kernel) };
    if result == 0 {
        table::resized(fd, mode & !libc::FALLOC_FL_KEEP_SIZE != 0);
    }
    result
}

/// Gives the file room by `kernel`, which leaves its contents.
fn filling_room(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let result = kernel();
    want_kernel(fd);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { fallocate(fd, mode, offset, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    resized(fd, filling_room(fd, || unsafe { real::posix_fallocate(fd, offset, length) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { posix_fallocate(fd, offset, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int {
    if advice == libc::POSIX_FADV_DONTNEED {
        table::with(fd, |file, _| file.note_dropped_pages());
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::posix_fadvise(fd, offset, length, advice) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise64(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { posix_fadvise(fd, offset, length, advice) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    table::count_sync(fd);
    data::cancellation_point();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    syncs::sync(fd, SyncKind::All, || unsafe { real::fsync(fd) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    table::count_sync(fd);
    data::cancellation_point();
    // SAFETY: the program keeps the contract of the C library's function that it called.
    syncs::sync(fd, SyncKind::Data, || unsafe { real::fdatasync(fd) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int {
    table::count_sync(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::sync_file_range(fd, offset, length, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncfs(fd: c_int) -> c_int {
    table::count_sync(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    syncs::sync_many(Some(fd), || unsafe { real::syncfs(fd) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync() {
    // The call tells nobody of a failure.
    let _ = syncs::sync_many(None, || {
        // SAFETY: the program keeps the contract of the C library's function that it called.
        unsafe { real::sync() };
        0
    });
}

/// Makes the kernel transfer bytes from one descriptor to another, each at its own position or at an offset.
fn transfer(from: c_int, to: c_int, kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    unseen::durable_by_themselves(from);
    table::with_kernel_position(from, || {
        if from == to {
            return filling(to, kernel);
        }
        table::with_kernel_position(to, || {
            let _alone = table::before_kernel_write(to);
            filling(to, kernel)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    transfer(from, to, || unsafe { real::sendfile(to, from, offset, length) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { sendfile(to, from, offset, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    transfer(from, to, || {
        // SAFETY: the program keeps the contract of the C library's function that it called.
        unsafe { real::copy_file_range(from, from_offset, to, to_offset, length, flags) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    transfer(from, to, || {
        // SAFETY: the program keeps the contract of the C library's function that it called.
        unsafe { real::splice(from, from_offset, to, to_offset, length, flags) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf(fd: c_int, command: c_int, length: off_t) -> c_int {
    locks::note(fd);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    table::with_kernel_position(fd, || unsafe { real::lockf(fd, command, length) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf64(fd: c_int, command: c_int, length: off_t) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { lockf(fd, command, length) }
}
