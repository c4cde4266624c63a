//! System calls and mappings of the doctor that the standard library has no safe form of.
//!
//! Invariant: each call gets memory of exactly the size that its man page states, owned by this module during
//! the call. Called by [`super::paths`] and [`super::costs`].

#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An io_uring instance.
pub struct Ring {
    fd: OwnedFd,
    /// IORING_FEAT_* bits of the instance.
    pub features: u32,
}

impl Ring {
    /// Makes a ring of two entries with `flags` (IORING_SETUP_*).
    pub fn setup(flags: u32) -> io::Result<Ring> {
        // struct io_uring_params has 30 words: flags in the third, features in the sixth.
        let mut params = [0u32; 30];
        params[2] = flags;
        // SAFETY: the kernel reads and writes the 120 bytes of `params`; the new descriptor belongs to this
        // function alone.
        unsafe {
            let fd = libc::syscall(libc::SYS_io_uring_setup, 2, params.as_mut_ptr());
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Ring { fd: OwnedFd::from_raw_fd(fd as i32), features: params[5] })
        }
    }

    /// Returns the number of operations that this kernel supports.
    pub fn operations(&self) -> io::Result<usize> {
        const REGISTER_PROBE: u32 = 8;
        const OPERATIONS_MAX: usize = 256;
        const HEAD_BYTES: usize = 16;
        const ENTRY_BYTES: usize = 8;
        // struct io_uring_probe, as words of 8 bytes: a head, then an entry per operation.
        let mut probe = [0u64; (HEAD_BYTES + OPERATIONS_MAX * ENTRY_BYTES) / 8];
        // SAFETY: the kernel writes at most OPERATIONS_MAX entries after the head, for which `probe` has
        // room.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.fd.as_raw_fd(),
                REGISTER_PROBE,
                probe.as_mut_ptr(),
                OPERATIONS_MAX,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        // The third and fourth byte of an entry are flags, whose bit 0 means supported.
        Ok(probe[HEAD_BYTES / 8..].iter().filter(|entry| entry.to_le_bytes()[2] & 1 == 1).count())
    }
}

/// Returns the number of pages of the first `length` bytes of `file` that are in the page cache
/// (cachestat(2)).
pub fn cached_pages(file: &File, length: u64) -> io::Result<u64> {
    // The number is the same on all architectures, as for all calls since Linux 5.1.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [0u64, length];
    let mut pages = [0u64; 5];
    // SAFETY: the kernel reads the two words of `range` and writes the five words of `pages`.
    let done =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(pages[0]) }
}

/// A shared mapping of a file's beginning, populated with pages.
pub struct Mapping {
    at: *mut u8,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes of `file`, which must not become shorter while the mapping lives; callers pass a
    /// temporary file without a name.
    pub fn new(file: &impl std::os::fd::AsFd, length: usize) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses the address of the new mapping, which only `drop` unmaps.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )?
        };
        Ok(Mapping { at: at.cast(), length })
    }

    /// Fills `to` from `offset` on.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= self.length && to.len() <= self.length - offset);
        // SAFETY: the assertion keeps the source inside the mapping, and no other memory of this process is
        // mapped there.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(offset), to.as_mut_ptr(), to.len()) };
    }

    /// Copies all of `from` to `offset`.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn copy_from(&self, offset: usize, from: &[u8]) {
        assert!(offset <= self.length && from.len() <= self.length - offset);
        // SAFETY: the assertion keeps the target inside the mapping, and no other memory of this process is
        // mapped there.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.at.add(offset), from.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, which never gives out a reference to it.
        let unmapped = unsafe { rustix::mm::munmap(self.at.cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_and_the_file_are_the_same_bytes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mapping = Mapping::new(&file, 8192).unwrap();
        mapping.copy_from(4090, b"across a page");
        let mut read = [0; 13];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 4090).unwrap();
        assert_eq!(&read, b"across a page");
        read = [0; 13];
        mapping.copy_to(4090, &mut read);
        assert_eq!(&read, b"across a page");
    }

    #[test]
    #[should_panic(expected = "offset <= self.length")]
    fn a_copy_outside_the_mapping_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        Mapping::new(&file, 4096).unwrap().copy_to(4090, &mut [0; 7]);
    }
}
