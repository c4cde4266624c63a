//! File of a log as one process writes it: the descriptor, which the program may close at any time, and a buffer that
//! the log file can be written from.
//!
//! Programs close descriptors that they never opened (closefrom(3) before they start others) and get the same numbers for
//! files of their own. A block of the log must never be written into such a file. So the descriptor has a high number, the
//! library that intercepts the program's calls tells [`LogFile::forget`] before it is closed or replaced, and each use
//! compares what the descriptor leads to.

use crate::layout::{BATCH_HEADER, BATCH_MAX, BLOCK, BatchHeader, Block};
use crate::shared::{LOG_PATH_MAX, Shared};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32};

/// Least number that the descriptor should have, if the limit on descriptors allows it.
const DESCRIPTOR_MIN: usize = 900;
/// Time between two looks at whether the descriptor is in use, in nanoseconds.
const LOOK_NS: u32 = 100_000;

/// File of a log in this process.
#[derive(Debug)]
pub struct LogFile {
    shared: Shared,
    /// Descriptor of the log file; negative: none.
    fd: AtomicI32,
    /// Number of threads that use the descriptor.
    users: AtomicU32,
    /// Private memory from which batches are written; null until the first one.
    buffer: AtomicPtr<u8>,
}

/// Block at an address that O_DIRECT accepts.
#[repr(align(4096))]
struct Aligned(Block);

impl LogFile {
    /// The log file of the log whose memory was opened. It is opened at its first use.
    pub fn new(shared: Shared) -> LogFile {
        LogFile {
            shared,
            fd: AtomicI32::new(-1),
            users: AtomicU32::new(0),
            buffer: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Returns the descriptor, which the program must not use; negative if there is none.
    pub fn descriptor(&self) -> c_int {
        self.fd.load(Relaxed)
    }

    /// Forgets the descriptor if it is one of `first..=last`, which are about to be closed or replaced. Waits until no
    /// thread uses it.
    pub fn forget(&self, first: u32, last: u32) {
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

    /// Opens the log file and maps the buffer, so that a later write fails only if the log file does. Writers that cannot get
    /// either must not write: a failed write stops the log for all.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn prepare(&self) -> Result<(), Errno> {
        self.buffer()?;
        self.with(|_| Ok(()))
    }

    /// Forgets the threads that used the descriptor in the parent of this forked child, which does not have them.
    pub fn reset_child(&self) {
        self.users.store(0, SeqCst);
    }

    /// Writes one block, durably.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn write_block(&self, block: u64, bytes: &Block) -> Result<(), Errno> {
        let aligned = Aligned(*bytes);
        self.with(|fd| sys::write_all_at(fd, &aligned.0, block * BLOCK as u64))
    }

    /// Copies the batch in shared memory, completes it by its header, and writes it, durably. Returns its checksum. Callers
    /// hold the lock `write`, so that one thread at a time uses the buffer.
    ///
    /// # Errors
    /// The kernel's error number.
    pub(crate) fn write_batch(
        &self,
        block: u64,
        header: &BatchHeader,
        from: *const u8,
    ) -> Result<u64, Errno> {
        let buffer = self.buffer()?;
        let length = (header.length as usize).clamp(BATCH_HEADER, BATCH_MAX);
        let whole = length.next_multiple_of(BLOCK);
        // SAFETY: both buffers have BATCH_MAX bytes; the private one is used by the owner of `write` only, and its memory
        // is this process's own, so that what is checked and written cannot change in between.
        let batch = unsafe {
            buffer.copy_from_nonoverlapping(from, length);
            buffer.add(length).write_bytes(0, whole - length);
            core::slice::from_raw_parts_mut(buffer, whole)
        };
        let checksum = header.encode(batch);
        self.with(|fd| sys::write_all_at(fd, batch, block * BLOCK as u64))?;
        Ok(checksum)
    }

    fn buffer(&self) -> Result<*mut u8, Errno> {
        let buffer = self.buffer.load(Acquire);
        if !buffer.is_null() {
            return Ok(buffer);
        }
        let buffer = sys::map_private(BATCH_MAX)?;
        self.buffer.store(buffer, SeqCst);
        Ok(buffer)
    }

    /// Calls `use_it` with the descriptor of the log file, opened again if it is gone.
    fn with<T>(&self, use_it: impl FnOnce(c_int) -> Result<T, Errno>) -> Result<T, Errno> {
        self.users.fetch_add(1, SeqCst);
        let result = self.checked().and_then(use_it);
        self.users.fetch_sub(1, SeqCst);
        result
    }

    fn checked(&self) -> Result<c_int, Errno> {
        let fd = self.fd.load(SeqCst);
        if fd >= 0 && self.is_medium(fd) {
            return Ok(fd);
        }
        let mut path = [0; LOG_PATH_MAX];
        let path = self.shared.path(&mut path).ok_or(libc::EPROTO)?;
        let opened = sys::open(path, libc::O_RDWR | libc::O_DIRECT | libc::O_DSYNC | libc::O_CLOEXEC)?;
        let high = sys::fcntl(opened, libc::F_DUPFD_CLOEXEC, DESCRIPTOR_MIN);
        let fd = match high {
            Ok(high) => {
                sys::close(opened);
                high
            }
            Err(_) => opened,
        };
        if !self.is_medium(fd) {
            sys::close(fd);
            return Err(libc::ESTALE);
        }
        self.fd.store(fd, SeqCst);
        Ok(fd)
    }

    /// Returns true if a descriptor leads to the log's file.
    fn is_medium(&self, fd: c_int) -> bool {
        let log_file = self.shared.header().log_file.each_ref().map(|word| word.load(Relaxed));
        sys::status(fd).is_ok_and(|status| status.identity() == (log_file[0], log_file[1]))
    }
}
