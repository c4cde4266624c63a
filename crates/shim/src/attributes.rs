//! Attributes of a file: `chmod`, `chown`, `setxattr` and similar calls. A commit log holds none of them, so the file's next
//! sync is the kernel's.

use crate::durability;
use crate::durability::changes::{want_kernel, want_kernel_at};
use crate::real;
use bywash_log::sys;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, mode_t, size_t};

/// Changes permissions or owner by `kernel`. A call that sets what is set already leaves nothing to make durable: SQLite
/// makes one for each transaction.
///
/// # Safety
/// If the path is readable, it is a C string.
unsafe fn setting(at: c_int, path: *const c_char, flags: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller promises the path.
    unsafe {
        if durability::log().is_none() {
            return kernel();
        }
        let before = sys::access_at(at, path, flags);
        let result = kernel();
        if before.is_err() || sys::access_at(at, path, flags) != before {
            want_kernel_at(at, path, flags);
        }
        result
    }
}

macro_rules! access {
    ($($name:ident($($argument:ident: $kind:ty),*) of $at:expr, $path:expr, $flags:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                // SAFETY: the program keeps the contract of the C library's function that it called.
                unsafe { setting($at, $path, $flags, || real::$name($($argument),*)) }
            }
        )*
    };
}

access! {
    chmod(path: *const c_char, mode: mode_t) of AT_FDCWD, path, 0;
    lchmod(path: *const c_char, mode: mode_t) of AT_FDCWD, path, AT_SYMLINK_NOFOLLOW;
    fchmod(fd: c_int, mode: mode_t) of fd, c"".as_ptr(), libc::AT_EMPTY_PATH;
    fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) of at, path, flags;
    chown(path: *const c_char, user: c_uint, group: c_uint) of AT_FDCWD, path, 0;
    lchown(path: *const c_char, user: c_uint, group: c_uint) of AT_FDCWD, path, AT_SYMLINK_NOFOLLOW;
    fchown(fd: c_int, user: c_uint, group: c_uint) of fd, c"".as_ptr(), libc::AT_EMPTY_PATH;
    fchownat(at: c_int, path: *const c_char, user: c_uint, group: c_uint, flags: c_int) of at, path, flags;
}

macro_rules! attributes {
    ($($name:ident($($argument:ident: $kind:ty),*) changes $changed:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                // SAFETY: the program keeps the contract of the C library's function that it called.
                unsafe {
                    let result = real::$name($($argument),*);
                    $changed;
                    result
                }
            }
        )*
    };
}

attributes! {
    setxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        changes want_kernel_at(AT_FDCWD, path, 0);
    lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        changes want_kernel_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
    fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        changes want_kernel(fd);
    removexattr(path: *const c_char, name: *const c_char) changes want_kernel_at(AT_FDCWD, path, 0);
    lremovexattr(path: *const c_char, name: *const c_char)
        changes want_kernel_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
    fremovexattr(fd: c_int, name: *const c_char) changes want_kernel(fd);
}
