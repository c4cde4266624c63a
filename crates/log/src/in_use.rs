//! Locks by which a log counts as used, so that no second keeper empties it while programs append to it.
//!
//! A program that opens the memory of a log holds a shared lock (F_OFD_SETLK, fcntl(2)) on one byte of the log's file,
//! whose offset is the log's epoch. The lock belongs to an open file description that nothing but a mapping refers to: it
//! outlives whatever the program closes, passes to its children, and ends with the last process that has the mapping.
//!
//! A keeper may end when it gets the exclusive lock of the byte, and keeps it, so that no program opens the memory of a log
//! without a keeper. A keeper that ends in order leaves a log of another epoch, which old programs do not write any more;
//! if it was killed, the programs' locks keep the next one away.

use crate::sys::{self, Errno};
use core::ffi::{CStr, c_int};

/// Bits of an epoch that are an offset of the byte that is locked.
const OFFSET_MASK: u64 = (1 << 62) - 1;

/// Counts this process among those that use the log at `path` in this epoch, until it ends. `identity` is what
/// [`sys::Status::identity`] tells of the log's file.
pub(crate) fn hold(path: &CStr, identity: (u64, u64), epoch: u64) -> Result<(), Errno> {
    let fd = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK)?;
    let held = hold_by(fd, identity, epoch);
    sys::close(fd);
    held
}

fn hold_by(fd: c_int, identity: (u64, u64), epoch: u64) -> Result<(), Errno> {
    if sys::status(fd)?.identity() != identity {
        return Err(libc::ESTALE);
    }
    sys::set_lock(fd, libc::F_RDLCK, offset(epoch))?;
    // The mapping is the only reference to the description from here on.
    sys::map_reserved(fd).map(|_| ())
}

/// Returns true if a program uses the log that is open under `fd`; needs no right to write it.
///
/// # Errors
/// The kernel's error number.
pub fn is_used(fd: c_int, epoch: u64) -> Result<bool, Errno> {
    sys::is_locked(fd, libc::F_WRLCK, offset(epoch))
}

/// Takes the exclusive lock for the keeper, which has the log file open under `fd`, until it closes it. Returns false if a program uses the log.
///
/// # Errors
/// The kernel's error number.
pub fn lock(fd: c_int, epoch: u64) -> Result<bool, Errno> {
    match sys::set_lock(fd, libc::F_WRLCK, offset(epoch)) {
        Ok(()) => Ok(true),
        Err(libc::EAGAIN | libc::EACCES) => Ok(false),
        Err(error) => Err(error),
    }
}

const fn offset(epoch: u64) -> i64 {
    (epoch & OFFSET_MASK) as i64
}
