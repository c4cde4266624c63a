//! System calls that no safe interface has: the unsafe part of this crate, beside `keep/rewrite.rs`.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Takes the rights of a user for good: groups, group and user ids of the whole process.
///
/// # Errors
/// The kernel's reason. The process must end then.
pub fn become_user(user: u32) -> io::Result<()> {
    let found = uzers::get_user_by_uid(user);
    // A user without an entry has no group but the one of the same number, which is nobody's by convention.
    let group = found.as_ref().map_or(user, uzers::User::primary_group_id);
    let groups = found.and_then(|found| uzers::get_user_groups(found.name(), group));
    let groups: Vec<libc::gid_t> =
        groups.map_or_else(|| vec![group], |groups| groups.iter().map(uzers::Group::gid).collect());
    // SAFETY: the calls take numbers, and a list whose length is passed along.
    let done = unsafe {
        libc::setgroups(groups.len(), groups.as_ptr()) == 0
            && libc::setresgid(group, group, group) == 0
            && libc::setresuid(user, user, user) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes all descriptors but the standard ones.
pub fn close_inherited() {
    // SAFETY: the caller is at the beginning of a process and has opened nothing yet, so no value of this program owns a
    // descriptor beyond the standard ones.
    unsafe { libc::close_range(3, u32::MAX, 0) };
}

/// Puts /dev/null in the place of standard output, so that the reader of a pipe finds its end.
///
/// # Errors
/// The kernel's reason.
pub fn close_output() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    // SAFETY: standard output is no descriptor that a value of this program owns.
    let done = unsafe { libc::dup2(null.as_raw_fd(), libc::STDOUT_FILENO) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes a line to the system's log (syslog(3)).
pub fn log(line: &str) {
    let line: Vec<u8> = line.bytes().filter(|byte| *byte != 0).collect();
    let Ok(line) = CString::new(line) else { return };
    // SAFETY: the format takes one C string, which lives until the call returns.
    unsafe { libc::syslog(libc::LOG_DAEMON | libc::LOG_ERR, c"bywash: %s".as_ptr(), line.as_ptr()) };
}

/// Returns the size of a block device, in bytes.
///
/// # Errors
/// The kernel's reason.
pub fn device_bytes(device: &std::fs::File) -> io::Result<u64> {
    /// BLKGETSIZE64 (linux/fs.h).
    const SIZE: libc::c_ulong = 0x8008_1272;
    let mut bytes = 0u64;
    // SAFETY: the request stores a number of 64 bits.
    if unsafe { libc::ioctl(device.as_raw_fd(), SIZE, &raw mut bytes) } == 0 {
        Ok(bytes)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes memory of huge pages when it is first used, where the kernel has them. The memory begins at a page.
pub fn use_huge_pages(memory: &mut [u8]) {
    // SAFETY: the range is the caller's own memory, whose contents the advice does not change. A kernel without huge pages
    // refuses it, and small ones are as right.
    unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), libc::MADV_HUGEPAGE) };
}

/// Returns a path as a C string.
///
/// # Errors
/// `InvalidInput` for a path with a zero byte, which the kernel never returns.
pub fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
