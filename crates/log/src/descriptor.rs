//! Descriptor of the log's file or device in one process.
//!
//! Programs close descriptors that they never opened (closefrom(3) before they start others) and get the same numbers for
//! files of their own. A block of the log must never be written into such a file. So the descriptor has a high number, the
//! library that intercepts the program's calls tells [`Descriptor::forget`] before it is closed or replaced, and each use
//! compares what the descriptor leads to.

use crate::mutants::{self, Mutant};
use crate::shared::{LOG_PATH_MAX, Shared};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicU32};

/// Least number that the descriptor should have, if the limit on descriptors allows it.
const NUMBER_MIN: usize = 900;
/// Time between two looks at whether the descriptor is in use, in nanoseconds.
const LOOK_NS: u32 = 100_000;

/// Descriptor of a log, opened at its first use.
#[derive(Debug)]
pub(crate) struct Descriptor {
    shared: Shared,
    /// Number of the descriptor; negative: there is none.
    fd: AtomicI32,
    /// Number of threads that use the descriptor.
    users: AtomicU32,
}

impl Descriptor {
    /// Makes the descriptor of a log, which is not opened yet.
    pub(crate) fn new(shared: Shared) -> Descriptor {
        Descriptor { shared, fd: AtomicI32::new(-1), users: AtomicU32::new(0) }
    }

    /// Returns the number of the descriptor; negative if there is none.
    pub(crate) fn number(&self) -> c_int {
        self.fd.load(Relaxed)
    }

    /// Forgets the descriptor if it is one of `first..=last`, which are about to be closed or replaced. Waits until no
    /// thread uses it.
    pub(crate) fn forget(&self, first: u32, last: u32) {
        let fd = self.fd.load(SeqCst);
        if fd < 0 || !(first..=last).contains(&(fd as u32)) {
            return;
        }
        if self.fd.compare_exchange(fd, -1, SeqCst, Relaxed).is_ok() {
            let word = AtomicU32::new(0);
            while self.users.load(SeqCst) != 0 {
                sys::wait(&word, 0, LOOK_NS);
            }
        }
    }

    /// Forgets the threads that used the descriptor in the parent of this forked child, which does not have them.
    pub(crate) fn reset_child(&self) {
        self.users.store(0, SeqCst);
    }

    /// Calls `use_it` with the descriptor of the log, opened again if it is gone.
    pub(crate) fn with<T>(&self, use_it: impl FnOnce(c_int) -> Result<T, Errno>) -> Result<T, Errno> {
        self.users.fetch_add(1, SeqCst);
        let result = self.checked().and_then(use_it);
        self.users.fetch_sub(1, SeqCst);
        result
    }

    fn checked(&self) -> Result<c_int, Errno> {
        let fd = self.fd.load(SeqCst);
        if fd >= 0 && self.leads_to_log(fd) {
            return Ok(fd);
        }
        let mut path = [0; LOG_PATH_MAX];
        let path = self.shared.path(&mut path).ok_or(libc::EPROTO)?;
        let durable = if mutants::is_chosen(Mutant::FlushLeftOut) { 0 } else { libc::O_DSYNC };
        let opened = sys::open(path, libc::O_RDWR | libc::O_DIRECT | durable | libc::O_CLOEXEC)?;
        let high = sys::fcntl(opened, libc::F_DUPFD_CLOEXEC, NUMBER_MIN);
        let fd = match high {
            Ok(high) => {
                sys::close(opened);
                high
            }
            Err(_) => opened,
        };
        if !self.leads_to_log(fd) {
            sys::close(fd);
            return Err(libc::ESTALE);
        }
        self.fd.store(fd, SeqCst);
        Ok(fd)
    }

    /// Returns true if a descriptor leads to the log's file or device.
    fn leads_to_log(&self, fd: c_int) -> bool {
        let log_file = self.shared.header().log_file.each_ref().map(|word| word.load(Relaxed));
        sys::status(fd).is_ok_and(|status| status.identity() == (log_file[0], log_file[1]))
    }
}
