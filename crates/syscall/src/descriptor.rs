//! Files by descriptor and by path, as far as a program's file is looked at.

use crate::{Error, call, result};
use core::ffi::CStr;

/// AT_FDCWD: paths are followed from the working directory on.
pub const CWD: i32 = -100;

/// Flags of open(2).
pub mod flags {
    /// O_RDONLY.
    pub const RDONLY: usize = 0;
    /// O_NOCTTY: a terminal does not become the process's own.
    pub const NOCTTY: usize = 0o400;
    /// O_NONBLOCK: a FIFO is opened without waiting.
    pub const NONBLOCK: usize = 0o4000;
    /// O_CLOEXEC: closed when a program is executed.
    pub const CLOEXEC: usize = 0o2_000_000;
}

/// Numbers of the calls that are made here.
mod nr {
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const PREAD: usize = 17;
    pub const OPENAT: usize = 257;
    pub const READLINKAT: usize = 267;
    pub const FACCESSAT: usize = 269;
}

/// An open descriptor, closed when it goes.
#[derive(Debug)]
pub struct Descriptor(i32);

impl Descriptor {
    /// Opens `path` from the descriptor `folder` on, or from [`CWD`].
    ///
    /// # Errors
    /// The kernel's (openat(2)).
    pub fn open(folder: i32, path: &CStr, flags: usize) -> Result<Descriptor, Error> {
        // SAFETY: the path is a C string.
        let answer = unsafe { call(nr::OPENAT, [folder as usize, path.as_ptr() as usize, flags, 0, 0, 0]) };
        result(answer).map(|number| Descriptor(number as i32))
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Reads at `offset`; answers the number of bytes, fewer than `to` has where the file ends.
    ///
    /// # Errors
    /// The kernel's (pread(2)).
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> Result<usize, Error> {
        let arguments = [self.0 as usize, to.as_mut_ptr() as usize, to.len(), offset as usize, 0, 0];
        // SAFETY: the buffer has the length that is passed.
        result(unsafe { call(nr::PREAD, arguments) })
    }

    /// Returns whether the descriptor leads to a regular file.
    pub fn is_regular(&self) -> bool {
        const MODE: usize = 24;
        let mut status = [0u8; 144];
        // SAFETY: struct stat of x86-64 has 144 bytes.
        let answer = unsafe { call(nr::FSTAT, [self.0 as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        let mode = u32::from_le_bytes([status[MODE], status[MODE + 1], status[MODE + 2], status[MODE + 3]]);
        answer == 0 && mode & 0o170_000 == 0o100_000
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor was opened here, and nobody else has its number.
        unsafe { call(nr::CLOSE, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Returns whether the process's real user may execute the file at `path`, or enter the folder.
pub fn may_execute(folder: i32, path: &CStr) -> bool {
    const X_OK: usize = 1;
    // SAFETY: the path is a C string.
    unsafe { call(nr::FACCESSAT, [folder as usize, path.as_ptr() as usize, X_OK, 0, 0, 0]) == 0 }
}

/// Returns whether there is a regular file at `path`, or a link to one.
pub fn is_file(path: &CStr) -> bool {
    const PATH_ONLY: usize = 0o10_000_000;
    Descriptor::open(CWD, path, PATH_ONLY | flags::CLOEXEC).is_ok_and(|file| file.is_regular())
}

/// Reads the target of the symbolic link at `path`; answers its length, which is that of `to` where the target was cut.
///
/// # Errors
/// The kernel's (readlinkat(2)).
pub fn read_link(path: &CStr, to: &mut [u8]) -> Result<usize, Error> {
    let arguments = [CWD as usize, path.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0];
    // SAFETY: a C string, and a buffer with the length that is passed.
    result(unsafe { call(nr::READLINKAT, arguments) })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    fn c_string(path: &std::path::Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    #[test]
    fn a_file_is_read_and_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "0123456789").unwrap();
        let file = Descriptor::open(CWD, &c_string(&path), flags::RDONLY | flags::CLOEXEC).unwrap();
        let mut to = [0; 8];
        assert_eq!(file.read_at(&mut to, 6), Ok(4));
        assert_eq!(&to[..4], b"6789");
        assert!(file.is_regular());
        let own = std::format!("/proc/self/fd/{}", file.number());
        assert_eq!(std::fs::read_link(&own).unwrap(), path);
        drop(file);
        assert_ne!(std::fs::read_link(&own).ok(), Some(path));
    }

    #[test]
    fn what_is_there_and_what_may_be_executed() {
        let folder = tempfile::tempdir().unwrap();
        let (here, file, link) = (folder.path(), folder.path().join("x"), folder.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(is_file(&c_string(&file)) && is_file(&c_string(&link)) && !is_file(&c_string(here)));
        assert!(may_execute(CWD, &c_string(here)) && !may_execute(CWD, &c_string(&file)));
        let mut to = [0; 4096];
        let length = read_link(&c_string(&link), &mut to).unwrap();
        assert_eq!(&to[..length], file.as_os_str().as_bytes());
        assert_eq!(read_link(&c_string(&file), &mut to), Err(Error(22)));
        assert!(!is_file(&c_string(&here.join("none"))));
    }
}
