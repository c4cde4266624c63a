//! The kernel's paths: pread(2), and through `rings` and `streams` those of io_uring and libaio.

use super::{
    BLOCK, FAST, Memory, Offsets, SLOW, WARM_UP, absent_unless, failed, keep, mark, rings, series, streams,
};
use crate::error::{Attempt, Error};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Reads by each path of the kernel.
pub fn run(operations: usize) -> Result<(), Error> {
    for disk in [FAST, SLOW] {
        let queue = disk_folder(disk)?.join("queue");
        for (setting, value) in [("scheduler", "none"), ("iostats", "0")] {
            let path = queue.join(setting);
            fs::write(&path, value).doing("write", &path)?;
        }
        pread(disk, operations)?;
    }
    rings::run(operations)?;
    streams::run(operations)
}

/// Returns the folder in /sys/block of a disk, by its serial number.
fn disk_folder(serial: &str) -> Result<PathBuf, Error> {
    let folder = PathBuf::from("/sys/block");
    let disks = fs::read_dir(&folder).doing("list", &folder)?.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        fs::read_to_string(path.join("device/serial")).is_ok_and(|found| found.trim() == serial)
    };
    disks.into_iter().find(is_it).ok_or_else(|| failed("the kernel", format!("it has no disk '{serial}'")))
}

/// Returns the number of a disk's controller, as in `nvme0n1`.
pub fn disk_name(serial: &str) -> Result<String, Error> {
    let folder = disk_folder(serial)?;
    Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

/// Opens a disk past the page cache.
pub fn open(serial: &str) -> Result<File, Error> {
    let path = PathBuf::from("/dev").join(disk_name(serial)?);
    File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).doing("open", &path)
}

/// Returns the number of times that this thread has slept.
#[expect(unsafe_code, reason = "the kernel writes a structure")]
pub fn sleeps() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure has the size that the call writes, and zeros are valid for it.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nvcsw
    }
}

#[expect(unsafe_code, reason = "the kernel writes to memory")]
#[inline(always)]
pub fn pread_once(file: &File, to: *mut u8, bytes: usize, offset: u64) -> isize {
    // SAFETY: the caller's memory has so many bytes, and no reference to them exists.
    unsafe { libc::pread(file.as_raw_fd(), to.cast(), bytes, offset as libc::off_t) }
}

fn pread(disk: &str, operations: usize) -> Result<(), Error> {
    let name = format!("pread, {disk}");
    let read = || {
        let (file, memory, mut offsets) = (open(disk)?, Memory::new(BLOCK)?, Offsets::new());
        series(&name)?;
        for number in 0..WARM_UP + operations {
            let (offset, before) = (offsets.next(), sleeps());
            mark::start();
            let moved = pread_once(&file, memory.at(0), BLOCK, offset);
            mark::stop();
            if moved != BLOCK as isize {
                return Err(failed("pread", std::io::Error::last_os_error()));
            }
            keep(number, sleeps() != before);
        }
        memory.check_read(0..BLOCK)
    };
    absent_unless(&name, read())
}
