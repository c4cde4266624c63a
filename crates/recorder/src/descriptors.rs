//! The file behind each descriptor: an index into the recording's entries, looked up at the first call.
//!
//! A descriptor is forgotten when it is closed, replaced or made anew, so that its next call looks again. A
//! forked child inherits the table with the descriptors.

use bywash_session::recording::{Described, Recording};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Descriptors whose files are known; calls on higher ones have no file.
const DESCRIPTORS_MAX: usize = 65_536;
static FILES: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];

/// Returns the entry of the descriptor's file, 0 if it is not known.
#[inline(always)]
pub fn known(fd: c_int) -> u32 {
    FILES.get(fd as u32 as usize).map_or(0, |file| file.load(Relaxed))
}

/// Forgets the file of a descriptor.
#[inline(always)]
pub fn forget(fd: c_int) {
    if let Some(file) = FILES.get(fd as u32 as usize)
        && file.load(Relaxed) != 0
    {
        file.store(0, Relaxed);
    }
}

/// Forgets the files of a range of descriptors, both ends included.
pub fn forget_range(first: u32, last: u32) {
    let last = (last as usize).min(DESCRIPTORS_MAX - 1);
    for file in FILES.iter().take(last + 1).skip(first as usize) {
        file.store(0, Relaxed);
    }
}

/// Looks at the file of a descriptor and adds an entry for it; returns its index, or 0 if there is none.
#[cold]
pub fn look_up(recording: Recording, process: u32, fd: c_int) -> u32 {
    let Some(slot) = FILES.get(fd as u32 as usize) else { return 0 };
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0";
    write_number(&mut path[14..], fd as u32);
    let mut name = [0u8; 1024];
    // SAFETY: an all-zero stat is a valid value, which the call overwrites; the path ends with a zero byte; the
    // length of the buffer is passed along.
    let (stat, length, flags) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        if bywash_syscall::call(libc::SYS_fstat as usize, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0])
            < 0
        {
            return 0;
        }
        let arguments = [path.as_ptr() as usize, name.as_mut_ptr() as usize, name.len(), 0, 0, 0];
        let length = bywash_syscall::call(libc::SYS_readlink as usize, arguments);
        let flags =
            bywash_syscall::call(libc::SYS_fcntl as usize, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0]);
        (stat, length, flags)
    };
    let size = match stat.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => domain(fd),
        _ => u64::try_from(stat.st_size).unwrap_or(0),
    };
    let index = recording.add_file(Described {
        process,
        mode: stat.st_mode,
        flags: u32::try_from(flags).unwrap_or(0),
        device: stat.st_dev,
        inode: stat.st_ino,
        size,
        descriptor: fd,
        name: &name[..usize::try_from(length).unwrap_or(0).min(1024)],
    });
    slot.store(index, Relaxed);
    index
}

/// Returns the address family of a socket (socket(7)), 0 if it is unknown.
fn domain(fd: c_int) -> u64 {
    let (mut domain, mut length) = (0u32, size_of::<u32>() as u32);
    let arguments = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_DOMAIN as usize,
        &raw mut domain as usize,
        &raw mut length as usize,
        0,
    ];
    // SAFETY: the kernel writes two local variables.
    unsafe { bywash_syscall::call(libc::SYS_getsockopt as usize, arguments) };
    domain.into()
}

/// Writes a number below 10^7 in decimal digits.
fn write_number(to: &mut [u8], number: u32) {
    let mut digits = [0u8; 10];
    let mut count = 0;
    let mut rest = number;
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        count += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    for (cell, digit) in to.iter_mut().zip(digits[..count].iter().rev()) {
        *cell = *digit;
    }
}
