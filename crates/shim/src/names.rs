//! Names of files: `rename`, `link`, `unlink` and similar calls. Recovery of a commit log finds a file by the path that it
//! had when it joined the log, so a file that is renamed or loses a name leaves the log first.

use crate::durability::changes::{Change, Named};
use crate::durability::{self, changes, failed};
use crate::real;
use bywash_log::commit::Log;
use bywash_log::sys::Errno;
use core::ffi::{c_char, c_int, c_uint};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW};

/// Name in a folder.
#[derive(Clone, Copy)]
struct Name(c_int, *const c_char);

/// File of the log whose names change.
struct Moved {
    change: Change,
    named: Named,
}

impl Moved {
    /// Begins the change; `None` if the file has no entry.
    unsafe fn begin(log: &Log, name: Name, flags: c_int) -> Result<Option<Moved>, Errno> {
        // SAFETY: the caller passes a path of the program's.
        let Some(named) = (unsafe { Named::find(log, name.0, name.1, flags) })? else { return Ok(None) };
        let change = Change::begin(log, named.entry, named.fd)?;
        Ok(Some(Moved { change, named }))
    }

    /// Lets the file leave the log; one that has lost its last name cannot join again.
    fn leave(self, log: &Log) {
        self.change.leave(log);
        if self.named.is_unlinked() {
            self.change.give_up(log);
        }
    }
}

/// Removes or replaces a name by `kernel`.
unsafe fn removing(name: Name, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(log) = durability::log() else { return kernel() };
    // SAFETY: the caller passes a path of the program's.
    match unsafe { Moved::begin(log, name, AT_SYMLINK_NOFOLLOW) } {
        Err(error) => failed(error),
        Ok(moved) => {
            let result = kernel();
            if let Some(moved) = moved.filter(|_| result == 0) {
                moved.leave(log);
            }
            result
        }
    }
}

/// Gives a file another name by `kernel`, which another file may have until then.
unsafe fn renaming(from: Name, to: Name, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(log) = durability::log() else { return kernel() };
    // SAFETY: the caller passes paths of the program's.
    match unsafe { begin_renaming(log, from, to) } {
        Err(error) => failed(error),
        Ok([None, None]) => {
            // SAFETY: the caller passes a path of the program's.
            let folder = unsafe { Folder::open(from) };
            if let Some(folder) = &folder {
                changes::leave_all(log, folder.0);
            }
            let result = kernel();
            if let Some(folder) = &folder {
                // What has joined meanwhile.
                changes::leave_all(log, folder.0);
            }
            result
        }
        Ok(moved) => {
            let result = kernel();
            if result == 0 {
                moved.into_iter().flatten().for_each(|moved| moved.leave(log));
            }
            result
        }
    }
}

/// Open folder, closed when dropped.
struct Folder(c_int);

impl Folder {
    /// Opens a folder; `None` if the name leads to none.
    unsafe fn open(name: Name) -> Option<Folder> {
        let how = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let arguments = [name.0 as isize as usize, name.1 as usize, how as usize, 0, 0, 0];
        // SAFETY: the caller passes a path of the program's.
        let fd = unsafe { bywash_file::sys::call(libc::SYS_openat as usize, arguments) };
        (fd >= 0).then_some(Folder(fd as c_int))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        bywash_log::sys::close(self.0);
    }
}

/// Begins the changes of both files, in the order of their entries, in which all processes lock them.
unsafe fn begin_renaming(log: &Log, from: Name, to: Name) -> Result<[Option<Moved>; 2], Errno> {
    // SAFETY: the caller passes paths of the program's.
    let find = |name: Name| unsafe { Named::find(log, name.0, name.1, AT_SYMLINK_NOFOLLOW) };
    let (mut first, mut second) = (find(from)?, find(to)?);
    let place = |named: &Option<Named>| named.as_ref().map(|named| log.shared().index_of(named.entry));
    if place(&first) == place(&second) {
        // Two names of one file, which stay as they are.
        second = None;
    } else if place(&first) > place(&second) {
        core::mem::swap(&mut first, &mut second);
    }
    let begin = |named: Option<Named>| match named {
        None => Ok::<_, Errno>(None),
        Some(named) => {
            let change = Change::begin(log, named.entry, named.fd)?;
            Ok(Some(Moved { change, named }))
        }
    };
    Ok([begin(first)?, begin(second)?])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { renaming(Name(AT_FDCWD, from), Name(AT_FDCWD, to), || real::rename(from, to)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { renaming(Name(from_at, from), Name(to_at, to), || real::renameat(from_at, from, to_at, to)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        renaming(Name(from_at, from), Name(to_at, to), || real::renameat2(from_at, from, to_at, to, flags))
    }
}

/// Gives a file a further name by `kernel`, which only the kernel makes durable.
unsafe fn linking(from: Name, flags: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let result = kernel();
    let empty = flags & libc::AT_EMPTY_PATH;
    let follows = if flags & libc::AT_SYMLINK_FOLLOW != 0 { 0 } else { AT_SYMLINK_NOFOLLOW };
    // SAFETY: the caller passes a path of the program's.
    unsafe { durability::changes::want_kernel_at(from.0, from.1, empty | follows) };
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { linking(Name(AT_FDCWD, from), 0, || real::link(from, to)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { linking(Name(from_at, from), flags, || real::linkat(from_at, from, to_at, to, flags)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { removing(Name(AT_FDCWD, path), || real::unlink(path)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { removing(Name(at, path), || real::unlinkat(at, path, flags)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { removing(Name(AT_FDCWD, path), || real::remove(path)) }
}
