//! Numbers of errors that system calls return.

/// Number of an error, as `errno` has it (errno(3), values of RISC-V Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(u16);

impl Errno {
    /// Returns the number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns the register's value of a call that failed: the negative number.
    pub const fn value(self) -> u64 {
        (self.0 as u64).wrapping_neg()
    }
}

/// Defines the numbers.
macro_rules! numbers {
    ($($name:ident = $number:literal),* $(,)?) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Errno = Errno($number);)*
        }
    };
}

numbers! {
    EPERM = 1, ENOENT = 2, ESRCH = 3, EINTR = 4, EIO = 5, ENXIO = 6, EBADF = 9, ECHILD = 10, EAGAIN = 11,
    ENOMEM = 12, EACCES = 13, EFAULT = 14, EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20,
    EISDIR = 21, EINVAL = 22, ENFILE = 23, EMFILE = 24, ENOTTY = 25, EFBIG = 27, ENOSPC = 28, ESPIPE = 29,
    EROFS = 30, EMLINK = 31, EPIPE = 32, ERANGE = 34, EDEADLK = 35, ENAMETOOLONG = 36, ENOSYS = 38,
    ENOTEMPTY = 39, ELOOP = 40, ENODATA = 61, EOVERFLOW = 75, ENOTSOCK = 88, EDESTADDRREQ = 89,
    ENOPROTOOPT = 92, EPROTONOSUPPORT = 93, ESOCKTNOSUPPORT = 94, EOPNOTSUPP = 95, EAFNOSUPPORT = 97,
    EADDRINUSE = 98, EADDRNOTAVAIL = 99, ENETUNREACH = 101, ECONNABORTED = 103, ECONNRESET = 104,
    ENOBUFS = 105, EISCONN = 106, ENOTCONN = 107, ETIMEDOUT = 110, ECONNREFUSED = 111, EALREADY = 114,
    EINPROGRESS = 115,
}
